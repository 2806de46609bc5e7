"""Whether the metadata table is in step with the table: nobody else looks.

Hudi believes its metadata table blindly. One that lacks a commit hides that commit's rows; one that has a commit which
the table never had shows files that are not there. So the two timelines are compared, by listing both: the table's
first, for a commit is put into the metadata table before it is published.

    missing    completed by the table, changes files, is not in the metadata table, and nothing covers it
    ghosts     completed by the metadata table, unknown to the table

Covered is what was completed before `files` began, or before the newest compaction of the metadata table.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.config import TableProperties
from bucketlake.metadata.change import change_of, tells_of
from bucketlake.metadata.places import FILES, is_own_instant, timeline_properties
from bucketlake.storage import FileCache, FileStat, Store
from bucketlake.timeline import (
    Action,
    Instant,
    Timeline,
    load_history,
    load_timeline,
    read_commit_metadata,
)

_LOOKS = 3


@dataclass(frozen=True, slots=True)
class Step:
    """How a metadata table compares with its table."""

    table: Timeline
    metadata: Timeline
    missing: tuple[Instant, ...] = ()
    ghosts: tuple[Instant, ...] = ()
    is_there: bool = True
    """Whether `files` was ever begun in it."""

    @property
    def is_kept(self) -> bool:
        return self.is_there and not self.missing and not self.ghosts

    def __str__(self) -> str:
        if self.is_kept:
            return "in step"
        if not self.is_there:
            return f"not there: its timeline has no commit that began {FILES}"
        said = [f"lacks the {i.action} of {i.requested}" for i in self.missing]
        said += [f"has {i.requested}, which the table has not" for i in self.ghosts]
        return f"out of step: it {', '.join(said[:3])}{', …' if len(said) > 3 else ''}"


def load_metadata_timeline(store: Store, properties: TableProperties) -> Timeline:
    return load_timeline(store, timeline_properties(properties))


def look_at_step(store: Store, properties: TableProperties, table: Timeline | None = None) -> Step:
    """Compare the two timelines. What seems wrong may be going on just now: it is looked at again."""
    for look in range(_LOOKS):
        known = table if table is not None and look == 0 else load_timeline(store, properties)
        step = compared(store, properties, known, load_metadata_timeline(store, properties))
        if step.is_kept:
            break
    return step


def compared(store: Store, properties: TableProperties, table: Timeline, metadata: Timeline) -> Step:
    """Compare a table's timeline with one of its metadata table that was listed after it."""
    kept = {i.requested for i in metadata.writes}
    covered = _covered_until(store, metadata)
    missing = tuple(
        i
        for i in table.completed()
        if tells_of(i.action)
        and i.requested not in kept
        and (i.completed or "") > covered
        and _changes_files(store, i)
    )
    return Step(table, metadata, missing, _ghosts(store, properties, table, metadata), is_there=bool(covered))


def _covered_until(store: Store, metadata: Timeline) -> str:
    """Return up to when the table's instants need none of their own."""
    compactions = (i.requested for i in metadata.completed(Action.COMMIT))
    beginnings = (_beginning(store, i) for i in metadata.completed(Action.DELTA_COMMIT))
    return max([*compactions, *beginnings], default="")


_BEGINNINGS: FileCache[tuple[str]] = FileCache("beginnings")


def _beginning(store: Store, instant: Instant) -> str:
    """Return when an instant that made `files` was completed; empty for all others."""
    if not is_own_instant(instant.requested):
        return ""
    file = FileStat(instant.path, 0, 0, instant.version)
    known = _BEGINNINGS.get(store, file)
    if known is None:
        try:
            stats = read_commit_metadata(store, instant).write_stats
        except FileNotFoundError:
            return ""  # archived since it was listed
        known = (instant.completed or "" if any(s.partition == FILES for s in stats) else "",)
        _BEGINNINGS.put(store, file, known, 100)
    return known[0]


def _changes_files(store: Store, instant: Instant) -> bool:
    """Tell whether a completed instant of the table changes files: Hudi's that do not may have left no trace."""
    try:
        return not change_of(instant.action, store.read(instant.path), path=instant.path).is_empty
    except FileNotFoundError:
        return False  # archived or rolled back since it was listed


def _ghosts(
    store: Store, properties: TableProperties, table: Timeline, metadata: Timeline
) -> tuple[Instant, ...]:
    """Find what the metadata table has and the table has not; older than its writes is archived, newer is not yet
    listed."""
    if table.start is None:
        return ()
    oldest, newest = table.start, table.instants[-1].requested
    known = {i.requested for i in table.instants}
    unknown = [
        i
        for i in metadata.completed(Action.DELTA_COMMIT)
        if oldest < i.requested < newest and i.requested not in known and not is_own_instant(i.requested)
    ]
    if not unknown:
        return ()
    # A restore of Hudi's compares listings in an instant that only the metadata table has, while it runs.
    restores = [(i.requested, i.completed or "") for i in table.completed(Action.RESTORE)]
    own = log_compactions(store, properties)
    unknown = [
        i
        for i in unknown
        if i.requested not in own and not any(begun < i.requested < done for begun, done in restores)
    ]
    if not unknown:
        return ()
    # Beyond a savepoint, Hudi's archiving leaves holes.
    archived = {a.requested for a in load_history(store, properties, since=unknown[0].requested)}
    return tuple(i for i in unknown if i.requested not in archived)


def log_compactions(store: Store, properties: TableProperties) -> frozenset[str]:
    """Name the instants that joined logs of the metadata table: completed, they look like any other."""
    files = store.list(timeline_properties(properties).timeline_folder).files
    names = (file.path.rpartition("/")[2].split(".") for file in files)
    return frozenset(name[0] for name in names if Action.LOG_COMPACTION in name[1:])
