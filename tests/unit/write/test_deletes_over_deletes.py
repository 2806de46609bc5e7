"""A row that deletes over a delete without an ordering value: indexes are told what a reader will find."""

from __future__ import annotations

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, create_table
from bucketlake.index import IndexValue
from stand_ins.made_index import check_secondary

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


@pytest.mark.shows("R11")
@pytest.mark.parametrize("late", [0, 1, 3])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", [SimpleBuckets(1), RecordIndex(shards=1)], ids=["simple", "record"])
def test_a_late_delete_of_what_was_deleted_brings_no_entry_back(
    index: IndexValue, table_type: str, late: int
) -> None:
    table = create_table(
        f"memory://deleted-twice-{type(index).__name__}-{table_type}-{late}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        maintenance="off",
    )
    if isinstance(index, SimpleBuckets):
        table.metadata.build(record_index=True)
    table.create_index("by_city", on="city")
    table.upsert(pa.Table.from_pylist([row("a", 2, "x"), row("b", 1, "y")], SCHEMA))
    table.delete(["a"])
    table.upsert(pa.Table.from_pylist([row("a", late, "z", is_deleted=True)], SCHEMA))
    assert table.to_arrow()["id"].to_pylist() == ["b"]
    check_secondary(table)
    assert table.get_by("city", "x").num_rows == 0


def row(key: str, ts: int, city: str, *, is_deleted: bool = False) -> dict[str, object]:
    return {"id": key, "dt": "p0", "ts": ts, "city": city, "_hoodie_is_deleted": is_deleted}
