"""A table as it was when some write was the last to complete.

`as_of` goes by requested times: what began earlier and completed later is in it as soon as it is there. Who follows
a table by completion times, and may have to read the same state again, needs one that stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bucketlake.keygen import KeyGenerator
from bucketlake.layout import DataFile, FileSlice, TimelineView, slices_of
from bucketlake.read.plan import ReadPlan, blocks_for, context_for
from bucketlake.read.query import Query
from bucketlake.state import TableState, cleaned_before, files_of, view_for, writes_between
from bucketlake.timeline import WRITE_ACTIONS, Action, load_history, shift_instant

BEGINNING = "0" * 17
"""Before every write."""


def plan_completed(state: TableState, query: Query, time: str) -> ReadPlan:
    """Decide which slices hold the rows of a table at a completion time; the same ones, in order, whenever asked."""
    files = files_of(state)
    view = view_completed(state, (file for group in files.values() for file in group), time)
    slices = [part for partition, group in files.items() for part in slices_of(partition, group, view)]
    return ReadPlan(
        slices=tuple(sorted(slices, key=place_of)),
        context=context_for(
            state,
            query,
            KeyGenerator.from_properties(state.properties),
            commit_times=None,
            up_to=None,
            blocks_of=blocks_for(state, slices, view),
        ),
        partitions_seen=len(files),
        left_out=(),
    )


def place_of(part: FileSlice) -> tuple[str, str]:
    """Return what slices are told apart by, and sorted."""
    return part.partition, part.file_id


def view_completed(state: TableState, files: Iterable[DataFile], time: str) -> TimelineView:
    """Return the view to cut `files` into the slices with that were seen at a completion time.

    Writes that completed later do not count, as if they had been undone. What they replaced is there.
    """
    view = view_for(state, files)
    if all((write.completed or "") <= time for write in state.timeline.writes):
        return view
    history = load_history(state.store, state.properties)
    archived = {a.requested: a.completed for a in history if a.action in WRITE_ACTIONS}
    completed = {**archived, **view.completions}
    later = {requested for requested, at in completed.items() if at > time}
    return replace(
        view,
        completions={r: at for r, at in view.completions.items() if r not in later},
        undone=view.undone | later,
        replaced={group: by for group, by in view.replaced.items() if by not in later},
    ).with_history({r: at for r, at in archived.items() if r not in later}, since="")


def oldest_begin(state: TableState) -> str:
    """Return the completion time from which on all changes can be read one by one, whatever was cleaned.

    All that completed after it was requested no earlier than what the last clean has kept.
    """
    earliest = cleaned_before(state)
    if earliest is None:
        if not any(a.action is Action.CLEAN for a in load_history(state.store, state.properties)):
            return BEGINNING
        earliest = state.timeline.start or BEGINNING  # nothing tells what that clean has kept
    since = shift_instant(earliest, -_ONE_DAY_MS)
    archived = (
        a.completed
        for a in load_history(state.store, state.properties, since=since)
        if a.action in WRITE_ACTIONS and a.requested < earliest
    )
    active = (write.completed or "" for write in state.timeline.writes if write.requested < earliest)
    last = max((*archived, *active), default="")
    if last:
        return last
    kept = [
        write.completed or "" for write in writes_between(state, None, None) if write.requested >= earliest
    ]
    return shift_instant(min(kept), -1) if kept else earliest


_ONE_DAY_MS = 24 * 60 * 60 * 1000
"""Longer than that no write lasts, as for Hudi."""
