"""Which file groups of an overtaken write are written again, and when all of it must be."""

from __future__ import annotations

import pytest

from bucketlake.errors import CommitConflictError
from bucketlake.layout import BaseFile, FileSlice, LogFile
from bucketlake.write import KeySum
from bucketlake.write.rounds import Again, Earlier, LookedUp, check_placed, check_written_again, what_again
from bucketlake.write.task import GroupWritten

pytestmark = pytest.mark.shows("R1", "X2")

A, B, C = ("p", "a"), ("p", "b"), ("q", "c")


def done(
    group: tuple[str, str], rows: int, total: int, *, path: str | None = "f", is_log: bool = False
) -> GroupWritten:
    partition, file_id = group
    return GroupWritten(
        partition=partition, file_id=file_id, received=rows, received_sum=total, path=path, is_log=is_log
    )


def left(*written: GroupWritten, stale: frozenset[tuple[str, str]] = frozenset()) -> Earlier:
    looked_up = LookedUp(arrived=KeySum(0, 0), places={})
    return Earlier(looked_up=looked_up, written=written, recorded=(), stale=stale)


def again(
    *, written: set[tuple[str, str]], emptied: set[tuple[str, str]], kept: set[tuple[str, str]]
) -> Again:
    return Again(written=frozenset(written), emptied=frozenset(emptied), kept=frozenset(kept))


@pytest.mark.parametrize(
    ("earlier", "now", "expected"),
    [
        (left(done(A, 2, 7)), {A: KeySum(2, 7)}, again(written=set(), emptied=set(), kept={A})),
        (left(done(A, 2, 7)), {A: KeySum(2, 8)}, again(written={A}, emptied=set(), kept=set())),
        (left(done(A, 2, 7)), {A: KeySum(1, 7)}, again(written={A}, emptied=set(), kept=set())),
        (left(done(A, 2, 7)), {}, again(written={A}, emptied={A}, kept=set())),
        (left(), {A: KeySum(2, 7)}, again(written={A}, emptied=set(), kept=set())),
        (
            left(done(A, 2, 7), stale=frozenset({A})),
            {A: KeySum(2, 7)},
            again(written={A}, emptied=set(), kept=set()),
        ),
        (left(done(A, 2, 7, path=None)), {A: KeySum(2, 7)}, again(written={A}, emptied=set(), kept=set())),
        (left(done(A, 2, 7, path=None)), {}, again(written=set(), emptied=set(), kept=set())),
        (
            left(done(A, 2, 7), done(B, 1, 3)),
            {A: KeySum(2, 7), C: KeySum(1, 3)},
            again(written={B, C}, emptied={B}, kept={A}),
        ),
    ],
    ids=[
        "the same rows",
        "other rows",
        "fewer rows",
        "no rows any more",
        "rows for the first time",
        "others have changed it",
        "nothing was written",
        "nothing was written and nothing is to be",
        "rows go elsewhere",
    ],
)
def test_what_is_stale_is_written_again_and_no_more(
    earlier: Earlier, now: dict[tuple[str, str], KeySum], expected: Again
) -> None:
    assert what_again(earlier, now) == expected


BASE = BaseFile("p/a_1-0-1_001.parquet", "a", "1-0-1", "001", 10)
LOG = LogFile("p/.a_002.log.1_1-0-1", "a", "002", 1, "1-0-1", 10)
WITHOUT_LOGS, WITH_LOGS = (FileSlice("p", "a", "001", BASE, logs) for logs in ((), (LOG,)))
STALE = frozenset({A})


@pytest.mark.parametrize(
    ("earlier", "present"),
    [
        (left(), WITH_LOGS),
        (left(done(A, 1, 1)), None),
        (left(done(A, 1, 1), stale=STALE), WITHOUT_LOGS),
    ],
    ids=["a log over those of others", "a group of its own", "a base file over one of others"],
)
def test_a_group_is_written_again_where_it_gets_one_file(earlier: Earlier, present: FileSlice | None) -> None:
    check(earlier, present)


@pytest.mark.parametrize(
    ("earlier", "present", "why"),
    [
        (left(done(A, 1, 1), stale=STALE), WITH_LOGS, "others have put log files there"),
        (left(done(A, 1, 1), stale=STALE), None, "others have replaced it"),
        (left(done(A, 1, 1, is_log=True)), WITHOUT_LOGS, "has a log file of this write"),
    ],
)
def test_otherwise_all_of_the_write_is(earlier: Earlier, present: FileSlice | None, why: str) -> None:
    with pytest.raises(CommitConflictError, match=why) as raised:
        check(earlier, present)
    assert not raised.value.is_partial


def check(earlier: Earlier, present: FileSlice | None) -> None:
    groups = {"p": {} if present is None else {"a": present}}
    check_written_again(again(written={A}, emptied=set(), kept=set()), earlier, groups, instant="003")


def test_keys_that_have_become_new_have_no_place_in_a_second_round() -> None:
    check_placed((), instant="003")
    with pytest.raises(
        CommitConflictError, match="others have taken away keys that it updates, in the partition 'p'"
    ):
        check_placed({("q", "?0-0"), ("p", "?1-0")}, instant="003")
