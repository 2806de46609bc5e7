"""Which values a secondary index can have, and how they are spelled: as Hudi does, or a query misses rows.

The entries of the vectors were made by Hudi's own writers: see `golden/recipes/secondary_key_vectors.py`.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketlake import RecordIndex, Table, create_table
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError
from bucketlake.index.secondary import ENTRY_BYTES_MAX, is_certain_for_reads, is_indexable, spelled
from bucketlake.metadata.secondary_keys import (
    entry_key,
    entry_keys,
    prefixes_of_entries,
    record_keys_of_entries,
    value_of_prefix,
)
from bucketlake.services import check_table
from stand_ins.kept_values import SecondaryIndexes
from stand_ins.made_index import check_secondary

pytestmark = pytest.mark.shows("R11")

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "golden" / "secondary_key_vectors.json").read_text("ascii")
)
TYPES = {
    "string": pa.string(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "date32": pa.date32(),
    "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
    "float": pa.float32(),
    "double": pa.float64(),
}
REFUSED = {
    "timestamp[us]": pa.timestamp("us"),
    "bool": pa.bool_(),
    "decimal128(10, 2)": pa.decimal128(10, 2),
    "binary": pa.binary(),
}
JDK_17_ONLY = {
    "double": {"2.0E23$k": "1.9999999999999998E23$k"},
    "float": {"1.1754944E-38$k": "1.17549435E-38$k"},
}
"""What JDK 17, which made the vectors, writes with more digits than JDK 19 and we do."""


@pytest.mark.parametrize("name", TYPES)
def test_an_entry_is_the_one_that_hudi_makes(name: str) -> None:
    kind, vectors = TYPES[name], VECTORS["types"][name]
    texts = spelled(values_of(kind, [vector["value"] for vector in vectors]))
    ours = entry_keys(texts, pa.array(["k"] * len(vectors)))
    longer = JDK_17_ONLY.get(name, {})
    assert [longer.get(entry, entry) for entry in ours.to_pylist()] == [v["entry"] for v in vectors]
    assert ours.to_pylist() == [entry_key(text, "k") for text in texts.to_pylist()]
    prefixes = prefixes_of_entries(ours).to_pylist()
    assert [value_of_prefix(prefix) for prefix in prefixes] == texts.to_pylist()
    assert set(record_keys_of_entries(ours).to_pylist()) == {"k"}


def values_of(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Numbers that JSON has no words for are texts in the vectors."""
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, pa.string() if kind == pa.string() else pa.int64()).cast(kind)


def test_the_types_are_those_that_hudi_indexes() -> None:
    assert VECTORS["types"].keys() == TYPES.keys()
    assert all(is_indexable(kind) for kind in TYPES.values())
    assert VECTORS["refused"] == list(REFUSED)
    assert not any(is_indexable(kind) for kind in REFUSED.values())


def test_values_are_looked_up_where_each_has_one_spelling_only() -> None:
    certain = {name for name, kind in TYPES.items() if is_certain_for_reads(kind)}
    assert certain == {"string", "int8", "int16", "int32", "int64", "date32"}


KINDS = {name.partition("[")[0]: kind for name, kind in TYPES.items()}
"""Under names that columns can have."""
EXTREMES: dict[str, list[Any]] = {
    "string": ["", "a$b", "\\", "\0", "x" * 3_000],
    "int32": [0, -1, 2**31 - 1, -(2**31)],
    "int64": [0, -1, 2**63 - 1, -(2**63)],
    "date32": [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)],
    "timestamp": [
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime(2026, 6, 18, tzinfo=UTC),
    ],
    "float": [0.0, -0.0, float("nan"), float("inf"), 1e-40],
    "double": [0.0, -0.0, float("nan"), float("-inf"), 5e-324, 1e23],
}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_values_of_every_type_come_go_and_are_found(table_type: str) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64())] + [(name, KINDS[name]) for name in EXTREMES])
    table = create_table(
        f"memory://secondary-{next(_names)}",
        schema,
        key="id",
        ordering="ts",
        index=RecordIndex(shards=1),
        table_type=table_type,
        maintenance="off",
    )
    for number, name in enumerate(EXTREMES):
        table.create_index(f"by_{number}", on=name, shards=2)
    longest = max(map(len, EXTREMES.values()))
    for ts in range(1, longest + 2):  # each row has each value in its turn, and null
        turned = [
            {"id": f"k{n}", "ts": ts}
            | {name: [*values, None][(n + ts) % (len(values) + 1)] for name, values in EXTREMES.items()}
            for n in range(longest + 1)
        ]
        table.upsert(pa.Table.from_pylist(turned, schema))
        assert check_secondary(table) == len(EXTREMES) * (longest + 1)
    for ts, (one, other) in enumerate(
        [(0.0, 0.0), (-0.0, 0.0), (-0.0, -0.0)], longest + 2
    ):  # nothing else changes
        zero = {"id": "k0", "ts": ts, "float": one, "double": other}
        table.upsert(pa.Table.from_pylist([zero], schema))
        assert check_secondary(table) == len(EXTREMES) * (longest + 1)
    rows_there = table.to_arrow()
    for name, values in EXTREMES.items():
        for value in [*values, None]:
            wanted = pc.is_null(rows_there[name]) if value is None else pc.equal(rows_there[name], value)
            if isinstance(value, float) and math.isnan(value):
                wanted = pc.is_nan(rows_there[name])
            found = table.get_by(name, value)["id"].to_pylist()
            assert sorted(found) == sorted(rows_there.filter(wanted)["id"].to_pylist()), (name, value)
    table.delete([f"k{n}" for n in range(longest + 1)])
    assert check_secondary(table) == 0


