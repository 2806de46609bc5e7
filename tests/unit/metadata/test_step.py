"""A metadata table is in step, or it is said what is wrong with it; what only seems wrong is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bucketlake import Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.metadata_table import put_instant
from bucketlake.config import load_properties
from bucketlake.errors import CorruptTableError
from bucketlake.layout.names import METADATA_TABLE_FOLDER, METADATA_TIMELINE_FOLDER, split_path
from bucketlake.metadata.change import Change
from bucketlake.metadata.delta import delta_commit
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.metadata.places import timeline_properties
from bucketlake.metadata.step import Step, look_at_step
from bucketlake.services import compact_metadata
from bucketlake.state import load_state
from bucketlake.storage import MemoryStore, Store
from bucketlake.timeline import Action, InstantName, State, instant_path, shift_instant
from bucketlake.write import TableSpec, create
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import SCHEMA, orders

pytestmark = pytest.mark.shows("M4")


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


@pytest.fixture
def table() -> Table:
    """A table with three commits; its metadata table has known them all."""
    store = MemoryStore()
    create(store, TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",)))
    build_metadata(store)
    for number in range(3):
        table_of(store).upsert(orders(range(number, number + 6), "a", number))
    return table_of(store)


def step_of(table: Table) -> Step:
    return look_at_step(table.store, load_properties(table.store))


def in_metadata(table: Table, instant: str) -> list[str]:
    """The files of an instant on the metadata table's timeline."""
    return [
        file.path
        for file in table.store.list(METADATA_TIMELINE_FOLDER).files
        if split_path(file.path)[1].startswith(instant)
    ]


def writes(table: Table) -> list[str]:
    return [instant.requested for instant in load_state(table.store).timeline.writes]


def listed(table: Table) -> object:
    state = load_state(table.store)
    return list_by_metadata(state.store, state.properties, state.timeline, None)


def refused(table: Table, match: str) -> None:
    """Rows are read by folders, and whoever writes is told what to do."""
    rows = table.to_arrow().num_rows
    assert rows == len(set(table.to_arrow().column("id").to_pylist())) > 0
    assert listed(table) is None
    before = table.store.list("", recursive=True).files
    with pytest.raises(CorruptTableError, match=match) as error:
        table.upsert(orders([100], "new", 9))
    assert "metadata rebuild" in str(error.value)
    assert {f.path for f in before} == {f.path for f in table.store.list("", recursive=True).files}


def test_one_that_follows_every_commit_is_in_step(table: Table) -> None:
    assert step_of(table).is_kept
    assert str(step_of(table)) == "in step"
    assert check_metadata(table.store)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_that_lags_by_a_commit_is_not_read_and_not_written(table: Table, which: int) -> None:
    missing = writes(table)[which]
    for path in in_metadata(table, missing):
        table.store.delete(path)
    assert str(step_of(table)) == f"out of step: it lacks the commit of {missing}"
    refused(table, f"lacks the commit of {missing}")
    assert table.to_arrow().num_rows == 8


def test_one_that_has_what_the_table_never_had_is_not_read_and_not_written(table: Table) -> None:
    first, second = writes(table)[:2]
    ghost = shift_instant(first, 1)
    assert ghost < second
    put_delta(table, ghost, Change(added={"p0": {"a": 1}}))
    assert str(step_of(table)) == f"out of step: it has {ghost}, which the table has not"
    refused(table, f"has {ghost}, which the table has not")


def put_delta(table: Table, instant: str, change: Change) -> None:
    delta = delta_commit(instant, change)
    for path, content in delta.files.items():
        table.store.put(path, content)
    put_instant(
        table.store,
        table.properties,
        instant,
        Action.DELTA_COMMIT,
        completed=shift_instant(instant, 1),
        body=delta.body,
    )


def test_one_that_is_ahead_by_a_commit_that_is_pending_is_read_without_it(table: Table) -> None:
    """A commit is put into the metadata table first, and published then."""
    newest = load_state(table.store).timeline.writes[-1]
    before = writes(table)[:-1]
    table.store.delete(newest.path)
    assert step_of(table).is_kept
    state = load_state(table.store)
    told = list_by_metadata(state.store, state.properties, state.timeline, None)
    assert told is not None
    assert {file.instant for files in told.values() for file in files} <= set(before)


