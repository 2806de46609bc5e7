"""Two writers at once: a conflict that is missed loses rows, one that is imagined costs a rewrite."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, SimpleBuckets, Table, create_table
from bucketlake.commit.conflicts import (
    Conflict,
    Footprint,
    Other,
    ReadBasis,
    ReadScope,
    find_conflict,
    find_stale_read,
    footprint_of,
)
from bucketlake.errors import CommitConflictError, ConfigError, ProofError, SchemaError
from bucketlake.index import HashingMetadata, RingIndex, SimpleIndex, ring_hash_of
from bucketlake.index.told import IndexValue
from bucketlake.metadata.change import INDEX_FILES_KEY
from bucketlake.services.compaction import compact_table
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import CommitMetadata, WriteStat
from bucketlake.write import (
    ArrowRows,
    CommitSummary,
    Operation,
    WriteOptions,
    append_rows,
    begin_append,
    complete_append,
)
from bucketlake.write.job import run_write
from bucketlake.write.state import WriteState
from bucketlake.write.task import GroupWritten

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
A, B = ("dt=1", "00000001"), ("dt=1", "00000002")


C = ("dt=2", "00000001")


@pytest.mark.parametrize(
    ("other", "scopes"),
    [
        (Footprint(appended=frozenset({A})), "group partition table"),
        (Footprint(rewritten=frozenset({A})), "group partition table"),
        (Footprint(replaced_partitions=frozenset({"dt=1"})), "group partition table"),
        (Footprint(is_whole_table=True), "group partition table"),
        (Footprint(appended=frozenset({B})), "partition table"),
        (Footprint(appended=frozenset({C})), "table"),
        (Footprint(), ""),
    ],
)
def test_rows_that_were_computed_are_stale_once_what_was_read_has_changed(
    other: Footprint, scopes: str
) -> None:
    """Logs commute, and still an update that was computed before another log would undo it."""
    for scope in ReadScope:
        read = ReadBasis(frozenset({("dt=1", f"{A[1]}-x")}), scope)
        found = find_stale_read(
            read, Footprint(), [Other("them", other)], slot_of=lambda partition, file_id: file_id[:8]
        )
        assert (found == "them") == (str(scope) in scopes.split()), scope
    written = ReadBasis(frozenset(), ReadScope.GROUP)
    ours = Footprint(appended=frozenset({A}))
    found = find_stale_read(written, ours, [Other("them", other)], slot_of=lambda partition, file_id: None)
    assert (found == "them") == ("group" in scopes), "a bucket that gets new rows was looked into, too"


def test_a_log_that_was_begun_before_an_update_and_ends_after_it_does_not_commute() -> None:
    """Of equal ordering values readers take the later instant's, and the update was computed without it."""
    log = Footprint(appended=frozenset({A}))
    update = Footprint(appended=frozenset({A}), is_computed=True)
    assert find_conflict(log, [Other("update", update)], logs_commute=True) is not None
    assert find_conflict(log, [Other("update", update, is_earlier=True)], logs_commute=True) is None


