"""Archive of the metadata table's timeline: what its last compaction has taken in goes to its history.

An instant that is archived makes its logs invisible. So none goes that completed after the last compaction of the
metadata table; and none that the table has on its own timeline, or that is not older than what is pending there: who
compares the two timelines finds both or none. The instants with which partitions began go like the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import checked_step, is_listed
from bucketlake.commit.publishing import settle
from bucketlake.config import load_properties
from bucketlake.metadata.places import timeline_properties
from bucketlake.metadata.step import Step
from bucketlake.services.archive import Identity, files_by_instant, identity_of, move_to_history
from bucketlake.services.metadata_compaction import last_compaction
from bucketlake.storage import FileStat, Store
from bucketlake.timeline import Action, Clock, Instant, load_history, process_clock


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataArchivePlan:
    """Which instants leave the metadata table's active timeline; prints as a line."""

    instants: tuple[Instant, ...]
    """The oldest first."""

    @property
    def is_empty(self) -> bool:
        return not self.instants

    def __str__(self) -> str:
        if self.is_empty:
            return "nothing to archive in the metadata table"
        first, last = self.instants[0].requested, self.instants[-1].requested
        return f"archive {len(self.instants):,} instants of the metadata table, from {first} to {last}"


def plan_metadata_archive(
    step: Step, *, keep_min: int, keep_max: int, archived: frozenset[Identity] = frozenset()
) -> MetadataArchivePlan:
    """Choose what is archived where the table keeps `keep_min` to `keep_max` writes: one more here, as for Hudi. Pure.

    `archived` are those that are in the history already, by a run that was cut off.
    """
    last, metadata, table = last_compaction(step.metadata), step.metadata, step.table
    if last is None or table.start is None:
        return MetadataArchivePlan(instants=())
    pending = [i.requested for i in (*table.pending(), *metadata.pending())]
    bound = min([last.requested, table.start, *pending])
    fresh = [i for i in metadata.writes if identity_of(i) not in archived]
    room = len(fresh) - (keep_min + 1) if len(fresh) > keep_max + 1 else 0
    surplus = {identity_of(i) for i in fresh[:room]} | archived
    writes: list[Instant] = []
    # Without a gap: what is older than the first that stays counts as archived.
    for instant in metadata.writes:
        is_taken_in = (instant.completed or "") < last.requested
        if identity_of(instant) not in surplus or instant.requested >= bound or not is_taken_in:
            break
        writes.append(instant)
    if not writes:
        return MetadataArchivePlan(instants=())
    last_clean = max(metadata.completed(Action.CLEAN), default=None)
    others = [
        i
        for i in metadata.completed(Action.CLEAN, Action.ROLLBACK)
        if i.requested < writes[-1].requested and i != last_clean
    ]
    return MetadataArchivePlan(instants=tuple(sorted([*writes, *others])))


def archive_metadata(
    store: Store, *, keep_min: int, keep_max: int, clock: Clock | None = None
) -> MetadataArchivePlan:
    """Archive what may be archived of the metadata table's timeline; return what was done."""
    properties = load_properties(store)
    clock = clock or process_clock(properties.timeline_timezone)
    with table_lock(store, now_ms=clock.now_ms):
        settle(store, properties)
        properties = load_properties(store)
        if not is_listed(properties):
            return MetadataArchivePlan(instants=())
        step = checked_step(store, properties)
        own = timeline_properties(properties)
        since = step.metadata.instants[0].requested
        archived = frozenset((a.requested, a.action) for a in load_history(store, own, since=since))
        plan = plan_metadata_archive(step, keep_min=keep_min, keep_max=keep_max, archived=archived)
        listed = files_by_instant(store, own)
        files: Mapping[Identity, tuple[FileStat, ...]] = {
            identity_of(i): listed.get(identity_of(i), ()) for i in plan.instants
        }
        move_to_history(store, own, plan.instants, files)
    return plan
