"""Which files a reader sees. A file too many is a row come back from the dead; one too few is a row lost.

The cases are written in a small notation. Instants are two digits.

    timeline   05-07      requested at 05, completed at 07
               05-        pending
               c05:A      a compaction of file group A, pending since 05
               r05-07:A   a replacecommit, completed at 07, that hides A
    files      A@05       a base file of A, of instant 05
               A+06       a log file of A whose name says 06; A+06.2 its second version, A+06.2~9 and its token
    seen       A@05+06    the slice of A with base file 05 and log 06
               A~06+06    the slice of A without a base file, of instant 06, with log 06
"""

# ruff: noqa: E501  (the cases are tables, a line each)

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bucketlake.layout import (
    BaseFile,
    DataFile,
    FileSlice,
    LogFile,
    TimelineView,
    all_slices_of,
    history_needed,
    read_optimized_slices_of,
    slices_of,
)


def view_of(timeline: str, *, by_completion: bool = True) -> TimelineView:
    completions: dict[str, str] = {}
    compactions: dict[tuple[str, str], str] = {}
    replaced: dict[tuple[str, str], str] = {}
    instants: list[str] = []
    for word in timeline.split():
        times, _, groups = word.lstrip("cr").partition(":")
        requested, _, completed = times.partition("-")
        instants.append(requested)
        if completed:
            completions[requested] = completed
        for group in groups.split(",") if groups else ():
            (compactions if word.startswith("c") else replaced)[("p", group)] = requested
    return TimelineView(
        completions=completions,
        start=min(instants, default=None),
        pending_compactions=compactions,
        replaced=replaced,
        is_cut_by_completion=by_completion,
    )


def files_of(text: str) -> list[DataFile]:
    found: list[DataFile] = []
    for word in text.split():
        group, kind, rest = word[0], word[1], word[2:]
        name, _, token = rest.partition("~")
        instant, _, version = name.partition(".")
        if kind == "@":
            found.append(BaseFile(f"p/{word}", group, token, instant, 1))
        else:
            found.append(LogFile(f"p/{word}", group, instant, int(version or 1), token, 1))
    return found


def shown(slices: tuple[FileSlice, ...]) -> str:
    def one(part: FileSlice) -> str:
        head = (
            f"{part.file_id}@{part.base_file.instant}" if part.base_file else f"{part.file_id}~{part.instant}"
        )
        assert not part.base_file or part.base_file.instant == part.instant
        return head + "".join("+" + re.sub(r"^p/.\+", "", log.path) for log in part.log_files)

    return " ".join(one(part) for part in slices)


