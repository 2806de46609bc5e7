"""The record-level index of a table that has rows: built, proven, followed, grown, dropped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import (
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    ProofError,
    UnsupportedError,
)
from bucketlake.index.told import IndexValue
from bucketlake.layout.names import INDEX_BUILDS_FOLDER
from bucketlake.metadata.index_definitions import definitions
from bucketlake.metadata.places import RECORD_INDEX, WANTED, folder_of
from bucketlake.services import index_build, index_kind, index_tasks
from bucketlake.services.index_draft import load_draft
from bucketlake.services.record_index_build import build_record_index, grow_record_index
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.timeline import write_requested
from stand_ins.aging import Bucket
from stand_ins.built_index import CountedTasks, check_built, filled, is_index_listed, table_of
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import orders

pytestmark = pytest.mark.shows("X8")

INDEXES = [
    SimpleBuckets(2),
    RecordIndex(),
    RecordIndex(shards=1),
    RecordIndex(per_partition=True),
    RecordIndex(per_partition=True, shards=3),
]
ON_BUCKETS = RecordIndex(shards=3)


def asked(index: IndexValue) -> RecordIndex | None:
    return ON_BUCKETS if isinstance(index, SimpleBuckets) else None


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_every_live_key_is_in_it_and_writes_keep_it_right(index: IndexValue, table_type: str) -> None:
    store = filled(index, table_type)
    build_metadata(store)
    built = build_record_index(store, asked(index))
    assert built is not None and built.entries == 28
    assert check_built(store) == 28
    table = table_of(store)
    table.upsert(orders(range(25, 40), "third", 3))
    table.delete([7, 8])
    assert check_built(store) == 36
    assert check_metadata(store)
    assert table.fsck().is_sound
    assert build_record_index(store) is None
    assert load_draft(store, RECORD_INDEX).draft is None
    left = [f.path for f in store.list(INDEX_BUILDS_FOLDER, recursive=True).files]
    assert len(left) == 2, "only the number that was used last, and a draft that says nothing"


def test_an_empty_table_gets_empty_shards() -> None:
    store = filled(SimpleBuckets(2))
    table_of(store).delete(list(range(30)))
    built = build_record_index(store, RecordIndex(shards=2))
    assert built is not None and (built.entries, built.shards) == (0, 2)
    table_of(store).upsert(orders(range(5), "again", 9))
    assert check_built(store) == 5


def test_the_face_builds_it_with_files_and_prints_what_it_will_do() -> None:
    store = filled(RecordIndex())
    table = table_of(store)
    with pytest.raises(UnsupportedError, match="without record_index"):
        table.upsert(orders([1], "x", 9))
    text = str(table.metadata.plan_build())
    assert "list 6 files" in text and "of the whole table" in text
    assert "30 rows by the footers of 2 file groups, and logs over 2 of them" in text
    assert "4 shards, about 810 B (27 bytes per key)" in text
    done = table.metadata.build()
    assert done is not None and (done.shards, done.entries) == (4, 28)
    assert table.metadata.build() is None
    assert table.metadata.plan_build().is_empty
    again = table.metadata.rebuild()
    assert again is not None and again.entries == 28
    assert check_built(store) == 28


def test_shards_follow_the_rows_where_nobody_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "KEYS_PER_SHARD", 4)
    store = filled(SimpleBuckets(2), "COPY_ON_WRITE")
    plan = table_of(store).metadata.plan_build(record_index=True)
    assert plan.index is not None and plan.index.shards == 7  # 28 rows
    table_of(store).metadata.drop()
    done = table_of(store).metadata.build(record_index=True, per_partition=True)
    assert done is not None and done.shards == 8  # 13 and 15 rows, four shards each
    table_of(store).upsert(orders(range(60), "more", 3))
    assert check_built(store) == 60


def test_writes_between_are_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Updates, new keys, deletes, keys that come back, a new partition: in rounds, and in the last under the lock."""
    monkeypatch.setattr(index_build, "LOCKED_BYTES", 0)
    for index in (RecordIndex(shards=3), RecordIndex(per_partition=True, shards=2)):
        for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ"):
            store = filled(SimpleBuckets(2), table_type)
            table = table_of(store)
            rows = orders([70, 71], "p9", 5)
            elsewhere = rows.set_column(3, "dt", pa.array(["p9", "p9"]))
            acts = {
                "put_base": lambda: (table.upsert(orders([3, 50, 51], "new", 5)), table.delete([0, 1])),  # noqa: B023
                "put_log": lambda: (table.upsert(elsewhere), table.upsert(orders([0], "back", 9))),  # noqa: B023
            }

            def act(function: str, _: Any) -> None:
                if function in acts:  # noqa: B023
                    acts.pop(function)()  # noqa: B023

            built = build_record_index(store, index, tasks=CountedTasks(act))
            assert built is not None and built.rounds >= 2 and not acts
            assert check_built(store) == 28 + 3 - 2 + 2 + 1
            assert table_of(store).fsck().is_sound


