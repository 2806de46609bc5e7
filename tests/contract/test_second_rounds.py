"""A write to a table whose index looks keys up, and that was overtaken: what is stale is written again, and no more.

It keeps its instant, and so its place among the entries of a key, only if all that came in between began earlier.
Files are counted by their versions: what was not written again has the version that the first round gave it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from bucketlake import RecordIndex, Table
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError, ProofError
from bucketlake.layout.names import parse_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.services import compact_metadata
from bucketlake.storage import Store
from bucketlake.write import ArrowRows, CommitSummary, Operation, WriteState, run_write
from bucketlake.write.exchange import InProcess, Piece
from bucketlake.write.through import write_through
from contract.test_interleaved_keys import Row, Write, a_table, check, delete, upsert
from stand_ins.aging import age

pytestmark = pytest.mark.shows("R1", "X2", "X3")

TABLE_TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
GLOBAL, PARTITIONED = RecordIndex(shards=3), RecordIndex(per_partition=True, shards=2)
EACH_INDEX = pytest.mark.parametrize("index", [GLOBAL, PARTITIONED], ids=str)
EACH_TYPE = pytest.mark.parametrize("table_type", TABLE_TYPES)


@dataclass
class Round:
    """What there was of a write when its tasks were done: of files, path and version."""

    instant: str
    data: dict[str, str]
    logs: dict[str, str]
    """Those in the index."""


class Watched(ArrowRows):
    """Rows that remember what each round has left, and after each let something happen."""

    def __init__(self, rows: pa.Table, then: Sequence[Callable[[], object]] = ()) -> None:
        super().__init__(rows)
        self.then = list(then)
        self.rounds: list[Round] = []

    def run(self, plan: WriteState) -> Any:
        done = super().run(plan)
        self.rounds.append(round_of(plan.store, plan.instant))
        if self.then:
            self.then.pop(0)()
        return done


def round_of(store: Store, instant: str) -> Round:
    found = Round(instant, {}, {})
    for file in store.list("", recursive=True).files:
        folder, name = split_path(file.path)
        parsed = parse_base_file_name(name) or parse_log_file_name(name)
        if parsed is None or parsed.instant != instant or "/.temp/" in file.path:
            continue
        (found.logs if folder == folder_of(RECORD_INDEX) else found.data)[file.path] = file.version
    return found


def written_between(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the folders of files that were written between two rounds, one for each; no file may be gone."""
    assert before.keys() <= after.keys()
    return sorted(split_path(path)[0] for path, version in after.items() if before.get(path) != version)


@dataclass
class UnderWay:
    """A write that has written its files, and waits."""

    may_commit: Event = field(default_factory=Event)
    thread: Thread = field(default_factory=Thread)

    def commit(self) -> None:
        self.may_commit.set()
        self.thread.join(60)


@contextmanager
def under_way(store: Store, write: Write) -> Iterator[UnderWay]:
    """Begin a write, and commit it when that is asked for."""
    found, is_written = UnderWay(), Event()

    def wait() -> None:
        is_written.set()
        assert found.may_commit.wait(60)

    rows = Watched(write[1], [wait])
    found.thread = Thread(target=lambda: run_write(rows, store, write[0]))
    found.thread.start()
    try:
        assert is_written.wait(60)
        yield found
    finally:
        found.commit()


def overtaken(table: Table, ours: Write, *theirs: Write) -> tuple[CommitSummary, list[Round]]:
    """Write, and after each round let somebody commit who began before us."""
    with ExitStack() as stack:
        others = [stack.enter_context(under_way(table.store, write)) for write in theirs]
        rows = Watched(ours[1], [other.commit for other in others])
        summary = run_write(rows, table.store, ours[0])
    return summary, rows.rounds


def filled(index: RecordIndex, table_type: str, *rows: Row) -> Table:
    table = a_table(index, table_type)
    run_write(ArrowRows(upsert(*rows)[1]), table.store, Operation.UPSERT)
    return table


def some(partition: str, keys: range, v: str = "x", ts: int = 1) -> list[Row]:
    return [(f"{partition}-{n}", partition, ts, v) for n in keys]


def rows_after(*writes: Sequence[Row]) -> set[Row]:
    """Fold rows by key, the newest to win."""
    newest: dict[str, Row] = {}
    for row in (row for rows in writes for row in rows):
        if row[0] not in newest or row[2] >= newest[row[0]][2]:
            newest[row[0]] = row
    return set(newest.values())


