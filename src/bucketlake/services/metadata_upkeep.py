"""What a metadata table needs again and again: compaction, clean, archive; and how it is, for who asks.

    plan_metadata_upkeep    what is due: pure, prints
    run_metadata_upkeep     does it
    metadata_status         how it is: prints

The table's own archive goes no further than the last compaction of its metadata table. So one that was never compacted
is, as soon as there is something to archive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketlake.commit.metadata_table import checked_step, delistings, is_listed
from bucketlake.config import load_properties
from bucketlake.metadata.growth import growth_of
from bucketlake.metadata.places import FILES, RECORD_INDEX
from bucketlake.metadata.shards import Shards, list_shards
from bucketlake.metadata.step import look_at_step
from bucketlake.services.archive import KEEP_MAX, KEEP_MIN
from bucketlake.services.clean import Retention
from bucketlake.services.metadata_archive import (
    MetadataArchivePlan,
    archive_metadata,
    plan_metadata_archive,
)
from bucketlake.services.metadata_clean import (
    MetadataCleaned,
    MetadataCleanPlan,
    clean_metadata,
    commits_kept,
    plan_metadata_clean,
)
from bucketlake.services.metadata_compaction import (
    DELTA_COMMITS,
    MetadataCompacted,
    commits_since_compaction,
    compact_metadata,
    last_compaction,
)
from bucketlake.services.tasks import Tasks, here
from bucketlake.services.wanted_indexes import BuiltAgain, build_wanted_indexes
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action, Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataPolicy:
    """When a metadata table is looked after, by what its table keeps."""

    retain: Retention | None = None
    archive: tuple[int, int] | None = None
    delta_commits: int = DELTA_COMMITS
    """It is compacted after so many."""

    @property
    def keep(self) -> tuple[int, int]:
        return self.archive or (KEEP_MIN, KEEP_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataUpkeep:
    """What is due of a metadata table; prints as a few lines."""

    pending_compactions: tuple[str, ...]
    pending_cleans: tuple[str, ...]
    compacts: bool
    delta_commits: int
    """Completed since the last compaction."""
    shards: int
    log_files: int
    clean: MetadataCleanPlan
    archive: MetadataArchivePlan
    wanted: tuple[str, ...] = ()
    """The indexes that the table has lost, to a rollback or because a build was cut off."""

    @property
    def is_compaction_due(self) -> bool:
        return self.compacts or bool(self.pending_compactions)

    @property
    def is_clean_due(self) -> bool:
        return bool(self.pending_cleans) or not self.clean.is_empty

    @property
    def is_empty(self) -> bool:
        return not (self.wanted or self.is_compaction_due or self.is_clean_due or self.archive.instants)

    def __str__(self) -> str:
        lines = [f"build {name} of the metadata table anew" for name in self.wanted]
        lines += [f"finish the pending metadata compaction {instant}" for instant in self.pending_compactions]
        if self.compacts and not self.pending_compactions:
            lines.append(
                f"compact the metadata table: {self.log_files:,} logs of {self.delta_commits:,} delta commits in "
                f"{self.shards:,} shards"
            )
        lines += [f"finish the pending metadata clean {instant}" for instant in self.pending_cleans]
        lines += [str(plan) for plan in (self.clean, self.archive) if not plan.is_empty]
        return "\n".join(lines) or "nothing is due of the metadata table"


def look_at_shards(state: TableState) -> Shards | None:
    """List a table's metadata table, by shard; None if it has none. Refuses one that is not in step."""
    if not is_listed(state.properties):
        return None
    step = checked_step(state.store, state.properties, state.timeline)
    return list_shards(state.store, step, state.properties)