def test_a_service_that_replaces_or_compacts_between_changes_no_entry() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    done: list[object] = []

    def act(function: str, _: Any) -> None:
        if function == "put_base" and not done:
            done.append(table.compact())
            done.append(table.overwrite(orders([1, 3, 90], "anew", 9)))

    built = build_record_index(store, RecordIndex(), tasks=CountedTasks(act))
    assert built is not None and done
    assert check_built(store) == table_of(store).to_arrow().num_rows


def test_a_writer_that_began_before_it_was_listed_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(SimpleBuckets(2))
    from bucketlake.write import job

    finish, calls = job.finish, []

    def slow(prepared: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            build_record_index(store, RecordIndex())
        return finish(prepared, **how)

    monkeypatch.setattr(job, "finish", slow)
    table_of(store).upsert(orders([100, 101, 2], "late", 9))
    assert len(calls) == 2
    assert check_built(store) == 30


@pytest.mark.parametrize("what", ["key", "place"])
def test_a_loss_on_the_way_fails_the_proof_and_nothing_is_listed(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    store = filled(SimpleBuckets(2))
    encode = index_kind.encode_base

    def lossy(entries: Any) -> bytes:
        codes = entries.locations.codes.copy()
        codes[0] = (codes[0] + 1) % len(entries.locations.distinct)
        locations = index_kind.Locations(codes, entries.locations.distinct)
        if what == "place":
            return encode(index_kind.ShardEntries(entries.keys, locations))
        less = index_kind.Locations(codes[1:], entries.locations.distinct)
        return encode(index_kind.ShardEntries(entries.keys[1:], less))

    with monkeypatch.context() as planted:
        planted.setattr(index_kind, "encode_base", lossy)
        with pytest.raises(ProofError, match="Nothing was listed"):
            build_record_index(store, RecordIndex(shards=1))
    assert not is_index_listed(store)
    assert not store.list(folder_of(RECORD_INDEX)).files
    assert build_record_index(store, RecordIndex(shards=1)) is not None
    assert check_built(store) == 28


def test_a_file_that_is_lost_before_it_is_listed_is_put_again() -> None:
    store = filled(SimpleBuckets(2))

    left = [3]

    def lose(function: str, _: Any) -> None:
        found = store.list(folder_of(RECORD_INDEX)).files
        if function == "put_base" and found and left[0]:
            left[0] -= 1
            store.delete(found[0].path)

    assert build_record_index(store, RecordIndex(shards=2), tasks=CountedTasks(lose)) is not None
    assert check_built(store) == 28


def test_a_key_in_two_partitions_is_refused_for_one_of_the_table_with_both_places() -> None:
    store = filled(SimpleBuckets(2))
    twice = orders([6], "elsewhere", 3).set_column(3, "dt", pa.array(["p1"]))
    table_of(store).upsert(twice)
    with pytest.raises(
        UnsupportedError, match=r"the key '6' .* in two partitions: p\d/0.* and p\d/0.*per_partition=True"
    ):
        build_record_index(store, RecordIndex())
    assert not is_index_listed(store) and load_draft(store, RECORD_INDEX).draft is None
    assert build_record_index(store, RecordIndex(per_partition=True)) is not None
    assert check_built(store) == 29


def test_a_key_that_comes_to_a_second_partition_meanwhile_is_refused_too() -> None:
    store = filled(SimpleBuckets(1))
    table = table_of(store)
    twice = orders([6], "elsewhere", 3).set_column(3, "dt", pa.array(["p1"]))
    done: list[object] = []

    def act(function: str, _: Any) -> None:
        if function == "put_base" and not done:
            done.append(table.upsert(twice))

    with pytest.raises(UnsupportedError, match=r"the key '6' .* in two partitions: p0/.* and p1/"):
        build_record_index(store, RecordIndex(shards=2), tasks=CountedTasks(act))
    assert not is_index_listed(store)


def test_it_is_not_listed_while_hudi_writes_and_goes_on_then() -> None:
    store = filled(SimpleBuckets(2))
    state = load_state(store)
    write_requested(
        store, state.properties, instant="20991231000000000", action=state.timeline.writes[-1].action
    )
    tasks = CountedTasks()
    with pytest.raises(ConcurrentWriteError, match="it is not ours"):
        build_record_index(store, RecordIndex(), tasks=tasks)
    assert not is_index_listed(store)
    for file in store.list(state.properties.timeline_folder).files:
        if "/20991231" in file.path:
            store.delete(file.path)
    again = CountedTasks()
    assert build_record_index(store, tasks=again, asked=RecordIndex()) is not None
    assert len(tasks.done) == 4 + 4 and not again.done
    assert check_built(store) == 28


@pytest.mark.parametrize("index", [RecordIndex(), RecordIndex(per_partition=True)], ids=str)
def test_a_rollback_of_what_the_index_was_built_of_builds_it_again(index: RecordIndex) -> None:
    store = filled(index)
    table = table_of(store)
    table.metadata.build()
    table.rollback(load_state(store).timeline.writes[-1].requested)  # the delete
    assert is_index_listed(store) and WANTED not in load_properties(store).raw
    assert check_built(store) == 30
    table_of(store).upsert(orders([3, 50], "again", 9))
    assert check_built(store) == 31
    assert table_of(store).fsck().is_sound


def test_on_buckets_too() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.build(record_index=True, per_partition=True, shards=2)
    table.rollback(load_state(store).timeline.writes[-1].requested)
    assert is_index_listed(store)
    assert check_built(store) == 30
    assert table.metadata.status().shards[RECORD_INDEX] == 4


@pytest.mark.parametrize("index", [RecordIndex(), SimpleBuckets(2)], ids=str)
def test_a_restore_builds_it_again(index: IndexValue) -> None:
    store = filled(index)
    table = table_of(store)
    table.metadata.build(record_index=isinstance(index, SimpleBuckets))
    first = load_state(store).timeline.writes[0].requested
    table.savepoint(first)
    table.upsert(orders(range(40, 60), "later", 9))
    table.restore(first)
    assert is_index_listed(store)
    assert check_built(store) == 20
    table_of(store).upsert(orders(range(15, 25), "after", 9))
    assert check_built(store) == 25
    assert table_of(store).fsck().is_sound


def test_one_that_could_not_be_built_then_is_built_by_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    from bucketlake.services import Maintenance, rollback

    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.build(record_index=True)
    with monkeypatch.context() as busy:
        busy.setattr(rollback, "build_wanted_indexes", lambda *_, **__: None)
        table.rollback(load_state(store).timeline.writes[-1].requested)
    assert not is_index_listed(store)
    assert load_properties(store).raw[WANTED] == RECORD_INDEX
    assert "build record_index" in str(table.plan_maintenance(Maintenance()))
    table.maintain(Maintenance())
    assert is_index_listed(store) and check_built(store) == 30


@pytest.mark.parametrize("index", [RecordIndex(), RecordIndex(per_partition=True), SimpleBuckets(2)], ids=str)
def test_shards_are_grown_and_writers_go_by_the_new_ones(index: IndexValue) -> None:
    store = filled(index)
    table = table_of(store)
    table.metadata.build(record_index=isinstance(index, SimpleBuckets))
    table.upsert(orders(range(25, 35), "third", 3))
    before = table.metadata.status().shards[RECORD_INDEX]
    plan = table.metadata.plan_grow_record_index(8)
    assert str(plan).startswith("delist record_index")
    built = table.metadata.grow_record_index(8)
    assert built is not None and built.shards == plan.work.shards > before
    assert check_built(store) == 33
    table_of(store).upsert(orders(range(32, 40), "fourth", 4))
    assert check_built(store) == 38
    assert table_of(store).fsck().is_sound
    assert table.metadata.rebuild() is not None
    assert table.metadata.status().shards[RECORD_INDEX] == built.shards


def test_one_that_was_cut_off_while_it_grew_is_gone_on_with_by_any_build() -> None:
    store = filled(RecordIndex())
    table_of(store).metadata.build()

    class Killed(Exception):
        pass

    def kill(function: str, item: Any) -> None:
        if function == "put_base" and item.shard == 3:
            raise Killed

    with pytest.raises(Killed):
        grow_record_index(store, 6, tasks=CountedTasks(kill))
    assert not is_index_listed(store)
    rest = CountedTasks()
    assert build_record_index(store, tasks=rest) is not None
    assert [name for name, _ in rest.done] == ["put_base"] * 3
    assert table_of(store).metadata.status().shards[RECORD_INDEX] == 6
    assert check_built(store) == 28


def test_it_is_dropped_alone_where_the_table_does_without() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.build(record_index=True)
    gone = table.metadata.drop(record_index=True)
    assert gone.partitions == (RECORD_INDEX,) and gone.files
    assert load_properties(store).metadata_partitions == ("files",)
    assert not store.list(folder_of(RECORD_INDEX)).files and not definitions(store)
    table.upsert(orders([1, 77], "x", 9))
    assert check_metadata(store) and table.fsck().is_sound
    assert table.metadata.build() is None
    with pytest.raises(ConfigError, match="no record-level index"):
        table.metadata.grow_record_index(4)


def test_it_is_not_dropped_alone_where_the_table_goes_by_it() -> None:
    store = filled(RecordIndex())
    with pytest.raises(ConfigError, match="finds its keys by its record-level index"):
        table_of(store).metadata.drop(record_index=True)


def test_what_makes_no_sense_is_refused() -> None:
    store = filled(RecordIndex())
    metadata = table_of(store).metadata
    with pytest.raises(ConfigError, match="give record_index=True"):
        metadata.build(shards=3)
    with pytest.raises(ConfigError, match="leave per_partition out"):
        metadata.build(record_index=True, per_partition=True)
    with pytest.raises(ConfigError, match="shards is 0"):
        metadata.build(record_index=True, shards=0)
    metadata.build()
    with pytest.raises(ConfigError, match="grow_record_index"):
        metadata.build(record_index=True, shards=9)


def test_a_base_file_that_does_not_hold_what_it_tells_of_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(SimpleBuckets(2), "COPY_ON_WRITE")
    read = index_tasks.read_slice
    monkeypatch.setattr(index_tasks, "read_slice", lambda *a: (b.slice(1) for b in read(*a)))
    with pytest.raises(CorruptTableError, match="whose keys are not those"):
        build_record_index(store, RecordIndex())


def test_a_plan_of_the_metadata_table_that_names_older_shards_is_done_with_first() -> None:
    from bucketlake.services import run_metadata_compaction, schedule_metadata_compaction

    store = filled(RecordIndex())
    table = table_of(store)
    table.metadata.build()
    table.upsert(orders([1, 60], "x", 9))
    planned = schedule_metadata_compaction(store)
    assert planned is not None
    table.metadata.grow_record_index(7)
    assert check_built(store) == 29
    assert run_metadata_compaction(store, planned).completed
    table_of(store).upsert(orders([61], "y", 9))
    assert check_built(store) == 30 and check_metadata(store)


def test_keys_of_every_kind(store: Store | None = None) -> None:
    """hudi#19027: prefixes of each other; and those that another key generator spells."""
    store = Bucket()
    from bucketlake.write import TableSpec, create

    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("v", pa.int64())])
    create(store, TableSpec(name="t", schema=schema, key=("a", "b"), index=SimpleBuckets(3)))
    texts = ["1", "10", "100", "$", "\\", "x\0y", "ü", "\U0001f600", "k" * 30_000]
    table_of(store).upsert(pa.table({"a": texts, "b": range(9), "v": range(9)}, schema=schema))
    for value in (RecordIndex(shards=2), RecordIndex(per_partition=True, shards=2)):
        build_metadata(store)
        assert build_record_index(store, value) is not None
        assert check_built(store) == 9
        table_of(store).metadata.drop(record_index=True)


def test_a_key_that_no_index_can_have_is_refused() -> None:
    from bucketlake.write import TableSpec, create

    store = Bucket()
    schema = pa.schema([("a", pa.string()), ("v", pa.int64())])
    create(store, TableSpec(name="t", schema=schema, key=("a",), index=SimpleBuckets(1)))
    table_of(store).upsert(pa.table({"a": ["k" * 40_000], "v": [1]}, schema=schema))
    build_metadata(store)
    with pytest.raises(ConfigError, match="40,000 bytes"):
        build_record_index(store, RecordIndex())
    assert not is_index_listed(store)


def test_what_an_older_index_left_in_the_folder_goes() -> None:
    store = filled(RecordIndex())
    table_of(store).metadata.build()
    table_of(store).upsert(orders([80], "x", 9))
    update_properties(
        store, {"hoodie.table.metadata.partitions": "files"}
    )  # as a Hudi writer that was not told
    assert build_record_index(store) is not None
    names = [f.path for f in store.list(folder_of(RECORD_INDEX)).files]
    assert all("_00000000000000003" in name for name in names if "partition_metadata" not in name), names
    assert check_built(store) == 29
