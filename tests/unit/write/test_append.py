"""Tasks that nobody brought together write one commit: a key must still have one row, whoever held its versions."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.commit.heartbeat import Heartbeat, start_heartbeat, stop_heartbeat
from bucketlake.config import TableType
from bucketlake.errors import CommitConflictError, ConfigError, ProofError, SchemaError, UnsupportedError
from bucketlake.layout.names import HEARTBEAT_FOLDER, heartbeat_path
from bucketlake.state import load_state
from bucketlake.storage import MemoryStore
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import (
    Append,
    Appended,
    TableSpec,
    WriteOptions,
    abort_append,
    append_rows,
    begin_append,
    complete_append,
    create,
)
from judges.files import listing
from judges.hudi_rs import read_incremental, read_snapshot

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
Row = tuple[str, str, int, str, bool]


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], SCHEMA)


def a_table(path: Path, **definition: Any) -> Table:
    defaults = {"key": "id", "partition": "dt", "ordering": "ts", "buckets": 2, "table_type": "MERGE_ON_READ"}
    return create_table(path, SCHEMA, **(defaults | definition))


def begun(table: Table) -> Append:
    """An append as a task receives it."""
    append: Append = pickle.loads(pickle.dumps(begin_append(table.store, SCHEMA, WriteOptions())))
    return append


def append(table: Table, *tasks: pa.Table) -> None:
    under_way = begun(table)
    done = [append_rows(under_way, held, task=number) for number, held in enumerate(tasks)]
    complete_append(under_way, done)


def contents(table: Table) -> dict[str, tuple[int, str]]:
    """What the table holds; hudi-rs must agree to every row, and the table be sound."""
    check_invariants(table)
    found = {row["id"]: (row["ts"], row["v"]) for row in table.to_arrow().to_pylist()}
    judged = read_snapshot(Path(table.store.uri.removeprefix("file://"))).to_pylist()
    assert {row["id"]: (row["ts"], row["v"]) for row in judged} == found
    assert len(judged) == len(found) == table.to_arrow().num_rows
    return found


FIRST = rows(*((f"k{n}", "d", 10, f"first {n}", False) for n in range(8)))


@pytest.mark.shows("S5", "X2")
def test_of_versions_in_several_tasks_the_greatest_ordering_value_wins(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.upsert(FIRST)
    append(
        table,
        rows(
            ("k0", "d", 20, "task 0", False),
            ("k1", "d", 30, "task 0", False),
            ("k2", "d", 11, "task 0", False),
            ("k3", "d", 9, "late in task 0", False),
        ),
        rows(
            ("k0", "d", 21, "task 1", False), ("k1", "d", 29, "task 1", False), ("k2", "d", 12, "gone", True)
        ),
        rows(("k2", "d", 10, "task 2", False), ("k9", "d", 1, "new", False), ("k9", "d", 2, "newer", False)),
    )
    untouched = {f"k{n}": (10, f"first {n}") for n in range(3, 8)}
    assert contents(table) == untouched | {"k0": (21, "task 1"), "k1": (30, "task 0"), "k9": (2, "newer")}


@pytest.mark.shows("S2", "X2")
def test_tasks_that_meet_in_a_new_bucket_open_one_file_group(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    append(table, FIRST, rows(*((f"k{n}", "d", 20, "task 1", False) for n in range(4))))
    groups = [file_slice for part in table.layout().partitions for file_slice in part.slices]
    assert sorted(file_slice.file_id[:8] for file_slice in groups) == ["00000000", "00000001"]
    assert all(file_slice.base_file is None for file_slice in groups)
    truth = {f"k{n}": (20, "task 1") if n < 4 else (10, f"first {n}") for n in range(8)}
    assert contents(table) == truth
    table.upsert(rows(("k0", "d", 30, "upserted", False), ("k1", "d", 1, "late", False)))
    append(table, rows(("k2", "d", 30, "appended", False)))
    assert contents(table) == truth | {"k0": (30, "upserted"), "k2": (30, "appended")}


def test_of_equal_versions_every_reader_takes_that_of_the_last_task(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    append(table, *(rows(("k", "d", 5, f"task {n}", False)) for n in range(12)))
    assert contents(table) == {"k": (5, "task 11")}


def test_a_commit_names_the_files_of_all_tasks(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    table.upsert(FIRST)
    before = table.timeline()[-1].completed
    assert before is not None
    append(table, rows(("k0", "d", 20, "a", False)), rows(("k0", "d", 21, "b", False)), SCHEMA.empty_table())
    changed = [(row["id"], row["v"]) for row in table.to_arrow(begin=before).to_pylist()]
    judged = [(row["id"], row["v"]) for row in read_incremental(tmp_path, after=before).to_pylist()]
    assert changed == judged == [("k0", "b")]
    assert len({row["_hoodie_commit_seqno"] for row in table.to_arrow().to_pylist()}) == 8


@pytest.mark.shows("X2")
def test_attempts_of_a_task_write_the_same_files_once(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    under_way = begun(table)
    first = append_rows(under_way, FIRST, task=0)
    files = listing(table.store, markers=False)
    second = append_rows(under_way, FIRST.take(list(range(7, -1, -1))), task=0)
    assert listing(table.store, markers=False) == files
    assert (second.sent, {g.path for g in second.written}) == (first.sent, {g.path for g in first.written})
    complete_append(under_way, [second])
    assert len(contents(table)) == 8


def test_attempts_that_had_different_rows_fail(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    under_way = begun(table)
    append_rows(under_way, FIRST, task=0)
    with pytest.raises(ConfigError, match=r"two attempts .* had different rows"):
        append_rows(under_way, FIRST.slice(0, 6), task=0)


@pytest.mark.shows("X3")
def test_a_file_that_only_a_failed_attempt_wrote_stops_the_commit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    before = listing(table.store, markers=False)
    under_way = begun(table)
    append_rows(under_way, rows(("k0", "d", 1, "a", False)), task=0)
    retried = append_rows(under_way, rows(("k1", "d", 1, "another bucket", False)), task=0)
    with pytest.raises(ProofError, match="attempt that failed"):
        complete_append(under_way, [retried])
    assert listing(table.store, markers=False) == before


@pytest.mark.shows("X3")
def test_a_report_that_does_not_add_up_stops_the_commit(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    before = listing(table.store, markers=False)
    under_way = begun(table)
    done = append_rows(under_way, FIRST, task=0)
    with pytest.raises(ProofError, match="were sent"):
        complete_append(under_way, [Appended(done.sent, done.written[:1])])
    assert listing(table.store, markers=False) == before


def test_an_aborted_append_leaves_nothing(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    before = listing(table.store, markers=False)
    under_way = begun(table)
    append_rows(under_way, FIRST, task=0)
    assert listing(table.store, markers=False) != before
    abort_append(under_way)
    assert listing(table.store, markers=False) == before
    append(table, FIRST)
    assert len(contents(table)) == 8


def test_an_append_without_rows_commits_nothing(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    before = listing(table.store, markers=False)
    append(table, SCHEMA.empty_table(), SCHEMA.empty_table())
    assert listing(table.store, markers=False) == before
    append(table)
    assert table.timeline() == ()


def test_an_append_that_was_overtaken_in_new_buckets_leaves_nothing(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    under_way = begun(table)
    done = append_rows(under_way, FIRST, task=0)
    table.upsert(FIRST)
    rows = contents(table)
    with pytest.raises(CommitConflictError, match="came in between"):
        complete_append(under_way, [done])
    assert contents(table) == rows
    append(table, FIRST)
    assert contents(table) == rows


def test_a_task_beats_for_the_driver_but_does_not_bring_it_back() -> None:
    store = MemoryStore()
    under_way = begin_append_in(store)
    path = heartbeat_path(under_way.transaction.instant)
    append_rows(under_way, FIRST, task=0)
    assert path in {file.path for file in store.list(HEARTBEAT_FOLDER).files}, "the task left it there"
    stop_heartbeat(store, under_way.transaction.instant)
    append_rows(under_way, FIRST, task=0)
    assert store.list(HEARTBEAT_FOLDER).files == ()


def test_beating_along_touches_the_heartbeat_again_and_again(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    under_way = begun(table)
    instant = under_way.transaction.instant
    abort_append(under_way)
    start_heartbeat(table.store, instant)
    made = table.store.stat(heartbeat_path(instant)).version
    with Heartbeat(under_way.plan, is_another=True):
        assert table.store.stat(heartbeat_path(instant)).version != made


def begin_append_in(store: MemoryStore) -> Append:
    spec = TableSpec(
        name="t", schema=SCHEMA, key=("id",), ordering=("ts",), table_type=TableType.MERGE_ON_READ
    )
    create(store, spec)
    return begin_append(store, SCHEMA, WriteOptions())


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ({"table_type": "COPY_ON_WRITE"}, "copy-on-write"),
        ({"ordering": ()}, "without ordering columns"),
    ],
)
def test_what_tasks_cannot_append_to_is_refused_and_the_road_named(
    tmp_path: Path, definition: dict[str, Any], words: str
) -> None:
    table = a_table(tmp_path, **definition)
    before = listing(table.store, markers=False)
    with pytest.raises(UnsupportedError, match=words) as refused:
        begun(table)
    assert ".upsert(df)" in str(refused.value)
    assert listing(table.store, markers=False) == before


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    table = a_table(tmp_path)
    before = listing(table.store, markers=False)
    with pytest.raises(SchemaError, match="'ts'"):
        begin_append(table.store, SCHEMA.set(2, pa.field("ts", pa.string())), WriteOptions())
    assert listing(table.store, markers=False) == before
    assert load_state(table.store).timeline.instants == ()
