"""Clean of the metadata table: files of shards that no reader needs any more go.

    kept    of every shard, what readers as of the earliest kept write of the metadata table see: the newest base file
            that is not later, and what came after it; and the newest three base files
    gone    older base files, and logs that completed before it

So many writes are kept as Hudi keeps there: 20, or a fifth more than the table keeps; but not more than are on the
active timeline. A clean is an instant on the
metadata table's timeline. It is done under the table's lock, from beginning to end: a metadata table that is built anew
has files of the same names. One that was cut off is finished by the next, ours or Hudi's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketlake.commit.claims import Claims, latest_time
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import (
    begin_instant,
    checked_step,
    end_instant,
    is_listed,
    latest_metadata_time,
)
from bucketlake.commit.publishing import settle
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CorruptTableError
from bucketlake.layout.names import (
    METADATA_TABLE_FOLDER,
    parse_index_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.metadata.places import folder_of, is_own_instant, timeline_properties
from bucketlake.metadata.shards import Shards, list_shards
from bucketlake.metadata.step import Step
from bucketlake.services.clean import Retention
from bucketlake.storage import FileStat, Store, check_path, in_parallel
from bucketlake.timeline import (
    Action,
    CleanerPlan,
    Clock,
    Instant,
    delete_pending,
    encode_clean_metadata,
    encode_cleaner_plan,
    process_clock,
    read_cleaner_plan,
    requested_path,
)

KEEP_COMMITS = 20
"""Hudi keeps as many in a metadata table at least, and 1.2 times what its table keeps (HoodieMetadataWriteUtils)."""
KEEP_BASES = 3
"""A reader that began two compactions ago finds what it began with."""
_POLICY = "KEEP_LATEST_COMMITS"


def commits_kept(retain: Retention | None) -> int:
    """Return how many writes of the metadata table are kept where the table keeps so much.

    >>> commits_kept(None), commits_kept(Retention(commits=30))
    (20, 36)
    """
    commits = retain.commits if retain is not None and retain.commits is not None else 0
    return max(KEEP_COMMITS, -(-commits * 6 // 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCleanPlan:
    """Which files of the metadata table go; prints as a line."""

    earliest: Instant | None
    """The oldest write whose readers lose nothing."""
    last_completed: str
    files: Mapping[str, tuple[FileStat, ...]]
    """By partition."""

    @property
    def is_empty(self) -> bool:
        return not self.files

    @property
    def count(self) -> int:
        return sum(map(len, self.files.values()))

    def __str__(self) -> str:
        if self.is_empty:
            return "nothing to clean in the metadata table"
        size = sum(file.size_bytes for files in self.files.values() for file in files)
        return f"delete {self.count:,} files of the metadata table, {size:,} bytes"

    def body(self) -> CleanerPlan:
        """Return it as the timeline keeps it."""
        return CleanerPlan(
            policy=_POLICY,
            earliest_kept=self.earliest.requested if self.earliest else None,
            earliest_action=self.earliest.action if self.earliest else None,
            last_completed=self.last_completed,
            files={p: tuple(split_path(file.path)[1] for file in files) for p, files in self.files.items()},
        )


def plan_metadata_clean(shards: Shards, *, keep_commits: int) -> MetadataCleanPlan:
    """Choose the files that go. Pure."""
    writes = sorted(shards.step.metadata.writes, key=lambda i: (i.completed or "", i.requested))
    if not writes:
        return MetadataCleanPlan(earliest=None, last_completed="", files={})
    earliest = min(writes[-keep_commits:])
    doomed: dict[str, list[FileStat]] = {}
    for (partition, _), files in shards.files.items():
        doomed.setdefault(partition, []).extend(_outdated(files, shards.step, earliest.requested))
    return MetadataCleanPlan(
        earliest=earliest,
        last_completed=writes[-1].requested,
        files={partition: tuple(sorted(files)) for partition, files in doomed.items() if files},
    )


def _outdated(files: tuple[FileStat, ...], step: Step, earliest: str) -> list[FileStat]:
    """Choose, of the files of a shard, those that readers as of `earliest`, or of later, do not see."""
    completions = {i.requested: i.completed or "" for i in step.metadata.writes}
    first = min(completions)
    oldest = min((instant for instant in completions if not is_own_instant(instant)), default="")
    on_timeline = {i.requested for i in (*step.table.instants, *step.metadata.instants)}
    names = {file: split_path(file.path)[1] for file in files}
    bases = {file: base.instant for file in files if (base := parse_index_base_file_name(names[file]))}
    counted = sorted({i for i in bases.values() if i in completions or i < first})
    early = [i for i in counted if i <= earliest]
    if not early or len(counted) <= KEEP_BASES:
        return []
    kept = min(early[-1], counted[-KEEP_BASES])
    found = [file for file, instant in bases.items() if instant < kept and instant not in _pending(step)]
    for file in files:
        log = parse_log_file_name(names[file])
        if log is None:
            continue
        is_archived = log.instant not in on_timeline and log.instant < min(oldest, kept)
        if is_archived or completions.get(log.instant, kept) < kept:
            found.append(file)
    return found


def _pending(step: Step) -> set[str]:
    return {i.requested for i in step.metadata.pending()}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataCleaned:
    """What a clean of the metadata table did; prints as a line."""

    instant: str
    files: int

    def __str__(self) -> str:
        return f"metadata clean {self.instant}: {self.files:,} files deleted"


def clean_metadata(
    store: Store, *, keep_commits: int = KEEP_COMMITS, clock: Clock | None = None
) -> tuple[MetadataCleaned, ...]:
    """Finish the cleans of the metadata table that were cut off; then plan and run another."""
    properties = load_properties(store)
    clock = clock or process_clock(properties.timeline_timezone)
    with table_lock(store, now_ms=clock.now_ms):
        claims, _ = settle(store, properties)
        properties = load_properties(store)
        if not is_listed(properties):
            return ()
        cleaner = _Cleaner(store, properties, clock, claims)
        done = [
            cleaned
            for pending in cleaner.look().step.metadata.pending(Action.CLEAN)
            if (cleaned := cleaner.finish(pending)) is not None
        ]
        shards = cleaner.look()
        plan = plan_metadata_clean(shards, keep_commits=keep_commits)
        if not plan.is_empty:
            instant = cleaner.next_time(shards.step)
            body = encode_cleaner_plan(plan.body(), root=f"{store.uri}/{METADATA_TABLE_FOLDER}")
            begin_instant(store, properties, instant, Action.CLEAN, plan=body)
            done.append(cleaner.carry_out(plan.body(), instant))
    return tuple(done)


@dataclass(frozen=True, slots=True)
class _Cleaner:
    """One who holds the table's lock."""

    store: Store
    properties: TableProperties
    clock: Clock
    claims: Claims

    def look(self) -> Shards:
        step = checked_step(self.store, self.properties)
        return list_shards(self.store, step, self.properties)

    def next_time(self, step: Step) -> str:
        latest = max(latest_time(step.table, self.claims), latest_metadata_time(step.metadata))
        return self.clock.next_instant(after=latest)

    def finish(self, pending: Instant) -> MetadataCleaned | None:
        """Do a clean that was cut off; one whose plan was not even written is taken off the timeline."""
        if not self._has_plan(pending):
            own = timeline_properties(self.properties)
            delete_pending(self.store, own, instant=pending.requested, action=Action.CLEAN)
            return None
        plan = read_cleaner_plan(self.store, pending)
        begin_instant(self.store, self.properties, pending.requested, Action.CLEAN)
        return self.carry_out(plan, pending.requested)

    def _has_plan(self, pending: Instant) -> bool:
        try:
            return self.store.stat(requested_path(pending)).size_bytes > 0
        except FileNotFoundError:
            return False

    def carry_out(self, plan: CleanerPlan, instant: str) -> MetadataCleaned:
        shards = self.look()
        needed = {
            file.path
            for part in shards.slices().values()
            for file in (*part.logs, *([part.base] if part.base else []))
        }
        paths = {p: [_checked(p, name) for name in names] for p, names in plan.files.items()}
        spared = {p: [split_path(f)[1] for f in files if f in needed] for p, files in paths.items()}
        doomed = [file for files in paths.values() for file in files if file not in needed]
        in_parallel(self.store.delete, doomed, self.store)
        body = encode_clean_metadata(plan, started=instant, taken_ms=0, spared=spared)
        end_instant(
            self.store,
            self.properties,
            instant,
            Action.CLEAN,
            completed=self.next_time(shards.step),
            body=body,
        )
        return MetadataCleaned(instant=instant, files=len(doomed))


def _checked(partition: str, name: str) -> str:
    """Return the path of a file that a plan names: of a shard, and of nothing else, whoever wrote the plan."""
    path = f"{folder_of(partition)}/{name}"
    check_path(path)
    if "/" in name or not (parse_index_base_file_name(name) or parse_log_file_name(name)):
        raise CorruptTableError(
            path=path,
            found=f"the file {name!r} in the plan of a clean of the metadata table",
            expected="a base file or a log of a shard",
            remedy="The plan is damaged. Delete its files from the timeline; the next clean makes another.",
        )
    return path
