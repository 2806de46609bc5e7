"""Maintenance: the services that a table needs again and again, as one round.

    plan_maintenance    which services are due: pure, prints
    run_maintenance     a round: what dead writers left, resize, compaction, the metadata table, clean, archive
    rounds              one after the other, until told to end

A round is made of steps that do not depend on each other, and does not raise: a step that fails, or that another
process is at, is logged and named, and the others are done. What is asked for is done, and nothing else: a table whose
compactions Hudi runs is left to Hudi unless compaction is asked for. A metadata table, where there is one, is looked
after in every round: archiving waits for its compactions.

One process at a time works at a table, by a lease; who finds it taken leaves the round to the other. Services are safe
beside each other, so a lease that was lost costs double work and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from bucketlake.commit.locks import lease
from bucketlake.commit.recovery import recover
from bucketlake.commit.writable import check_writable
from bucketlake.config import TableType
from bucketlake.errors import ConfigError, ConflictError, CorruptTableError, UnsupportedError, shown
from bucketlake.index.resizes import pending_resizes
from bucketlake.layout import DataFile
from bucketlake.layout.names import MAINTENANCE_LEASE
from bucketlake.metadata.shards import Shards
from bucketlake.services.archive import (
    ArchivePlan,
    Surroundings,
    archive_table,
    look_around,
    may_archive,
    plan_archive,
)
from bucketlake.services.clean import Cleaned, CleanPlan, Retention, clean_table, plan_clean
from bucketlake.services.compaction import (
    Compacted,
    Compaction,
    CompactionTrigger,
    compact_table,
    plan_compaction,
)
from bucketlake.services.due import Due
from bucketlake.services.held import Held, load_held
from bucketlake.services.metadata_upkeep import (
    MetadataPolicy,
    MetadataUpkeep,
    look_at_shards,
    plan_metadata_upkeep,
    run_metadata_upkeep,
)
from bucketlake.services.resize import look_for_resize, resize_table
from bucketlake.services.resize_plan import Resize, ResizeTrigger
from bucketlake.services.tasks import Tasks, here
from bucketlake.services.wanted_indexes import wanted_again
from bucketlake.state import TableState, everywhere, files_of, load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action, Clock, process_clock
from bucketlake.timeline.clock import system_ms

PAUSE_SECONDS_MAX = 900
"""However often rounds fail, another is tried after a quarter of an hour."""

RECOVERY = "recovery"
"""The first step, which also looks at the table as a whole."""
METADATA = "metadata table"

LookAt = Callable[[TableState], Collection[str] | None]
"""Names the partitions to look at; None: all."""

_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Which services to run, and when. Only those that you name run."""

    compact: CompactionTrigger | None = None
    """Compaction of a merge-on-read table. Pending compactions run too, whoever planned them."""
    resize: ResizeTrigger | None = None
    """A round of splits and merges in a table with consistent hashing. Pending resizes run first."""
    clean: Retention | None = None
    """What a clean keeps."""
    archive: tuple[int, int] | None = None
    """How many writes stay on the timeline, and how many there must be before any are archived."""

    def __post_init__(self) -> None:
        kinds = {"compact": CompactionTrigger, "resize": ResizeTrigger, "clean": Retention}
        for name, kind in kinds.items():
            value = getattr(self, name)
            if not isinstance(value, kind | None):
                raise ConfigError(
                    f"{name} is {shown(value)}; expected a bucketlake.{kind.__name__}, or None."
                )
        if not (self.archive is None or _is_pair(self.archive)):
            raise ConfigError(
                f"archive is {shown(self.archive)}; expected two numbers: how many writes to keep, and beyond how "
                f"many to archive, such as (20, 30)."
            )
        if self.archive is not None and not 1 <= self.archive[0] < self.archive[1]:
            raise ConfigError(
                f"archiving was told to keep {self.archive[0]} to {self.archive[1]} writes; expected at least 1, and "
                f"a higher maximum."
            )


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A table as a round sees it."""

    state: TableState
    files: Mapping[str, tuple[DataFile, ...]]
    held: Held
    around: Surroundings | None
    """None where there is too little on the timeline to be archived."""
    resize: Resize | None
    """None where nobody asked for it."""
    metadata: Shards | None
    """None where there is no metadata table."""
    now: str
    """An instant time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """Which services are due, and what they would do; None for those that are not. Prints as a list."""

    resize: Due[Resize] | None = None
    compaction: Due[Compaction] | None = None
    metadata: MetadataUpkeep | None = None
    clean: Due[CleanPlan] | None = None
    archive: ArchivePlan | None = None

    @property
    def due(self) -> tuple[str, ...]:
        plans = {
            "resize": self.resize,
            "compaction": self.compaction,
            METADATA: self.metadata,
            "clean": self.clean,
            "archive": self.archive,
        }
        return tuple(name for name, plan in plans.items() if plan is not None)

    def __str__(self) -> str:
        plans = (self.resize, self.compaction, self.metadata, self.clean, self.archive)
        return "\n".join(str(plan) for plan in plans if plan is not None) or "nothing is due"


