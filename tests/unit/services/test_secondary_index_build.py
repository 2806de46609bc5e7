"""Secondary indexes of tables that have rows: built, proven, followed, dropped, and built again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from shutil import copytree
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table
from bucketlake.commit.metadata_table import LISTED
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import ConcurrentWriteError, ConfigError, ProofError, UnsupportedError
from bucketlake.index.told import IndexValue
from bucketlake.layout.names import INDEX_BUILDS_FOLDER
from bucketlake.metadata.index_definitions import definitions
from bucketlake.metadata.places import RECORD_INDEX, SECONDARY_BUILT, WANTED, folder_of
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition, builds_of
from bucketlake.services import Maintenance, index_build, index_kind, rollback
from bucketlake.services.secondary_index_build import build_secondary_index
from bucketlake.state import load_state
from bucketlake.storage import Listing, Store
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.timeline import write_requested
from stand_ins.aging import Bucket
from stand_ins.built_index import CountedTasks, check_built, filled, is_index_listed, table_of
from stand_ins.listed_statistics import list_statistics
from stand_ins.made_index import check_secondary, with_secondary_index
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import orders

pytestmark = pytest.mark.shows("R11")

BY_NAME = SecondaryIndexDefinition("by_name", "name")
INDEXES = [SimpleBuckets(2), RecordIndex(shards=2)]


def indexed(index: IndexValue = INDEXES[0], table_type: str = "MERGE_ON_READ") -> Bucket:
    """A table with a record-level index of the whole table."""
    store = filled(index, table_type)
    table_of(store).metadata.build(record_index=True)
    return store


def with_by_name(index: IndexValue = INDEXES[0], *, shards: int | None = 2) -> Bucket:
    store = indexed(index)
    table_of(store).create_index("by_name", on="name", shards=shards)
    return store


def is_listed(store: Store, name: str = "by_name") -> bool:
    return f"secondary_index_{name}" in load_properties(store).metadata_partitions


def check(store: Store, rows: int) -> None:
    """Compare both indexes with the rows, and the metadata table with the files."""
    assert check_built(store) == rows
    assert is_listed(store)
    check_secondary(table_of(store))
    assert check_metadata(store)


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_every_live_row_has_an_entry_and_writes_keep_it_right(index: IndexValue, table_type: str) -> None:
    store = indexed(index, table_type)
    built = table_of(store).create_index("by_name", on="name", shards=3)
    assert built is not None and (built.entries, built.shards) == (28, 3)
    check(store, 28)
    table = table_of(store)
    table.upsert(orders(range(25, 40), "third", 3))
    table.delete([7, 8])
    check(store, 36)
    (status,) = table.indexes()
    assert (status.name, status.column, status.shards, status.state) == ("by_name", "name", 3, "in step")
    assert status.is_in_step and status.entries == 28
    left = [f.path for f in store.list(INDEX_BUILDS_FOLDER, recursive=True).files]
    assert len(left) == 3, "the last number, and two drafts that say nothing"


def test_one_call_builds_the_metadata_table_and_both_indexes() -> None:
    store = filled(SimpleBuckets(2))
    table = table_of(store)
    table.metadata.drop()
    plan = table.plan_create_index("by_name", on="name", shards=2, record_index=True)
    text = str(plan)
    assert text.index("list ") < text.index("build a record-level index") < text.index("by_name of name")
    assert "20 rows by the footers of 4 file groups, and logs over 4 of them" in text
    assert "2 shards, about 320 B (16 bytes per row, more where values are long)" in text
    built = table.run(plan)
    assert str(built).startswith("s3://in-memory/") and "28 entries in 2 shards" in str(built)
    check(store, 28)


def test_several_indexes_and_types_with_nulls_are_kept_side_by_side() -> None:
    store = with_by_name()
    table = table_of(store)
    assert table.create_index("by_ts", on="ts") is not None
    nameless = orders([1, 50, 51], "x", 9).set_column(1, "name", pa.nulls(3, pa.string()))
    table_of(store).upsert(nameless)
    check(store, 30)
    assert [(one.name, one.shards, one.is_in_step) for one in table.indexes()] == [
        ("by_name", 2, True),
        ("by_ts", 4, True),
    ]
    assert table.describe().secondary_indexes == ("by_name of name", "by_ts of ts")
    assert table.metadata.status().shards["secondary_index_by_ts"] == 4
    table.create_index("by_id", on="id", shards=1)  # a column of the key is a column like others
    table_of(store).delete([50])
    check(store, 29)


def test_an_empty_table_gets_empty_shards() -> None:
    store = indexed()
    table_of(store).delete(list(range(30)))
    built = table_of(store).create_index("by_name", on="name", shards=2)
    assert built is not None and (built.entries, built.shards) == (0, 2)
    table_of(store).upsert(orders(range(5), "again", 9))
    check(store, 5)


def test_shards_follow_the_rows_where_nobody_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "KEYS_PER_SHARD", 4)
    store = indexed()
    plan = table_of(store).plan_create_index("by_name", on="name")
    assert plan.work.shards == 5  # 20 rows
    built = table_of(store).run(plan)
    assert built is not None and built.shards == 5
    check(store, 28)


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_writes_between_are_taken_in(index: IndexValue, monkeypatch: pytest.MonkeyPatch) -> None:
    """New values, new keys, deletes, keys that come back or move: in rounds, and in the last under the lock."""
    monkeypatch.setattr(index_build, "LOCKED_BYTES", 0)
    store = indexed(index)
    table = table_of(store)
    acts = {
        "put_base": lambda: (table.upsert(orders([3, 50, 51], "new", 5)), table.delete([0, 1])),
        "put_log": lambda: (table.upsert(orders([0, 50], "back", 9)), table.compact()),
    }

    def act(function: str, _: Any) -> None:
        if function in acts:
            acts.pop(function)()

    built = build_secondary_index(store, BY_NAME, 3, tasks=CountedTasks(act))
    assert built is not None and built.rounds >= 2 and not acts
    check(store, 28 + 3 - 2 + 1)
    table_of(store).upsert(orders([4, 60], "after", 20))
    check(store, 32)


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_shard_that_was_empty_takes_in_what_writers_bring(index: IndexValue) -> None:
    store = indexed(index)
    done: list[object] = []

    def act(function: str, _: Any) -> None:
        if function == "put_base" and not done:
            done.append(table_of(store).upsert(orders(range(40, 60), "new", 5)))

    built = build_secondary_index(store, BY_NAME, 40, tasks=CountedTasks(act))
    assert built is not None and done
    check(store, 28 + 20)


def test_an_entry_that_moves_with_its_row_is_no_change() -> None:
    """On a table with a record-level index a row moves with its partition; the value stays."""
    store = indexed(RecordIndex(shards=2))
    table = table_of(store)
    done: list[object] = []

    def act(function: str, _: Any) -> None:
        if function == "put_base" and not done:
            moved = orders([6, 8], "second", 9).set_column(3, "dt", pa.array(["p1", "p1"]))
            done.append(table.upsert(moved))

    built = build_secondary_index(store, BY_NAME, 1, tasks=CountedTasks(act))
    assert built is not None and done
    check(store, 28)


def test_a_writer_that_began_before_it_was_listed_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store = indexed()
    from bucketlake.write import job

    finish, calls = job.finish, []

    def slow(prepared: Any, **how: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            build_secondary_index(store, BY_NAME)
        if len(calls) == 2:  # dropped and made again, it is another one
            table_of(store).drop_index("by_name")
            build_secondary_index(store, BY_NAME)
        return finish(prepared, **how)

    monkeypatch.setattr(job, "finish", slow)
    table_of(store).upsert(orders([100, 101, 2], "late", 9))
    assert len(calls) == 3
    check(store, 30)


def test_a_loss_on_the_way_fails_the_proof_and_nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = indexed()
    encode = index_kind.encode_secondary_base
    with monkeypatch.context() as planted:
        planted.setattr(index_kind, "encode_secondary_base", lambda keys: encode(keys[1:]))
        with pytest.raises(ProofError, match="Nothing was listed"):
            build_secondary_index(store, BY_NAME, 1)
    assert not is_listed(store) and not store.list(folder_of(BY_NAME.partition)).files
    assert build_secondary_index(store, BY_NAME, 1) is not None
    check(store, 28)


def test_a_value_lost_on_the_way_into_a_round_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    store = indexed()
    encode = index_kind.encode_secondary_log

    def act(function: str, _: Any) -> None:
        if function == "put_base" and not done:
            done.append(table_of(store).upsert(orders([3, 50, 51], "new", 5)))

    done: list[object] = []
    with monkeypatch.context() as planted:
        planted.setattr(
            index_kind,
            "encode_secondary_log",
            lambda instant, partition, came, gone: encode(instant, partition, came[1:], gone),
        )
        with pytest.raises(ProofError, match="found in its log"):
            build_secondary_index(store, BY_NAME, 1, tasks=CountedTasks(act))
    assert not is_listed(store)


def test_a_file_that_is_lost_before_it_is_listed_is_put_again() -> None:
    store = indexed()
    left = [3]

    def lose(function: str, _: Any) -> None:
        found = store.list(folder_of(BY_NAME.partition)).files
        if function == "put_base" and found and left[0]:
            left[0] -= 1
            store.delete(found[0].path)

    assert build_secondary_index(store, BY_NAME, 2, tasks=CountedTasks(lose)) is not None
    check(store, 28)


def test_it_is_not_listed_while_hudi_writes_and_goes_on_then() -> None:
    store = indexed()
    state = load_state(store)
    action = state.timeline.writes[-1].action
    write_requested(store, state.properties, instant="20991231000000000", action=action)
    tasks = CountedTasks()
    with pytest.raises(ConcurrentWriteError, match="it is not ours"):
        build_secondary_index(store, BY_NAME, 2, tasks=tasks)
    (status,) = table_of(store).indexes()
    assert (status.column, status.is_listed) == ("name", False) and "being built, or cut off" in status.state
    assert not is_listed(store)
    for file in store.list(state.properties.timeline_folder).files:
        if "/20991231" in file.path:
            store.delete(file.path)
    plan = table_of(store).plan_create_index("by_name", on="name")
    assert "; 4 are read already" in str(plan) and plan.work.shards == 2
    again = CountedTasks()
    assert build_secondary_index(store, BY_NAME, tasks=again) is not None
    assert len(tasks.done) == 4 + 2 and not again.done
    check(store, 28)


def test_two_who_build_one_index_at_once_build_it_once() -> None:
    store = indexed()
    built: list[object] = []

    def other(function: str, _: Any) -> None:
        if function == "put_base" and not built:
            built.append(build_secondary_index(store, BY_NAME))

    assert build_secondary_index(store, BY_NAME, tasks=CountedTasks(other)) is None
    assert built[0] is not None
    check(store, 28)


def test_two_who_build_two_indexes_at_once_build_both() -> None:
    """Their numbers on the metadata table's timeline differ: one would take the other's off."""
    store = indexed()
    built: list[object] = []

    def other(function: str, _: Any) -> None:
        if function == "put_base" and not built:
            built.append(table_of(store).create_index("by_ts", on="ts"))

    assert build_secondary_index(store, BY_NAME, tasks=CountedTasks(other)) is not None
    assert built[0] is not None
    check(store, 28)
    builds = builds_of(load_properties(store))
    assert len({one.instant for one in builds.values()}) == 2
    table_of(store).upsert(orders([3, 50], "again", 9))
    check(store, 30)


def test_of_two_who_build_an_index_of_one_column_by_two_names_one_is_told_of_the_other() -> None:
    store = indexed()
    built: list[object] = []

    def other(function: str, _: Any) -> None:
        if function == "put_base" and not built:
            built.append(table_of(store).create_index("of_name", on="name"))

    with pytest.raises(ConfigError, match="has an index of 'name' already, called 'of_name'"):
        build_secondary_index(store, BY_NAME, tasks=CountedTasks(other))
    assert [one.name for one in table_of(store).indexes()] == ["of_name"]
    assert not store.list(folder_of(BY_NAME.partition)).files
    check_secondary(table_of(store))


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_rollback_of_what_it_was_built_of_builds_it_again(index: IndexValue) -> None:
    store = with_by_name(index, shards=3)
    table = table_of(store)
    table.rollback(load_state(store).timeline.writes[-1].requested)  # the delete
    assert is_index_listed(store) and WANTED not in load_properties(store).raw
    check(store, 30)
    assert table.indexes()[0].shards == 3
    table_of(store).upsert(orders([3, 50], "again", 9))
    check(store, 31)


def test_a_restore_builds_it_again() -> None:
    store = with_by_name()
    table = table_of(store)
    first = load_state(store).timeline.writes[0].requested
    table.savepoint(first)
    table.upsert(orders(range(40, 60), "later", 9))
    table.restore(first)
    check(store, 20)
    table_of(store).upsert(orders(range(15, 25), "after", 9))
    check(store, 25)


def test_one_that_could_not_be_built_then_is_built_by_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    store = with_by_name()
    table = table_of(store)
    with monkeypatch.context() as busy:
        busy.setattr(rollback, "build_wanted_indexes", lambda *_, **__: ())
        table.rollback(load_state(store).timeline.writes[-1].requested)
    assert not is_listed(store)
    assert load_properties(store).raw[WANTED] == f"{RECORD_INDEX},{BY_NAME.partition}"
    (status,) = table.indexes()
    assert status.column == "name" and "to be built again: table.metadata.build()" in status.state
    plan = str(table.plan_maintenance(Maintenance()))
    assert f"build {RECORD_INDEX} of" in plan and f"build {BY_NAME.partition} of" in plan
    table.maintain(Maintenance())
    check(store, 30)
    assert not table.plan_maintenance(Maintenance()).work.due


@pytest.mark.parametrize("index", INDEXES, ids=str)
def test_a_record_level_index_that_grows_or_is_rebuilt_takes_it_along(index: IndexValue) -> None:
    store = with_by_name(index)
    table = table_of(store)
    table.metadata.grow_record_index(5)
    check(store, 28)
    assert table.metadata.status().shards[RECORD_INDEX] == 5
    plan = table.metadata.plan_rebuild()
    assert "secondary index by_name of name" in str(plan)
    again = table.run(plan)
    assert again is not None and again.secondary == ("by_name",)
    assert "; and the secondary index by_name" in str(again)
    check(store, 28)
    table_of(store).upsert(orders([3, 50], "again", 9))
    check(store, 30)
    assert table.metadata.build() is None and table.metadata.plan_build().is_empty


def test_while_a_record_level_index_grows_nobody_goes_by_it_and_it_says_why() -> None:
    store = with_by_name(RecordIndex(shards=2))
    table = table_of(store)
    seen: list[str] = []

    def look(function: str, _: Any) -> None:
        if function == "put_base" and not seen:
            seen.append(table.indexes()[0].state)
            table.upsert(orders([3, 50], "meanwhile", 9))
            with pytest.raises(ConcurrentWriteError, match="grows"):
                table.create_index("by_ts", on="ts")

    from bucketlake.services.record_index_build import grow_record_index
    from bucketlake.services.wanted_indexes import build_wanted_indexes

    grow_record_index(store, 4, tasks=CountedTasks(look))
    assert "while the record-level index grows" in seen[0]
    assert len(build_wanted_indexes(store)) == 1
    check(store, 30)


def test_dropping_it_leaves_nothing_and_it_can_be_made_anew() -> None:
    store = with_by_name()
    table = table_of(store)
    plan = table.plan_drop_index("by_name")
    assert "drop the secondary index by_name" in str(plan) and len(plan.work.files) == 3
    dropped = table.run(plan)
    assert dropped.files == plan.work.files
    assert not is_listed(store) and not table.indexes() and SECONDARY_BUILT not in load_properties(store).raw
    assert not store.list(folder_of(BY_NAME.partition)).files
    assert set(definitions(store)) == {RECORD_INDEX}
    table.upsert(orders([3, 50], "without", 9))
    with pytest.raises(ConfigError, match="has no index 'by_name'; it has none"):
        table.drop_index("by_name")
    table.create_index("by_name", on="ts")
    check(store, 30)


def test_a_write_during_which_it_is_dropped_is_run_again() -> None:
    """At each look at the definitions and the properties in turn, before it holds the lock."""
    looks = ("read .hoodie/.index_defs/index.json", "read .hoodie/hoodie.properties")

    def write(store: Store) -> object:
        return Table(store, load_properties(store)).upsert(orders([3, 50], "while", 9))

    counted = FaultyStore(with_by_name())
    write(counted)
    before = list(takewhile(lambda what: not what.startswith("put"), counted.operations))
    assert before.count(looks[0]) > 1
    for number in (n for n, what in enumerate(before, 1) if what in looks):
        store = with_by_name()
        write(
            FaultyStore(store, fails_at=number, meanwhile=lambda inner: table_of(inner).drop_index("by_name"))
        )
        assert check_built(store) == 30
        assert not is_listed(store)


@pytest.mark.parametrize("again", [False, True], ids=["dropped", "and made again"])
def test_shards_that_go_while_a_write_counts_them_are_not_taken_for_lost(again: bool) -> None:
    store = with_by_name()
    counts = "list .hoodie/metadata/secondary_index_by_name"

    def others(inner: Store) -> None:
        table_of(inner).drop_index("by_name")
        if again:  # and somebody has listed the folder between the two
            table_of(inner).create_index("by_name", on="name", shards=3)

    class Counted(FaultyStore):
        def list(self, folder: str, *, recursive: bool = False) -> Listing:
            if f"list {folder}" != counts or counts in self.operations:
                return super().list(folder, recursive=recursive)
            others(self.inner)
            super().list(folder, recursive=recursive)
            return Listing((), ())

    seen = Counted(store)
    Table(seen, load_properties(seen)).upsert(orders([3, 50], "while", 9))
    assert check_built(store) == 30
    assert is_listed(store) == again
    if again:
        check(store, 30)


def test_the_record_level_index_is_not_dropped_alone_from_under_it() -> None:
    store = with_by_name()
    table = table_of(store)
    for call in (table.metadata.plan_drop, table.metadata.drop):
        with pytest.raises(
            ConfigError, match=r"lead nowhere .*: by_name. Drop them first: table.drop_index\('by_name'\)"
        ):
            call(record_index=True)
    check(store, 28)
    table.drop_index("by_name")
    table.metadata.drop(record_index=True)
    assert not is_index_listed(store)


def test_the_whole_metadata_table_is_dropped_with_it() -> None:
    store = with_by_name()
    table = table_of(store)
    table.metadata.drop()
    assert SECONDARY_BUILT not in load_properties(store).raw and not table.indexes()
    table.upsert(orders([3, 50], "without", 9))
    table.create_index("by_name", on="name", record_index=True)
    check(store, 30)


def test_what_others_have_dropped_or_left_alone_is_said_with_what_to_do() -> None:
    store = with_by_name()
    table = table_of(store)
    listed = load_properties(store).metadata_partitions
    # Hudi delists a partition, and may leave its definition.
    without = ",".join(name for name in listed if name != BY_NAME.partition)
    update_properties(store, {LISTED: without})
    (status,) = table.indexes()
    assert not status.is_listed and "somebody has dropped it" in status.state
    table.upsert(orders([3, 50], "untold", 9))
    table.create_index("by_name", on="name")
    check(store, 30)
    # The record-level index is gone, and the other was left behind.
    update_properties(store, {LISTED: ",".join(name for name in listed if name != RECORD_INDEX)})
    (status,) = table.indexes()
    assert status.is_listed and not status.is_in_step
    assert "the record-level index was dropped" in status.state
    for record_index in (False, True):
        with pytest.raises(
            ConfigError, match=r"nobody goes by it: .*table\.metadata\.build\(record_index=True\)"
        ):
            table.create_index("by_name", on="name", record_index=record_index)
    with pytest.raises(
        UnsupportedError, match=r"Build both again: `bucketlake metadata build .* --record-index"
    ):
        table.upsert(orders([3], "refused", 10))
    assert table.get_by("name", "untold 3").num_rows == 1
    plan = table.metadata.plan_build(record_index=True)
    table.run(plan)
    check(store, 30)


def test_beside_statistics_of_partitions_it_says_that_hudi_will_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = filled(INDEXES[0])
    table = table_of(store)
    plan = table.plan_create_index("by_name", on="name", record_index=True)
    assert "partition_stats" not in str(plan)
    list_statistics(store, ["id", "name", "ts"])
    plan = table.plan_create_index("by_name", on="name", shards=1, record_index=True)
    assert "Hudi 1.2.0 fails to write to a table that has a secondary index beside partition_stats" in str(
        plan
    )
    assert not caplog.records
    assert table.run(plan) is not None
    assert "beside partition_stats" in caplog.text
    check(store, 28)


def test_an_index_of_hudi_s_is_rebuilt_dropped_and_made_anew_as_ours_are(
    golden_table: Callable[[str], Path], tmp_path: Path
) -> None:
    table = Table.adopt(copytree(golden_table("cow_secondary_index"), tmp_path / "hudis"))
    assert [(one.name, one.column, one.shards, one.is_in_step) for one in table.indexes()] == [
        ("idx_city", "city", 10, True)
    ]
    for act in (
        table.metadata.rebuild,
        lambda: table.drop_index("idx_city"),
        lambda: table.create_index("mine", on="city"),
    ):
        act()
        table.upsert(table.to_arrow(meta_columns=False).slice(0, 3))
        check_secondary(table)
        assert all(one.is_in_step for one in table.indexes())
    assert table.fsck().is_sound


def test_one_that_is_wanted_cannot_come_back_beside_a_record_level_index_for_each_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = with_by_name()
    table = table_of(store)
    with monkeypatch.context() as busy:
        busy.setattr(rollback, "build_wanted_indexes", lambda *_, **__: ())
        table.rollback(load_state(store).timeline.writes[-1].requested)
    with pytest.raises(ConfigError, match=r"by_name\. Drop them first"):
        table.metadata.build(record_index=True, per_partition=True)
    table.metadata.build()
    check(store, 30)


def test_a_restore_to_before_its_column_was_there_builds_all_but_it() -> None:
    store = indexed(RecordIndex(shards=2))
    table = table_of(store)
    last = load_state(store).timeline.writes[-1].requested
    table.savepoint(last)
    wider = orders([1, 50], "wide", 9).append_column("city", pa.array(["Oslo", None]))
    table.upsert(wider, merge_schema=True)
    table.create_index("by_city", on="city")
    table.create_index("by_name", on="name")
    table.restore(last)
    check(store, 28)
    states = {one.name: (one.is_in_step, one.state) for one in table.indexes()}
    assert states["by_name"] == (True, "in step")
    assert "not built again: " in states["by_city"][1] and "has no column 'city'" in states["by_city"][1]
    assert states["by_city"][1].endswith("Or drop it: table.drop_index('by_city')")
    assert not table.plan_maintenance(Maintenance()).work.due
    table_of(store).upsert(orders([1, 60], "narrow", 9))
    table.metadata.rebuild()
    check(store, 29)
    table.drop_index("by_city")
    assert [one.name for one in table.indexes()] == ["by_name"]


def test_what_hudi_has_made_and_we_would_not_is_built_again_where_it_can_be() -> None:
    """Two indexes of one column, an odd name; not one of a partition column, whose values readers take from paths."""
    store = with_by_name()
    table = with_secondary_index(table_of(store), "other", "name")
    with_secondary_index(with_secondary_index(table, "\u00e9t\u00e9", "ts"), "by_dt", "dt")
    table_of(store).metadata.rebuild()
    check(store, 28)
    assert {one.name: one.is_in_step for one in table.indexes()} == {
        "by_name": True,
        "other": True,
        "\u00e9t\u00e9": True,
        "by_dt": False,
    }
    (left,) = (one for one in table.indexes() if not one.is_listed)
    assert "'dt' is a partition column" in left.state
    table.upsert(orders([3, 50], "again", 9))
    check(store, 30)
    for name in ("by_dt", "\u00e9t\u00e9"):
        table.drop_index(name)
    assert [one.name for one in table.indexes()] == ["by_name", "other"]
    with pytest.raises(ConfigError, match=r"has no index '\.\./by_name'"):
        table.drop_index("../by_name")
