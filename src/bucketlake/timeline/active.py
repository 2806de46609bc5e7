"""The active timeline: what happened lately, in order.

A folder of small files, one per instant and state. Of an instant's files
only the furthest state counts; the earlier ones stay behind as a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bucketlake.config import TableProperties, TimelineTimezone
from bucketlake.storage.store import FileStat, Store
from bucketlake.timeline.clock import instant_time_of
from bucketlake.timeline.instant import Action, Instant, State, parse_instant_name


@dataclass(frozen=True, slots=True)
class Timeline:
    """The instants of the active timeline, sorted by requested time, then by action."""

    instants: tuple[Instant, ...]

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """Completed instants, of any action when none is named."""
        return tuple(i for i in self.instants if i.is_completed and (not actions or i.action in actions))

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """Requested and inflight instants, of any action when none is named."""
        return tuple(i for i in self.instants if not i.is_completed and (not actions or i.action in actions))

    @property
    def writes(self) -> tuple[Instant, ...]:
        """Completed instants that added data files."""
        return tuple(i for i in self.instants if i.is_completed and i.is_write)

    @property
    def start(self) -> str | None:
        """The first instant, pending or not, that adds data files; what is older than it is archived.

        Every older instant is taken for committed when files are judged (Hudi: CompletionTimeQueryView).
        """
        return next((i.requested for i in self.instants if i.is_write), None)

    @property
    def savepoints(self) -> frozenset[str]:
        """The requested times of instants that a savepoint protects."""
        return frozenset(i.requested for i in self.completed(Action.SAVEPOINT))


def load_timeline(store: Store, properties: TableProperties) -> Timeline:
    """List the active timeline of a table."""
    files = store.list(properties.timeline_folder).files
    return timeline_of(files, layout=properties.timeline_layout, timezone=properties.timeline_timezone)


def timeline_of(
    files: Iterable[FileStat], *, layout: int, timezone: TimelineTimezone = TimelineTimezone.LOCAL
) -> Timeline:
    """Keep, of every instant among `files`, the furthest state.

    Two completed files of one instant would be two commits of one write; the first counts, as for Hudi.
    """
    furthest: dict[tuple[str, Action], Instant] = {}
    for file in sorted(files):
        instant = _instant_of(file, layout, timezone)
        if instant is None:
            continue
        # In layout 2 a clustering becomes a replacecommit under the same time: one instant, not two.
        identity = (instant.requested, instant.action.when_completed)
        known = furthest.get(identity)
        if known is None or instant.state.rank > known.state.rank:
            furthest[identity] = instant
    return Timeline(tuple(sorted(furthest.values())))


def _instant_of(file: FileStat, layout: int, timezone: TimelineTimezone) -> Instant | None:
    name = parse_instant_name(file.path.rpartition("/")[2], layout=layout)
    if name is None:
        return None
    completed = name.completed
    if name.state is State.COMPLETED and completed is None:
        # Before layout 2 nobody wrote the completion time down; the file's own age stands in for it.
        completed = instant_time_of(file.modified_ms, timezone)
    return Instant(name.requested, name.action, name.state, completed, file.path, file.version)
