"""Laws of the file view, over tables that nobody would think of.

Also its readable twin: Hudi's own procedure (HoodieFileGroup), step by step, for the case where the two must
agree: everything on disk is committed, except what a pending compaction is writing.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from bucketlake.layout import (
    BaseFile,
    DataFile,
    FileSlice,
    LogFile,
    TimelineView,
    all_slices_of,
    history_needed,
    slices_of,
)

GROUPS = ("A", "B")
times = st.integers(1, 30).map(lambda n: f"{n:02d}")


@st.composite
def timelines(draw: st.DrawFn, *, pending: bool = True) -> TimelineView:
    requested = draw(st.lists(times, unique=True, min_size=1, max_size=10))
    completions = {}
    for instant in requested:
        if not pending or draw(st.integers(0, 3)):
            completions[instant] = f"{int(instant) + draw(st.integers(0, 12)):02d}"
    compactions = {}
    free = sorted(set(requested) - set(completions))
    if not pending and len(requested) > 1:
        free = [max(requested)]
        del completions[max(requested)]
    is_compacting: bool = draw(st.booleans())
    if free and is_compacting:
        compactions = {("p", draw(st.sampled_from(GROUPS))): draw(st.sampled_from(free))}
    return TimelineView(completions=completions, start=min(requested), pending_compactions=compactions)


@st.composite
def files(draw: st.DrawFn, instants: st.SearchStrategy[str]) -> list[DataFile]:
    found: dict[str, DataFile] = {}
    for _ in range(draw(st.integers(0, 12))):
        group, instant = draw(st.sampled_from(GROUPS)), draw(instants)
        if draw(st.booleans()):
            path = f"p/{group}_1-0-0_{instant}.parquet"
            found[path] = BaseFile(path, group, "1-0-0", instant, 1)
        else:
            version = draw(st.integers(1, 3))
            path = f"p/.{group}_{instant}.log.{version}_1-0-0"
            found[path] = LogFile(path, group, instant, version, "1-0-0", 1)
    return list(found.values())


def informed(view: TimelineView, listed: list[DataFile]) -> TimelineView:
    """The view with the history, when it is asked for; a lost one will do."""
    since = history_needed(listed, view)
    return view if since is None else view.with_history({}, since=since)


def paths(slices: tuple[FileSlice, ...]) -> list[str]:
    return [
        path
        for part in slices
        for path in ([part.base_file.path] if part.base_file else []) + [log.path for log in part.log_files]
    ]


@given(timelines(), files(times))
def test_every_committed_file_is_in_exactly_one_slice(view: TimelineView, listed: list[DataFile]) -> None:
    found = paths(all_slices_of("p", listed, informed(view, listed)))
    assert sorted(found) == sorted(file.path for file in listed if view.is_committed(file.instant))


@given(timelines(), files(times), times | st.none(), st.booleans())
def test_no_reader_sees_an_uncommitted_file(
    view: TimelineView, listed: list[DataFile], as_of: str | None, by_completion: bool
) -> None:
    cut = replace(informed(view, listed), is_cut_by_completion=by_completion)
    instants = {file.path: file.instant for file in listed}
    for path in paths(slices_of("p", listed, cut, as_of=as_of)):
        is_log_of_a_compaction = not by_completion and instants[path] in view.pending_compactions.values()
        assert view.is_committed(instants[path]) or is_log_of_a_compaction


@given(timelines(), files(times), times)
def test_a_reader_of_the_past_sees_nothing_later(
    view: TimelineView, listed: list[DataFile], as_of: str
) -> None:
    instants = {file.path: file.instant for file in listed}
    seen = slices_of("p", listed, informed(view, listed), as_of=as_of)
    assert all(instants[path] <= as_of for path in paths(seen))


@given(timelines(), files(times), st.randoms(use_true_random=False))
def test_the_order_of_a_listing_does_not_matter(
    view: TimelineView, listed: list[DataFile], random: object
) -> None:
    shuffled = list(listed)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    cut = informed(view, listed)
    assert slices_of("p", shuffled, cut) == slices_of("p", listed, cut)


@given(timelines(), files(times))
def test_a_group_is_seen_once_and_a_replaced_one_never(view: TimelineView, listed: list[DataFile]) -> None:
    cut = informed(view, listed)
    seen = [part.file_id for part in slices_of("p", listed, cut)]
    assert len(seen) == len(set(seen))
    hidden = replace(cut, replaced={("p", "A"): "01"})
    assert [part.file_id for part in slices_of("p", listed, hidden)] == [name for name in seen if name != "A"]


@given(st.data())
def test_slices_are_cut_as_hudi_cuts_them(data: st.DataObject) -> None:
    view = data.draw(timelines(pending=False))
    known = sorted(view.completions)
    listed = data.draw(files(st.sampled_from(known))) if known else []
    as_of = data.draw(st.none() | times)
    expected = [seen for group in GROUPS if (seen := hudis_slice(group, listed, view, as_of)) is not None]
    assert slices_of("p", listed, view, as_of=as_of) == tuple(expected)


def hudis_slice(
    group: str, listed: list[DataFile], view: TimelineView, as_of: str | None
) -> FileSlice | None:
    """Build a group as Hudi does: base files, the pending compaction, then logs one by one; then look."""
    bases: dict[str, BaseFile] = {}
    logs: dict[str, list[LogFile]] = {}
    for file in listed:
        if isinstance(file, BaseFile) and file.file_id == group:
            bases[file.instant] = file
            logs[file.instant] = []
    compaction = view.pending_compactions.get(("p", group))
    if compaction is not None:
        logs.setdefault(compaction, [])
    own_logs = [file for file in listed if isinstance(file, LogFile) and file.file_id == group]
    for log in sorted(own_logs, key=lambda file: (file.instant, file.version, file.write_token)):
        completed = view.completions[log.instant]
        start = next((key for key in sorted(logs, reverse=True) if key <= completed), log.instant)
        logs.setdefault(start, []).append(log)

    newest_first = [key for key in sorted(logs, reverse=True) if as_of is None or key <= as_of]
    if not newest_first:
        return None
    start, chosen = newest_first[0], list(logs[newest_first[0]])
    if start == compaction and len(newest_first) > 1:
        start = newest_first[1]
        chosen += logs[start]
    chosen.sort(key=lambda file: (file.instant, file.version, file.write_token))
    visible = tuple(log for log in chosen if as_of is None or log.instant <= as_of)
    base = bases.get(start)
    return FileSlice("p", group, start, base, visible) if base or visible else None