def test_what_hudis_restore_compares_in_an_instant_of_its_own_is_no_ghost(table: Table) -> None:
    begun = shift_instant(writes(table)[-1], 1_000)
    name = InstantName(begun, Action.RESTORE, State.COMPLETED, shift_instant(begun, 10))
    table.store.put(instant_path(table.properties, name), b"")
    name = InstantName(shift_instant(begun, 20), Action.ROLLBACK, State.REQUESTED)
    table.store.put(instant_path(table.properties, name), b"")
    put_delta(table, shift_instant(begun, 5), Change())
    assert step_of(table).is_kept
    put_delta(table, shift_instant(begun, 12), Change())
    assert not step_of(table).is_kept


def test_a_log_compaction_of_the_metadata_table_is_no_ghost(table: Table) -> None:
    instant = shift_instant(writes(table)[0], 1)
    put_delta(table, instant, Change())
    assert not step_of(table).is_kept
    name = InstantName(instant, Action.LOG_COMPACTION, State.REQUESTED)
    table.store.put(instant_path(timeline_properties(table.properties), name), b"")
    assert step_of(table).is_kept


def test_what_a_compaction_of_the_metadata_table_covers_needs_no_instant(table: Table) -> None:
    newest = load_state(table.store).timeline.writes[-1]
    compaction = shift_instant(newest.completed or "", 1)
    name = InstantName(compaction, Action.COMMIT, State.COMPLETED, shift_instant(compaction, 1))
    table.store.put(instant_path(timeline_properties(table.properties), name), b"")
    for instant in writes(table):
        for path in in_metadata(table, instant):
            table.store.delete(path)
    assert step_of(table).is_kept


def test_what_was_archived_by_the_table_is_no_ghost(table: Table) -> None:
    """A restore stays on the timeline longer than the writes after it."""
    savepoint = table.savepoint().instant
    table.upsert(orders([50], "gone", 9))
    table.restore(savepoint)
    table.delete_savepoint(savepoint)
    for number in range(4):
        table.upsert(orders(range(6), "b", 10 + number))
    archivable = set(writes(table))
    compact_metadata(table.store)
    table.clean(retain_commits=1)
    table.archive(keep_min=1, keep_max=2)
    assert archivable - set(writes(table))
    assert load_state(table.store).timeline.completed(Action.RESTORE)
    assert step_of(table).is_kept
    assert check_metadata(table.store)


def test_one_whose_folder_is_gone_is_not_read_and_not_written(table: Table) -> None:
    for file in table.store.list(METADATA_TABLE_FOLDER, recursive=True).files:
        table.store.delete(file.path)
    assert str(step_of(table)).startswith("not there")
    refused(table, "not there")


def test_a_clean_that_the_metadata_table_lacks_is_missed(table: Table) -> None:
    table.clean(retain_commits=1)
    clean = load_state(table.store).timeline.completed(Action.CLEAN)[-1]
    for path in in_metadata(table, clean.requested):
        table.store.delete(path)
    assert not step_of(table).is_kept


Break = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 2], lambda data: data[:-1], lambda data: b"", lambda data: data[:40]],
    ids=["half", "but the last byte", "empty", "head"],
)
@pytest.mark.parametrize("suffix", [".hfile", "log"])
def test_a_file_of_it_that_is_cut_off_is_found_out(table: Table, damage: Break, suffix: str) -> None:
    folder = f"{METADATA_TABLE_FOLDER}/files"
    paths = [f.path for f in table.store.list(folder).files]
    path = next(p for p in paths if (p.endswith(".hfile") if suffix == ".hfile" else writes(table)[1] in p))
    table.store.put(path, damage(table.store.read(path)))
    with pytest.raises(CorruptTableError) as error:
        listed(table)
    assert path in str(error.value)


def test_one_that_has_lost_a_log_is_not_read(table: Table) -> None:
    folder = f"{METADATA_TABLE_FOLDER}/files"
    path = next(f.path for f in table.store.list(folder).files if writes(table)[1] in f.path)
    table.store.delete(path)
    assert listed(table) is None
    assert table.to_arrow().num_rows == 8


@pytest.mark.parametrize("is_compacted", [False, True])
def test_one_that_has_lost_its_base_file_is_not_read(table: Table, is_compacted: bool) -> None:
    """What it told of files that are archived by the table would be missed without a word."""
    if is_compacted:
        compact_metadata(table.store)
    assert listed(table) is not None
    bases = [
        f.path for f in table.store.list(f"{METADATA_TABLE_FOLDER}/files").files if f.path.endswith(".hfile")
    ]
    table.store.delete(max(bases, key=lambda path: path.rpartition("_")[2]))
    assert listed(table) is None
    assert table.to_arrow().num_rows == 8
    table.metadata.rebuild()
    assert check_metadata(table.store)
