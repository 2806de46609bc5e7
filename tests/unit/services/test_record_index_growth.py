"""While a record-level index grows, ours look keys up in the old shards and record in them; from one moment on in the
new ones."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex
from bucketlake.config import load_properties
from bucketlake.errors import ConcurrentWriteError, IndexBeingBuiltError, ProofError
from bucketlake.index.record_level import RecordLevelIndex, resolve_record_index
from bucketlake.layout.names import split_path
from bucketlake.metadata.places import GROWING, RECORD_INDEX, WANTED, folder_of, is_own_instant
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services import compact_metadata, index_build, index_kind
from bucketlake.services.metadata_archive import archive_metadata
from bucketlake.services.metadata_clean import clean_metadata
from bucketlake.services.record_index_build import grow_record_index
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.write import job, report
from stand_ins.aging import Bucket
from stand_ins.built_index import CountedTasks, check_built, filled, is_index_listed, table_of
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import orders

pytestmark = pytest.mark.shows("X8", "X2")

INDEXES = [RecordIndex(shards=2), RecordIndex(per_partition=True, shards=2)]


class Killed(Exception):
    pass


def built(index: RecordIndex, table_type: str = "MERGE_ON_READ") -> Bucket:
    store = filled(index, table_type)
    table_of(store).metadata.build()
    return store


def half_grown(store: Store, shards: int = 5) -> None:
    """Grow, and die when the first of the new shards are there."""

    def kill(function: str, item: Any) -> None:
        if function == "put_base" and item.shard == 1:
            raise Killed

    with suppress(Killed):
        grow_record_index(store, shards, tasks=CountedTasks(kill))
    assert GROWING in load_properties(store).raw and not is_index_listed(store)


def shards_of(store: Store) -> int:
    return table_of(store).metadata.status().shards[RECORD_INDEX]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("shards", [5, 1])
@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_new_keys_updates_deletes_and_moves_between_any_two_steps(
    index: RecordIndex, shards: int, table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_build, "LOCKED_BYTES", 0)
    store = built(index, table_type)
    table, steps = table_of(store), []

    def act(function: str, _: Any) -> None:
        steps.append(function)
        if steps.count(function) > 3:
            return
        n = len(steps)
        table.upsert(orders([5, 100 + n], f"new {n}", 10 + n))
        moved = orders([20], "moved", 10 + n)
        table.upsert(moved.set_column(3, "dt", pa.array([f"p{n % 3}"])))
        table.delete([100 + n - 1])
        check_built(store)

    done = grow_record_index(store, shards, tasks=CountedTasks(act))
    assert done is not None and done.rounds >= 2 and {"leave_run", "put_base", "put_log"} == set(steps)
    rows = table.to_arrow().num_rows
    assert check_built(store) == rows == done.entries
    table_of(store).upsert(orders(range(95, 130), "after", 99))
    check_built(store)
    assert check_metadata(store) and table_of(store).fsck().is_sound
    raw = load_properties(store).raw
    assert GROWING not in raw and WANTED not in raw


def test_whoever_began_by_the_old_shards_and_is_later_than_the_switch_runs_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = built(RecordIndex(shards=2))
    half_grown(store)
    finish, calls = job.finish, []

    def slow(prepared: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            assert grow_record_index(store, 5) is not None
        return finish(prepared, **how)

    monkeypatch.setattr(job, "finish", slow)
    table_of(store).upsert(orders([100, 101, 2], "late", 9))
    assert len(calls) == 2
    assert check_built(store) == 30 and shards_of(store) == 5


def test_the_metadata_table_is_compacted_cleaned_and_archived_meanwhile() -> None:
    store = built(RecordIndex(shards=2))
    table = table_of(store)
    table.alter(maintenance="off")

    def write(first: int) -> None:
        for n in range(first, first + 12):
            table.upsert(orders([n, 6], "x", n))

    write(100)
    compact_metadata(store)
    write(120)
    table.archive(keep_min=2, keep_max=3)
    archive_metadata(store, keep_min=2, keep_max=3)
    own = load_metadata_timeline(store, load_properties(store)).writes
    assert not any(is_own_instant(i.requested) for i in own), "numbers of old and new shards look alike"
    half_grown(store)
    for first in (140, 160, 180):
        write(first)
        assert compact_metadata(store)
        clean_metadata(store, keep_commits=1)
        table.archive(keep_min=2, keep_max=3)
        archive_metadata(store, keep_min=2, keep_max=3)
        check_built(store)
    assert shards_of(store) == 2
    assert grow_record_index(store, 5) is not None
    assert check_built(store) == 28 + 5 * 12 and shards_of(store) == 5
    write(200)
    compact_metadata(store)
    assert check_built(store) == 28 + 6 * 12 and check_metadata(store)


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_it_may_be_compacted_before_and_after_it_grows_with_no_commit_in_between(index: RecordIndex) -> None:
    store = built(index)
    table = table_of(store)
    table.upsert(orders([100], "x", 9))
    assert compact_metadata(store)
    assert table.metadata.grow_record_index(40) is not None
    assert compact_metadata(store), "shards without keys begin with a log"
    assert check_built(store) == 29
    table_of(store).upsert(orders([101, 5], "y", 10))
    assert check_built(store) == 30 and table_of(store).fsck().is_sound


def test_a_writer_that_does_not_tell_of_keys_makes_ours_wait_and_going_on_mends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bucketlake.write.job.BUILD_LOOKS", 1)  # nobody waits for himself
    store = built(RecordIndex(shards=2))
    half_grown(store)
    with monkeypatch.context() as hudi:  # which finds no index listed
        hudi.setattr(report, "INDEX_FILES_KEY", "nothing.of.the.kind")
        table_of(store).upsert(orders([100], "hudi", 9))
    index = resolve_record_index(load_state(store))
    assert isinstance(index, RecordLevelIndex)
    assert index.fault is not None and "has not told" in index.fault
    assert table_of(store).get(100, partition="p1") is not None
    with pytest.raises(IndexBeingBuiltError, match="has not told which keys"):
        table_of(store).upsert(orders([1], "x", 9))
    with pytest.raises(ConcurrentWriteError, match="cannot be listed again"):
        table_of(store).metadata.grow_record_index(2)
    assert table_of(store).metadata.build() is not None
    assert check_built(store) == 29 and shards_of(store) == 5


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_growth_is_given_up_by_asking_for_as_many_as_there_are(index: RecordIndex) -> None:
    store = built(index)
    half_grown(store)
    table = table_of(store)
    table.upsert(orders([100, 3], "c", 9))
    plan = table.metadata.plan_grow_record_index(2)
    assert str(plan).startswith("give up growing")
    assert table.metadata.grow_record_index(2) is None
    assert is_index_listed(store) and GROWING not in load_properties(store).raw
    names = [split_path(file.path)[1] for file in store.list(folder_of(RECORD_INDEX)).files]
    assert not [name for name in names if "_00000000000000003" in name]
    assert check_built(store) == 30
    table_of(store).upsert(orders([101], "d", 9))
    assert check_built(store) == 31 and check_metadata(store)
    assert table.metadata.grow_record_index(3) is not None
    assert check_built(store) == 31


def test_what_it_says_of_itself_meanwhile() -> None:
    store = built(RecordIndex(shards=2))
    plan = str(table_of(store).metadata.plan_grow_record_index(5))
    assert (
        plan.startswith("delist record_index")
        and "for Hudi, while ours go by the shards that there are" in plan
    )
    half_grown(store)
    assert "record_index grows: delisted for Hudi, ours go by 2 shards" in str(
        table_of(store).metadata.status()
    )
    assert "delisted for Hudi while it grows" in table_of(store).describe().index
    assert table_of(store).fsck().is_sound


def test_one_that_fails_leaves_the_old_shards_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = built(RecordIndex(shards=2))
    encode = index_kind.encode_base

    def lossy(entries: Any) -> bytes:
        codes, places = entries.locations.codes[1:], entries.locations.distinct
        return encode(index_kind.ShardEntries(entries.keys[1:], index_kind.Locations(codes, places)))

    with monkeypatch.context() as planted:
        planted.setattr(index_kind, "encode_base", lossy)
        with pytest.raises(ProofError):
            grow_record_index(store, 5)
    assert is_index_listed(store) and check_built(store) == 28 and shards_of(store) == 2
    assert grow_record_index(store, 5) is not None and check_built(store) == 28


def test_a_rollback_of_what_was_written_meanwhile_is_taken_back_in_both() -> None:
    store = built(RecordIndex(shards=2))
    half_grown(store)
    table_of(store).upsert(orders([100, 101], "x", 9))
    table_of(store).rollback(load_state(store).timeline.writes[-1].requested)
    assert check_built(store) == 28
    table_of(store).metadata.build()
    assert check_built(store) == 28 and is_index_listed(store)


def test_a_rebuild_ends_a_growth() -> None:
    store = built(RecordIndex(shards=2))
    half_grown(store)
    table_of(store).upsert(orders([100], "x", 9))
    assert table_of(store).metadata.rebuild() is not None
    assert GROWING not in load_properties(store).raw
    assert check_built(store) == 29 and is_index_listed(store)