def look(
    store: Store, maintenance: Maintenance, *, look_at: LookAt = everywhere, clock: Clock | None = None
) -> Sight:
    """Read what `plan_maintenance` decides by."""
    state = load_state(store)
    check_writable(state)
    clock = clock or process_clock(state.properties.timeline_timezone)
    is_long = maintenance.archive is not None and len(state.timeline.writes) > maintenance.archive[1]
    return Sight(
        state=state,
        files=files_of(state, look_at(state)),
        held=load_held(state),
        around=look_around(state, clock=clock) if is_long else None,
        resize=look_for_resize(store, maintenance.resize) if maintenance.resize is not None else None,
        metadata=look_at_shards(state),
        now=clock.next_instant(),
    )


def plan_maintenance(sight: Sight, maintenance: Maintenance) -> MaintenancePlan:
    """Say which services are due as the table is; what one of them does may make another one due."""
    resize, compaction, metadata, clean, archive = None, None, None, None, None
    if sight.resize is not None:
        pending = tuple(pending_resizes(sight.state.store, sight.state.timeline))
        resize = Due("resize", pending, sight.resize)
    if maintenance.compact is not None and sight.state.properties.table_type is TableType.MERGE_ON_READ:
        compaction = due_compaction(sight, maintenance.compact)
    if sight.metadata is not None:
        wanted = wanted_again(sight.state)
        metadata = plan_metadata_upkeep(sight.metadata, metadata_policy(maintenance), wanted=wanted)
    if maintenance.clean is not None:
        clean = due_clean(sight, maintenance.clean)
    if maintenance.archive is not None and sight.around is not None:
        keep_min, keep_max = maintenance.archive
        archive = plan_archive(sight.state, sight.around, keep_min=keep_min, keep_max=keep_max)
    return MaintenancePlan(
        resize=None if resize is None or resize.is_empty else resize,
        compaction=None if compaction is None or compaction.is_empty else compaction,
        metadata=None if metadata is None or metadata.is_empty else metadata,
        clean=None if clean is None or clean.is_empty else clean,
        archive=None if archive is None or not archive.instants else archive,
    )


def metadata_policy(maintenance: Maintenance) -> MetadataPolicy:
    return MetadataPolicy(retain=maintenance.clean, archive=maintenance.archive)


def due_compaction(sight: Sight, trigger: CompactionTrigger | None) -> Due[Compaction]:
    state = sight.state
    pending = tuple(instant.requested for instant in state.timeline.pending(Action.COMPACTION))
    plan = plan_compaction(state, sight.files, sight.held, trigger=trigger, now=sight.now)
    return Due("compaction", pending, plan)


