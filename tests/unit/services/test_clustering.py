"""A clustering changes where rows are, and nothing else; and writers never wait for it, nor lose a row to it."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake import Table, create_table
from bucketlake.commit.claims import Claim, Outcome, list_claims, take
from bucketlake.commit.heartbeat import start_heartbeat
from bucketlake.commit.recovery import recover
from bucketlake.commit.transaction import _refuse_movers as refuse_movers
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    InstantError,
    UnsupportedError,
)
from bucketlake.index import SimpleIndex
from bucketlake.layout import data_files_of
from bucketlake.layout.names import BaseFileName, path_in_partition, render_base_file_name
from bucketlake.services import (
    Clustering,
    ClusteringTrigger,
    Held,
    Retention,
    archive_table,
    check_table,
    clean_table,
    cluster_table,
    compact_table,
    create_savepoint,
    find_sorted,
    load_held,
    look_for_restore,
    look_for_rollback,
    plan_clean,
    plan_clustering,
    plan_compaction,
    rollback_clustering,
    run_clustering,
    run_restore,
    run_rollback,
    schedule_clustering,
    schedule_compaction,
)
from bucketlake.services.clustering import _checked_plan as checked_plan
from bucketlake.services.clustering import _work as work_of
from bucketlake.services.regroup import Regroup, RegroupTask, keep_buckets, regroup
from bucketlake.state import files_of, load_state
from bucketlake.storage import FileStat, LocalStore, open_input
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import (
    SORT_STRATEGY,
    Action,
    RestorePlan,
    decode_body,
    encode_restore_metadata,
    load_history,
    publish,
    read_archived_plan,
    read_commit_metadata,
    read_requested_replace,
)
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import orders, orders_table, rows_of, written_table
from stand_ins.timelines import state_of
from stand_ins.transactions import clock

_numbers = itertools.count()


def memory() -> str:
    return f"memory://clustering-{next(_numbers)}"


def planned(
    table: Table, trigger: ClusteringTrigger | None = None, by: Sequence[str] = ("name",)
) -> Clustering:
    state = load_state(table.store)
    return plan_clustering(
        state, files_of(state), load_held(state), by=by, trigger=trigger, now="20991231000000000"
    )


def scheduled(table: Table, trigger: ClusteringTrigger | None = None) -> str:
    instant = schedule_clustering(table.store, planned(table, trigger))
    assert instant is not None
    return instant


def names_by_group(table: Table, column: str = "name") -> list[list[str]]:
    """The values of a column in the order in which they are stored, by file group."""
    found = []
    for partition in table.layout().partitions:
        for part in partition.slices:
            assert part.base_file is not None
            with open_input(table.store, part.base_file.path) as source:
                found.append(pq.read_table(source, columns=[column]).column(0).to_pylist())
    return found


def sound(table: Table) -> None:
    check_invariants(table)
    report = check_table(table.store)
    assert report.damage == (), str(report)


TIMELINE = [
    "20240102010000000_20240102010001000.deltacommit",
    "20240102020000000_20240102020001000.deltacommit",
    "20240102030000000.deltacommit.inflight",
]
FILES = {
    "p/a_1-0-1_20240102010000000.parquet": 1000,
    "p/.a_20240102020000000.log.1_1-0-1": 100,
    "p/b_1-0-1_20240102010000000.parquet": 1000,
    "p/.c_20240102020000000.log.1_1-0-1": 1,
    "q/d_1-0-1_20240102010000000.parquet": 2000,
    "q/.d_20240102030000000.log.1_1-0-1": 5000,  # of a write that is not completed
}


def listed() -> dict[str, Any]:
    files: dict[str, Any] = {}
    for path, size in FILES.items():
        partition = path.partition("/")[0]
        files[partition] = (*files.get(partition, ()), *data_files_of([FileStat(path, size, 0, "")]))
    return files


@pytest.mark.parametrize(
    ("trigger", "groups"),
    [
        (ClusteringTrigger(), "dabc"),
        (ClusteringTrigger(min_bytes=1000), "dab"),
        (ClusteringTrigger(max_bytes=1000), "bc"),
        (ClusteringTrigger(min_bytes=1001, max_bytes=1999), "a"),
        (ClusteringTrigger(hours=10), "dabc"),
        (ClusteringTrigger(hours=10.5), "db"),
        (ClusteringTrigger(hours=12), ""),
        (ClusteringTrigger(partitions=("q",)), "d"),
        (ClusteringTrigger(partitions=("p",), min_bytes=1000), "ab"),
    ],
)
def test_the_groups_that_a_trigger_takes_are_planned_the_largest_first(
    trigger: ClusteringTrigger, groups: str
) -> None:
    plan = plan_clustering(
        state_of(TIMELINE), listed(), Held(), by=["x"], trigger=trigger, now="20240102120000000"
    )
    assert "".join(part.file_id for part in plan.slices) == groups


def test_what_somebody_has_taken_or_is_sorted_is_left_out() -> None:
    held = Held(groups=frozenset({("p", "a")}))
    state = state_of(
        [*TIMELINE, "20240102050000000.compaction.requested"], compactions={"20240102050000000": [("p", "c")]}
    )
    done = frozenset({"q/d_1-0-1_20240102010000000.parquet"})
    plan = plan_clustering(state, listed(), held, by=["x", "y"], now="20240102120000000", sorted_already=done)
    assert str(plan) == (
        "cluster 1 file groups by x, y: 0 logs, 1,000 bytes to read\n"
        "  p/b: b_1-0-1_20240102010000000.parquet + 0 logs, 1,000 bytes"
    )
    assert str(Clustering(by=("x",), slices=())) == "nothing to cluster"


@pytest.mark.parametrize(
    "wrong", [{"min_bytes": -1}, {"hours": float("nan")}, {"min_bytes": 2, "max_bytes": 1}]
)
def test_a_trigger_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClusteringTrigger(**wrong)


@pytest.mark.parametrize("by", [(), ("nobody",), ("_hoodie_record_key",), ("tags",)])
def test_columns_that_rows_cannot_be_sorted_by_are_refused_before_anything_is_done(
    by: tuple[str, ...],
) -> None:
    schema = pa.schema([("id", pa.int64()), ("ts", pa.int64()), ("tags", pa.list_(pa.string()))])
    table = create_table(memory(), schema, key="id", ordering="ts", buckets=1)
    table.upsert(pa.Table.from_pylist([{"id": 1, "ts": 1, "tags": ["a"]}], schema))
    before = [file.path for file in table.store.list("", recursive=True).files]
    with pytest.raises(ConfigError):
        cluster_table(table.store, by=by)
    with pytest.raises(ConfigError):
        schedule_clustering(table.store, planned(table, by=by))
    assert [file.path for file in table.store.list("", recursive=True).files] == before
    with pytest.raises(ConfigError, match="no partition 'x'"):
        cluster_table(table.store, by=["id"], trigger=ClusteringTrigger(partitions=("x",)))


@pytest.mark.shows("X3")
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_rows_are_the_same_and_sorted_afterwards_in_one_group_per_bucket(table_type: str) -> None:
    table = written_table(memory(), table_type=table_type)
    before = rows_of(table)
    ids_before = {part.file_id for p in table.layout().partitions for part in p.slices}
    (done,) = cluster_table(table.store, by=["name"])
    assert rows_of(table) == before
    slices = [part for p in table.layout().partitions for part in p.slices]
    ids = {part.file_id for part in slices}
    assert len(ids) == len(ids_before) == 4
    assert ids.isdisjoint(ids_before)
    assert sorted(i[:8] for i in ids) == sorted(i[:8] for i in ids_before)
    assert all(not part.log_files for part in slices)
    stored = names_by_group(table)
    assert [sorted(names) for names in stored] == stored
    assert (done.rows, done.replaced, done.file_groups) == (before.num_rows, 4, 4)
    assert str(done).startswith(f"clustering {done.instant}, completed {done.completed}\n  4 file groups")
    sound(table)
    metadata = read_commit_metadata(
        table.store, load_state(table.store).timeline.completed(Action.REPLACE_COMMIT)[0]
    )
    assert metadata.operation == "CLUSTER"
    assert {i for ids in metadata.replaced.values() for i in ids} == ids_before
    table.upsert(orders([0, 40], "after", 90))
    assert rows_of(table).num_rows == before.num_rows + 1
    sound(table)


def test_what_is_sorted_is_left_alone_until_somebody_writes_to_it_or_asks_for_other_columns() -> None:
    table = written_table(memory())
    cluster_table(table.store, by=["name"])
    assert cluster_table(table.store, by=["name"]) == ()
    table.upsert(orders([0], "newer", 90))
    (done,) = cluster_table(table.store, by=["name"])
    assert (done.replaced, done.file_groups) == (1, 1)
    (other,) = cluster_table(table.store, by=["ts", "name"])
    assert other.replaced == 4
    state = load_state(table.store)
    assert len(find_sorted(state, files_of(state), ["ts", "name"])) == 4
    assert find_sorted(state, files_of(state), ["ts"]) == frozenset()
    sound(table)


def test_nulls_come_last_and_equal_rows_are_in_the_order_of_their_keys() -> None:
    table = orders_table(memory(), buckets=1)
    rows = [
        {"id": n, "name": name, "ts": 1, "dt": "p0"} for n, name in ((4, "b"), (0, None), (2, "b"), (6, "a"))
    ]
    table.upsert(pa.Table.from_pylist(rows, orders([], "", 0).schema))
    cluster_table(table.store, by=["name"])
    assert names_by_group(table) == [["a", "b", "b", None]]
    assert names_by_group(table, "id") == [[6, 2, 4, 0]]


def test_a_bucket_whose_rows_are_all_deleted_ends() -> None:
    table = orders_table(memory(), buckets=1)
    table.upsert(orders([0, 1, 2], "a", 1))
    table.delete([0, 2])
    (done,) = cluster_table(table.store, by=["name"])
    assert (done.replaced, done.file_groups, done.rows) == (2, 1, 1)
    assert rows_of(table).column("id").to_pylist() == [1]
    table.upsert(orders([0], "again", 0))
    assert rows_of(table).num_rows == 2
    sound(table)


def test_row_groups_are_as_large_as_was_asked_for() -> None:
    table = orders_table(memory(), buckets=1)
    table.upsert(orders(range(0, 150_000, 2), "a", 1))
    (done,) = cluster_table(table.store, by=["id"], row_group_bytes=1 << 20)
    (part,) = (part for p in table.layout().partitions for part in p.slices)
    assert part.base_file is not None
    with open_input(table.store, part.base_file.path) as source:
        found = pq.ParquetFile(source).metadata
        ranges = [found.row_group(n).column(5).statistics for n in range(found.num_row_groups)]
    assert found.num_row_groups > 1
    assert all(one.max < other.min for one, other in itertools.pairwise(ranges))
    assert done.rows == 75_000


def test_time_travel_and_incremental_reads_are_the_same_afterwards() -> None:
    table = orders_table(memory())
    table.upsert(orders(range(8), "first", 1))
    table.upsert(orders(range(4, 10), "second", 2))
    table.upsert(orders([0, 20], "third", 3))
    writes = load_state(table.store).timeline.writes
    before = [rows_of(table, as_of=i.requested) for i in writes]
    since = [rows_of(table, begin=i.completed) for i in writes]
    assert [rows.num_rows for rows in since] == [8, 2, 0]
    (done,) = cluster_table(table.store, by=["name"])
    assert [rows_of(table, as_of=i.requested) for i in writes] == before
    assert [rows_of(table, begin=i.completed) for i in writes] == since
    assert rows_of(table, begin=writes[-1].completed, end=done.completed).num_rows == 0, "it wrote no new row"


def test_what_was_written_between_planning_and_scheduling_is_taken_in() -> None:
    table = written_table(memory())
    plan = planned(table)
    table.upsert(orders([0, 1], "after the plan", 30))
    before = rows_of(table)
    instant = schedule_clustering(table.store, plan)
    assert instant is not None
    run_clustering(table.store, instant)
    assert rows_of(table) == before
    sound(table)


def writing_after(tasks: Callable[[], object]) -> Any:
    """Tasks, after the last of which somebody does something."""

    def run(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        done = [function(item) for item in items]
        tasks()
        return done

    return run


@pytest.mark.shows("X3")
@pytest.mark.parametrize("when", ["before it runs", "while it runs"])
@pytest.mark.parametrize(
    "write",
    [
        lambda table: table.upsert(orders([0], "meanwhile", 99)),
        lambda table: table.delete([0]),
        lambda table: table.delete_partitions(["p0"]),
        lambda table: table.overwrite(orders([0], "anew", 0)),
    ],
    ids=["upsert", "delete", "delete_partitions", "overwrite"],
)
def test_a_clustering_gives_way_to_a_write_on_its_groups(write: Callable[[Table], object], when: str) -> None:
    table = written_table(memory())
    instant = scheduled(table)
    if when == "before it runs":
        write(table)
        expected = rows_of(table)
        with pytest.raises(CommitConflictError, match="was written to since it was planned"):
            run_clustering(table.store, instant)
    else:
        with pytest.raises(CommitConflictError, match="was written to since it was planned"):
            run_clustering(table.store, instant, tasks=writing_after(lambda: write(table)))
        expected = rows_of(table)
    assert load_state(table.store).timeline.pending() == (), "the plan is gone"
    assert not [
        f for files in files_of(load_state(table.store)).values() for f in files if f.instant == instant
    ]
    assert rows_of(table) == expected
    recover(table.store, load_state(table.store).properties, clock=clock(later=True))
    sound(table)
    assert check_table(table.store).findings == (), "the markers too, after a while"
    with pytest.raises(ConfigError, match="there is no clustering"):
        run_clustering(table.store, instant)
    cluster_table(table.store, by=["name"])
    assert rows_of(table) == expected
    sound(table)


def test_a_write_to_other_groups_is_in_nobodys_way() -> None:
    table = written_table(memory())
    instant = scheduled(table, ClusteringTrigger(partitions=("p0",)))
    table.upsert(orders([1], "before it runs", 99))
    run_clustering(
        table.store, instant, tasks=writing_after(lambda: table.upsert(orders([3], "while it runs", 99)))
    )
    names = set(rows_of(table).column("name").to_pylist())
    assert {"before it runs 1", "while it runs 3"} <= names
    sound(table)


def test_a_clustering_gives_way_to_a_write_that_changes_the_columns() -> None:
    """Its commit would say that the new column is not there."""
    table = written_table(memory())
    instant = scheduled(table, ClusteringTrigger(partitions=("p0",)))
    more = orders([1], "wider", 99).append_column("more", pa.array([1]))
    with pytest.raises(CommitConflictError, match="columns"):
        run_clustering(
            table.store, instant, tasks=writing_after(lambda: table.upsert(more, merge_schema=True))
        )
    assert "more" in rows_of(table).column_names
    cluster_table(table.store, by=["more", "name"])
    assert "more" in rows_of(table).column_names
    sound(table)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
@pytest.mark.parametrize("is_planned_before", [False, True])
def test_a_write_that_began_before_a_clustering_completed_conflicts_and_is_run_again(
    table_type: str, is_planned_before: bool
) -> None:
    """Otherwise it would be in a file group that nobody reads any more."""
    runs = []

    class Meanwhile(ArrowRows):
        def run(self, plan: Any) -> Any:
            written = super().run(plan)
            if not runs:
                cluster_table(table.store, by=["name"])
            runs.append(plan.instant)
            return written

    table = written_table(memory(), table_type=table_type)
    before = rows_of(table).num_rows
    if is_planned_before:
        scheduled(table)
    run_write(Meanwhile(orders([0, 1, 50], "through", 99)), table.store, Operation.UPSERT)
    assert len(runs) == 2
    assert {"through 0", "through 1", "through 50"} <= set(rows_of(table).column("name").to_pylist())
    assert rows_of(table).num_rows == before + 1
    recover(table.store, load_state(table.store).properties, clock=clock(later=True))
    sound(table)
    assert check_table(table.store).findings == ()


def test_a_write_beside_a_pending_resize_is_not_refused(golden_table: Any) -> None:
    refuse_movers(load_state(LocalStore(golden_table("mor_consistent_1_pending_split"))))


def test_compaction_and_clean_leave_alone_what_a_pending_clustering_holds() -> None:
    table = written_table(memory())
    table.upsert(orders(range(16), "newer", 50))
    compact_table(table.store)
    table.upsert(orders([0], "over it", 60))
    instant = scheduled(table)
    state = load_state(table.store)
    held = load_held(state)
    assert len(held.groups) == 4
    assert plan_compaction(state, files_of(state), held, now="").slices == ()
    assert planned(table).is_empty, "nor does another clustering"
    assert schedule_clustering(table.store, Clustering(by=("name",), slices=_all_slices(table))) is None
    cleaned = {
        file.path
        for file in plan_clean(
            state, files_of(state), held, retain=Retention(versions=1), now="20991231000000000"
        ).files
    }
    assert cleaned, "older slices go"
    assert cleaned.isdisjoint(held.files)
    before = rows_of(table)
    clean_table(table.store, retain=Retention(versions=1))
    run_clustering(table.store, instant)
    assert rows_of(table) == before
    sound(table)


def _all_slices(table: Table) -> Any:
    return tuple(part for p in table.layout().partitions for part in p.slices)


def test_a_group_with_a_pending_compaction_is_not_clustered() -> None:
    table = written_table(memory())
    state = load_state(table.store)
    assert schedule_compaction(table.store, plan_compaction(state, files_of(state), load_held(state), now=""))
    assert planned(table).is_empty
    assert cluster_table(table.store, by=["name"]) == ()


@pytest.mark.shows("X3")
def test_clean_removes_the_replaced_files_and_archive_goes_past_the_clustering() -> None:
    table = written_table(memory())
    cluster_table(table.store, by=["name"])
    old = {file.path for file in table.store.list("p0").files}
    for n in range(6):
        table.upsert(orders([0], f"later {n}", 90 + n))
    before = rows_of(table)
    clean_table(table.store, retain=Retention(commits=1))
    left = {file.path for file in table.store.list("p0").files}
    assert len(old - left) > 4, "base files and logs of what was replaced"
    archive_table(table.store, keep_min=2, keep_max=3)
    timeline = load_state(table.store).timeline
    assert timeline.completed(Action.REPLACE_COMMIT) == ()
    (archived,) = (
        a
        for a in load_history(table.store, load_state(table.store).properties)
        if a.action is Action.REPLACE_COMMIT
    )
    kept = decode_body(read_archived_plan(table.store, archived), path=archived.requested)
    assert kept["clusteringPlan"]["strategy"]["strategyClassName"] == SORT_STRATEGY
    assert rows_of(table) == before
    sound(table)
    (again,) = cluster_table(table.store, by=["name"])
    assert again.replaced == 1, "the others are sorted, and say so themselves"
    assert rows_of(table) == before


def test_a_completed_clustering_is_rolled_back_and_restored_away() -> None:
    table = written_table(memory())
    create_savepoint(table.store)
    before = rows_of(table)
    ids = {part.file_id for part in _all_slices(table)}
    for undo in ("rollback", "restore"):
        (done,) = cluster_table(table.store, by=["name"])
        if undo == "rollback":
            run_rollback(look_for_rollback(load_state(table.store), done.instant), table.store)
        else:
            table.upsert(orders([0], "later", 99))
            (savepoint,) = load_state(table.store).timeline.savepoints
            run_restore(look_for_restore(load_state(table.store), savepoint), table.store)
        assert rows_of(table) == before
        assert {part.file_id for part in _all_slices(table)} == ids
        sound(table)
    with pytest.raises(ConfigError):
        run_clustering(table.store, done.instant)


def test_a_pending_clustering_is_rolled_back_with_its_plan() -> None:
    table = written_table(memory())
    before = rows_of(table)
    instant = scheduled(table)

    def fails(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        function(items[0])
        raise RuntimeError("an executor died")

    with pytest.raises(RuntimeError):
        run_clustering(table.store, instant, tasks=fails)
    assert rows_of(table) == before
    done = rollback_clustering(table.store, instant)
    assert done is not None
    assert len(done.files) == 1
    assert load_state(table.store).timeline.pending() == ()
    with pytest.raises(ConfigError, match="None is pending"):
        rollback_clustering(table.store, instant)
    (completed,) = cluster_table(table.store, by=["name"])
    assert completed.instant != instant
    assert rollback_clustering(table.store, completed.instant) is None, "it is completed"
    assert rows_of(table) == before
    sound(table)


def test_a_run_that_was_cut_off_is_gone_on_with() -> None:
    table = written_table(memory())
    before = rows_of(table)
    instant = scheduled(table)
    done: list[str] = []

    def fails(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        done.extend(path for item in items[:2] for path in item.paths)
        for item in items[:2]:
            function(item)
        raise RuntimeError("the driver died")

    with pytest.raises(RuntimeError):
        run_clustering(table.store, instant, tasks=fails)
    versions = [table.store.stat(path).version for path in done]
    (clustered,) = cluster_table(table.store, by=["name"])
    assert clustered.instant == instant, "the plan stood"
    assert [table.store.stat(path).version for path in done] == versions, "what was written is kept"
    assert run_clustering(table.store, instant) == clustered, "and reported as it is"
    assert rows_of(table) == before
    sound(table)


def test_what_another_engine_left_of_this_clustering_goes_and_what_an_attempt_left_must_be_the_same() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    stranger = path_in_partition(
        "p0", render_base_file_name(BaseFileName("00000000-strange-0", "3-2-1", instant))
    )
    table.store.put(stranger, b"rows")
    state = load_state(table.store)
    (pending,) = state.timeline.pending(Action.CLUSTERING)
    task = work_of(state, pending, read_requested_replace(table.store, pending))[0]
    (path,) = task.paths
    source = next(p.base_file for p in _all_slices(table) if p.base_file)
    table.store.put(path, table.store.read(source.path))
    with pytest.raises(CorruptTableError, match="from an earlier attempt"):
        run_clustering(table.store, instant)
    table.store.delete(path)
    before = rows_of(table)
    run_clustering(table.store, instant)
    assert rows_of(table) == before
    sound(table)


def test_one_that_another_process_runs_is_left_to_it() -> None:
    table = written_table(memory())
    instant = scheduled(table)
    start_heartbeat(table.store, instant)
    with pytest.raises(ConcurrentWriteError):
        run_clustering(table.store, instant)
    assert cluster_table(table.store, by=["name"]) == ()
    assert run_clustering(table.store, instant, clock=clock(later=True)).replaced == 4


def test_a_clustering_whose_rollback_was_decided_never_completes() -> None:
    """Who decided it may be asleep, and delete the files when it wakes up."""
    table = written_table(memory())
    instant = scheduled(table)
    claims = list_claims(table.store)
    later = str(int(instant) + 1000)
    claim = Claim(
        number=claims.next_number,
        instant=instant,
        action=Action.CLUSTERING,
        outcome=Outcome.ROLLBACK,
        completed=str(int(later) + 1),
        rollback=later,
    )
    assert take(table.store, claim)
    with pytest.raises(InstantError, match="no clustering"):
        run_clustering(table.store, instant)  # whoever comes takes it back first
    state = load_state(table.store)
    assert state.timeline.pending() == ()
    assert [i.requested for i in state.timeline.completed(Action.ROLLBACK)] == [later]


def test_two_groups_of_a_bucket_and_a_group_of_none_are_refused() -> None:
    table = written_table(memory())
    state = load_state(table.store)
    scheduled(table)
    (pending,) = load_state(table.store).timeline.pending(Action.CLUSTERING)
    plan = read_requested_replace(table.store, pending)
    slices = [part for group in plan.groups for part in group.slices]
    index = SimpleIndex(2, ("id",))
    assert len(keep_buckets(slices, index)) == 4
    with pytest.raises(CorruptTableError, match="a second one of bucket"):
        keep_buckets([slices[0], replace(slices[0], file_id=slices[0].file_id + "1")], index)
    with pytest.raises(CorruptTableError, match="no bucket"):
        keep_buckets(slices, SimpleIndex(1, ("id",)))
    assert state.timeline.pending() == ()


def tasks_of(table: Table) -> list[RegroupTask]:
    scheduled(table)
    state = load_state(table.store)
    (pending,) = state.timeline.pending(Action.CLUSTERING)
    return work_of(state, pending, read_requested_replace(table.store, pending))


def test_a_task_survives_pickling_and_may_be_run_twice() -> None:
    tasks = [pickle.loads(pickle.dumps(task)) for task in tasks_of(written_table(memory()))]
    assert [regroup(task) for task in tasks] == [regroup(task) for task in tasks]
    assert all(task.size_bytes > 0 for task in tasks)


def test_rows_that_change_their_bucket_are_divided_by_the_index_that_holds_afterwards() -> None:
    """Nobody splits buckets yet; who does has only to say so."""
    table = written_table(memory())
    tasks = [task for task in tasks_of(table) if task.work.partition == "p0"]
    slices = tuple(part for task in tasks for part in task.work.slices)
    index = SimpleIndex(3, ("id",))
    work = Regroup(partition="p0", slices=slices, slots=("00000000", "00000001", "00000002"), index=index)
    done = regroup(replace(tasks[0], work=work))
    assert [stat.file_id[:8] for stat in done.stats] == list(work.slots)
    assert done.rows == sum(stat.written for stat in done.stats) == 7
    for stat in done.stats:
        with open_input(table.store, stat.path) as source:
            rows = pq.read_table(source)
        keys = rows.column("_hoodie_record_key").combine_chunks()
        assert set(index.locate("p0", keys).to_pylist()) == {stat.file_id[:8]}
        assert rows.column("name").to_pylist() == sorted(rows.column("name").to_pylist())
    with pytest.raises(CorruptTableError, match="the key"):
        regroup(replace(tasks[0], work=replace(work, slots=("00000000", "00000001"))))


def test_a_resize_of_hudis_and_a_table_of_another_version_are_refused(golden_table: Any) -> None:
    store = LocalStore(golden_table("mor_consistent_1_pending_split"))
    state = load_state(store)
    (pending,) = state.timeline.pending(Action.CLUSTERING)
    with pytest.raises(UnsupportedError, match="SparkConsistentBucket"):
        checked_plan(state, pending)
    for name in ("mor_v6", "mor_v8"):
        with pytest.raises(UnsupportedError, match="table version"):
            cluster_table(LocalStore(golden_table(name)), by=["name"])


def test_a_clustering_that_hudi_restored_away_is_not_published_again() -> None:
    """Hudi deletes what is completed of it, and its files, but leaves it inflight with all that our commit said."""
    table = written_table(memory())
    before = rows_of(table)
    (done,) = cluster_table(table.store, by=["name"])
    state = load_state(table.store)
    (completed,) = state.timeline.completed(Action.REPLACE_COMMIT)
    for files in files_of(state).values():
        for file in files:
            if file.instant == done.instant:
                table.store.delete(file.path)
    restore = str(int(done.completed) + 1)
    plan = RestorePlan(
        savepoint=state.timeline.writes[0].requested, instants=((done.instant, Action.CLUSTERING),)
    )
    publish(
        table.store,
        state.properties,
        instant=restore,
        action=Action.RESTORE,
        completed=str(int(restore) + 1),
        body=encode_restore_metadata(plan, rollbacks={}, started=restore, taken_ms=1),
    )
    table.store.delete(completed.path)
    assert rows_of(table) == before
    table.upsert(orders([0], "later", 99))
    assert "later 0" in rows_of(table).column("name").to_pylist()
    assert [i.requested for i in load_state(table.store).timeline.pending()] == [done.instant]
    (again,) = cluster_table(table.store, by=["name"])
    assert again.instant != done.instant, "somebody has written since: the old plan is of no use"
    assert rows_of(table).num_rows == before.num_rows
    sound(table)
