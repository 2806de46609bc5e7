"""A record-level index whose files are gone, although the table lists it: nothing is written by guesses."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from bucketlake import ConfigError, CorruptTableError, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import load_properties, update_properties
from bucketlake.index.told import IndexValue
from bucketlake.metadata import record_shards
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.shards import Shards
from bucketlake.write import TableSpec, create, job
from stand_ins.aging import Bucket, age
from stand_ins.orders_table import SCHEMA, orders, orders_table, rows_of
from stand_ins.record_index_check import check_record_index

_names = itertools.count()
KINDS = pytest.mark.parametrize(
    "index", [RecordIndex(), RecordIndex(per_partition=True)], ids=["table", "partitions"]
)


def lost(index: IndexValue, *, of: str = "") -> Table:
    """A table with ten rows whose index, or the shards of a partition, somebody has deleted."""
    table = orders_table(f"memory://lost-record-index-{next(_names)}", index=index)
    table.upsert(orders(range(10), "a", 1))
    if isinstance(index, SimpleBuckets):
        table.metadata.build(record_index=True)
    for file in table.store.list(folder_of(RECORD_INDEX)).files:
        if of in file.path:
            table.store.delete(file.path)
    return table


@pytest.mark.shows("R7")
@KINDS
def test_a_write_is_refused_with_the_remedy_and_no_key_is_doubled(index: RecordIndex) -> None:
    table = lost(index)
    before = rows_of(table)
    with pytest.raises(CorruptTableError, match="metadata rebuild"):
        table.upsert(orders(range(10), "b", 2))
    with pytest.raises(CorruptTableError, match="metadata rebuild"):
        table.cluster(by="name")
    assert rows_of(table) == before
    table.metadata.rebuild()
    table.upsert(orders(range(10), "b", 2))
    assert check_record_index(table.store) == 10


@KINDS
@pytest.mark.parametrize("seen", [0, 1, 3])
def test_files_that_are_not_there_while_somebody_builds_the_index_anew_are_not_lost(
    index: RecordIndex, seen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer may list the folder when old files are deleted, and look at the table again when it has new ones."""
    table = orders_table(f"memory://lost-record-index-{next(_names)}", index=replace(index, shards=4))
    table.upsert(orders(range(10), "a", 1))
    list_shards, listed = record_shards.list_shards, []

    def in_between(*asked: Any) -> Shards:
        shards = list_shards(*asked)
        listed.append(1)
        if len(listed) > 1:
            return shards
        assert table.metadata.rebuild() is not None
        kept = [(shard, files) for shard, files in shards.files.items() if "-0000-" not in shard[1]]
        return Shards(shards.step, dict(kept[:seen]))

    monkeypatch.setattr(record_shards, "list_shards", in_between)
    Table.open(table.store.uri).upsert(orders(range(5, 15), "b", 2))
    assert len(listed) > 1
    assert check_record_index(table.store) == 15


def test_shards_that_a_rollback_took_away_when_a_write_had_looked_at_the_table_are_not_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Bucket()
    index = RecordIndex(per_partition=True)
    create(store, TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), index=index))
    build_metadata(store)
    table = Table(store, load_properties(store))
    first = table.upsert(orders([0, 2], "a", 1)).instant
    plan_write, planned = job.plan_write, []

    def late(*asked: Any, **more: Any) -> Any:
        planned.append(1)
        if len(planned) == 1:
            age(store)
            assert first is not None
            table.rollback(first)
        return plan_write(*asked, **more)

    monkeypatch.setattr(job, "plan_write", late)
    table.upsert(orders([0, 4], "b", 2))
    assert len(planned) == 2
    assert check_record_index(store) == 2


def test_a_partition_that_has_rows_and_lost_its_shards_is_refused() -> None:
    table = lost(RecordIndex(per_partition=True, shards=2), of="-p1-")
    table.upsert(orders([0, 2], "b", 2))
    with pytest.raises(CorruptTableError, match="'p1'"):
        table.upsert(orders([1, 3], "b", 2))
    table.metadata.rebuild()
    table.upsert(orders([1, 3], "b", 2))
    assert check_record_index(table.store) == 10


def test_a_table_with_buckets_does_not_go_on_telling_an_index_that_is_gone() -> None:
    table = lost(SimpleBuckets(2))
    with pytest.raises(CorruptTableError, match="metadata rebuild"):
        table.upsert(orders(range(10), "b", 2))


def test_keys_that_one_batch_could_not_bring_do_not_keep_a_table_from_its_index() -> None:
    table = create_table(
        f"memory://lost-record-index-{next(_names)}", "id STRING, v INT", key="id", index=RecordIndex()
    )
    keys = ["ｆｕｌｌ", "\ue000", "😀", "a 😀"]
    for key in keys:
        table.upsert([{"id": key, "v": 1}])
    table.metadata.rebuild()
    table.metadata.grow_record_index(1)
    for key in keys:
        table.upsert([{"id": key, "v": 2}])
    assert table.to_arrow(columns=["v"])["v"].to_pylist() == [2, 2, 2, 2]
    assert check_record_index(table.store) == 4


def test_a_table_that_does_without_gets_no_index_in_which_hudi_would_miss_keys() -> None:
    table = create_table(
        f"memory://lost-record-index-{next(_names)}", "id STRING, v INT", key="id", buckets=1
    )
    table.upsert([{"id": "ｆｕｌｌ", "v": 1}, {"id": "😀", "v": 1}])
    with pytest.raises(ConfigError, match=r"U\+E000 to U\+FFFF"):
        table.metadata.build(record_index=True)
    table.upsert([{"id": "😀", "v": 2}])


@KINDS
def test_a_table_is_not_dropped_what_it_finds_its_keys_by(index: RecordIndex) -> None:
    table = orders_table(f"memory://lost-record-index-{next(_names)}", index=index)
    table.upsert(orders(range(4), "a", 1))
    for of in (False, True):
        with pytest.raises(ConfigError, match="could not be written without"):
            table.metadata.drop(record_index=of)
    table.upsert(orders(range(4), "b", 2))


@KINDS
def test_fsck_says_that_the_index_is_gone(index: RecordIndex) -> None:
    assert not lost(index).fsck().is_sound
    table = orders_table(f"memory://lost-record-index-{next(_names)}", index=index)
    table.upsert(orders(range(4), "a", 1))
    update_properties(table.store, {"hoodie.table.metadata.partitions": "files"})
    delisted = table.fsck()
    assert not delisted.is_sound and "metadata rebuild" in str(delisted)
    table.metadata.rebuild()
    assert table.fsck().is_sound


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_row_that_stays_in_its_partition_as_it_was_told_to_is_sound(table_type: str) -> None:
    table = orders_table(
        f"memory://lost-record-index-{next(_names)}",
        index=RecordIndex(update_partition=False),
        table_type=table_type,
    )
    table.upsert(orders(range(4), "a", 1))
    rows = orders([0], "b", 2)
    done = table.upsert(rows.set_column(3, "dt", [["p1"]]))
    assert (done.rows, done.updated, done.moved) == (1, 1, 0)
    assert table.get(0, columns=["dt"]).to_pylist() == [{"dt": "p0"}]
    assert table.fsck().is_sound


def test_an_explanation_says_in_words_that_the_index_is_not_relied_on() -> None:
    assert "not relied on it has no shards" in str(lost(RecordIndex()).explain(1))