def due_clean(sight: Sight, retain: Retention) -> Due[CleanPlan]:
    state = sight.state
    pending = tuple(instant.requested for instant in state.timeline.pending(Action.CLEAN))
    return Due("clean", pending, plan_clean(state, sight.files, sight.held, retain=retain, now=sight.now))


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one service did in a round, or why it did not; prints as a line."""

    service: str
    text: str
    error: Exception | None = None

    @property
    def is_conflict(self) -> bool:
        """Whether another process is at it: nothing is wrong then."""
        return isinstance(self.error, ConflictError)

    def __str__(self) -> str:
        if self.error is None:
            return f"{self.service}: {self.text}"
        return f"{self.service} {'was left to another' if self.is_conflict else 'failed'}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a round did; prints as a line."""

    steps: tuple[Step, ...]
    """Only those that had something to do."""
    seconds: float

    @property
    def failures(self) -> tuple[Exception, ...]:
        return tuple(step.error for step in self.steps if step.error is not None and not step.is_conflict)

    @property
    def hopeless(self) -> Exception | None:
        """Why another round would not fare better: the table is broken, not supported, or no table any more."""
        for step in self.steps:
            # Later steps may meet a `ConfigError` because what they were about to do was done by another.
            if isinstance(step.error, CorruptTableError | UnsupportedError) or (
                step.service == RECOVERY and isinstance(step.error, ConfigError)
            ):
                return step.error
        return None

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps)) or "nothing to do"


def run_maintenance(
    store: Store,
    maintenance: Maintenance,
    *,
    tasks: Tasks = here,
    clock: Clock | None = None,
    should_end: Callable[[], bool] = lambda: False,
    look_at: LookAt = everywhere,
) -> Round:
    """Run a round, and say what it did. Asked to end, it does so before the next step.

    What is compacted and cleaned is looked for in the partitions of `look_at`.
    """
    start = perf_counter()
    services = _Services(store, maintenance, tasks, clock, look_at)
    steps: list[Step | None] = []
    if not should_end():
        steps.append(_step(store, RECOVERY, services.recover))
    if services.is_any_due:
        steps += _leased_steps(store, services, clock, should_end)
    return Round(steps=tuple(step for step in steps if step is not None), seconds=perf_counter() - start)


def _leased_steps(
    store: Store, services: _Services, clock: Clock | None, should_end: Callable[[], bool]
) -> list[Step | None]:
    steps: list[Step | None] = []

    def run() -> str:
        with lease(
            store, MAINTENANCE_LEASE, now_ms=clock.now_ms if clock is not None else system_ms
        ) as is_ours:
            if not is_ours:
                raise ConflictError(f"{MAINTENANCE_LEASE} says that its lease is held")
            for service, do in services.steps().items():
                if should_end():
                    break
                steps.append(_step(store, service, do))
        return ""

    return [_step(store, "maintenance", run), *steps]


def _step(store: Store, service: str, run: Callable[[], str]) -> Step | None:
    try:
        text = run()
    except ConflictError as conflict:
        _log.info("%s: %s is left to another process: %s", store.uri, service, conflict)
        return Step(service=service, text=str(conflict), error=conflict)
    except Exception as fault:
        text = str(fault) or type(fault).__name__
        _log.warning("%s: %s failed: %s", store.uri, service, text)
        return Step(service=service, text=text, error=fault)
    return Step(service=service, text=text) if text else None