CASES = [
    # Rule 1: what is committed counts.
    ("a completed base file is seen", "01-02", "A@01", None, "A@01"),
    ("a pending base file is not", "01-02 03-", "A@01 A@03", None, "A@01"),
    ("a group of a pending write is not", "01-02 03-", "A@01 B@03", None, "A@01"),
    ("a pending log is not", "01-02 03-", "A@01 A+03", None, "A@01"),
    ("a log-only group of a pending write is not", "01-02 03-", "A@01 B+03", None, "A@01"),
    ("a file of a rolled-back write is not", "01-02 05-06", "A@01 A@03 A+03", None, "A@01"),
    ("an archived base file is seen", "05-06", "A@01", None, "A@01"),
    ("an archived log is seen", "05-06", "A@01 A+02", None, "A@01+02"),
    ("an orphan that archiving has passed is seen", "05-06", "A@01 A@02", None, "A@02"),
    ("an orphan newer than a pending first write is not", "03- 05-06", "A@04 B@05", None, "B@05"),
    ("a pending first write is not archived", "03- 05-06", "A@03 B@05", None, "B@05"),
    ("an empty timeline shows nothing", "", "A@01", None, ""),
    # Rule 2: base files open slices, the newest is seen.
    ("the newest base file is seen", "01-02 03-04", "A@01 A@03", None, "A@03"),
    ("groups do not mix", "01-02 03-04", "A@01 B@03 B+03", None, "A@01 B@03+03"),
    ("of two attempts the last by name is seen", "01-02", "A@01~1-0-2 A@01~1-0-1", None, "A@01"),
    # Rule 4: logs go by completion time.
    ("a log applies over the base file before it", "01-02 03-04", "A@01 A+03", None, "A@01+03"),
    ("logs are sorted by instant, version, token", "01-02 03-04 05-06",
     "A@01 A+05 A+03.10 A+03.2 A+03.2~1-0-1", None, "A@01+03.2+03.2~1-0-1+03.10+05"),
    ("the log of the base file's own instant applies", "01-02", "A@01 A+01", None, "A@01+01"),
    ("a log that completed before a compaction stays below it", "01-02 03-04 05-06", "A@01 A+03 A@05", None, "A@05"),
    ("a log that completed after a compaction was planned is kept", "01-02 03-07 05-09", "A@01 A+03 A@05", None, "A@05+03"),
    ("a log that completed at that very time is kept", "01-02 03-05 05-09", "A@01 A+03 A@05", None, "A@05+03"),
    ("an overlapping log is below the compaction after that", "01-02 03-07 05-06 08-09", "A@05 A+03 A@08", None, "A@08"),
    ("a log older than every base file has a slice of its own", "01-02 05-06", "A+01 A@05", None, "A@05"),
    ("a log-only group is seen", "01-02 03-04", "A+01 A+03", None, "A~01+01+03"),
    ("a log-only group whose first write is pending is seen", "01- 03-04", "A+01 A+03", None, "A~03+03"),
    ("a failed write's base file does not take logs away", "01-02 03- 05-06", "A@01 A@03 A+05", None, "A@01+05"),
    ("archived logs and base files go together", "09-10", "A@01 A+03 A+05", None, "A@01+03+05"),
    # Rule 5: time travel, by requested time.
    ("as of a time the newest slice until then is seen", "01-02 03-04 05-06", "A@01 A@03 A@05", "04", "A@03"),
    ("as of the very instant it is seen", "01-02 03-04", "A@01 A@03", "03", "A@03"),
    ("as of before the first write nothing is seen", "03-04", "A@03", "02", ""),
    ("later logs are left out", "01-02 03-04 05-06", "A@01 A+03 A+05", "04", "A@01+03"),
    ("a log that completed later is seen by its request", "01-02 03-08", "A@01 A+03", "03", "A@01+03"),
    ("a log-only group begins with its first log", "03-04 05-06", "A+03 A+05", "02", ""),
    # Rule 6: pending compactions.
    ("logs before a pending compaction stay", "01-02 03-04 c05:A", "A@01 A+03", None, "A@01+03"),
    ("logs after it apply over what was before", "01-02 03-04 c05:A 07-08", "A@01 A+03 A+07", None, "A@01+03+07"),
    ("its half-written base file is not seen", "01-02 c05:A 07-08", "A@01 A@05 A+07", None, "A@01+07"),
    ("it changes nothing for other groups", "01-02 c05:B 07-08", "A@01 A+07", None, "A@01+07"),
    ("of a log-only group all logs are seen", "01-02 c05:A 07-08", "A+01 A+07", None, "A~01+01+07"),
    ("with nothing before it, its logs are the slice", "c05:A 07-08", "A+07", None, "A~05+07"),
    ("as of before it, the slice before is seen", "01-02 03-04 c05:A 07-08", "A@01 A+03 A+07", "04", "A@01+03"),
    ("as of after it, later logs are left out", "01-02 c05:A 07-08 09-10", "A@01 A+07 A+09", "08", "A@01+07"),
    ("once completed it takes over", "01-02 03-04 05-06 07-08", "A@01 A+03 A@05 A+07", None, "A@05+07"),
    # The worked example of docs/formats/file-names.md.
    ("the example's newest slice", "10-11 12-13 14-17 15-19 20-21", "A@10 A+12 A+14 A@15 A+20", None, "A@15+14+20"),
    ("the example as of 14", "10-11 12-13 14-17 15-19 20-21", "A@10 A+12 A+14 A@15 A+20", "14", "A@10+12"),
    ("the example while compacting", "10-11 12-13 14-17 c15:A", "A@10 A+12 A+14 A@15", None, "A@10+12+14"),
    # Rule 7: replaced groups.
    ("a replaced group is hidden", "01-02 r03-04:A", "A@01 B@03", None, "B@03"),
    ("a group of a pending replacement is not", "01-02 03-", "A@01 B@03", None, "A@01"),
    ("as of before the replacement it is seen", "01-02 r03-04:A", "A@01 B@03", "02", "A@01"),
    ("as of the replacement it is hidden", "01-02 r03-04:A", "A@01 B@03", "03", "B@03"),
    ("what is written to it later stays hidden", "01-02 r03-04:A 05-06", "A@01 A+05 B@03", None, "B@03"),
    # Resizing of consistent buckets: child logs bear the clustering's instant.
    ("a child's log waits for the resize", "01-02 03- 05-06", "A@01 A+05 B+03", None, "A@01+05"),
    ("and applies over the child's base file when it is done", "01-02 r03-08:A 05-06",
     "A@01 A+05 B@03 B+03", None, "B@03+03"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("timeline", "files", "as_of", "seen"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_a_reader_sees(timeline: str, files: str, as_of: str | None, seen: str) -> None:
    assert shown(slices_of("p", files_of(files), view_of(timeline), as_of=as_of)) == seen


VERSION_6_CASES = [
    ("a log applies over the base file its name says", "01-02 03-04", "A@01 A+01", None, "A@01+01"),
    ("logs of one base file are sorted by version", "01-02", "A@01 A+01.2 A+01.1", None, "A@01+01.1+01.2"),
    ("logs of the older base file stay with it", "01-02 03-04", "A@01 A+01 A@03", None, "A@03"),
    ("whatever its completion time", "01-09 03-04", "A@01 A+01 A@03", None, "A@03"),
    ("a log-only group is seen", "01-02", "A+01", None, "A~01+01"),
    ("a log of a pending write's base file is not", "01-02 03-", "A@01 A+03", None, "A@01"),
    ("logs after a pending compaction apply over what was before", "01-02 c05:A", "A@01 A+01 A+05", None, "A@01+01+05"),
    ("another group's compaction is of no concern", "01-02 c05:B", "A@01 A+01", None, "A@01+01"),
    ("as of a time the slice until then is seen", "01-02 05-06", "A@01 A+01 A@05 A+05", "04", "A@01+01"),
    ("archived files are seen", "09-10", "A@01 A+01", None, "A@01+01"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("timeline", "files", "as_of", "seen"),
    [c[1:] for c in VERSION_6_CASES],
    ids=[c[0] for c in VERSION_6_CASES],
)
def test_a_reader_of_version_6_sees(timeline: str, files: str, as_of: str | None, seen: str) -> None:
    view = view_of(timeline, by_completion=False)
    assert shown(slices_of("p", files_of(files), view, as_of=as_of)) == seen


@pytest.mark.parametrize(
    ("timeline", "files", "seen"),
    [
        ("01-02 03-04", "A@01 A+03", "A@01"),
        ("01-02 03-04", "A+01 A+03", ""),
        ("01-02 03-04 05-06", "A@01 A@05 A+03", "A@05"),
        ("01-02 c05:A 07-08", "A@01 A@05 A+07", "A@01"),
        ("01-02 03-", "A@01 A@03", "A@01"),
    ],
)
def test_a_read_optimized_query_sees_base_files_only(timeline: str, files: str, seen: str) -> None:
    assert shown(read_optimized_slices_of("p", files_of(files), view_of(timeline))) == seen


def test_the_last_attempt_by_name_is_the_one() -> None:
    (seen,) = slices_of("p", files_of("A@01~1-0-2 A@01~1-0-1"), view_of("01-02"))
    assert seen.base_file is not None
    assert seen.base_file.write_token == "1-0-2"


def test_all_slices_are_told_apart() -> None:
    files = files_of("A@01 A+03 A@05 A+07 B@05")
    view = view_of("01-02 03-04 05-06 07-08 r09-10:B")
    assert shown(all_slices_of("p", files, view)) == "A@01+03 A@05+07 B@05"


def test_times_of_fourteen_digits_fall_back_on_the_request() -> None:
    old_base = BaseFile("p/A@", "A", "", "20200101000005", 1)
    log = LogFile("p/A+", "A", "20200101000003000", 1, "", 1)
    completions = {"20200101000005": "20200101000006000", "20200101000003000": "20200101000009000"}
    view = TimelineView(completions=completions, start="20200101000003000")
    (seen,) = slices_of("p", [old_base, log], view)
    assert seen.log_files == ()


# An archived log with a newer slice above it: only its completion time, in the history, tells where it belongs.
@pytest.mark.parametrize(
    ("history", "seen"),
    [
        ({"03": "04", "01": "02", "05": "06"}, "A@05"),
        ({"03": "07", "01": "02", "05": "06"}, "A@05+03"),
        ({}, "A@05+03"),  # lost: to the latest slice, as for Hudi
    ],
)
def test_the_history_places_archived_logs(history: dict[str, str], seen: str) -> None:
    files = files_of("A@01 A+03 A@05")
    view = view_of("09-10")
    assert history_needed(files, view) == "03"
    informed = view.with_history(history, since="03")
    assert history_needed(files, informed) is None
    assert shown(slices_of("p", files, informed)) == seen


def test_a_history_that_begins_too_late_is_not_enough() -> None:
    view = view_of("09-10").with_history({}, since="04")
    assert history_needed(files_of("A+03 A@05"), view) == "03"


@pytest.mark.parametrize(
    ("timeline", "files"),
    [
        ("09-10", "A@01 A+03 A+04"),
        ("09-10", "A@01 A+03 B@05"),
        ("03-04 05-06", "A@01 A+03 A@05"),
        ("03- 09-10", "A@01 A+01 A@03"),
        ("", "A@01 A+03 A@05"),
    ],
)
def test_the_history_is_left_alone_where_it_does_not_matter(timeline: str, files: str) -> None:
    assert history_needed(files_of(files), view_of(timeline)) is None


def test_a_hole_between_savepoints_is_filled_from_the_history() -> None:
    files = files_of("A@01 A@04")
    view = replace(view_of("01-02 07-08"), holes_end="07")
    assert history_needed(files, view) == "04"
    assert shown(slices_of("p", files, view.with_history({"04": "05"}, since="04"))) == "A@04"
    assert shown(slices_of("p", files, view.with_history({}, since="04"))) == "A@01"