def rows_of(*rows: tuple[str, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def rows_in(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(meta_columns=False).to_pylist())


def a_stat(partition: str, file_id: str, *, is_log: bool) -> WriteStat:
    return WriteStat(
        partition=partition,
        file_id=file_id,
        path=f"{partition}/{file_id}",
        previous_instant=None,
        written=1,
        inserted=1,
        updated=0,
        deleted=0,
        errors=0,
        written_bytes=1,
        size_bytes=1,
        log_files=("log",) if is_log else (),
    )


@pytest.mark.parametrize(
    ("ours", "other", "by_rows", "by_commit"),
    [
        (Footprint(rewritten=frozenset({A})), Footprint(rewritten=frozenset({A})), True, True),
        (Footprint(rewritten=frozenset({A})), Footprint(rewritten=frozenset({B})), False, False),
        (Footprint(rewritten=frozenset({A})), Footprint(appended=frozenset({A})), True, True),
        (Footprint(appended=frozenset({A})), Footprint(appended=frozenset({A})), False, True),
        (Footprint(appended=frozenset({A})), Footprint(appended=frozenset({B})), False, False),
        (Footprint(appended=frozenset({A})), Footprint(replaced_partitions=frozenset({"dt=1"})), True, True),
        (
            Footprint(appended=frozenset({A})),
            Footprint(replaced_partitions=frozenset({"dt=2"})),
            False,
            False,
        ),
        (Footprint(is_whole_table=True), Footprint(), True, True),
        (Footprint(schema=SCHEMA), Footprint(schema=SCHEMA), False, False),
        (Footprint(schema=SCHEMA), Footprint(schema=SCHEMA.remove(3)), True, True),
        (Footprint(schema=SCHEMA), Footprint(), False, False),
    ],
)
def test_who_is_in_whose_way(ours: Footprint, other: Footprint, by_rows: bool, by_commit: bool) -> None:
    for left, right in ((ours, other), (other, ours)):
        expected = Conflict("x")
        assert find_conflict(left, [Other("x", right)], logs_commute=True) == (expected if by_rows else None)
        assert find_conflict(left, [Other("x", right)], logs_commute=False) == (
            expected if by_commit else None
        )


@pytest.mark.parametrize(
    ("ours", "other", "stale"),
    [
        (Footprint(rewritten=frozenset({A, B})), Footprint(rewritten=frozenset({A})), {A}),
        (Footprint(rewritten=frozenset({A})), Footprint(rewritten=frozenset({B})), None),
        (Footprint(appended=frozenset({A})), Footprint(appended=frozenset({A})), None),
        (Footprint(appended=frozenset({A}), is_delete=True), Footprint(appended=frozenset({A})), None),
        (Footprint(appended=frozenset({A})), Footprint(rewritten=frozenset({A})), set()),
        (Footprint(rewritten=frozenset({A})), Footprint(replaced_partitions=frozenset({"dt=1"})), set()),
        (Footprint(schema=SCHEMA), Footprint(schema=SCHEMA.remove(3)), set()),
    ],
)
def test_of_two_the_one_begun_later_may_keep_what_is_not_stale(
    ours: Footprint, other: Footprint, stale: set[tuple[str, str]] | None
) -> None:
    expected = None if stale is None else Conflict("x", frozenset(stale))
    for logs_commute in (True, False):
        assert (
            find_conflict(ours, [Other("x", other, is_earlier=True)], logs_commute=logs_commute) == expected
        )
    mixed = [Other("x", other, is_earlier=True), Other("y", Footprint(is_whole_table=True))]
    assert find_conflict(ours, mixed, logs_commute=True) in (Conflict("x"), Conflict("y"))


def test_a_delete_does_not_commute() -> None:
    delete, upsert = Footprint(appended=frozenset({A}), is_delete=True), Footprint(appended=frozenset({A}))
    assert find_conflict(delete, [Other("x", upsert)], logs_commute=True) == Conflict("x")
    assert find_conflict(upsert, [Other("x", delete)], logs_commute=True) == Conflict("x")


@pytest.mark.parametrize("is_earlier", [True, False])
def test_where_an_index_has_every_key_logs_that_take_some_away_do_not_pass_others(is_earlier: bool) -> None:
    both = Footprint(appended=frozenset({A, B}))
    removing = Footprint(appended=frozenset({A}), removing=frozenset({A}))
    elsewhere = Footprint(appended=frozenset({A, B}), removing=frozenset({B}))
    for ours, theirs in ((both, removing), (removing, both), (removing, removing)):
        other = [Other("x", theirs, is_earlier=is_earlier)]
        assert find_conflict(ours, other, logs_commute=True, keeps_keys=True) == Conflict("x")
        assert find_conflict(ours, other, logs_commute=True) is None
    for ours, theirs in ((Footprint(appended=frozenset({A})), elsewhere), (both, both)):
        other = [Other("x", theirs, is_earlier=is_earlier)]
        assert find_conflict(ours, other, logs_commute=True, keeps_keys=True) is None


@pytest.mark.parametrize("is_earlier", [True, False])
@pytest.mark.parametrize("logs_commute", [True, False])
def test_where_an_index_has_values_logs_of_one_file_group_never_pass_each_other(
    is_earlier: bool, logs_commute: bool
) -> None:
    ours = Footprint(appended=frozenset({A}))
    for theirs, expected in ((frozenset({A, B}), Conflict("x")), (frozenset({B}), None)):
        other = [Other("x", Footprint(appended=theirs), is_earlier=is_earlier)]
        assert find_conflict(ours, other, logs_commute=logs_commute, keeps_values=True) == expected


def test_a_log_takes_keys_away_if_it_says_so_or_says_nothing() -> None:
    stat = a_stat("p", "g", is_log=True)

    def removing(extra: dict[str, str], deleted: int) -> bool:
        commit = CommitMetadata(
            operation="UPSERT", write_stats=(replace(stat, deleted=deleted),), extra=extra
        )
        return bool(footprint_of(commit, lambda _, file_id: file_id).removing)

    assert not removing({INDEX_FILES_KEY: "[]"}, 0)
    assert removing({INDEX_FILES_KEY: "[]"}, 1)
    assert removing({}, 0)


def test_a_footprint_knows_groups_by_their_bucket() -> None:
    bucket_of = SimpleIndex(8, ("id",)).slot_of_file
    first = footprint_of(
        CommitMetadata(
            operation="UPSERT",
            write_stats=(
                a_stat("p", "00000001-159a-4953-a3c4-b777b847ae7f-0", is_log=False),
                a_stat("p", "00000002-159a-4953-a3c4-b777b847ae7f-0", is_log=True),
            ),
        ),
        bucket_of,
    )
    assert first == Footprint(
        frozenset({("p", "00000001")}),
        frozenset({("p", "00000002")}),
        log_ids={("p", "00000002-159a-4953-a3c4-b777b847ae7f-0"): ("p", "00000002")},
        removing=frozenset({("p", "00000002")}),  # it does not say what became of keys
    )
    replacing = CommitMetadata(
        operation="INSERT_OVERWRITE", write_stats=(), replaced={"p": ("00000007-aaaa-0",), "q": ("x",)}
    )
    assert footprint_of(replacing, bucket_of).replaced_partitions == {"p", "q"}
    assert footprint_of(replacing, bucket_of).rewritten == {("p", "00000007"), ("q", "x")}
    compaction = CommitMetadata(
        operation="COMPACT", write_stats=(a_stat("p", "00000001-a", is_log=False),), is_compaction=True
    )
    assert footprint_of(compaction, bucket_of) == Footprint()


def test_a_footprint_knows_buckets_of_a_ring_as_its_index_does() -> None:
    rings = RingIndex({}, ("id",), initial_count=2)
    first, second = HashingMetadata.initial("p", 2).ring.prefixes
    stats = (a_stat("p", f"{first}-0", is_log=False), a_stat("p", "00000001-of-another-engine", is_log=False))
    touched = footprint_of(CommitMetadata(operation="UPSERT", write_stats=stats), rings.slot_of_file)
    assert touched.rewritten == {("p", first), ("p", "00000001-of-another-engine")}
    assert ("p", second) not in touched.groups


class Overtaken(ArrowRows):
    """Rows whose tasks are done when another writer comes and commits, a number of times."""

    def __init__(self, rows: pa.Table, table: Table, other: pa.Table, times: int = 1) -> None:
        super().__init__(rows)
        self.runs = 0
        self._overtake = lambda: table.upsert(other, merge_schema=True)
        self._times = times

    def run(self, plan: WriteState) -> tuple[object, tuple[GroupWritten, ...]]:  # type: ignore[override] # as ours
        done = super().run(plan)
        self.runs += 1
        if self.runs <= self._times:
            self._overtake()
        return done


def a_table(
    name: str,
    *,
    table_type: str = "COPY_ON_WRITE",
    ordering: str | tuple[()] = "ts",
    index: IndexValue | None = None,
) -> Table:
    return create_table(
        f"memory://{name}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=index or SimpleBuckets(1),
        table_type=table_type,
    )


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("seeded", [False, True])
def test_a_write_that_was_overtaken_in_its_bucket_is_run_again(table_type: str, seeded: bool) -> None:
    table = a_table(f"overtaken-{table_type}-{seeded}", table_type=table_type, ordering=())
    if seeded:
        table.upsert(rows_of(("a", "x", 1, 0)))
    rows = Overtaken(
        rows_of(("a", "x", 1, 1), ("b", "x", 1, 1)), table, rows_of(("a", "x", 1, 2), ("c", "x", 1, 2))
    )
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 2
    assert rows_in(table) == [("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "x", 1, 2)]
    assert len(table.layout().partitions) == 1


class Slow(ArrowRows):
    """Rows whose tasks are done, but wait for a signal."""

    def __init__(self, rows: pa.Table) -> None:
        super().__init__(rows)
        self.has_begun, self.may_end = Event(), Event()

    def run(self, plan: WriteState) -> tuple[object, tuple[GroupWritten, ...]]:  # type: ignore[override] # as ours
        done = super().run(plan)
        self.has_begun.set()
        assert self.may_end.wait(30)
        return done


class LetsPass(ArrowRows):
    """Rows whose tasks, when done, let another write commit that was begun before."""

    def __init__(self, rows: pa.Table, before: Slow, thread: Future[CommitSummary]) -> None:
        super().__init__(rows)
        self.plans: list[WriteState] = []
        self._before, self._thread = before, thread

    def run(self, plan: WriteState) -> tuple[object, tuple[GroupWritten, ...]]:  # type: ignore[override] # as ours
        done = super().run(plan)
        self.plans.append(plan)
        self._before.may_end.set()
        self._thread.result(30)
        return done


def overtake(
    table: Table, earlier: pa.Table, later: pa.Table, operation: Operation = Operation.UPSERT
) -> tuple[LetsPass, CommitSummary]:
    """Begin `earlier`, begin `later`, commit the one and then the other."""
    slow = Slow(earlier)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_write, slow, table.store, Operation.UPSERT)
        assert slow.has_begun.wait(30)
        rows = LetsPass(later, slow, first)
        summary = run_write(rows, table.store, operation)
    return rows, summary


@pytest.mark.shows("X2")
def test_only_the_file_groups_that_were_in_the_way_are_written_again() -> None:
    table = a_table("partly")
    table.upsert(rows_of(("a", "x", 1, 0), ("a", "y", 1, 0), ("b", "x", 1, 0)))
    rows, summary = overtake(
        table,
        rows_of(("a", "x", 5, 5), ("c", "x", 5, 5)),
        rows_of(("a", "x", 2, 2), ("a", "y", 2, 2), ("b", "x", 2, 2)),
    )
    first, second = (plan.only for plan in rows.plans)
    assert first is None
    assert [(partition, file_id[:8]) for partition, file_id in second or ()] == [("x", "00000000")]
    assert {plan.instant for plan in rows.plans} == {summary.instant}
    assert rows_in(table) == [("a", "x", 5, 5), ("a", "y", 2, 2), ("b", "x", 2, 2), ("c", "x", 5, 5)]
    assert summary.updated == 2  # "a" in "x" was outdated by then
    check_invariants(table)


@pytest.mark.shows("X2", "C5")
@pytest.mark.parametrize("seeded", [True, False])
def test_only_the_buckets_of_a_ring_that_were_in_the_way_are_written_again(seeded: bool) -> None:
    """Their file ids begin with no number; the ring knows them."""
    table = a_table(f"partly-on-a-ring-{seeded}", index=ConsistentBuckets(2))
    keys = [f"k{n}" for n in range(8)]
    if seeded:
        table.upsert(rows_of(*((key, day, 1, 0) for key in keys for day in "xy")))
    ring = HashingMetadata.initial("x", 2).ring
    here = [key for key in keys if ring.node_of(ring_hash_of([key])) == ring.nodes[0]]
    assert 0 < len(here) < len(keys)
    rows, summary = overtake(
        table,
        rows_of(*((key, "x", 5, 5) for key in here)),
        rows_of(*((key, day, 2, 2) for key in keys for day in "xy")),
    )
    assert [plan.only for plan in rows.plans] == [None, {("x", f"{ring.nodes[0].file_id_prefix}-0")}]
    assert {plan.instant for plan in rows.plans} == {summary.instant}
    assert rows_in(table) == sorted(
        (key, day, *((5, 5) if key in here and day == "x" else (2, 2))) for key in keys for day in "xy"
    )
    check_invariants(table)


def test_a_resize_that_came_in_between_has_the_whole_write_run_again() -> None:
    """What takes the place of a stale bucket is not written by half."""
    table = a_table("resized-meanwhile", index=ConsistentBuckets(2))
    rows_before = [(f"k{n}", "x", 1, 0) for n in range(40)]
    table.upsert(rows_of(*rows_before))
    begun: list[WriteState] = []

    class Resized(ArrowRows):
        def run(self, plan: WriteState) -> tuple[object, tuple[GroupWritten, ...]]:  # type: ignore[override] # as ours
            begun.append(plan)
            if len(begun) == 1:
                table.buckets.resize(
                    file_bytes=1, split_threshold=1.0, merge_threshold=0.1, rounds=1, max_buckets=4
                )
            return super().run(plan)

    run_write(
        Resized(rows_of(*((key, day, 2, 2) for key, day, _, _ in rows_before))), table.store, Operation.UPSERT
    )
    assert [plan.only for plan in begun] == [None, None]
    assert rows_in(table) == sorted((key, day, 2, 2) for key, day, _, _ in rows_before)
    assert [part.buckets for part in table.layout().partitions] == [4]
    check_invariants(table)


def test_rows_that_have_all_become_outdated_still_replace_their_file() -> None:
    table = a_table("idle")
    table.upsert(rows_of(("a", "x", 1, 0)))
    rows, summary = overtake(table, rows_of(("a", "x", 5, 5)), rows_of(("a", "x", 2, 2)))
    assert len(rows.plans) == 2
    assert rows_in(table) == [("a", "x", 5, 5)]
    assert summary.outdated == 1
    check_invariants(table)


@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.DELETE])
def test_logs_begun_and_committed_in_one_order_are_not_in_each_others_way(operation: Operation) -> None:
    table = a_table(f"in-order-{operation}", table_type="MERGE_ON_READ", ordering=())
    table.upsert(rows_of(("a", "x", 1, 0)))
    later = rows_of(("a", "x", 1, 2))
    rows, _ = overtake(table, rows_of(("a", "x", 1, 1), ("b", "x", 1, 1)), later, operation)
    assert len(rows.plans) == 1
    kept = [] if operation is Operation.DELETE else [("a", "x", 1, 2)]
    assert rows_in(table) == [*kept, ("b", "x", 1, 1)]


def test_two_that_open_a_bucket_at_once_leave_it_one_file_group() -> None:
    table = a_table("opened-twice")
    rows, summary = overtake(table, rows_of(("a", "x", 1, 1)), rows_of(("b", "x", 1, 2), ("b", "y", 1, 2)))
    assert [plan.only for plan in rows.plans] == [None, None]
    assert rows.plans[0].instant != summary.instant
    assert rows_in(table) == [("a", "x", 1, 1), ("b", "x", 1, 2), ("b", "y", 1, 2)]
    check_invariants(table)


@pytest.mark.parametrize("second", [(("b", "x", 2, 2),), (("a", "y", 2, 2),), ()])
def test_rows_that_change_between_two_runs_are_noticed(second: tuple[tuple[str, str, int, int], ...]) -> None:
    table = a_table("changing-" + "-".join(row[0] + row[1] for row in second))
    table.upsert(rows_of(("a", "x", 1, 0)))
    slow = Slow(rows_of(("a", "x", 5, 5)))

    class Changing(LetsPass):
        def run(self, plan: WriteState) -> tuple[object, tuple[GroupWritten, ...]]:
            done = super().run(plan)
            self._rows = rows_of(*second)
            return done

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(run_write, slow, table.store, Operation.UPSERT)
        assert slow.has_begun.wait(30)
        with pytest.raises(ProofError, match="got other rows the second time"):
            run_write(Changing(rows_of(("a", "x", 2, 2)), slow, first), table.store, Operation.UPSERT)
    assert rows_in(table) == [("a", "x", 5, 5)]


def test_writes_to_different_buckets_do_not_meet() -> None:
    table = a_table("different")
    rows = Overtaken(rows_of(("a", "x", 1, 1)), table, rows_of(("a", "y", 1, 2)))
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 1
    assert rows_in(table) == [("a", "x", 1, 1), ("a", "y", 1, 2)]


def test_logs_of_one_bucket_may_both_commit_where_rows_say_which_is_newer() -> None:
    table = a_table("both-append", table_type="MERGE_ON_READ")
    table.upsert(rows_of(("a", "x", 1, 0)))
    rows = Overtaken(rows_of(("a", "x", 3, 3)), table, rows_of(("a", "x", 2, 2), ("b", "x", 2, 2)))
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 1
    assert rows_in(table) == [("a", "x", 3, 3), ("b", "x", 2, 2)]


def test_a_write_that_is_always_overtaken_gives_up_and_leaves_nothing() -> None:
    table = a_table("starved")
    rows = Overtaken(rows_of(("z", "x", 1, 1)), table, rows_of(("a", "x", 1, 2)), times=1_000)
    with pytest.raises(CommitConflictError, match="came in between"):
        run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 6
    assert rows_in(table) == [("a", "x", 1, 2)]
    assert not [i for i in table.timeline() if i.state != "completed"]


def test_a_column_that_was_added_meanwhile_is_not_forgotten() -> None:
    table = a_table("evolving")
    wider = rows_of(("a", "y", 1, 2)).append_column("note", pa.array(["n"]))
    rows = Overtaken(rows_of(("a", "x", 1, 1)).append_column("more", pa.array([7])), table, wider)
    with pytest.raises(SchemaError, match="note"):
        run_write(rows, table.store, Operation.UPSERT, WriteOptions(merge_schema=True))
    assert table.schema.names == [*SCHEMA.names, "note"]


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_column_that_was_added_meanwhile_is_filled_in_by_a_writer_that_began_without_it(
    table_type: str,
) -> None:
    table = a_table(f"filled-{table_type}", table_type=table_type)
    table.alter(allow_missing_columns=True)
    wider = rows_of(("a", "y", 1, 2)).append_column("note", pa.array(["n"]))
    rows = Overtaken(rows_of(("a", "x", 1, 1)), table, wider)
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 2
    found = table.to_arrow(meta_columns=False).sort_by("dt")
    assert found.schema == SCHEMA.append(pa.field("note", pa.string()))
    assert found.column("note").to_pylist() == [None, "n"]


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_many_writers_lose_nothing(kind: str, table_type: str, tmp_path: Path) -> None:
    path = f"memory://many-{table_type}" if kind == "memory" else str(tmp_path / "t")
    create_table(path, SCHEMA, key="id", partition="dt", ordering="ts", buckets=2, table_type=table_type)

    def work(writer: int) -> None:
        for batch in range(5):
            own = [(f"w{writer}-{batch}-{n}", f"d{n % 2}", 1, writer) for n in range(4)]
            shared = [("shared", "d0", 10 * batch + writer, writer)]
            while True:
                try:
                    Table.open(path).upsert(rows_of(*own, *shared))
                except CommitConflictError:
                    continue
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = rows_in(Table.open(path))
    assert len(found) == 4 * 5 * 4 + 1
    assert ("shared", "d0", 43, 3) in found


def test_two_appends_that_open_a_bucket_at_once_leave_it_one_file_group() -> None:
    table = a_table("appended-twice", table_type="MERGE_ON_READ")
    first, second = (begin_append(table.store, SCHEMA, WriteOptions()) for _ in range(2))
    done = append_rows(first, rows_of(("a", "x", 1, 1)), task=0)
    late = append_rows(second, rows_of(("b", "x", 1, 2)), task=0)
    complete_append(first, [done])
    with pytest.raises(CommitConflictError, match="came in between"):
        complete_append(second, [late])
    assert rows_in(table) == [("a", "x", 1, 1)]
    check_invariants(table)


def a_non_blocking_table(name: str) -> Table:
    return create_table(
        f"memory://{name}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=1,
        table_type="MERGE_ON_READ",
        non_blocking=True,
    )


@pytest.mark.shows("X2")
def test_writers_of_a_non_blocking_table_may_both_open_a_bucket() -> None:
    table = a_non_blocking_table("non-blocking")
    rows = Overtaken(
        rows_of(("a", "x", 1, 1), ("b", "x", 1, 1)), table, rows_of(("a", "x", 2, 2), ("c", "x", 2, 2))
    )
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 1
    assert rows_in(table) == [("a", "x", 2, 2), ("b", "x", 1, 1), ("c", "x", 2, 2)]
    ids = {row["_hoodie_file_name"].partition("_")[0] for row in table.to_arrow().to_pylist()}
    assert ids == {"00000000-0000-0000-0000-000000000000-0"}
    check_invariants(table)


def test_a_non_blocking_table_is_loaded_compacted_and_written_on() -> None:
    table = a_non_blocking_table("non-blocking-life")
    table.bulk_insert(rows_of(("a", "x", 1, 1), ("b", "y", 1, 1)))
    table.upsert(rows_of(("a", "x", 2, 2), ("c", "z", 2, 2)))
    compact_table(table.store)
    table.upsert(rows_of(("a", "x", 3, 3), ("c", "z", 1, 1)))
    assert rows_in(table) == [("a", "x", 3, 3), ("b", "y", 1, 1), ("c", "z", 2, 2)]
    check_invariants(table)


def test_what_a_non_blocking_table_cannot_be_or_do_is_refused() -> None:
    table = a_non_blocking_table("non-blocking-refusals")
    table.upsert(rows_of(("a", "x", 1, 1)))
    for act in (
        lambda: table.overwrite(rows_of(("a", "x", 1, 1))),
        lambda: table.overwrite(rows_of(("a", "x", 1, 1)), whole_table=True),
        lambda: table.delete_partitions("x"),
        lambda: table.cluster(by="v"),
    ):
        with pytest.raises(ConfigError, match="non-blocking"):
            act()
    assert len(table.timeline()) == 1
    for kind, ordering in (("COPY_ON_WRITE", "ts"), ("MERGE_ON_READ", ())):
        with pytest.raises(ConfigError, match="must be merge-on-read and have ordering columns"):
            create_table(
                f"memory://none-{kind}",
                SCHEMA,
                key="id",
                ordering=ordering,
                table_type=kind,
                non_blocking=True,
            )