class _Services:
    """The steps of a round. They share one look at the table, until one of them changes it."""

    def __init__(
        self,
        store: Store,
        maintenance: Maintenance,
        tasks: Tasks,
        clock: Clock | None,
        look_at: LookAt,
    ) -> None:
        self._store = store
        self._maintenance = maintenance
        self._tasks = tasks
        self._clock = clock
        self._look_at = look_at
        self._plan: MaintenancePlan | None = None
        self.is_any_due = False
        """What the first look found; False before."""

    def steps(self) -> Mapping[str, Callable[[], str]]:
        """Each does what is due of it and says so; an empty text if nothing is."""
        return {
            "resize": self._resize,
            "compaction": self._compact,
            METADATA: self._keep_metadata,
            "clean": self._clean,
            "archive": self._archive,
        }

    def _due(self) -> MaintenancePlan:
        """Say what is due, but for archiving the table: that lists every folder, and does so itself."""
        if self._plan is None:
            wanted = replace(self._maintenance, archive=None)
            sight = look(self._store, wanted, look_at=self._look_at, clock=self._clock)
            self._plan = plan_maintenance(sight, self._maintenance)
        return self._plan

    def _is_long(self) -> bool:
        keep = self._maintenance.archive
        return keep is not None and may_archive(load_state(self._store), keep_min=keep[0], keep_max=keep[1])

    def recover(self) -> str:
        state = load_state(self._store)
        check_writable(state)
        found = recover(self._store, state.properties, clock=self._clock)
        self.is_any_due = bool(self._due().due) or self._is_long()
        is_quiet = not (found.published or found.rolled_back or found.restored or found.swept)
        return "" if is_quiet else "; ".join(str(found).splitlines())

    def _resize(self) -> str:
        trigger = self._maintenance.resize
        if trigger is None or self._due().resize is None:
            return ""
        self._plan = None
        done = resize_table(self._store, trigger, rounds=1, tasks=self._tasks, clock=self._clock)
        went, came = sum(one.replaced for one in done), sum(one.file_groups for one in done)
        return f"{went:,} buckets became {came:,}" if done else ""

    def _compact(self) -> str:
        trigger = self._maintenance.compact
        if trigger is None or self._due().compaction is None:
            return ""
        self._plan = None
        done = compact_table(
            self._store, trigger=trigger, look_at=self._look_at, tasks=self._tasks, clock=self._clock
        )
        return _compaction_text(done)

    def _keep_metadata(self) -> str:
        if self._due().metadata is None:
            return ""
        self._plan = None
        policy = metadata_policy(self._maintenance)
        return str(run_metadata_upkeep(load_state(self._store), policy, tasks=self._tasks, clock=self._clock))

    def _clean(self) -> str:
        retain = self._maintenance.clean
        if retain is None or self._due().clean is None:
            return ""
        self._plan = None
        done = clean_table(
            self._store, retain=retain, look_at=self._look_at, tasks=self._tasks, clock=self._clock
        )
        return _clean_text(done)

    def _archive(self) -> str:
        keep = self._maintenance.archive
        if keep is None or not self._is_long():
            return ""
        plan = archive_table(self._store, keep_min=keep[0], keep_max=keep[1], clock=self._clock)
        return f"{len(plan.instants):,} instants" if plan.instants else ""


def _compaction_text(done: tuple[Compacted, ...]) -> str:
    groups, logs = sum(one.file_groups for one in done), sum(one.log_files for one in done)
    return f"{groups:,} file groups, {logs:,} logs merged" if done else ""


def _clean_text(done: tuple[Cleaned, ...]) -> str:
    return f"{sum(one.files for one in done):,} files deleted" if done else ""


class Ending(Protocol):
    """Says whether to end, and waits for it; a `threading.Event` does."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float, /) -> object: ...


def rounds(
    store: Store,
    maintenance: Maintenance,
    *,
    every_seconds: float,
    ending: Ending,
    tasks: Tasks = here,
    clock: Clock | None = None,
) -> Iterator[Round]:
    """Run a round again and again until told to end; after one that failed wait longer, each time twice as long."""
    failed = 0
    while not ending.is_set():
        done = run_maintenance(store, maintenance, tasks=tasks, clock=clock, should_end=ending.is_set)
        yield done
        failed = failed + 1 if done.failures else 0
        ending.wait(pause_seconds(every_seconds, failed))


def pause_seconds(every_seconds: float, failed: int) -> float:
    """Return how long to wait after so many rounds in a row have failed.

    >>> [pause_seconds(60, failed) for failed in (0, 1, 3, 99)]
    [60, 120, 480, 900]
    """
    return max(every_seconds, min(every_seconds * (1 << min(failed, 30)), PAUSE_SECONDS_MAX))
