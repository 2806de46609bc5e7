"""What is older than the active timeline counts as committed: archiving too much shows what nobody wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import TableProperties
from bucketlake.errors import ConfigError
from bucketlake.layout import BaseFile
from bucketlake.services.archive import LastClean, Surroundings, plan_archive
from bucketlake.state import TableState, view_of
from bucketlake.storage import MemoryStore
from bucketlake.timeline import Action, Instant, State, Timeline
from stand_ins.transactions import WORDS

WORDS_OF = {
    "c": Action.COMMIT,
    "d": Action.DELTA_COMMIT,
    "r": Action.REPLACE_COMMIT,
    "k": Action.COMPACTION,
    "x": Action.CLEAN,
    "b": Action.ROLLBACK,
    "t": Action.RESTORE,
    "s": Action.SAVEPOINT,
}


def time(number: int) -> str:
    return f"202601010000{number:05d}"


def instant(word: str) -> Instant:
    """Read `c3`, the commit of 3, `c3?`, which is pending, or `c3-7`, which was completed only after that of 7."""
    requested, _, completed = word[1:].rstrip("?").partition("-")
    begun, action = time(int(requested)), WORDS_OF[word[0]]
    if word.endswith("?"):
        return Instant(begun, action, State.INFLIGHT, None, f"{word}.inflight")
    done = f"{time(int(completed or requested))}{2 if completed else 1}"
    return Instant(begun, action, State.COMPLETED, done, word)


def state_of(words: str) -> TableState:
    """Each replacecommit has replaced a file group of its own, named after it."""
    properties = TableProperties.parse(WORDS, path="hoodie.properties")
    timeline = Timeline(tuple(sorted(instant(word) for word in words.split())))
    replaced = {i.requested: {"a": (f"g{i.requested}",)} for i in timeline.completed(Action.REPLACE_COMMIT)}
    view = view_of(properties, timeline, replaced, {})
    return TableState(MemoryStore(), properties, timeline, view)


AROUND = Surroundings(files={}, archived=frozenset(), last_clean=None, marked=frozenset(), orphans=())


def clean(requested: int, *, keeps: int | None) -> Surroundings:
    last = LastClean(requested=time(requested), earliest_kept=None if keeps is None else time(keeps))
    return replace(AROUND, last_clean=last)


def left(*numbers: int, around: Surroundings = AROUND) -> Surroundings:
    """Files are left of what these replacecommits replaced."""
    return replace(around, groups=frozenset(("a", f"g{time(number)}") for number in numbers))


def numbers(instants: tuple[Instant, ...]) -> list[int]:
    return [int(i.requested[-5:]) for i in instants]


@pytest.mark.parametrize(
    ("words", "around", "archived", "stops_before"),
    [
        ("c1 c2 c3 c4", AROUND, [], None),  # no more than the maximum
        ("c1 c2 c3 c4 c5", AROUND, [1, 2, 3], None),
        (
            "c1 x2 c3 b4 c5 c6 c7",
            clean(2, keeps=None),
            [1, 3, 4, 5],
            None,
        ),  # the last clean tells how far back
        ("c1 x2 c3 x4 c5 c6 c7 c8", clean(4, keeps=None), [1, 2, 3, 5, 6], None),
        ("c1 c2 s2 c3 c4 c5", AROUND, [1], 2),
        ("c1 c2 k3? c4 c5 c6", AROUND, [1], 2),  # the timeline must begin before what is pending
        ("k1? c2 c3 c4 c5 c6", AROUND, [], 1),
        ("c1 c2 x3? c4 c5 c6", AROUND, [1], 2),
        ("c1 c2 c3 c4 c5 b6?", AROUND, [], ""),
        ("c1 c2 c3 c4 c5 t6?", AROUND, [], ""),
        ("c1 c2 c3 c4 c5 x6", clean(6, keeps=2), [1], 2),
        ("c1 r2 c3 c4 c5", left(2), [1], 2),  # what it replaced was never cleaned
        ("c1 r2 c3 c4 c5", AROUND, [1, 2, 3], None),
        ("c1 r2 c3 c4 c5 x6", clean(6, keeps=4), [1, 2, 3], None),
        ("c1 r2 c3 c4 c5 x6", clean(6, keeps=None), [1, 2, 3], None),
        (
            "c1 r2 c3 c4 c5 x6",
            left(2, around=clean(6, keeps=4)),
            [1],
            2,
        ),  # spared for a savepoint, gone since
        ("c1 r2-3 c3 c4 c5 c6 x7", left(2, around=clean(7, keeps=5)), [1], 2),
        ("c1 c2 r3 c4 r5 c6 c7", left(5), [1, 2, 3, 4], 5),
        ("c1 c2 c3-4 c4 s4 c5 c6", AROUND, [1, 2], 3),  # a restore to 4 takes 3 back
        ("c1-2 c2 c3 s3 c4 c5", AROUND, [1, 2], 3),
        ("c1 c2 c3 c4 c5", replace(AROUND, marked=frozenset({time(1) + "5"})), [], 1),
        ("c1 c2 c3 c4 c5", replace(AROUND, marked=frozenset({time(1)})), [1, 2, 3], None),
        (
            "c1 c2 c3",
            replace(AROUND, archived=frozenset({(time(1), Action.COMMIT)})),
            [1],
            None,
        ),  # was cut off
        ("d1 d2 c3 d4 d5", AROUND, [1, 2, 3], None),
    ],
)
def test_archiving_takes_the_oldest_and_stops_where_something_is_open(
    words: str, around: Surroundings, archived: list[int], stops_before: int | str | None
) -> None:
    plan = plan_archive(state_of(words), around, keep_min=2, keep_max=4)
    assert numbers(plan.instants) == archived
    before = None if plan.stop is None else plan.stop.before
    assert before == (time(stops_before) if isinstance(stops_before, int) else stops_before)
    assert f"archive {len(archived)} instants" in str(plan)


def test_orphans_and_markers_that_would_be_passed_are_named_and_others_are_left() -> None:
    files = tuple(BaseFile(f"a/{n}", "g", "1-0-1", time(n) + "5", 10) for n in (1, 3, 4))
    around = replace(AROUND, orphans=files, marked=frozenset({time(2)}))
    plan = plan_archive(state_of("c1 c2 c3 c4 c5"), around, keep_min=2, keep_max=4)
    assert [file.path for file in plan.orphans] == ["a/1", "a/3"]
    assert plan.marked == (time(2),)
    assert "delete the orphan a/1" in str(plan)


@pytest.mark.parametrize(("keep_min", "keep_max"), [(0, 3), (3, 3), (-1, 2)])
def test_a_timeline_keeps_a_write_at_least(keep_min: int, keep_max: int) -> None:
    with pytest.raises(ConfigError, match="expected at least 1"):
        plan_archive(state_of("c1"), AROUND, keep_min=keep_min, keep_max=keep_max)


kinds = st.sampled_from(["c", "d", "r", "k?", "x", "b", "c?"])


@given(
    st.lists(kinds, max_size=14),
    st.sets(st.integers(1, 14), max_size=2),
    st.integers(1, 4),
    st.integers(1, 4),
)
def test_nothing_open_is_ever_behind_the_timelines_start(
    drawn: list[str], savepoints: set[int], keep_min: int, more: int
) -> None:
    words = [f"{kind[0]}{number}{kind[1:]}" for number, kind in enumerate(drawn, 1)]
    words += [f"s{number}" for number in savepoints if number <= len(drawn) and drawn[number - 1] in "cdr"]
    state = state_of(" ".join(words))
    around = left(*range(1, len(words) + 1))
    plan = plan_archive(state, around, keep_min=keep_min, keep_max=keep_min + more)
    gone = set(plan.instants)
    stays = Timeline(tuple(i for i in state.timeline.instants if i not in gone))
    writes = [i for i in plan.instants if i.is_write]
    assert all(i.is_completed and i.requested not in state.timeline.savepoints for i in gone)
    assert len(stays.writes) >= min(keep_min, len(state.timeline.writes))
    if writes:
        assert stays.start is not None
        assert writes[-1].requested < stays.start, "without a gap"
        completed_start = stays.writes[0].requested
        for pending in stays.pending():
            assert completed_start < pending.requested, "Hudi begins at the first completed one"
    assert state.timeline.completed(Action.REPLACE_COMMIT) == stays.completed(Action.REPLACE_COMMIT)
