"""Incremental reads cut history into pieces. What falls between two of them, a consumer never sees.

Random histories: writes, compactions that are planned and run at any moment, clusterings, rescales and resizes with
writes beside them, cleans, archives. After any step, and in the midst of some, the changes of every interval must be
those of the commits that completed in it, applied in turn. So consecutive intervals add up, wherever they are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import Table
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError, ConflictError
from bucketlake.services import (
    Retention,
    archive_table,
    clean_table,
    load_held,
    plan_compaction,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.timeline import Action, load_history
from bucketlake.write import CommitSummary
from stand_ins.replacements import KINDS, TYPES, replace_while, rows_of, table_for

T = TypeVar("T")
Rows = dict[int, int]
"""Key -> ordering value, which every write makes greater."""

KEYS = 8
Step = tuple[Any, ...]

keys = st.frozensets(st.integers(0, KEYS - 1), min_size=1, max_size=4).map(sorted)
writes = st.one_of(
    st.tuples(st.just("upsert"), keys),
    st.tuples(st.just("upsert"), keys),
    st.tuples(st.just("delete"), keys),
    st.tuples(st.just("overwrite"), keys),
)
services = st.sampled_from([("plan",), ("plan",), ("compact",), ("clean",), ("archive",)])
simple = st.one_of(writes, services, st.just(("look",)))
steps = st.one_of(
    writes,
    services,
    st.tuples(st.just("slow upsert"), keys, st.lists(simple, max_size=2)),
    st.tuples(st.just("replace"), st.lists(simple, max_size=3)),
)


@dataclass
class Commit:
    completed: str
    change: Callable[[Rows], None]


@dataclass
class History:
    """A table, and what every commit did to it."""

    table: Table
    kind: str
    commits: list[Commit] = field(default_factory=list)
    ts: int = 0
    in_clustering: bool = False

    def do(self, step: Step) -> None:
        match step:
            case ("look",):
                self.look([])
            case ("plan",):
                self.plan()
            case ("compact",):
                for pending in load_state(self.table.store).timeline.pending(Action.COMPACTION):
                    with suppress(ConflictError):
                        run_compaction(self.table.store, pending.requested)
            case ("clean",):
                with suppress(ConflictError):
                    clean_table(self.table.store, retain=Retention(commits=2))
            case ("archive",):
                archive_table(self.table.store, keep_min=1, keep_max=2)
            case ("replace", beside):
                self.replace(beside)
            case ("slow upsert", ids, beside):
                store = Paused(self.table.store, lambda: self.do_all(beside))
                self.write("upsert", ids, Table(store, load_properties(store)), ts=self.ts + 1 + len(beside))
            case (operation, ids):
                self.write(operation, ids, self.table, ts=self.ts + 1)

    def do_all(self, given: Sequence[Step]) -> None:
        for step in given:
            self.do(step)

    def plan(self) -> None:
        state = load_state(self.table.store)
        if self.is_logged:
            schedule_compaction(
                self.table.store, plan_compaction(state, files_of(state), load_held(state), now="")
            )

    def replace(self, beside: Sequence[Step]) -> None:
        with suppress(ConflictError):
            self.in_clustering = self.kind == "clustering"
            replace_while(self.table, self.kind, lambda: self.do_all(beside))
        self.in_clustering = False
        self.table = Table.open(self.table.store.uri)

    def write(self, operation: str, ids: Sequence[int], table: Table, *, ts: int) -> None:
        """While file groups of d0 are clustered, only d1 may be written to."""
        ids = [n for n in ids if n % 2 or not self.in_clustering]
        if not ids:
            return
        given = rows_of(ids, ts)

        def change(rows: Rows) -> None:
            gone = {n % 2 for n in ids} if operation == "overwrite" else set()
            for n in [n for n in rows if n in ids or n % 2 in gone]:
                del rows[n]
            if operation != "delete":
                rows.update(dict.fromkeys(ids, ts))

        try:
            summary: CommitSummary = getattr(table, operation)(
                given.select(["id", "dt"]) if operation == "delete" else given
            )
        except ConflictError:
            return
        finally:
            self.ts = max(self.ts, ts)
        if summary.completed is not None:
            self.commits.append(Commit(summary.completed, change))

    @property
    def is_logged(self) -> bool:
        return self.table.properties.table_type == "MERGE_ON_READ"

    def look(self, drawn: Sequence[int]) -> None:
        """Read the changes between all moments next to each other, and between some others."""
        moments = ["0" * 17, *self.moments()]
        cuts = [moments[number % len(moments)] for number in drawn]
        pairs: list[tuple[str, str | None]] = [*pairwise(moments), *pairwise(cuts)]
        pairs += [(moments[0], moments[-1]), (cuts[-1] if cuts else moments[0], None)]
        for begin, end in pairs:
            if end is not None and begin > end:
                begin, end = end, begin
            expected: Rows = {}
            for commit in sorted(self.commits, key=lambda commit: commit.completed):
                if begin < commit.completed and (end is None or commit.completed <= end):
                    commit.change(expected)
            filters = [] if self.ts % 2 else [("id", "in", [1, 2, 3])]
            with suppress(ConfigError):  # a clean has removed files that the interval needs
                found = self.table.to_arrow(
                    columns=["id", "ts"], filters=filters, begin=begin, end=end
                ).to_pylist()
                wanted = {n: ts for n, ts in expected.items() if not filters or n in (1, 2, 3)}
                assert {row["id"]: row["ts"] for row in found} == wanted, f"({begin}, {end}]"
                assert len(found) == len(wanted), "a key is there twice"

    def moments(self) -> list[str]:
        state = load_state(self.table.store)
        archived = load_history(self.table.store, state.properties)
        instants = [*(a.instant for a in archived), *state.timeline.completed()]
        return sorted({time for i in instants for time in (i.requested, i.completed) if time})


class Paused(FaultyStore):
    """A store whose first data file waits for something else to happen."""

    def __init__(self, inner: Any, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._act: Callable[[], object] | None = meanwhile

    def _do(self, what: str, act: Callable[[], T]) -> T:
        verb, _, path = what.partition(" ")
        if verb.startswith("put") and path.startswith("d") and self._act is not None:
            happens, self._act = self._act, None
            happens()
        return super()._do(what, act)


@pytest.mark.shows("H3")
@settings(max_examples=max(12, settings().max_examples // 10))
@given(
    kind=st.sampled_from(KINDS),
    table_type=st.sampled_from(TYPES),
    history=st.lists(steps, min_size=1, max_size=8),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_the_changes_of_any_interval_are_those_of_the_commits_in_it(
    kind: str, table_type: str, history: list[Step], cuts: list[int]
) -> None:
    made = History(table_for(kind, table_type), kind)
    made.write("upsert", range(KEYS), made.table, ts=1)
    for step in history:
        made.do(step)
        made.look(cuts)
