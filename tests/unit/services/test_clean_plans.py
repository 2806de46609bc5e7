"""A file that is deleted too early is a reader's rows; one that is never deleted fills the disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from bucketlake.errors import ConfigError
from bucketlake.layout import data_files_of
from bucketlake.layout.names import split_path
from bucketlake.services import CleanPlan, Held, Retention, plan_clean
from bucketlake.storage import FileStat
from stand_ins.timelines import state_of

NOW = "20240102120000000"


def plan(
    timeline: Sequence[str],
    files: Sequence[str],
    retain: Retention,
    *,
    held: Held = Held(),  # noqa: B008 # a frozen value
    replaced: Mapping[str, Mapping[str, Sequence[str]]] | None = None,
    compactions: Mapping[str, Sequence[tuple[str, str]]] | None = None,
) -> CleanPlan:
    state = state_of(timeline, replaced=replaced or {}, compactions=compactions or {})
    by_partition: dict[str, list[FileStat]] = {}
    for path in files:
        by_partition.setdefault(split_path(path)[0], []).append(FileStat(path, 10, 0, ""))
    listed = {partition: data_files_of(group) for partition, group in by_partition.items()}
    return plan_clean(state, listed, held, retain=retain, now=NOW)


def names(planned: CleanPlan) -> list[str]:
    return [split_path(file.path)[1] for file in planned.files]


COMMITS = ["001_002.commit", "003_004.commit", "005_006.commit", "007_008.commit"]
VERSIONS = [
    "p/g_1-0-1_001.parquet",
    "p/g_1-0-1_003.parquet",
    "p/g_1-0-1_005.parquet",
    "p/g_1-0-1_007.parquet",
]


@pytest.mark.parametrize(
    ("retain", "earliest", "deleted"),
    [
        (Retention(commits=1), "007", ["001", "003"]),  # 005 is what a reader sees who began before 007
        (Retention(commits=2), "005", ["001"]),
        (Retention(commits=3), "003", []),
        (Retention(commits=4), None, []),
        (Retention(commits=9), None, []),
        (Retention(versions=1), None, ["001", "003", "005"]),
        (Retention(versions=3), None, ["001"]),
        (Retention(versions=4), None, []),
    ],
)
def test_the_newest_slices_stay(retain: Retention, earliest: str | None, deleted: list[str]) -> None:
    planned = plan(COMMITS, VERSIONS, retain)
    assert names(planned) == [f"g_1-0-1_{instant}.parquet" for instant in deleted]
    assert (planned.earliest.requested if planned.earliest else None) == earliest
    assert planned.last_completed == "007"
    assert planned.partitions == ()


def test_a_file_group_that_nobody_wrote_to_lately_keeps_its_only_slice() -> None:
    assert names(plan(COMMITS, [*VERSIONS, "p/h_1-0-1_001.parquet"], Retention(commits=1))) == [
        "g_1-0-1_001.parquet",
        "g_1-0-1_003.parquet",
    ]


def test_hours_are_counted_back_from_now() -> None:
    times = ["20240102080000000", "20240102090000000", "20240102100000000", "20240102110000000"]
    timeline = [f"{time}_{time[:-1]}1.commit" for time in times]
    files = [f"p/g_1-0-1_{time}.parquet" for time in times]
    planned = plan(timeline, files, Retention(hours=1.5))
    assert planned.earliest is not None
    assert planned.earliest.requested == times[3]
    assert names(planned) == [f"g_1-0-1_{time}.parquet" for time in times[:2]]
    assert names(plan(timeline, files, Retention(hours=3.5))) == []
    assert plan(timeline, files, Retention(hours=0.5)).is_empty, (
        "no write that recent: no telling what is read"
    )


@pytest.mark.parametrize("retain", [Retention(commits=1), Retention(versions=1)])
def test_what_was_replaced_after_a_pending_write_had_begun_stays_for_it(retain: Retention) -> None:
    """The replacement was begun before the write, and completed after it had looked at the table."""
    timeline = [
        "001_002.commit",
        "003_008.replacecommit",
        "004_005.commit",
        "009_010.commit",
        "011_012.commit",
    ]
    files = ["p/g_1-0-1_001.parquet", "p/h_1-0-1_003.parquet", "q/k_1-0-1_009.parquet"]
    replaced = {"003": {"p": ["g"]}}
    assert names(plan(timeline, files, retain, replaced=replaced)) == ["g_1-0-1_001.parquet"]
    beside = [*timeline, "006.inflight", "006.commit.requested"]
    assert plan(beside, files, retain, replaced=replaced).is_empty
    later = [*timeline, "0085.inflight", "0085.commit.requested"]
    assert names(plan(later, files, retain, replaced=replaced)) == ["g_1-0-1_001.parquet"]


MOR = [
    "001_002.deltacommit",
    "003_004.deltacommit",
    "005_007.commit",
    "006_009.deltacommit",
    "010_011.deltacommit",
]
MOR_FILES = [
    "p/g_1-0-1_001.parquet",
    "p/.g_003.log.1_1-0-1",
    "p/g_1-0-1_005.parquet",
    "p/.g_006.log.1_1-0-1",
    "p/.g_010.log.1_1-0-1",
]


def test_a_slice_goes_with_its_logs() -> None:
    assert names(plan(MOR, MOR_FILES, Retention(versions=1))) == [".g_003.log.1_1-0-1", "g_1-0-1_001.parquet"]
    assert names(plan(MOR, MOR_FILES, Retention(commits=1))) == [".g_003.log.1_1-0-1", "g_1-0-1_001.parquet"]
    assert plan(MOR, MOR_FILES, Retention(commits=3)).is_empty, (
        "a reader as of 005 was begun on the slice before"
    )


def test_other_attempts_at_a_base_file_go_with_it() -> None:
    files = ["p/g_0-7-9_001.parquet", *VERSIONS]
    assert names(plan(COMMITS, files, Retention(commits=2))) == ["g_0-7-9_001.parquet", "g_1-0-1_001.parquet"]


def test_a_file_of_no_completed_write_is_left_alone() -> None:
    timeline = ["001_002.commit", "003_004.commit", "005_006.commit", "009.inflight"]
    files = [
        "p/g_1-0-1_001.parquet",
        "p/g_1-0-1_003.parquet",
        "p/g_1-0-1_005.parquet",
        "p/g_1-0-1_009.parquet",
    ]
    assert names(plan(timeline, files, Retention(versions=1))) == [
        "g_1-0-1_001.parquet",
        "g_1-0-1_003.parquet",
    ]


def test_nothing_is_taken_from_under_a_pending_write() -> None:
    timeline = ["001_002.commit", "003_004.commit", "005.inflight", "006_007.commit", "008_009.commit"]
    files = [f"p/g_1-0-1_{instant}.parquet" for instant in ("001", "003", "006", "008")]
    planned = plan(timeline, files, Retention(commits=1))
    assert planned.earliest is not None
    assert planned.earliest.requested == "003"
    assert names(planned) == []
    assert plan(["001.inflight", *COMMITS[1:]], VERSIONS, Retention(commits=1)).earliest is None


@pytest.mark.parametrize("retain", [Retention(commits=1), Retention(versions=1)])
def test_what_is_held_stays_with_its_whole_slice(retain: Retention) -> None:
    held = Held(files=frozenset({"p/.g_003.log.1_1-0-1"}))
    assert names(plan(MOR, MOR_FILES, retain, held=held)) == []


def test_a_pending_compaction_and_what_came_after_count_as_one_version() -> None:
    timeline = ["001_002.deltacommit", "003_004.commit", "005.compaction.requested", "006_007.deltacommit"]
    files = ["p/g_1-0-1_001.parquet", "p/g_1-0-1_003.parquet", "p/.g_006.log.1_1-0-1"]
    compactions = {"005": [("p", "g")]}
    held = Held(frozenset({("p", "g")}), frozenset({"p/g_1-0-1_003.parquet"}))
    for retain, deleted in ((Retention(versions=1), ["g_1-0-1_001.parquet"]), (Retention(versions=2), [])):
        assert names(plan(timeline, files, retain, held=held, compactions=compactions)) == deleted


REPLACED = ["001_002.commit", "003_004.replacecommit", "005_006.commit", "007_008.commit"]
REPLACED_FILES = [
    "p/g_1-0-1_001.parquet",
    "p/h_1-0-1_003.parquet",
    "q/g_1-0-1_001.parquet",
    "q/k_1-0-1_005.parquet",
]


@pytest.mark.parametrize(
    ("retain", "deleted"),
    [
        (Retention(commits=1), ["g_1-0-1_001.parquet"]),
        (Retention(commits=2), ["g_1-0-1_001.parquet"]),
        (Retention(commits=3), []),  # a reader as of 003 sees h, but one who began just before reads g
        (Retention(versions=3), ["g_1-0-1_001.parquet"]),
    ],
)
def test_a_replaced_file_group_goes_once_its_replacement_is_old(
    retain: Retention, deleted: list[str]
) -> None:
    replaced = {"003": {"p": ["g"]}}
    assert names(plan(REPLACED, REPLACED_FILES, retain, replaced=replaced)) == deleted


def test_a_partition_whose_files_are_all_gone_ceases_to_be() -> None:
    replaced = {"003": {"p": ["g"], "q": ["g"]}}
    files = ["p/g_1-0-1_001.parquet", "q/g_1-0-1_001.parquet", "q/k_1-0-1_005.parquet"]
    planned = plan(REPLACED, files, Retention(commits=1), replaced=replaced)
    assert planned.partitions == ("p",)
    assert "p: empty, ceases to be a partition" in str(planned)
    held = Held(files=frozenset({"p/g_1-0-1_001.parquet"}))
    assert plan(REPLACED, files, Retention(commits=1), replaced=replaced, held=held).partitions == ()
    busy = [*REPLACED, "009.inflight"]
    assert plan(busy, files, Retention(versions=1), replaced=replaced).partitions == (), "a write may need it"
    with_leftover = [*files, "p/z_1-0-1_009.parquet"]
    assert plan(REPLACED, with_leftover, Retention(commits=1), replaced=replaced).partitions == ()


def test_a_plan_prints_files_and_bytes() -> None:
    text = str(plan(COMMITS, VERSIONS, Retention(commits=2)))
    assert text == (
        "delete 1 files, 10 bytes, keeping what readers as of 005 see\n  p/g_1-0-1_001.parquet: 10 bytes"
    )
    assert str(plan(COMMITS, VERSIONS, Retention(versions=9))) == "nothing to clean"


@pytest.mark.parametrize(
    "wrong", [{}, {"commits": 0}, {"versions": 0}, {"hours": -1}, {"commits": 1, "versions": 1}]
)
def test_a_retention_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        Retention(**wrong)  # type: ignore[arg-type] # three names of one type
