"""A rescale that is seen by halves, or forgets a row that was written meanwhile, gives keys a second home."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, PartitionBuckets, SimpleBuckets, Table, create_table
from bucketlake.commit.recovery import recover
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    ConflictError,
    InstantError,
    UnsupportedError,
)
from bucketlake.index import declare_rules, list_versions
from bucketlake.services import plan_compaction, schedule_compaction
from bucketlake.services.held import load_held
from bucketlake.services.rescale import abort_rescale, rescale_table, roll_back_rescale
from bucketlake.state import files_of, load_state
from bucketlake.storage import LocalStore, MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from stand_ins.transactions import clock

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]


def rows_of(count: int, ts: int = 1, days: int = 3) -> pa.Table:
    rows = [(f"k{n}", f"d{n % days}", ts, ts) for n in range(count)]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def a_table(path: object, table_type: str = "COPY_ON_WRITE", *, rules: str | None = "d1,3") -> Table:
    table = create_table(
        str(path),
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=PartitionBuckets(rules, default=2) if rules else SimpleBuckets(2),
        table_type=table_type,
    )
    table.upsert(rows_of(60))
    table.upsert(rows_of(30, ts=2))
    return table


def contents(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(columns=SCHEMA.names).to_pylist())


def counts(table: Table) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in table.layout().partitions:
        assert part.buckets is not None
        assert len({s.file_id[:8] for s in part.slices}) == len(part.slices) <= part.buckets
        found[part.partition] = part.buckets
    return found


@pytest.mark.shows("P5", "P6", "P10")
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("rules", ["d1,3", None])
def test_only_partitions_with_another_count_are_written_anew(table_type: str, rules: str | None) -> None:
    table = a_table(f"memory://rescale-{table_type}-{rules is None}", table_type, rules=rules)
    before = contents(table)
    planned = table.buckets.plan_overwrite("d0,5;d1,3").work
    assert [(c.partition, c.before, c.after) for c in planned.changes] == [
        ("d0", 2, 5),
        *([] if rules else [("d1", 2, 3)]),
    ]
    assert "d0: 2 -> 5 buckets" in str(planned)
    assert "stay as they are" in str(planned)
    rows = Counter(row[1] for row in before)
    assert [change.base_rows for change in planned.changes] == [rows[c.partition] for c in planned.changes]
    assert f"{planned.base_rows:,} rows" in str(planned).splitlines()[-1]
    assert ("logs change" in str(planned)) == (table_type == "MERGE_ON_READ")
    assert contents(table) == before
    assert len(table.timeline()) == 2, "a dry run does nothing"
    done = table.buckets.overwrite("d0,5;d1,3")
    assert done.partitions == tuple(c.partition for c in planned.changes)
    table = Table.open(table.store.uri)
    assert contents(table) == before
    assert counts(table) == {"d0": 5, "d1": 3, "d2": 2}
    table.upsert(rows_of(60, ts=3))
    assert len(contents(table)) == 60
    assert {row[2] for row in contents(table)} == {3}
    assert counts(table) == {"d0": 5, "d1": 3, "d2": 2}
    assert table.get("k0").num_rows == 1
    check_invariants(table)


@pytest.mark.shows("P5")
def test_rules_are_added_before_those_there_are_and_all_versions_are_shown() -> None:
    table = a_table("memory://rescale-add")
    table.buckets.add("^d2$,4")
    table.buckets.add("d,1", bucket_number=7)
    shown = [(version.expressions, version.default_count) for version in table.buckets.show_config()]
    assert shown == [("d1,3", 2), ("^d2$,4;d1,3", 2), ("d,1;^d2$,4;d1,3", 7)]
    assert counts(table) == {"d0": 1, "d1": 1, "d2": 1}
    check_invariants(table)


@pytest.mark.shows("P7", "P11")
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("rules", ["d1,3", None])
def test_a_rescale_is_taken_back_data_and_rules_together(table_type: str, rules: str | None) -> None:
    table = a_table(f"memory://rescale-back-{table_type}-{rules is None}", table_type, rules=rules)
    before, before_counts = contents(table), counts(table)
    first = table.buckets.overwrite("d,4")
    second = table.buckets.overwrite("d,6")
    with pytest.raises(InstantError, match="came after it"):
        table.buckets.rollback(first.instant)
    table.buckets.plan_rollback(second.instant)
    assert counts(table) == {"d0": 6, "d1": 6, "d2": 6}, "a plan"
    table.buckets.rollback(second.instant)
    assert counts(table) == {"d0": 4, "d1": 4, "d2": 4}
    table.buckets.rollback(first.instant)
    table = Table.open(table.store.uri)
    assert (contents(table), counts(table)) == (before, before_counts)
    table.upsert(rows_of(60, ts=5))
    assert counts(table) == before_counts
    assert len(contents(table)) == 60
    check_invariants(table)


@pytest.mark.shows("P7")
def test_several_rescales_are_taken_back_at_once() -> None:
    table = a_table("memory://rescale-several", rules=None)
    before = contents(table)
    done = [table.buckets.overwrite(f"d,{count}") for count in (3, 4, 5)]
    first, files = done[0], table.store.list("", recursive=True).files
    planned = table.buckets.plan_rollback(first.instant, with_newer=True).work
    assert planned.instants == tuple(one.instant for one in reversed(done))
    assert all(f"replacecommit of {one.instant}" in str(planned) for one in done)
    assert planned.files and all(f"delete {path}" in str(planned) for path in planned.files)
    assert table.store.list("", recursive=True).files == files, "a dry run"
    assert table.buckets.rollback(first.instant, with_newer=True) == planned
    left = {file.path for file in table.store.list("", recursive=True).files}
    assert left.isdisjoint(planned.files)
    table = Table.open(table.store.uri)
    assert (contents(table), counts(table)) == (before, {"d0": 2, "d1": 2, "d2": 2})
    assert table.buckets.show_config() == ()
    check_invariants(table)


@pytest.fixture(scope="module")
def rescaled() -> tuple[Table, list[str]]:
    """A table that was rescaled three times, and the instants of that; to be copied."""
    table = a_table("memory://rescaled")
    return table, [table.buckets.overwrite(f"d,{count}").instant for count in (3, 4, 5)]


def copy_of(table: Table, name: str) -> Table:
    store = MemoryStore(name)
    for file in table.store.list("", recursive=True).files:
        store.put(file.path, table.store.read(file.path))
    return Table.open(store.uri)


@pytest.mark.shows("P7")
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_write_between_several_rescales_refuses_them_as_a_whole(after: int) -> None:
    """Not only the rest, once the newer ones are gone."""
    table = a_table(f"memory://rescale-between-{after}")
    instants = []
    for number in range(3):
        instants.append(table.buckets.overwrite(f"d,{3 + number}").instant)
        if number + 1 == after:
            between = table.upsert(rows_of(9, ts=7)).instant
    before = table.store.list("", recursive=True).files
    for act in (table.buckets.plan_rollback, table.buckets.rollback):
        with pytest.raises(InstantError, match=f"cannot be rolled back.*{between}"):
            act(instants[0], with_newer=True)
    assert table.store.list("", recursive=True).files == before
    if after < 3:
        table.buckets.rollback(instants[after], with_newer=True)
        assert counts(table) == dict.fromkeys(["d0", "d1", "d2"], 2 + after)
    check_invariants(table)


@pytest.mark.shows("P7")
def test_a_savepoint_keeps_several_rescales_as_a_whole(rescaled: tuple[Table, list[str]]) -> None:
    table, instants = copy_of(rescaled[0], "rescale-kept"), rescaled[1]
    table.savepoint(instants[1])
    before = table.store.list("", recursive=True).files
    with pytest.raises(InstantError, match=r"3 rescales .*nothing was changed.*savepoint"):
        table.buckets.rollback(instants[0], with_newer=True)
    assert table.store.list("", recursive=True).files == before


def changing(operations: list[str]) -> list[int]:
    looks = ("list", "stat", "read")
    return [n for n, what in enumerate(operations, 1) if what.split()[0] not in looks]


@pytest.mark.shows("P7", "X2")
def test_a_writer_that_comes_between_several_rollbacks_finds_all_of_them_or_none(
    rescaled: tuple[Table, list[str]],
) -> None:
    table, instants = copy_of(rescaled[0], "rescale-comer"), rescaled[1]
    counting = FaultyStore(table.store)
    roll_back_rescale(counting, instants[0], with_newer=True)
    outcomes = set[tuple[bool, bool]]()
    for number in changing(counting.operations)[::4]:
        table = copy_of(rescaled[0], f"rescale-comer-{number}")
        wrote: list[bool] = []

        def write(store: Store, wrote: list[bool] = wrote) -> None:
            try:
                Table.open(store.uri).upsert(rows_of(60, ts=9))
                wrote.append(True)
            except ConflictError:
                wrote.append(False)

        try:
            roll_back_rescale(
                FaultyStore(table.store, fails_at=number, meanwhile=write), instants[0], with_newer=True
            )
            is_done = True
        except (ConflictError, InstantError):
            is_done = False
        expected = {"d0": 2, "d1": 3, "d2": 2} if is_done else {"d0": 5, "d1": 5, "d2": 5}
        assert counts(table) == expected, counting.operations[number - 1]
        assert {row[2] for row in contents(table)} == ({9} if wrote == [True] else {1, 2})
        check_invariants(table)
        outcomes.add((is_done, wrote[0]))
    assert {(True, False), (False, True)} <= outcomes, "one gives way, before the rollbacks and between them"


@pytest.mark.shows("P7", "X2")
def test_several_rollbacks_that_were_cut_off_are_gone_on_with_by_the_same_call(
    rescaled: tuple[Table, list[str]],
) -> None:
    table, instants = copy_of(rescaled[0], "rescale-cut"), rescaled[1]
    counting = FaultyStore(table.store)
    roll_back_rescale(counting, instants[0], with_newer=True)
    before, before_counts = contents(table), counts(table)
    for number in changing(counting.operations)[::-5]:
        table = copy_of(rescaled[0], f"rescale-cut-{number}")
        with pytest.raises(InjectedError):
            roll_back_rescale(
                FaultyStore(table.store, fails_at=number, is_dead=True), instants[0], with_newer=True
            )
        try:
            done = roll_back_rescale(table.store, instants[0], with_newer=True, clock=clock(later=True))
            assert done.instants[-1] == instants[0], counting.operations[number - 1]
        except InstantError as error:
            assert f"{instants[0]} is rolled back" in str(error), "it was cut off at its very end"
        assert (contents(table), counts(table)) == (before, before_counts)
        assert load_state(table.store).timeline.pending() == ()
        check_invariants(table)
        table.upsert(rows_of(60, ts=9))
        check_invariants(table)


@pytest.mark.shows("P11")
def test_a_simple_table_gets_rules_though_nothing_needs_rewriting() -> None:
    table = a_table("memory://rescale-upgrade", rules=None)
    files = {
        file.path for file in table.store.list("", recursive=True).files if file.path.endswith(".parquet")
    }
    done = table.buckets.overwrite("later,8")
    assert done.partitions == ()
    assert files == {
        file.path for file in table.store.list("", recursive=True).files if file.path.endswith(".parquet")
    }
    table = Table.open(table.store.uri)
    later = rows_of(60).set_column(1, "dt", pa.array(["later"] * 60))
    table.upsert(later)
    assert counts(table) == {"d0": 2, "d1": 2, "d2": 2, "later": 8}
    check_invariants(table)


@pytest.mark.thorough
@pytest.mark.shows("P14")
@pytest.mark.parametrize("table_type", TYPES)
def test_writers_that_never_stop_lose_nothing_while_the_rules_change_ten_times(
    table_type: str, tmp_path: Path
) -> None:
    table = a_table(tmp_path / "t", table_type)
    ended = Event()
    acknowledged: list[int] = []

    def write() -> None:
        number = 10
        while not ended.is_set():
            number += 1
            try:
                Table.open(tmp_path / "t").upsert(rows_of(12, ts=number))
            except CommitConflictError:
                continue
            acknowledged.append(number)

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            for number in range(10):
                rules = declare_rules(f"d0,{number % 4 + 1};d1,{number % 3 + 1}", 2)
                rescale_table(LocalStore(tmp_path / "t"), rules)
                seen = contents(table)
                assert len(seen) == len({row[0] for row in seen}) == 60
        finally:
            ended.set()
        writer.result(60)
    assert acknowledged
    newest = {row[0]: row[2] for row in contents(table)}
    assert all(newest[f"k{n}"] >= acknowledged[-1] for n in range(12))
    assert counts(table)["d0"] == 9 % 4 + 1
    check_invariants(table)


@pytest.mark.thorough
@pytest.mark.shows("P6")
@pytest.mark.parametrize("took_effect", [False, True])
def test_a_rescale_that_is_cut_off_anywhere_is_whole_or_nothing(took_effect: bool, tmp_path: Path) -> None:
    whole = a_table(f"memory://rescale-cut-whole-{took_effect}")
    before = contents(whole)
    rules = declare_rules("d0,3", 2)
    number, is_done = 0, False
    while not is_done:
        number += 3
        table = a_table(f"memory://rescale-cut-{took_effect}-{number}")
        faulty = FaultyStore(table.store, fails_at=number, took_effect=took_effect, is_dead=True)
        try:
            rescale_table(faulty, rules)
            is_done = True
        except InjectedError:
            pass
        state = load_state(table.store)
        recover(table.store, state.properties, clock=clock(later=True))
        assert contents(table) == before
        assert counts(table) in ({"d0": 2, "d1": 3, "d2": 2}, {"d0": 3, "d1": 2, "d2": 2})
        timeline = load_state(table.store).timeline
        versions = list_versions(table.store).active
        assert all(i in {i.requested for i in timeline.instants} or not i.strip("0") for i in versions)
        if timeline.pending():
            abort_rescale(table.store, clock=clock(later=True))
            assert counts(table) == {"d0": 2, "d1": 3, "d2": 2}
            assert all(not instant.strip("0") for instant in list_versions(table.store).active)
        check_invariants(table)
    assert number > 30


def test_what_cannot_be_rescaled_is_refused_and_left_as_it_was() -> None:
    table = a_table("memory://rescale-refused", "MERGE_ON_READ")
    before = [file.path for file in table.store.list("", recursive=True).files]
    for wrong, match in (("d0,0", "position"), ("d0", "comma"), ("d0,99999999", "65,?536")):
        with pytest.raises(ConfigError, match=match):
            table.buckets.overwrite(wrong)
    with pytest.raises(ConfigError, match="type"):
        table.buckets.add("d0,4", rule_type="range")
    with pytest.raises(InstantError, match="no completed rescale"):
        table.buckets.rollback("20200101000000000")
    assert [file.path for file in table.store.list("", recursive=True).files] == before
    state = load_state(table.store)
    schedule_compaction(table.store, plan_compaction(state, files_of(state), load_held(state), now=""))
    with pytest.raises(ConcurrentWriteError, match="is pending"):
        table.buckets.overwrite("d,7")
    assert not table.store.list(".hoodie/.temp", recursive=True).files
    assert counts(table) == {"d0": 2, "d1": 3, "d2": 2}


@pytest.mark.shows("P5")
def test_a_table_of_another_engine_is_refused() -> None:
    table = create_table(
        "memory://rescale-ring",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=ConsistentBuckets(2),
    )
    table.upsert(rows_of(30))
    before = [file.path for file in table.store.list("", recursive=True).files]
    acts: list[Callable[[], object]] = [
        lambda: table.buckets.plan_overwrite("d,3"),
        lambda: table.buckets.overwrite("d,3", bucket_number=2),
        lambda: table.buckets.add("d,3", bucket_number=2),
        table.buckets.resume,
        table.buckets.abort,
    ]
    for act in acts:
        with pytest.raises(ConfigError, match=r"spread by a count.*buckets\.resize"):
            act()
    assert [file.path for file in table.store.list("", recursive=True).files] == before


@pytest.mark.shows("P12")
def test_an_unknown_rule_type_is_refused_by_name() -> None:
    table = a_table("memory://rescale-unknown-type")
    before = [file.path for file in table.store.list("", recursive=True).files]
    for act in (table.buckets.plan_overwrite, table.buckets.overwrite):
        with pytest.raises((ConfigError, UnsupportedError), match="season"):
            act("a,3", rule_type="season")
    assert [file.path for file in table.store.list("", recursive=True).files] == before


@pytest.mark.shows("P7")
def test_a_write_that_is_no_rescale_is_not_rolled_back_as_one() -> None:
    table = a_table("memory://rescale-none")
    table.overwrite(rows_of(3, ts=5))
    writes = [instant.requested for instant in load_state(table.store).timeline.writes]
    for instant in writes:
        with pytest.raises(InstantError, match="no completed rescale; found none"):
            table.buckets.rollback(instant)
    assert [instant.requested for instant in load_state(table.store).timeline.writes] == writes