@EACH_INDEX
@EACH_TYPE
def test_two_groups_are_written_again_for_a_new_key_that_another_has_brought_too(
    table_type: str, index: RecordIndex
) -> None:
    before = some("p0", range(3))
    table = filled(index, table_type, *before)
    ours = [row for p in ("p1", "p2", "p3") for row in some(p, range(9), "ours", ts=5)]
    theirs = some("p2", range(1), "theirs", ts=4)
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert len(first.data) == 3
    assert written_between(first.data, second.data) == ["p2", "p2"], "where we had it, and where it is"
    assert len(first.logs) >= 3
    assert len(written_between(first.logs, second.logs)) == 1
    assert (summary.rows, summary.inserted) == (27, 26)
    check(table, rows_after(before, theirs, ours))


@EACH_TYPE
def test_a_new_key_that_another_has_brought_to_another_partition_moves_from_there(table_type: str) -> None:
    table = filled(GLOBAL, table_type, *some("p0", range(3)))
    ours, theirs = some("p1", range(9), "ours", ts=5), [("p1-0", "p2", 4, "theirs")]
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert written_between(first.data, second.data) == ["p2"]
    assert written_between(first.logs, second.logs) == []
    assert (summary.inserted, summary.moved) == (8, 1)
    check(table, rows_after(some("p0", range(3)), theirs, ours))


@EACH_TYPE
def test_a_late_new_key_stays_where_another_has_brought_it(table_type: str) -> None:
    table = filled(GLOBAL, table_type, *some("p0", range(3)))
    ours = [*some("p1", range(3), "ours", ts=5), *some("p3", range(3), "ours", ts=5)]
    theirs = [("p1-0", "p2", 6, "theirs")]
    _, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    # A log has the late row, for a reader to pass over; a base file would be as it was.
    assert written_between(first.data, second.data) == ["p1", *(["p2"] if "MERGE" in table_type else [])]
    check(table, rows_after(some("p0", range(3)), ours, theirs))


@EACH_INDEX
@EACH_TYPE
def test_a_group_that_two_fill_up_is_written_again_and_the_others_stay(
    table_type: str, index: RecordIndex
) -> None:
    before = [*some("p0", range(3)), *some("p1", range(3))]
    table = filled(index, table_type, *before)
    ours = [*some("p0", range(3, 6), "ours"), *some("p1", range(3, 6), "ours"), *some("p2", range(3), "ours")]
    theirs = some("p0", range(6, 8), "theirs")
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert len(first.data) == 3
    assert written_between(first.data, second.data) == ["p0"]
    assert written_between(first.logs, second.logs) == []
    check(table, rows_after(before, theirs, ours))


@EACH_INDEX
@EACH_TYPE
def test_a_group_that_two_fill_up_with_the_same_keys_is_a_base_file_again(
    table_type: str, index: RecordIndex
) -> None:
    """None of ours is new any more: on merge-on-read they would go to a log, beside the base file of the instant."""
    before = [*some("p0", range(3)), *some("p1", range(3))]
    table = filled(index, table_type, *before)
    ours = [*some("p0", range(3, 6), "ours", ts=5), *some("p1", range(3, 6), "ours", ts=5)]
    theirs = some("p0", range(3, 6), "theirs", ts=4)
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert first.data.keys() == second.data.keys()
    assert written_between(first.data, second.data) == ["p0"]
    assert (summary.inserted, summary.updated) == (3, 3)
    check(table, rows_after(before, theirs, ours))


