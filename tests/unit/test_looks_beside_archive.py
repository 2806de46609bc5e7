"""Who looks at a table lists its timeline and then reads what is on it. An archive in between must not fail him."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake import Table
from bucketlake.services import archive_table
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore
from stand_ins.aging import copy_of
from stand_ins.replacements import rows_of, table_for

LOOKS: dict[str, Callable[[Table], object]] = {
    "timeline": lambda table: [entry.operation for entry in table.timeline()][-1:],
    "describe": lambda table: table.describe().changes_until,
    "layout": lambda table: table.layout().size_bytes,
    "explain": lambda table: table.explain(1, partition="d1").commits[:1],
    "schema": lambda table: table.schema,
    "savepoints": lambda table: table.savepoints(),
    "show_config": lambda table: table.buckets.show_config(),
    "query": lambda table: table.query().schema,
    "snapshot": lambda table: table.to_arrow(columns=["id", "ts"]).sort_by("id"),
    "changes": lambda table: table.to_arrow(columns=["id", "ts"], begin="0").sort_by("id"),
    "get": lambda table: table.get(1, columns=["id", "ts"]),
}


def archive(store: Store) -> None:
    archive_table(store, keep_min=1, keep_max=2)


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_an_archive_beside_a_look_changes_nothing(look: Callable[[Table], object]) -> None:
    table = table_for("clustering", "COPY_ON_WRITE")
    for ts in range(1, 5):
        table.upsert(rows_of([1], ts=ts))
    table.delete_partitions("d1")
    table.upsert(rows_of([1], ts=5))
    table.clean(retain_versions=1)
    expected = look(table)
    counted = FaultyStore(copy_of(table.store))
    look(Table(counted, table.properties))
    reads = [n for n, what in enumerate(counted.operations, 1) if what.startswith("read .hoodie/timeline/")]
    for number in reads:
        store = copy_of(table.store)
        beside = Table(FaultyStore(store, fails_at=number, meanwhile=archive), table.properties)
        assert look(beside) == expected, f"an archive before {counted.operations[number - 1]}"
        assert len(Table(store, table.properties).timeline()) < len(table.timeline())
