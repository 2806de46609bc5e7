"""Plans: what a table would do, decided and not yet done. Each prints, and is run by `table.run(plan)`.

A plan is a frozen value, made for one table. It says no more than what the service below decided; to run it is to hand
that back. Whatever has happened in between is for the run to find out: it does what is left of the plan, or refuses it
where the table has moved on, and never does what the plan did not say.

    compaction, clustering, resize        takes in what was written to the file groups since; refused if none is left
    clean, archive                        refused if something is to be kept by now that the plan gives up
    rollback, restore, savepoint, abort   refused if what they are about is not as it was
    rescale                               takes in what was written since; refused if the rules were changed
    adoption                              refused if the table was written to: its keys were looked at before
    maintenance                           looks again, and does what is due then
    repair                                looks at the keys again, passes those over that have changed

What is pending of compactions, clusterings, resizes and cleans is finished first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from bucketlake import notebook, services
from bucketlake.commit.metadata_build import (
    BuiltMetadata,
    MetadataBuild,
    build_metadata,
    plan_build,
    rebuild_metadata,
)
from bucketlake.commit.metadata_table import Delisted, delist_unmaintained, unmaintained
from bucketlake.commit.rollback import RolledBack
from bucketlake.commit.writable import check_writable
from bucketlake.config import load_properties
from bucketlake.errors import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    ConflictError,
    InstantError,
)
from bucketlake.index import CountRules, IndexValue
from bucketlake.index.partition import current_version
from bucketlake.index.record_level import SHARDS_KEY, RecordIndex
from bucketlake.index.resizes import pending_resizes
from bucketlake.looks import look_at
from bucketlake.metadata.places import INDEX_BUILT, RECORD_INDEX, folder_of
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition, secondary_indexes
from bucketlake.services import (
    ArchivePlan,
    Cleaned,
    CleanPlan,
    Clustered,
    Clustering,
    ClusteringTrigger,
    Compacted,
    Compaction,
    CompactionTrigger,
    Done,
    Maintenance,
    MaintenancePlan,
    Resize,
    ResizeTrigger,
    RestoreOrder,
    Retention,
    RollbackOrder,
    Round,
    Savepoint,
    Tasks,
    here,
)
from bucketlake.services.clustering import due_clustering
from bucketlake.services.doubling import Doubled, Doubling, double_table, look_for_doubling
from bucketlake.services.maintenance import due_clean, due_compaction
from bucketlake.services.record_index_build import (
    BuiltRecordIndex,
    RecordIndexBuild,
    build_record_index,
    drop_record_index,
    gives_up,
    grow_record_index,
    grown_index,
    plan_record_index,
    refuse_drop,
    refuse_other_index,
    refuse_under_secondary,
    wanted_index,
)
from bucketlake.services.repair import Repair, Repaired, run_repair
from bucketlake.services.repair import plan_repair as look_for_repair
from bucketlake.services.rescale import (
    Rescale,
    Rescaled,
    RescaleRollback,
    abort_rescale,
    look_for_rescale,
    new_rules,
    rescale_order,
    rescale_table,
    roll_back_rescale,
)
from bucketlake.services.resize import look_for_abort
from bucketlake.services.secondary_index_build import (
    BuiltSecondaryIndex,
    DroppedIndex,
    SecondaryIndexBuild,
    build_all_wanted,
    build_secondary_index,
    build_wanted_secondary,
    check_shards,
    checked_definition,
    drop_secondary_index,
    plan_drop_index,
    wanted_secondary,
)
from bucketlake.services.secondary_index_build import plan_secondary_index as plan_secondary_build
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.timeline import Instant
from bucketlake.write.adopt import AdoptPlan, Progress, run_adopt
from bucketlake.write.adopt import plan_adopt as check_keys
from bucketlake.write.metadata_drop import (
    DropMetadataTable,
    plan_drop_metadata_table,
    run_drop_metadata_table,
)

R = TypeVar("R", covariant=True)
One = TypeVar("One")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(ABC, Generic[R]):
    """What a table would do; prints."""

    table: str
    """The uri of the table that it was made for."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return False

    def _repr_html_(self) -> str:
        title = "Nothing to do" if self.is_empty else "A plan: nothing is done yet. To do it: table.run(plan)"
        return notebook.lines_html(title, str(self))

    def run(self, store: Store, tasks: Tasks = here) -> R:
        """Do it, and say what was done."""
        if store.uri != self.table:
            raise ConfigError(
                f"this plan was made for {self.table}, and is to be run on {store.uri}. Plan again."
            )
        return self._run(store, tasks)

    @abstractmethod
    def _run(self, store: Store, tasks: Tasks) -> R: ...

    def _stale(self, why: str) -> CommitConflictError:
        return CommitConflictError(
            f"{self.table} has moved on since this was planned: {why}. Nothing was changed. Plan again."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCompaction(Plan[Done[Compacted]]):
    pending: tuple[str, ...]
    """Compactions that are on the timeline already, and are run first."""
    work: Compaction

    @property
    def is_empty(self) -> bool:
        return not self.pending and self.work.is_empty

    def __str__(self) -> str:
        return _with_pending("compaction", self.pending, self.work)

    def _run(self, store: Store, tasks: Tasks) -> Done[Compacted]:
        def run(instant: str) -> Compacted:
            return services.run_compaction(store, instant, tasks=tasks)

        done = _finish(run, self.pending, but=(ConcurrentWriteError,))
        scheduled = services.schedule_compaction(store, self.work)
        if scheduled is None and not self.work.is_empty and not done:
            raise self._stale(
                "others have taken the file groups that were to be compacted, or compacted them"
            )
        return Done((*done, *([run(scheduled)] if scheduled is not None else [])))


def plan_compaction(store: Store, trigger: CompactionTrigger) -> PlannedCompaction:
    """Say which compactions are pending, and which file groups `trigger` takes."""
    due = due_compaction(services.look(store, Maintenance()), trigger)
    return PlannedCompaction(table=store.uri, pending=due.pending, work=due.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClustering(Plan[Done[Clustered]]):
    pending: tuple[str, ...]
    """Clusterings that are on the timeline already, and are run first."""
    work: Clustering

    @property
    def is_empty(self) -> bool:
        return not self.pending and self.work.is_empty

    def __str__(self) -> str:
        return _with_pending("clustering", self.pending, self.work)

    def _run(self, store: Store, tasks: Tasks) -> Done[Clustered]:
        def run(instant: str) -> Clustered:
            return services.run_clustering(store, instant, tasks=tasks)

        done = _finish(run, self.pending, but=(ConflictError, InstantError))
        scheduled = services.schedule_clustering(store, self.work)
        if scheduled is None and not self.work.is_empty and not done:
            raise self._stale("others have taken the file groups that were to be clustered, or replaced them")
        return Done((*done, *([run(scheduled)] if scheduled is not None else [])))


def plan_clustering(store: Store, by: Sequence[str], trigger: ClusteringTrigger) -> PlannedClustering:
    """Say which clusterings are pending, and which file groups `trigger` takes."""
    due = due_clustering(store, by=by, trigger=trigger)
    resizes = pending_resizes(store, load_state(store).timeline)  # left to who planned them
    pending = tuple(instant for instant in due.pending if instant not in resizes)
    return PlannedClustering(table=store.uri, pending=pending, work=due.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedClean(Plan[Done[Cleaned]]):
    pending: tuple[str, ...]
    """Cleans that were cut off, and are finished first."""
    work: CleanPlan

    @property
    def is_empty(self) -> bool:
        return not self.pending and self.work.is_empty

    def __str__(self) -> str:
        return _with_pending("clean", self.pending, self.work)

    def _run(self, store: Store, tasks: Tasks) -> Done[Cleaned]:
        now = plan_clean(store, self.work.retention)
        kept = {file.path for file in self.work.files} - {file.path for file in now.work.files}
        kept |= set(self.work.partitions) - set(now.work.partitions)
        if kept:
            raise self._stale(f"{min(kept)} is to be kept by now, or is gone")
        done = [services.finish_clean(store, instant, tasks=tasks) for instant in self.pending]
        cleaned = services.run_clean(self.work, store, tasks=tasks)
        return Done((*done, *([cleaned] if cleaned is not None else [])))


def plan_clean(store: Store, retain: Retention) -> PlannedClean:
    """Say which cleans were cut off, and which files nobody needs any more."""
    due = due_clean(services.look(store, Maintenance()), retain)
    return PlannedClean(table=store.uri, pending=due.pending, work=due.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedArchive(Plan[ArchivePlan]):
    work: ArchivePlan
    keep_min: int
    keep_max: int

    @property
    def is_empty(self) -> bool:
        return not self.work.instants

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> ArchivePlan:  # noqa: ARG002 # as others run
        now = plan_archive(store, keep_min=self.keep_min, keep_max=self.keep_max).work
        if now.instants != self.work.instants:
            raise self._stale("other instants are to be archived")
        return services.archive_table(store, keep_min=self.keep_min, keep_max=self.keep_max)


def plan_archive(store: Store, *, keep_min: int, keep_max: int) -> PlannedArchive:
    """Say which instants are to leave the timeline."""
    state = _writable(store)
    work = services.plan_archive(state, services.look_around(state), keep_min=keep_min, keep_max=keep_max)
    return PlannedArchive(table=store.uri, work=work, keep_min=keep_min, keep_max=keep_max)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRollback(Plan[RollbackOrder]):
    work: RollbackOrder

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> RollbackOrder:  # noqa: ARG002 # as others run
        services.run_rollback(self.work, store)
        return self.work


def plan_rollback(store: Store, instant: str) -> PlannedRollback:
    """Say what taking an instant back deletes; `InstantError` if it must stay."""
    order = look_at(store, lambda state: services.look_for_rollback(state, instant))
    return PlannedRollback(table=store.uri, work=order)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRestore(Plan[RestoreOrder]):
    work: RestoreOrder

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> RestoreOrder:  # noqa: ARG002 # as others run
        services.run_restore(self.work, store)
        return self.work


def plan_restore(store: Store, instant: str) -> PlannedRestore:
    """Say what going back to a savepoint takes back."""

    def look(state: TableState) -> RestoreOrder:
        check_writable(state)
        return services.look_for_restore(state, instant)

    return PlannedRestore(table=store.uri, work=look_at(store, look))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSavepointDeletion(Plan[Savepoint]):
    savepoint: Savepoint

    def __str__(self) -> str:
        return f"delete the savepoint of {self.savepoint}"

    def _run(self, store: Store, tasks: Tasks) -> Savepoint:  # noqa: ARG002 # as others run
        if services.find_savepoint(_writable(store), self.savepoint.instant) != self.savepoint:
            raise self._stale(f"the savepoint of {self.savepoint.instant} is another one")
        services.delete_savepoint(store, self.savepoint.instant)
        return self.savepoint


def plan_savepoint_deletion(store: Store, instant: str) -> PlannedSavepointDeletion:
    """Find the savepoint to give up."""

    def look(state: TableState) -> Savepoint:
        check_writable(state)
        return services.find_savepoint(state, instant)

    found = look_at(store, look)
    return PlannedSavepointDeletion(table=store.uri, savepoint=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRescale(Plan[Rescaled]):
    work: Rescale
    version_before: str
    """Of the rules that are to be replaced."""
    budget_bytes: int

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> Rescaled:
        found = current_version(store, load_state(store).timeline)
        if found != self.version_before:
            raise self._stale(f"its bucket rules are those of {found or 'no instant'} by now")
        return rescale_table(
            store,
            self.work.rules,
            version_before=self.version_before,
            tasks=tasks,
            budget_bytes=self.budget_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRules:
    """Rules that a table is to get, in the words of who wants them."""

    expressions: str
    bucket_number: int | None
    rule_type: str
    adds: bool
    """Whether they come before those that the table has."""
    budget_bytes: int

    def plan(self, store: Store) -> PlannedRescale:
        """Say which partitions they change; reads footers to count rows."""
        rules, version = self._read(store)
        work = look_for_rescale(store, rules)
        return PlannedRescale(
            table=store.uri, work=work, version_before=version, budget_bytes=self.budget_bytes
        )

    def rescale(self, store: Store, tasks: Tasks) -> Rescaled:
        """Give the table the rules, without counting first."""
        rules, version = self._read(store)
        return rescale_table(
            store, rules, version_before=version, tasks=tasks, budget_bytes=self.budget_bytes
        )

    def _read(self, store: Store) -> tuple[CountRules, str]:
        return new_rules(
            load_state(store),
            self.expressions,
            default_count=self.bucket_number,
            rule_type=self.rule_type,
            adds=self.adds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRescaleRollback(Plan[RescaleRollback]):
    work: RescaleRollback
    instant: str
    with_newer: bool

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> RescaleRollback:  # noqa: ARG002 # as others run
        return roll_back_rescale(store, self.instant, with_newer=self.with_newer, expected=self.work.instants)


def plan_rescale_rollback(store: Store, instant: str, *, with_newer: bool) -> PlannedRescaleRollback:
    """Say what taking a rescale back deletes, and which others go with it."""
    work = rescale_order(store, instant, with_newer=with_newer)
    return PlannedRescaleRollback(table=store.uri, work=work, instant=instant, with_newer=with_newer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedResize(Plan[Done[Clustered]]):
    """A round of splits and merges; what it leaves may be due for another."""

    pending: tuple[str, ...]
    """Resizes that are on the timeline already, and are run first."""
    work: Resize

    @property
    def is_empty(self) -> bool:
        return not self.pending and self.work.is_empty

    def __str__(self) -> str:
        return _with_pending("resize", self.pending, self.work)

    def _run(self, store: Store, tasks: Tasks) -> Done[Clustered]:
        def run(instant: str) -> Clustered:
            return services.run_resize(store, instant, tasks=tasks)

        done = _finish(run, self.pending, but=(ConflictError, InstantError))
        scheduled = services.schedule_resize(store, self.work)
        if scheduled is None and not self.work.is_empty and not done:
            raise self._stale(
                "others have taken the buckets that were to be split or merged, or replaced them"
            )
        return Done((*done, *([run(scheduled)] if scheduled is not None else [])))


def plan_resize(store: Store, trigger: ResizeTrigger, *, tasks: Tasks = here) -> PlannedResize:
    """Say which resizes are pending, and what a round would do; reads the keys of large buckets."""
    pending = tuple(pending_resizes(store, load_state(store).timeline))
    work = services.look_for_resize(store, trigger, tasks=tasks)
    return PlannedResize(table=store.uri, pending=pending, work=work)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDoubling(Plan[Doubled]):
    """The buckets that a doubling has yet to split; to run it is to go on until it is over."""

    work: Doubling

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> Doubled:
        now = look_for_doubling(store)
        if (now.before, now.is_begun) != (self.work.before, self.work.is_begun):
            raise self._stale("somebody else has begun or ended a doubling")
        return double_table(store, tasks=tasks)


def plan_double(store: Store) -> PlannedDoubling:
    """Say which buckets a doubling has yet to split."""
    return PlannedDoubling(table=store.uri, work=look_for_doubling(store))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAbort(Plan[RolledBack | None]):
    """A rescale or a resize to take back that is not completed."""

    instant: str
    work: RollbackOrder | None
    """None if it is completed by now: there is nothing to take back."""
    is_resize: bool

    @property
    def is_empty(self) -> bool:
        return self.work is None

    def __str__(self) -> str:
        if self.work is None:
            return f"the resize of {self.instant} is completed: there is nothing to abort"
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> RolledBack | None:  # noqa: ARG002 # as others run
        if self.work is None:
            return None
        if self.is_resize:
            return services.abort_resize(store, self.instant)
        return services.run_rollback(self.work, store)


def plan_abort(store: Store, instant: str | None) -> PlannedAbort:
    """Say what taking back the resize of `instant`, or without one the pending rescale, deletes."""
    if instant is None:
        order = abort_rescale(store, dry_run=True)
        return PlannedAbort(table=store.uri, instant=order.instant.requested, work=order, is_resize=False)
    return PlannedAbort(table=store.uri, instant=instant, work=look_for_abort(store, instant), is_resize=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAdoption(Plan[AdoptPlan]):
    work: AdoptPlan
    seen: tuple[Instant, ...]
    """What had been written to the table when its keys were looked at."""

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> AdoptPlan:  # noqa: ARG002 # as others run
        if load_state(store).timeline.writes != self.seen:
            raise self._stale("it was written to after its keys were looked at")
        run_adopt(store, self.work)
        return self.work


def plan_adoption(
    store: Store, index: IndexValue | None, *, on_progress: Progress | None = None
) -> PlannedAdoption:
    """Check every key of a table that Hudi wrote against an index."""
    state = load_state(store)
    work = check_keys(state, index, on_progress=on_progress)
    return PlannedAdoption(table=store.uri, work=work, seen=state.timeline.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMetadataDrop(Plan[DropMetadataTable]):
    work: DropMetadataTable

    @property
    def is_empty(self) -> bool:
        return self.work.is_empty

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> DropMetadataTable:  # noqa: ARG002 # as others run
        if not self.work.is_empty:
            if plan_drop_metadata_table(load_state(store)).is_empty:
                raise self._stale("there is no metadata table any more")
            run_drop_metadata_table(self.work, store)
        return self.work


def plan_metadata_drop(store: Store) -> PlannedMetadataDrop:
    """Say what of the metadata table would be delisted and deleted."""

    def look(state: TableState) -> PlannedMetadataDrop:
        refuse_drop(store, state.properties)
        return PlannedMetadataDrop(table=store.uri, work=plan_drop_metadata_table(state))

    return look_at(store, look)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMetadataBuild(Plan[BuiltMetadata | None]):
    work: MetadataBuild
    anew: bool
    index: RecordIndexBuild | None = None
    """The record-level index that is built after `files`."""
    asked: RecordIndex | None = None
    """What a caller has said of it."""
    secondary: tuple[SecondaryIndexBuild, ...] = ()
    """Secondary indexes that were delisted, and are built again after that."""

    @property
    def is_empty(self) -> bool:
        return not self.work.is_needed and self.index is None and not self.secondary

    def __str__(self) -> str:
        more = [str(one) for one in (self.index, *self.secondary) if one is not None]
        return "\n".join([*([str(self.work)] if self.work.is_needed or not more else []), *more])

    def _run(self, store: Store, tasks: Tasks) -> BuiltMetadata | None:
        built = rebuild_metadata(store) if self.anew else build_metadata(store)
        index = None if self.index is None else build_record_index(store, self.asked, tasks=tasks)
        secondary = build_all_wanted(store, tasks=tasks) if self.secondary or self.index is not None else ()
        completed = [one.completed for one in (index, *secondary) if one is not None]
        if not completed:
            return built
        files = built or BuiltMetadata(table=store.uri, partitions=0, files=0, completed=completed[-1])
        names = tuple(one.name for one in secondary)
        if index is None:
            return replace(files, secondary=names)
        return replace(files, shards=index.shards, entries=index.entries, secondary=names)


def plan_metadata_build(
    store: Store, *, anew: bool, record_index: RecordIndex | None = None
) -> PlannedMetadataBuild:
    """Say what a metadata table would be made of; with a record-level index if the table has one, or is to get one."""

    def look(state: TableState) -> PlannedMetadataBuild:
        work = plan_build(state, anew=anew)
        if record_index is not None and record_index.per_partition:
            refuse_under_secondary(store, state.properties)
        wanted = record_index or wanted_index(store, state.properties)
        is_there = RECORD_INDEX in state.properties.metadata_partitions and not anew
        if is_there and record_index is not None:
            refuse_other_index(state, record_index)
        index = None if wanted is None or is_there else plan_record_index(state, wanted)
        has_index = index is not None or RECORD_INDEX in state.properties.metadata_partitions
        again = wanted_secondary(state) if has_index else ()
        if anew:
            again = (*again, *secondary_indexes(store, state.properties).values())
        return PlannedMetadataBuild(
            table=store.uri,
            work=work,
            anew=anew,
            index=index,
            asked=None if is_there else record_index,
            secondary=tuple(plan_secondary_build(state, one, None) for one in again),
        )

    return look_at(store, look)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedIndexGrowth(Plan[BuiltRecordIndex | None]):
    work: RecordIndexBuild
    shards: int
    """Of the table, or of each partition."""

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> BuiltRecordIndex | None:
        built = grow_record_index(store, self.shards, tasks=tasks)
        build_wanted_secondary(store, tasks=tasks)
        return built


def plan_index_growth(store: Store, shards: int) -> PlannedIndexGrowth:
    """Say what another number of shards takes."""

    def look(state: TableState) -> PlannedIndexGrowth:
        index = grown_index(state, shards)
        delists = RECORD_INDEX in state.properties.metadata_partitions
        work = plan_record_index(state, index, delists=delists)
        work = replace(work, gives_up=gives_up(state, shards))
        return PlannedIndexGrowth(table=store.uri, work=work, shards=shards)

    return look_at(store, look)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedIndexDrop(Plan[DropMetadataTable]):
    work: DropMetadataTable

    @property
    def is_empty(self) -> bool:
        return self.work.is_empty

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> DropMetadataTable:  # noqa: ARG002 # as others run
        if not self.work.is_empty:
            drop_record_index(store)
        return self.work


def plan_index_drop(store: Store) -> PlannedIndexDrop:
    """Say what dropping the record-level index alone would delete."""

    def look(state: TableState) -> PlannedIndexDrop:
        refuse_drop(store, state.properties)
        refuse_under_secondary(store, state.properties)
        listed = tuple({RECORD_INDEX}.intersection(state.properties.metadata_partitions))
        work = DropMetadataTable(
            table=store.uri,
            partitions=listed,
            properties=tuple(key for key in (SHARDS_KEY, INDEX_BUILT) if key in state.properties.raw),
            files=store.list(folder_of(RECORD_INDEX), recursive=True).files,
        )
        return PlannedIndexDrop(table=store.uri, work=work)

    return look_at(store, look)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedIndexCreation(Plan[BuiltSecondaryIndex | None]):
    work: SecondaryIndexBuild
    shards: int | None
    """As asked."""
    before: PlannedMetadataBuild | None = None
    """What is built first, if the table has no record-level index and is to get one."""

    def __str__(self) -> str:
        return "\n".join(str(one) for one in (self.before, self.work) if one is not None)

    def _run(self, store: Store, tasks: Tasks) -> BuiltSecondaryIndex | None:
        if self.before is not None:
            self.before.run(store, tasks)
        definition = SecondaryIndexDefinition(self.work.name, self.work.column)
        return build_secondary_index(store, definition, self.shards, tasks=tasks)


def plan_index_creation(
    store: Store, name: str, column: str, *, shards: int | None, record_index: bool
) -> PlannedIndexCreation:
    """Say what a secondary index would be made of; and the record-level index, if it is to be built with it."""
    check_shards(shards)

    def look(state: TableState) -> PlannedIndexCreation:
        gets_one = record_index and RECORD_INDEX not in state.properties.metadata_partitions
        definition = checked_definition(state, name, column, gets_record_index=gets_one)
        before = plan_metadata_build(store, anew=False, record_index=RecordIndex()) if gets_one else None
        work = plan_secondary_build(state, definition, shards)
        return PlannedIndexCreation(table=store.uri, work=work, shards=shards, before=before)

    return look_at(store, look)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSecondaryDrop(Plan[DroppedIndex]):
    work: DroppedIndex

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> DroppedIndex:  # noqa: ARG002 # as others run
        return drop_secondary_index(store, self.work.name)


def plan_secondary_drop(store: Store, name: str) -> PlannedSecondaryDrop:
    """Say what dropping a secondary index would delete."""
    found = look_at(store, lambda state: plan_drop_index(store, state.properties, name))
    return PlannedSecondaryDrop(table=store.uri, work=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDelisting(Plan[Delisted]):
    partitions: tuple[str, ...]
    """What would be delisted, and deleted."""

    @property
    def is_empty(self) -> bool:
        return not self.partitions

    def __str__(self) -> str:
        named = ", ".join(self.partitions)
        return f"delist {named} of {self.table}" if named else f"{self.table} lists nothing that is not kept"

    def _run(self, store: Store, tasks: Tasks) -> Delisted:  # noqa: ARG002 # as others run
        return delist_unmaintained(store)


def plan_delisting(store: Store) -> PlannedDelisting:
    """Say what of the metadata table bucketlake does not keep in step."""
    return PlannedDelisting(table=store.uri, partitions=unmaintained(store, load_properties(store)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMaintenance(Plan[Round]):
    work: MaintenancePlan
    maintenance: Maintenance

    @property
    def is_empty(self) -> bool:
        return not self.work.due

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> Round:
        return services.run_maintenance(store, self.maintenance, tasks=tasks)


def plan_maintenance(store: Store, maintenance: Maintenance) -> PlannedMaintenance:
    """Say which services are due."""
    work = services.plan_maintenance(services.look(store, maintenance), maintenance)
    return PlannedMaintenance(table=store.uri, work=work, maintenance=maintenance)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRepair(Plan[Repaired]):
    work: Repair

    @property
    def is_empty(self) -> bool:
        return self.work.is_empty

    def __str__(self) -> str:
        return str(self.work)

    def _run(self, store: Store, tasks: Tasks) -> Repaired:
        return run_repair(self.work, store, tasks=tasks)


def plan_repair(store: Store, *, tasks: Tasks = here) -> PlannedRepair:
    """Say which keys the index has wrong, and which have several rows; reads every key."""
    return PlannedRepair(table=store.uri, work=look_for_repair(store, tasks=tasks))


def _with_pending(service: str, pending: Iterable[str], work: object) -> str:
    return "\n".join([*(f"finish the pending {service} {instant}" for instant in pending), str(work)])


def _finish(
    run: Callable[[str], One], pending: Iterable[str], *, but: tuple[type[Exception], ...]
) -> list[One]:
    """Run what is pending; what another process is at, or has ended, is left to it."""
    done = []
    for instant in pending:
        with suppress(*but):
            done.append(run(instant))
    return done


def _writable(store: Store) -> TableState:
    state = load_state(store)
    check_writable(state)
    return state