@EACH_INDEX
@EACH_TYPE
def test_a_group_all_of_whose_new_keys_another_has_brought_too_is_left_without_rows(
    table_type: str, index: RecordIndex
) -> None:
    before = some("p0", range(3))
    table = filled(index, table_type, *before)
    ours, theirs = some("p1", range(4), "ours", ts=5), some("p1", range(4), "theirs", ts=4)
    kept = some("p2", range(4), "ours", ts=5)
    summary, (first, second) = overtaken(table, upsert(*ours, *kept), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert written_between(first.data, second.data) == ["p1", "p1"]
    assert summary.inserted == 4
    check(table, rows_after(before, theirs, ours, kept))
    more = some("p1", range(4, 6), "later", ts=9)
    run_write(ArrowRows(upsert(*more)[1]), table.store, Operation.UPSERT)
    check(table, rows_after(before, theirs, ours, kept, more))


def test_updates_of_a_group_that_another_has_rewritten_are_written_again_and_the_others_stay() -> None:
    before = [row for p in ("p0", "p1", "p2") for row in some(p, range(3))]
    table = filled(GLOBAL, "COPY_ON_WRITE", *before)
    ours = [(key, p, 5, "ours") for key, p, _, _ in before]
    theirs = [("p1-0", "p1", 6, "theirs"), ("p1-1", "p1", 4, "theirs")]
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert written_between(first.data, second.data) == ["p1"]
    assert (first.logs, second.logs) == ({}, {})
    assert (summary.updated, summary.outdated) == (8, 1)
    check(table, rows_after(before, ours, theirs))


@EACH_INDEX
def test_deletes_of_a_group_that_another_has_rewritten_are_written_again_and_the_others_stay(
    index: RecordIndex,
) -> None:
    before = [row for p in ("p0", "p1", "p2") for row in some(p, range(6))]
    table = filled(index, "COPY_ON_WRITE", *before)
    gone = [(f"{p}-{n}", p) for p in ("p0", "p1", "p2") for n in range(3)]
    theirs = [("p1-0", "p1", 6, "theirs"), ("p1-4", "p1", 6, "theirs")]
    summary, (first, second) = overtaken(table, delete(*gone), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert written_between(first.data, second.data) == ["p1"]
    assert written_between(first.logs, second.logs) == []
    assert summary.deleted == 9
    check(table, {row for row in rows_after(before, theirs) if row[:2] not in gone})


@EACH_INDEX
def test_a_key_that_another_has_deleted_too_is_gone_once(index: RecordIndex) -> None:
    before = [row for p in ("p0", "p1", "p2") for row in some(p, range(6))]
    table = filled(index, "COPY_ON_WRITE", *before)
    ours = [("p0-0", "p0"), ("p1-0", "p1")]
    summary, (first, second) = overtaken(table, delete(*ours), delete(("p1-0", "p1")))
    assert first.instant == second.instant == summary.instant
    assert written_between(first.data, second.data) == ["p1"]
    assert len(written_between(first.logs, second.logs)) == 1
    assert summary.deleted == 1
    check(table, {row for row in before if row[:2] not in ours})


def test_a_move_out_of_a_group_that_another_has_rewritten_is_written_again_there_only() -> None:
    before = [row for p in ("p0", "p1", "p2") for row in some(p, range(3))]
    table = filled(GLOBAL, "COPY_ON_WRITE", *before)
    ours, theirs = [("p0-0", "p1", 5, "ours")], [("p0-1", "p0", 4, "theirs")]
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant == second.instant == summary.instant
    assert partitions_of(first) == ["p0", "p1"]
    assert written_between(first.data, second.data) == ["p0"]
    assert written_between(first.logs, second.logs) == []
    assert (summary.moved, summary.inserted, summary.deleted) == (1, 0, 0)
    check(table, rows_after(before, ours, theirs))


def partitions_of(left: Round) -> list[str]:
    return sorted(split_path(path)[0] for path in left.data)


@EACH_TYPE
def test_a_row_that_was_outdated_is_looked_at_again_though_it_had_nothing_to_write(table_type: str) -> None:
    """Had the first look counted for it, and the second for others, they would be of two moments."""
    before = [("a", "p0", 9, "x"), *some("p1", range(3))]
    table = filled(GLOBAL, table_type, *before)
    ours = [("a", "p0", 5, "ours"), *some("p2", range(3), "ours"), ("p1-9", "p1", 5, "ours")]
    theirs = upsert(("p1-8", "p1", 5, "theirs"))
    _, rounds = overtaken(table, upsert(*ours), theirs)
    assert len(rounds) == 2
    check(table, {*before, *ours[1:], ("p1-8", "p1", 5, "theirs")})


@EACH_TYPE
def test_whoever_is_overtaken_again_writes_again_what_has_become_stale_by_that(table_type: str) -> None:
    before = some("p0", range(3))
    table = filled(GLOBAL, table_type, *before)
    ours = [row for p in ("p1", "p2", "p3") for row in some(p, range(9), "ours", ts=5)]
    one, other = some("p2", range(1), "one", ts=4), [("p3-0", "p3", 7, "other")]
    summary, (first, second, third) = overtaken(table, upsert(*ours), upsert(*one), upsert(*other))
    assert {first.instant, second.instant, third.instant} == {summary.instant}
    assert written_between(first.data, second.data) == ["p2", "p2"]
    # A late row changes no base file; for a reader of logs it is put down.
    assert written_between(second.data, third.data) == ["p3", *(["p3"] if "MERGE" in table_type else [])]
    check(table, rows_after(before, one, ours, other))


@EACH_TYPE
def test_an_index_that_was_compacted_meanwhile_is_asked_again(table_type: str) -> None:
    table = filled(GLOBAL, table_type, *some("p0", range(3)))
    ours, theirs = some("p1", range(9), "ours", ts=5), some("p1", range(1), "theirs", ts=4)
    with under_way(table.store, upsert(*theirs)) as other:

        def pass_by() -> None:
            other.commit()
            assert compact_metadata(table.store)

        rows = Watched(upsert(*ours)[1], [pass_by])
        summary = run_write(rows, table.store, Operation.UPSERT)
    assert [left.instant for left in rows.rounds] == [summary.instant] * 2
    check(table, rows_after(some("p0", range(3)), theirs, ours))


INSERT = upsert(("n", "p1", 5, "ours")), upsert(("n", "p2", 4, "theirs"))
LATER: dict[str, tuple[Write, Write, set[Row]]] = {
    "insert": (*INSERT, {("n", "p1", 5, "ours")}),
    "delete": (
        delete(("p0-0", "p0"), ("p0-1", "p0")),
        delete(("p0-0", "p0"), ("p0-2", "p0")),
        set(),
    ),
    "move": (
        upsert(("p0-0", "p1", 5, "ours")),
        upsert(("p0-0", "p2", 4, "theirs")),
        {("p0-0", "p1", 5, "ours")},
    ),
}


@EACH_TYPE
@pytest.mark.parametrize("case", LATER)
def test_whoever_loses_to_one_that_began_later_is_run_again_whole(case: str, table_type: str) -> None:
    """Entries of a key are ordered by when their writers began: kept, ours would count less than theirs."""
    ours, theirs, expected = LATER[case]
    before = some("p0", range(3))
    table = filled(GLOBAL, table_type, *before)
    rows = Watched(ours[1], [lambda: run_write(ArrowRows(theirs[1]), table.store, theirs[0])])
    summary = run_write(rows, table.store, ours[0])
    first, second = rows.rounds
    assert first.instant < second.instant == summary.instant
    assert round_of(table.store, first.instant) == Round(first.instant, {}, {}), "all of it was taken back"
    touched = {key for write in (ours, theirs) for key in write[1].column("id").to_pylist()}
    check(table, {row for row in before if row[0] not in touched} | expected)


@EACH_TYPE
def test_so_is_whoever_would_build_on_one_that_began_later_and_has_nothing_in_common(table_type: str) -> None:
    before = some("p0", range(3))
    table = filled(GLOBAL, table_type, *before)
    (ours, theirs), stranger = INSERT, upsert(*some("p3", range(2)))
    with under_way(table.store, theirs) as other:

        def pass_by() -> None:
            other.commit()
            run_write(ArrowRows(stranger[1]), table.store, stranger[0])

        rows = Watched(ours[1], [pass_by])
        run_write(rows, table.store, ours[0])
    first, second = rows.rounds
    assert first.instant < second.instant
    check(table, {*before, ("n", "p1", 5, "ours"), *some("p3", range(2))})


def test_so_is_whoever_would_have_to_put_a_base_file_beneath_the_logs_of_another() -> None:
    before = some("p0", range(3))
    table = filled(GLOBAL, "MERGE_ON_READ", *before)
    ours, theirs = some("p0", range(3, 6), "ours"), [("p0-0", "p0", 4, "theirs")]
    summary, (first, second) = overtaken(table, upsert(*ours), upsert(*theirs))
    assert first.instant < second.instant == summary.instant
    check(table, rows_after(before, ours, theirs))


class TakenForDead(Watched):
    """Rows whose second round begins when somebody has taken the write for dead."""

    def run(self, plan: WriteState) -> Any:
        if [left.instant for left in self.rounds] == [plan.instant]:
            age(plan.store)
            recover(plan.store, load_properties(plan.store))
        return super().run(plan)


@EACH_TYPE
def test_so_is_whoever_was_taken_for_dead_before_the_second_round(table_type: str) -> None:
    before = some("p0", range(3))
    table = filled(GLOBAL, table_type, *before)
    ours, theirs = some("p1", range(9), "ours", ts=5), some("p1", range(1), "theirs", ts=4)
    with under_way(table.store, upsert(*theirs)) as other:
        rows = TakenForDead(upsert(*ours)[1], [other.commit])
        summary = run_write(rows, table.store, Operation.UPSERT)
    first, second = rows.rounds
    assert first.instant < second.instant == summary.instant
    check(table, rows_after(before, theirs, ours))


class Changing(Watched):
    """Rows that are others when they are evaluated again."""

    def run(self, plan: WriteState) -> Any:
        done = super().run(plan)
        columns = self._rows.to_pydict()
        columns["id"] = [f"{key}-again" for key in columns["id"]]
        self._rows = pa.table(columns, self._rows.schema)
        return done


@EACH_TYPE
def test_rows_that_are_others_in_the_second_round_are_found_out_and_nothing_is_written(
    table_type: str,
) -> None:
    before = some("p0", range(3))
    table = filled(GLOBAL, table_type, *before)
    ours, theirs = some("p1", range(9), "ours", ts=5), some("p1", range(1), "theirs", ts=4)
    with under_way(table.store, upsert(*theirs)) as other:
        rows = Changing(upsert(*ours)[1], [other.commit])
        with pytest.raises(ProofError, match="in a second round"):
            run_write(rows, table.store, Operation.UPSERT)
    (only,) = rows.rounds
    assert round_of(table.store, only.instant) == Round(only.instant, {}, {})
    check(table, rows_after(before, theirs))


def test_an_attempt_of_the_first_round_that_comes_late_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names are taken: whatever it puts is there, and stays as the second round has left it."""
    before = some("p0", range(3))
    table = filled(GLOBAL, "MERGE_ON_READ", *before)
    ours, theirs = some("p1", range(4), "ours", ts=5), some("p1", range(4), "theirs", ts=4)
    late: list[tuple[str, bytes]] = []
    kind = type(table.store)
    put_new = kind.put_new

    def noted(store: Any, path: str, data: Any) -> bool:
        is_ours = put_new(store, path, data)
        late.append((path, store.read(path)))
        return is_ours

    with under_way(table.store, upsert(*theirs)) as other:
        monkeypatch.setattr(kind, "put_new", noted)

        def pass_by() -> None:
            monkeypatch.undo()
            other.commit()

        rows = Watched(upsert(*ours)[1], [pass_by])
        summary = run_write(rows, table.store, Operation.UPSERT)
    of_first = [(path, data) for path, data in late if path in {**rows.rounds[0].data, **rows.rounds[0].logs}]
    assert len(of_first) >= 2
    after = round_of(table.store, summary.instant or "")
    assert [put_new(table.store, path, data) for path, data in of_first] == [False] * len(of_first)
    assert round_of(table.store, summary.instant or "") == after
    check(table, rows_after(before, theirs, ours))


class LateAttempt(InProcess):
    """Rows of which an attempt that was given up had others; it goes on when the commit has been made."""

    late: Callable[[], object]

    def finish(self, pieces: list[Piece], then: Any, *, tasks: int) -> tuple[str, ...]:
        known = {piece.code for piece in pieces}
        other = next(code for code in range(3) if code not in known)
        strange = next(replace(piece, code=other) for piece in pieces if piece.code >= 0)
        self.late = lambda: list(then(iter([strange])))
        return super().finish(pieces, then, tasks=tasks)


def test_an_attempt_with_other_rows_that_comes_late_puts_no_file_that_the_commit_does_not_tell_of() -> None:
    """A file of entries counts by its name once its instant is complete, told or not: Hudi lists the folder."""
    before = some("p0", range(9))
    table = filled(GLOBAL, "MERGE_ON_READ", *before)
    ours = [("n", "p1", 5, "ours")]

    class Rows(Watched):
        def run(self, plan: WriteState) -> Any:
            exchange.append(LateAttempt(self._rows))
            return write_through(exchange[0], self._rows.column_names, plan)

    exchange: list[LateAttempt] = []
    summary = run_write(Rows(upsert(*ours)[1]), table.store, Operation.UPSERT)
    left = round_of(table.store, summary.instant or "")
    assert len(left.logs) == 1
    with pytest.raises(ConfigError, match="change from one evaluation to the next"):
        exchange[0].late()
    assert round_of(table.store, summary.instant or "") == left
    check(table, rows_after(before, ours))


def test_a_write_that_is_much_overtaken_writes_little_again() -> None:
    """Five others, each with one key of ours: of a hundred file groups that we write, few are written again."""
    table = filled(GLOBAL, "COPY_ON_WRITE", *some("p", range(3)))
    ours = [row for n in range(100) for row in some(f"d{n:02}", range(2), "ours", ts=5)]
    others = [upsert(*some(f"d{n:02}", range(1), "theirs", ts=4)) for n in range(5)]
    summary, rounds = overtaken(table, upsert(*ours), *others)
    assert {left.instant for left in rounds} == {summary.instant}
    again = [len(written_between(a.data, b.data)) for a, b in pairwise(rounds)]
    assert again == [2] * 5
    found = Table(table.store, table.properties).to_arrow(columns=["v"])
    assert pc.count_distinct(found["v"]).as_py() == 2
    check(table, rows_after(some("p", range(3)), ours))
