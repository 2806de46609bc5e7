"""Rows to be deleted need not say in which partitions they are: their keys are looked up."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConfigError, SchemaError, Table, create_table
from bucketlake.read import plan
from judges.files import unchanged

SCHEMA = pa.schema([("id", pa.int64()), ("sub", pa.string()), ("dt", pa.string()), ("hour", pa.int32())])
PLACES = [("a", 1), ("a", 2), ("b", 1), (None, 1)]
BOTH_TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])


def a_table(table_type: str, **definition: Any) -> Table:
    """A table with the keys 0 to 5 in four partitions each."""
    shape: dict[str, Any] = {"key": "id", "partition": ["dt", "hour"], "buckets": 3, "table_type": table_type}
    path = f"memory://{uuid.uuid4()}"
    table = create_table(path, SCHEMA, name="t", **(shape | definition))
    table.upsert(
        pa.Table.from_pylist(
            [
                {"id": number, "sub": None if number == 3 else f"s{number}", "dt": day, "hour": hour}
                for number in range(6)
                for day, hour in PLACES
            ],
            SCHEMA,
        )
    )
    return table


def left(table: Table) -> list[tuple[int, int]]:
    """Keys, and in how many partitions they are."""
    keys = table.to_arrow(columns=["id"]).column("id").to_pylist()
    return [(key, keys.count(key)) for key in sorted(set(keys))]


@BOTH_TYPES
@pytest.mark.parametrize("keys_pruned_by", [plan.KEYS_PRUNED_BY_MAX, 0])
def test_keys_are_deleted_in_every_partition_or_in_the_one_that_is_named(
    table_type: str, keys_pruned_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "KEYS_PRUNED_BY_MAX", keys_pruned_by)
    table = a_table(table_type)
    summary = table.delete(pa.table({"id": pa.array([1, 1, 4, 99], pa.int32()), "why": ["x"] * 4}))
    assert (summary.rows, summary.deleted) == (8, 8)
    assert left(table) == [(0, 4), (2, 4), (3, 4), (5, 4)]
    table.delete(pa.table({"id": [0, 2]}), partition="a/2")
    assert left(table) == [(0, 3), (2, 3), (3, 4), (5, 4)]
    assert table.delete(pa.table({"id": [99]})).instant is None
    assert table.fsck().is_sound


@BOTH_TYPES
def test_a_null_in_a_key_of_several_columns_is_looked_up_too(table_type: str) -> None:
    table = a_table(table_type, key=["id", "sub"])
    table.delete(pa.table({"id": [3, 4, 5], "sub": [None, None, "s5"]}))
    assert left(table) == [(0, 4), (1, 4), (2, 4), (4, 4)]


@pytest.mark.parametrize(
    ("rows", "options", "error", "words"),
    [
        ({"id": [1], "dt": ["a"]}, {}, SchemaError, r"no column 'hour'.*partitioned by dt, hour.*drop"),
        ({"id": [1], "DT": ["a"], "HOUR": [1]}, {}, SchemaError, "no column 'dt'"),
        ({"id": ["1"]}, {}, SchemaError, "column 'id' is string"),
        ({"sub": ["s1"]}, {}, SchemaError, "no column 'id'"),
        ({"id": [None]}, {}, ConfigError, "'id'"),
        ({"id": [1], "dt": ["a"], "hour": [1]}, {"partition": "b/1"}, ConfigError, "themselves"),
    ],
)
def test_what_may_not_be_meant_deletes_nothing(
    rows: dict[str, Any], options: dict[str, Any], error: type[Exception], words: str
) -> None:
    table = a_table("COPY_ON_WRITE")
    types = {"id": pa.int64(), "hour": pa.int32(), "HOUR": pa.int32()}
    given = {
        name: pa.array(values, types.get(name) if values != ["1"] else None) for name, values in rows.items()
    }
    with unchanged(table.store), pytest.raises(error, match=words):
        table.delete(pa.table(given), **options)