# What is refused -------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("text", pa.string())])
KEPT = SecondaryIndexes()
_names = itertools.count()


def rows(**texts: str | None) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "ts": 1, "text": text} for key, text in texts.items()], SCHEMA)


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest) -> Table:
    made = create_table(
        f"memory://secondary-{next(_names)}",
        SCHEMA,
        key="id",
        index=RecordIndex(shards=1),
        table_type=request.param,
        maintenance="off",
    )
    made.upsert(rows(a="Rome", b=None))
    return KEPT.of(made, "text")


def data_and_index_files(table: Table) -> dict[str, bytes]:
    """Everything but the timelines, on which a write that was given up has been, and its markers."""
    files = table.store.list("", recursive=True).files
    return {
        file.path: table.store.read(file.path)
        for file in files
        if "/timeline/" not in file.path and not file.path.startswith((".hoodie/.locks", ".hoodie/.temp"))
    }


HIGH, BEYOND = "\uff21", "\U0001f600"
BAD = {
    "an entry of one byte too many": (rows(c="x" * (ENTRY_BYTES_MAX - 1)), "have 32,768 bytes together"),
    "an entry that escapes make too long": (rows(c="$" * 20_000), "have 40,002 bytes together"),
    "characters that Hudi sorts in two orders": (rows(c=HIGH, d=BEYOND, e="x"), "from U\\+E000 to U\\+FFFF"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_hudi_cannot_have_is_refused_and_nothing_is_written(table: Table, case: str) -> None:
    batch, words = BAD[case]
    properties = load_properties(table.store)
    before = data_and_index_files(table)
    with pytest.raises(ConfigError, match=words):
        table.upsert(batch)
    assert data_and_index_files(table) == before
    assert load_properties(table.store) == properties
    KEPT.check(table.store, "text")
    assert check_table(table.store).damage == ()
    table.upsert(rows(c="Oslo"))
    KEPT.check(table.store, "text")


def test_the_longest_entry_there_can_be_is_kept(table: Table) -> None:
    longest = "x" * (ENTRY_BYTES_MAX - 2)
    table.upsert(rows(c=longest))
    KEPT.check(table.store, "text")
    table.upsert(rows(c="short", d=longest))
    KEPT.check(table.store, "text")


def test_rows_that_came_one_after_the_other_can_be_deleted_together(table: Table) -> None:
    """Characters in two orders are refused where they come into one file, and not where they go."""
    table.upsert(rows(c=HIGH))
    table.upsert(rows(d=BEYOND, e=f"{BEYOND}!"))
    KEPT.check(table.store, "text")
    table.delete(["c", "d", "e"])
    KEPT.check(table.store, "text")


def test_an_index_that_hudi_made_is_sound_and_kept(
    golden_table: Callable[[str], Path], tmp_path: Path
) -> None:
    table = Table.adopt(copytree(golden_table("cow_secondary_index"), tmp_path / "hudis"))
    assert check_secondary(table) == 11
    assert check_table(table.store).damage == ()
    rows_there = table.to_arrow().select(table.schema.names)
    changed = rows_there.slice(0, 3)
    place = changed.schema.get_field_index("city")
    changed = changed.set_column(place, "city", pa.array(["Bonn", None, "c1"], pa.string()))
    table.upsert(changed)
    table.delete([rows_there["id"][5].as_py()])
    assert check_secondary(table) == 10
    assert check_table(table.store).damage == ()
