"""Hudi must go on where our services of the metadata table left off, and we where Hudi's did: it reads by it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.layout.names import METADATA_TABLE_FOLDER, METADATA_TIMELINE_FOLDER
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.metadata.places import timeline_properties
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services import (
    archive_metadata,
    archive_table,
    clean_metadata,
    compact_metadata,
    metadata_status,
    schedule_metadata_compaction,
)
from bucketlake.state import list_folders, load_state
from bucketlake.timeline import Action, Timeline, load_history
from judges.hudi_jvm import HudiJvm, options_for
from judges.rows import assert_same_rows
from stand_ins.orders_table import orders, orders_table

pytestmark = pytest.mark.interop

WITH = {"hoodie.metadata.enable": "true"}
WITHOUT = {"hoodie.metadata.enable": "false"}
WRITES = {
    **WITH,
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
    "hoodie.metadata.compact.max.delta.commits": "3",
}


def metadata_of(table: Table) -> Timeline:
    return load_metadata_timeline(table.store, load_state(table.store).properties)


def compactions(table: Table) -> list[str]:
    return [i.requested for i in metadata_of(table).completed(Action.COMMIT)]


def agree(table: Table, path: Path, hudi: HudiJvm) -> pa.Table:
    state = load_state(table.store)
    assert metadata_status(table.store).is_in_step, str(metadata_status(table.store))
    told = list_by_metadata(state.store, state.properties, state.timeline, None)
    assert told == list_folders(state).files
    with_it, without = hudi.read(path, WITH), hudi.read(path, WITHOUT)
    assert_same_rows(with_it, without)
    assert_same_rows(table.to_arrow(), with_it)
    return with_it


@pytest.mark.shows("M5")
def test_hudi_and_we_look_after_one_metadata_table_in_turn(hudi: HudiJvm, tmp_path: Path) -> None:
    table = orders_table(tmp_path)
    store = table.store
    table.upsert(orders(range(6), "first", 1))
    build_metadata(store)
    for turn in range(4):
        table.upsert(orders(range(turn, turn + 6), f"ours {turn}", 10 + turn))
        table.upsert(orders(range(turn, turn + 3), f"more {turn}", 10 + turn))
        assert len(compact_metadata(store)) == 1
    assert archive_table(store, keep_min=2, keep_max=3).instants
    assert clean_metadata(store, keep_commits=4)
    assert archive_metadata(store, keep_min=1, keep_max=2).instants
    own = timeline_properties(load_state(store).properties)
    assert load_history(store, own)[0].requested.startswith("0" * 14)
    assert len(agree(table, tmp_path, hudi)) == 9

    table.upsert(orders(range(10), "planned", 40))
    scheduled = schedule_metadata_compaction(store)
    ours = compactions(table)
    assert scheduled is not None and scheduled not in ours
    options = options_for("orders", table_type="MERGE_ON_READ", buckets=2, more=WRITES)
    for turn in range(4):
        hudi.write(tmp_path, orders(range(20 + turn, 24 + turn), f"by Hudi {turn}", 50 + turn), options)
    after = compactions(table)
    assert scheduled in after, "Hudi has run our plan"
    by_hudi = after[-1]
    assert by_hudi not in ours and by_hudi != scheduled, "and made one of its own"
    cut_off(tmp_path, by_hudi)
    assert [i.requested for i in metadata_of(table).pending(Action.COMPACTION)] == [by_hudi]
    (finished,) = compact_metadata(store)
    assert finished.instant == by_hudi
    table.upsert(orders(range(30), "last", 99))
    compact_metadata(store)
    assert len(agree(table, tmp_path, hudi)) == 30


def cut_off(path: Path, instant: str) -> None:
    """Leave of a compaction of Hudi's what is there when its process is killed before it is completed."""
    for file in (path / METADATA_TIMELINE_FOLDER).glob(f"*{instant}_*.commit*"):
        file.unlink()
    for file in (path / METADATA_TABLE_FOLDER).glob(f"files/*_{instant}.hfile*"):
        file.unlink()


@pytest.mark.shows("M5")
def test_hudi_joins_logs_of_ours_and_all_list_the_same(hudi: HudiJvm, tmp_path: Path) -> None:
    """Hudi 1.2.0 fails, on tables of its own too, if a log compaction is the first that its process does with one."""
    joins = {
        "hoodie.metadata.log.compaction.enable": "true",
        "hoodie.metadata.log.compaction.blocks.threshold": "2",
        "hoodie.metadata.compact.max.delta.commits": "100",
    }
    options = options_for("orders", table_type="MERGE_ON_READ", buckets=2, more={**WRITES, **joins})
    hudi.write(tmp_path / "another", orders(range(2), "by Hudi", 1), options, mode="overwrite")

    path = tmp_path / "ours"
    table = orders_table(path)
    build_metadata(table.store)
    for turn in range(4):
        table.upsert(orders(range(turn, turn + 6), f"ours {turn}", turn))
    for turn in range(3):
        hudi.write(path, orders(range(20 + turn, 24 + turn), f"by Hudi {turn}", 50 + turn), options)
        agree(table, path, hudi)
        first, second = (
            table.upsert(orders(range(turn, turn + 3), f"more {n}", 60 + turn)).instant for n in (1, 2)
        )
        agree(table, path, hudi)
        if turn == 1:
            table.rollback(str(second))
            table.rollback(str(first))
            agree(table, path, hudi)
    joined = {file.name.split(".")[0] for file in (path / METADATA_TIMELINE_FOLDER).glob("*.logcompaction.*")}
    assert joined.intersection(i.requested for i in metadata_of(table).writes), "Hudi has joined logs"
    assert compact_metadata(table.store)
    table.clean(retain_commits=1)
    agree(table, path, hudi)
