"""Hudi and hudi-rs read a table that got a change feed, and find what the source has."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from bucketlake import SimpleBuckets, create_table
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import HudiJvm
from judges.hudi_rs import read_snapshot
from judges.rows import META_COLUMNS, assert_same_rows
from stand_ins import feeds
from stand_ins.feeds import Source

pytestmark = [pytest.mark.interop, pytest.mark.shows("R9")]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("ordering", [None, "ts"])
def test_hudi_reads_what_the_source_of_a_feed_has(
    hudi: HudiJvm, tmp_path: Path, table_type: str, ordering: str | None
) -> None:
    """Several versions of a key in a batch, deletes among them, of which the last counts."""
    chance = Random(f"{table_type} {ordering}")
    source = Source(chance, "flink")
    table = create_table(
        tmp_path / "orders",
        feeds.SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=SimpleBuckets(2),
        table_type=table_type,
        maintenance="off",
    )
    for number, count in enumerate((12, 20, 15)):
        events = source.changes(count)
        if ordering is not None:
            events += source.late(3)
            chance.shuffle(events)
        table.upsert(feeds.batch(events), op="op", log_format="avro" if number == 1 else "parquet")
    for found in (hudi.read(tmp_path / "orders"), read_snapshot(tmp_path / "orders")):
        assert_same_rows(found, source.table(), key=["id"], without=META_COLUMNS)
    check_invariants(table)