def plan_metadata_upkeep(
    shards: Shards, policy: MetadataPolicy, *, wanted: Sequence[str] = ()
) -> MetadataUpkeep:
    """Say what is due as the metadata table is; a compaction may make a clean, or archiving, due."""
    metadata, table = shards.step.metadata, shards.step.table
    keep_min, keep_max = policy.keep
    since = commits_since_compaction(metadata)
    is_blocking = policy.archive is not None and len(table.writes) > keep_max
    logs = [len(part.logs) for part in shards.slices().values()]
    return MetadataUpkeep(
        pending_compactions=tuple(i.requested for i in metadata.pending(Action.COMPACTION)),
        pending_cleans=tuple(i.requested for i in metadata.pending(Action.CLEAN)),
        compacts=any(logs)
        and (since >= policy.delta_commits or (is_blocking and last_compaction(metadata) is None)),
        delta_commits=since,
        shards=len(logs),
        log_files=sum(logs),
        clean=plan_metadata_clean(shards, keep_commits=commits_kept(policy.retain)),
        archive=plan_metadata_archive(shards.step, keep_min=keep_min, keep_max=keep_max),
        wanted=tuple(wanted),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataKept:
    """What was done for a metadata table; prints as a line, empty if nothing was."""

    compactions: tuple[MetadataCompacted, ...] = ()
    cleans: tuple[MetadataCleaned, ...] = ()
    archived: tuple[str, ...] = ()
    """Instants of its timeline."""
    indexes: tuple[BuiltAgain, ...] = ()

    def __str__(self) -> str:
        said = [str(index) for index in self.indexes]
        if self.compactions:
            logs = sum(one.log_files for one in self.compactions)
            said.append(f"{sum(one.shards for one in self.compactions):,} shards, {logs:,} logs merged")
        if self.cleans:
            said.append(f"{sum(one.files for one in self.cleans):,} files deleted")
        if self.archived:
            said.append(f"{len(self.archived):,} instants archived")
        return ", ".join(said)


def run_metadata_upkeep(
    state: TableState, policy: MetadataPolicy, *, tasks: Tasks = here, clock: Clock | None = None
) -> MetadataKept:
    """Do what is due of a table's metadata table, and look again after the compaction."""
    store = state.store
    indexes = build_wanted_indexes(store, tasks=tasks, clock=clock)
    state = load_state(store) if indexes else state
    shards = look_at_shards(state)
    if shards is None:
        return MetadataKept()
    plan = plan_metadata_upkeep(shards, policy)
    compactions: tuple[MetadataCompacted, ...] = ()
    if plan.is_compaction_due:
        compactions = compact_metadata(store, is_due=plan.compacts, tasks=tasks, clock=clock)
        properties = load_properties(store)
        shards = list_shards(store, checked_step(store, properties), properties)
        plan = plan_metadata_upkeep(shards, policy)
    cleans: tuple[MetadataCleaned, ...] = ()
    if plan.is_clean_due:
        cleans = clean_metadata(store, keep_commits=commits_kept(policy.retain), clock=clock)
    archived: tuple[str, ...] = ()
    if plan.archive.instants:
        keep_min, keep_max = policy.keep
        moved = archive_metadata(store, keep_min=keep_min, keep_max=keep_max, clock=clock)
        archived = tuple(i.requested for i in moved.instants)
    return MetadataKept(compactions=compactions, cleans=cleans, archived=archived, indexes=indexes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataStatus:
    """How a table's metadata table is; prints as a few lines."""

    partitions: tuple[str, ...]
    """Those that the table lists; empty if it has no metadata table."""
    shards: Mapping[str, int]
    """How many each partition has."""
    step: str
    """Whether it is in step, or what is missing."""
    is_in_step: bool
    missing: tuple[str, ...]
    """Instants of the table that it lacks."""
    ghosts: tuple[str, ...]
    """Instants that it has and the table has not."""
    delta_commits: int
    """Completed since the last compaction."""
    log_files: int
    """Of the shard that has the most."""
    compacted: str | None
    """When the last compaction of it was completed; None if none was, or it is archived."""
    pending_compaction: str | None
    delistings: int = 0
    """How often parts were delisted because a write would not have kept them in step."""
    is_growing: bool = False
    """Whether the record-level index is delisted while it grows, and ours go by the shards that it has."""

    def __str__(self) -> str:
        if FILES not in self.partitions:
            return "no metadata table"
        counts = {name: self.shards.get(name, 0) for name in self.partitions}
        shards = ", ".join(f"{name} ({_counted(n, 'shard')})" for name, n in counts.items())
        lines = [
            f"metadata table: {self.step}",
            f"  partitions: {shards}",
            f"  last compacted: {self.compacted or 'never'}; since then {_counted(self.delta_commits, 'delta commit')}"
            f", at most {_counted(self.log_files, 'log')} in a shard",
        ]
        if self.is_growing:
            has = _counted(self.shards.get(RECORD_INDEX, 0), "shard")
            lines.append(f"  {RECORD_INDEX} grows: delisted for Hudi, ours go by {has}")
        if self.pending_compaction is not None:
            lines.append(f"  the compaction {self.pending_compaction} is pending")
        if self.delistings:
            lines.append(
                f"  parts that were not kept in step were delisted {_counted(self.delistings, 'time')}"
            )
        return "\n".join(lines)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def metadata_status(store: Store) -> MetadataStatus:
    """Look at a table's metadata table, also if it is out of step or has parts that we do not keep."""
    properties = load_properties(store)
    partitions = properties.metadata_partitions
    if not is_listed(properties):
        return MetadataStatus(
            partitions=partitions,
            shards={},
            step="not listed",
            is_in_step=False,
            missing=(),
            ghosts=(),
            delta_commits=0,
            log_files=0,
            compacted=None,
            pending_compaction=None,
            delistings=delistings(properties),
        )
    step = look_at_step(store, properties)
    shards = list_shards(store, step, properties)
    last = last_compaction(step.metadata)
    return MetadataStatus(
        partitions=partitions,
        shards=shards.counts(),
        step=str(step),
        is_in_step=step.is_kept,
        missing=tuple(i.requested for i in step.missing),
        ghosts=tuple(i.requested for i in step.ghosts),
        delta_commits=commits_since_compaction(step.metadata),
        log_files=max((len(part.logs) for part in shards.slices().values()), default=0),
        compacted=last.completed if last is not None else None,
        pending_compaction=next((i.requested for i in step.metadata.pending(Action.COMPACTION)), None),
        delistings=delistings(properties),
        is_growing=growth_of(properties) is not None,
    )
