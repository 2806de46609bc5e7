"""Taking a commit back that others depend on would lose their rows: it is refused, and nothing is touched."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.commit.operation import Operation as Op
from bucketlake.commit.recovery import recover
from bucketlake.commit.rollback import Target, announce_rollback
from bucketlake.commit.transaction import begin
from bucketlake.config import load_properties
from bucketlake.errors import CommitConflictError, ConcurrentWriteError, InstantError, UnsupportedError
from bucketlake.layout.names import heartbeat_path
from bucketlake.services import (
    archive_table,
    check_table,
    create_savepoint,
    delete_savepoint,
    list_savepoints,
    look_for_restore,
    look_for_rollback,
    run_restore,
    run_rollback,
)
from bucketlake.services.clean import Retention, clean_table
from bucketlake.state import load_state
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline import (
    Action,
    CompactionPlan,
    encode_compaction_plan,
    read_restore_metadata,
    read_rollback_metadata,
    shift_instant,
    write_requested,
)
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.transactions import clock, new_table, table_with_rows, write, write_file

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("dt", pa.string())])


def paths(store: MemoryStore | LocalStore) -> list[str]:
    return [file.path for file in store.list("", recursive=True).files]


def commits(store: MemoryStore, count: int) -> list[str]:
    for _ in range(count):
        write(store, ["a"], Op.UPSERT)
    return [i.requested for i in load_state(store).timeline.writes]


def upsert(table: Table, name: str, keys: range = range(6)) -> None:
    values = [{"id": n, "name": name, "dt": f"p{n % 2}"} for n in keys]
    run_write(ArrowRows(pa.Table.from_pylist(values, SCHEMA)), table.store, Operation.UPSERT)


def names(table: Table) -> set[str]:
    return set(table.to_arrow().column("name").to_pylist())


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT_OVERWRITE])
def test_the_newest_write_is_taken_back_and_the_rows_before_it_are_there_again(
    tmp_path: Path, table_type: str, operation: Operation
) -> None:
    table = create_table(
        tmp_path, SCHEMA, key="id", partition="dt", buckets=2, table_type=table_type, name="undone"
    )
    upsert(table, "first")
    values = [{"id": n, "name": "second", "dt": f"p{n % 3}"} for n in range(9)]
    run_write(ArrowRows(pa.Table.from_pylist(values, SCHEMA)), table.store, operation)
    newest = load_state(table.store).timeline.writes[-1]
    order = look_for_rollback(load_state(table.store), newest.requested)
    assert order.size_bytes == sum(file.size_bytes for file in order.files) > 0
    assert f"{len(order.files)} files" in str(order)
    run_rollback(order, table.store)
    assert names(table) == {"first"}
    report = check_table(table.store)
    assert report.findings == (), str(report)
    (rollback,) = load_state(table.store).timeline.completed(Action.ROLLBACK)
    assert read_rollback_metadata(table.store, rollback).rolled_back == (newest.requested,)
    upsert(table, "third")
    assert names(table) == {"third"}


def test_an_unknown_instant_is_refused_with_the_ones_there_are() -> None:
    store = table_with_rows()
    (known,) = commits(store, 0)
    before = paths(store)
    with pytest.raises(InstantError, match=f"{known} to {known}"):
        look_for_rollback(load_state(store), "20010101000000000")
    assert paths(store) == before


def test_an_archived_instant_is_refused() -> None:
    store = new_table()
    first = commits(store, 4)[0]
    archive_table(store, keep_min=1, keep_max=2, clock=clock())
    with pytest.raises(InstantError, match="archived"):
        look_for_rollback(load_state(store), first)


def test_the_only_write_that_is_not_archived_must_stay() -> None:
    """Without it the active timeline would be empty, and the archived files would count no more."""
    store = new_table()
    last = commits(store, 3)[-1]
    archive_table(store, keep_min=1, keep_max=2, clock=clock())
    with pytest.raises(InstantError, match="only write that is not archived"):
        look_for_rollback(load_state(store), last)


def test_a_commit_that_newer_ones_depend_on_is_refused_with_their_names() -> None:
    store = new_table()
    first, second, third = commits(store, 3)
    with pytest.raises(InstantError, match=f"2 newer instants may depend on it: {second}.*{third}"):
        look_for_rollback(load_state(store), first)


def test_a_commit_that_a_planned_compaction_may_read_is_refused() -> None:
    store = new_table()
    (only,) = commits(store, 1)
    planned = clock().next_instant(after=load_state(store).timeline.writes[-1].completed or "")
    body = encode_compaction_plan(CompactionPlan(operations=()))
    write_requested(store, load_properties(store), instant=planned, action=Action.COMPACTION, body=body)
    with pytest.raises(InstantError, match=f"{planned} .compaction, planned"):
        look_for_rollback(load_state(store), only)
    run_rollback(look_for_rollback(load_state(store), planned), store, clock=clock())
    assert load_state(store).timeline.pending() == ()
    look_for_rollback(load_state(store), only)


def test_a_savepointed_commit_is_refused() -> None:
    store = new_table()
    (only,) = commits(store, 1)
    create_savepoint(store, clock=clock())
    with pytest.raises(InstantError, match="protected by a savepoint"):
        look_for_rollback(load_state(store), only)


def test_what_is_no_write_is_refused() -> None:
    store = new_table()
    commits(store, 2)
    run_rollback(look_for_rollback(load_state(store), commits(store, 0)[-1]), store, clock=clock())
    (rollback,) = load_state(store).timeline.completed(Action.ROLLBACK)
    with pytest.raises(InstantError, match="is a rollback, and only writes"):
        look_for_rollback(load_state(store), rollback.requested)


def test_a_live_writer_is_never_taken_back_and_nothing_is_beside_it() -> None:
    store = new_table()
    (only,) = commits(store, 1)
    order = look_for_rollback(load_state(store), only)
    alive, _ = begin(store, operation=Op.UPSERT, clock=clock())
    write_file(alive, "a", 1)
    before = paths(store)
    with pytest.raises(ConcurrentWriteError, match="heartbeat is fresh"):
        look_for_rollback(load_state(store), alive.instant, clock=clock())
    with pytest.raises(ConcurrentWriteError, match="heartbeat is fresh"):
        run_rollback(order, store, clock=clock())
    assert paths(store) == before


def test_a_dead_writers_instant_is_taken_back_by_hand() -> None:
    store = new_table()
    commits(store, 1)
    dead, _ = begin(store, operation=Op.UPSERT, clock=clock())
    stat = write_file(dead, "a", 1)
    order = look_for_rollback(load_state(store), dead.instant, clock=clock(later=True))
    assert [file.path for file in order.files] == [stat.path]
    run_rollback(order, store, clock=clock(later=True))
    assert stat.path not in paths(store)
    assert load_state(store).timeline.pending() == ()


def test_a_plan_that_is_out_of_date_is_refused() -> None:
    store = new_table()
    commits(store, 1)
    order = look_for_rollback(load_state(store), commits(store, 0)[-1])
    commits(store, 1)
    before = paths(store)
    with pytest.raises(InstantError, match="newer instants"):
        run_rollback(order, store, clock=clock())
    assert paths(store) == before
    run_rollback(look_for_rollback(load_state(store), commits(store, 0)[-1]), store, clock=clock())
    run_rollback(order, store, clock=clock())
    with pytest.raises(CommitConflictError, match="no longer as it was"):
        run_rollback(order, store, clock=clock())


def test_a_write_whose_predecessors_were_cleaned_is_refused(tmp_path: Path) -> None:
    table = create_table(tmp_path, SCHEMA, key="id", partition="dt", buckets=2, name="cleaned")
    for name in ("first", "second", "third"):
        upsert(table, name)
    clean_table(table.store, retain=Retention(versions=1))
    newest = load_state(table.store).timeline.writes[-1].requested
    with pytest.raises(InstantError, match="deletes"):
        look_for_rollback(load_state(table.store), newest)


def test_a_writer_keeps_away_while_a_rollback_is_under_way() -> None:
    store = new_table()
    (only,) = commits(store, 1)
    rollback = clock().next_instant(after=shift_instant(only, 1000))
    store.put(heartbeat_path(rollback), b"")
    write_requested(store, load_properties(store), instant=rollback, action=Action.ROLLBACK, body=b"")
    with pytest.raises(ConcurrentWriteError, match=f"rollback of {rollback} is under way"):
        begin(store, operation=Op.UPSERT, clock=clock())


def test_a_rollback_that_was_overtaken_is_withdrawn() -> None:
    """Its process died before it was decided, and a write that had begun before it was committed since."""
    store = new_table()
    first = commits(store, 1)[0]
    instant = load_state(store).timeline.writes[0]
    rollback = clock().next_instant(after=instant.completed or "")
    commits(store, 1)
    store.put(heartbeat_path(rollback), b"")
    announce_rollback(store, load_properties(store), Target.of(instant), rollback=rollback, files=())
    recover(store, load_properties(store), clock=clock(later=True))
    state = load_state(store)
    assert state.timeline.writes[0].requested == first
    assert state.timeline.pending() == ()
    assert heartbeat_path(rollback) not in paths(store)


def test_a_version_6_table_is_refused(golden_table: object) -> None:
    folder = golden_table("mor_v6")  # type: ignore[operator] # the fixture of conftest.py
    store = LocalStore(folder)
    state = load_state(store)
    with pytest.raises(UnsupportedError, match="table version"):
        look_for_rollback(state, state.timeline.writes[-1].requested)
    with pytest.raises(UnsupportedError, match="table version"):
        create_savepoint(store)
    with pytest.raises(UnsupportedError, match="table version"):
        archive_table(store)


def test_a_savepoint_lists_what_a_reader_saw_and_can_be_gone_back_to(tmp_path: Path) -> None:
    table = create_table(
        tmp_path, SCHEMA, key="id", partition="dt", buckets=2, table_type="MERGE_ON_READ", name="kept"
    )
    upsert(table, "first")
    upsert(table, "second")
    made = create_savepoint(table.store, user="us", comment="good")
    assert made.file_count == 4
    assert str(made).endswith("4 files by us: good")
    upsert(table, "third")
    upsert(table, "fourth", range(20))
    (found,) = list_savepoints(load_state(table.store))
    assert found == made
    order = look_for_restore(load_state(table.store), made.instant)
    assert len(order.instants) == 2
    assert "restore to" in str(order)
    run_restore(order, table.store)
    assert names(table) == {"second"}
    state = load_state(table.store)
    (restore,) = state.timeline.completed(Action.RESTORE)
    assert read_restore_metadata(table.store, restore).rolled_back == tuple(
        i.requested for i in order.instants
    )
    assert state.timeline.completed(Action.ROLLBACK) == ()
    assert check_table(table.store).findings == ()
    again = look_for_restore(load_state(table.store), made.instant)
    assert again.instants == ()
    assert run_restore(again, table.store).instants == (), "there is nothing left to do"
    delete_savepoint(table.store, made.instant)
    assert list_savepoints(load_state(table.store)) == ()
    upsert(table, "fifth")
    assert names(table) == {"fifth"}


def test_bad_savepoints_are_refused() -> None:
    store = new_table()
    with pytest.raises(InstantError, match="nothing to protect"):
        create_savepoint(store)
    first = commits(store, 1)[0]
    with pytest.raises(InstantError, match="no completed write of 20010101000000000"):
        create_savepoint(store, "20010101000000000")
    with pytest.raises(InstantError, match="no savepoint of 20010101000000000; it has none"):
        look_for_restore(load_state(store), "20010101000000000")
    with pytest.raises(InstantError, match="no savepoint of"):
        delete_savepoint(store, first)
    create_savepoint(store, clock=clock())
    with pytest.raises(InstantError, match="has a savepoint already"):
        create_savepoint(store, clock=clock())


def test_a_savepoint_whose_files_are_gone_is_not_restored() -> None:
    store = new_table()
    (only,) = commits(store, 1)
    create_savepoint(store, clock=clock())
    commits(store, 1)
    lost = next(path for path in paths(store) if path.endswith(f"{only}.parquet"))
    store.delete(lost)
    before = paths(store)
    with pytest.raises(InstantError, match="is gone"):
        look_for_restore(load_state(store), only)
    assert paths(store) == before


def test_a_restore_that_is_out_of_date_is_refused() -> None:
    store = new_table()
    (only,) = commits(store, 1)
    create_savepoint(store, clock=clock())
    order = look_for_restore(load_state(store), only)
    commits(store, 1)
    with pytest.raises(CommitConflictError, match="moved on"):
        run_restore(order, store, clock=clock())
