"""Build an index of the metadata table that tells of every row, while writers go on: record-level or secondary.

    read     the keys of the entries of every file slice, a run per slice                by `Tasks`
    put      a base file per shard, of all runs; each is read again, and must hold what the slices told
    follow   file groups that have changed since are read again; a log per shard says what became of their keys
    list     the last such round under the table's lock, and the proof: as many keys in all shards, with the same sum,
             as the slices tell; then the delta commit of the index, its definition, and the table lists it

Nobody looks at the index before it is listed. Cut off, it goes on where it was, slice by slice, shard by shard. What is
decided is in `index_draft.py`, what tasks do in `index_tasks.py`, what differs from index to index in `index_kind.py`
and in `Listing`. Writers of ours who began before it was listed, or before it was listed again, do not commit after
that, and run again. Hudi's look when they begin, so while one of them is at work nothing is listed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from bucketlake.basefile import read_footer
from bucketlake.commit.claims import latest_time
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import is_overtaken, refuse_hudi
from bucketlake.commit.metadata_table import is_listed, latest_metadata_time, put_instant
from bucketlake.commit.publishing import settle
from bucketlake.config import RECORD_LEVEL, TableProperties, load_properties, update_properties
from bucketlake.errors import (
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    DamagedFileError,
    ProofError,
    UnsupportedError,
)
from bucketlake.index import NoIndex
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import INDEX_DEFINITIONS_PATH, WRITE_TOKEN, partition_metadata_path
from bucketlake.layout.partition_metadata import render_partition_metadata
from bucketlake.metadata.delta import built_index_commit
from bucketlake.metadata.index_definitions import DEFINITIONS_KEY, define
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import folder_of, timeline_properties
from bucketlake.metadata.record_shards import SHARDS_MAX
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.read import ReadPlan, make_query, plan_read
from bucketlake.services.index_draft import Draft, Shard, add_round, check_draft, end_draft, load_draft
from bucketlake.services.index_kind import IndexKind
from bucketlake.services.index_tasks import (
    Run,
    ShardTask,
    SliceTask,
    Told,
    leave_run,
    put_base,
    put_log,
    read_run,
    run_name,
    runs_folder,
    told_folder,
    total,
)
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.services.tasks import Tasks
from bucketlake.state import TableState, load_state
from bucketlake.storage import FileStat, Store, in_parallel, render_bytes
from bucketlake.timeline import Action, Clock, Timeline, delete_pending, instant_ms
from bucketlake.write.state import is_non_blocking

KEYS_PER_SHARD = 4_000_000
"""How many keys a shard is to have if nobody says how many shards there are."""
LOCKED_BYTES = 64 << 20
"""File groups of so many bytes may be read again while others wait to commit."""

_LOOKS = 8
_ROUNDS = 8


class Listing(Protocol):
    """How an index comes to be listed, and what a table says of it then."""

    __slots__ = ()

    @abstractmethod
    def is_over(self, properties: TableProperties) -> bool:
        """Tell whether a table lists the index, or will without this build."""

    @abstractmethod
    def is_spent(self, draft: Draft, properties: TableProperties) -> bool:
        """Tell whether an index was listed by this draft already, and who did so was cut off after that."""

    def refuse(self, store: Store, properties: TableProperties) -> None:  # noqa: ARG002 # for those who mind
        """Raise an error if it cannot be listed as the table is now. The table's lock is held."""
        return

    def shares_folder(self, properties: TableProperties) -> bool:  # noqa: ARG002 # for those who do
        """Tell whether files of an older index, by which somebody goes, are in its folder."""
        return False

    @abstractmethod
    def definition(self, draft: Draft) -> dict[str, Any]:
        """Return what `index.json` is to say of it."""

    @abstractmethod
    def changes(self, now: TableProperties, draft: Draft, completed: str) -> dict[str, str | None]:
        """Return the properties by which a table lists it."""

    def after(self, store: Store, properties: TableProperties) -> None:  # noqa: ARG002 # for those who have more to do
        """Do what is left once it counts."""
        return

    def give_up(self, store: Store) -> None:  # noqa: ARG002 # for those who have anything to take back
        """Leave a table as it was before the build."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBuild:
    """What building an index means."""

    table: str
    shards: int
    """In all."""
    rows: int
    """By the footers of base files; what logs add and take away is not counted."""
    file_slices: int
    with_logs: int
    """Slices that have logs."""
    slices_left: int
    """Those that are not read yet: an earlier build may have read some."""
    bytes_per_key: ClassVar[int]
    """What an entry takes, about."""

    @property
    def size_bytes(self) -> int:
        """About what it takes."""
        return self.bytes_per_key * self.rows

    def lines(self, *, of: str = "", per_key: str = "bytes per key") -> list[str]:
        """Say what is read and made; `of` is what of slices that are read already."""
        logs = f", and logs over {self.with_logs:,} of them" if self.with_logs else ""
        done = self.file_slices - self.slices_left
        return [
            f"  {self.rows:,} rows by the footers of {self.file_slices:,} file groups{logs}"
            + (f"; {of}{done:,} are read already" if done else ""),
            f"  {self.shards:,} shard{'' if self.shards == 1 else 's'}, about {render_bytes(self.size_bytes)} "
            f"({self.bytes_per_key} {per_key})",
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIndex:
    """An index that was built."""

    table: str
    shards: int
    entries: int
    size_bytes: int
    rounds: int
    """How often file groups that had changed meanwhile were read again."""
    completed: str

    def counted(self, what: str) -> str:
        shards = f"{self.shards:,} shard{'' if self.shards == 1 else 's'}"
        return f"{self.entries:,} {what} in {shards}, {self.size_bytes:,} bytes"


def work_of(state: TableState, plan: ReadPlan, draft: Draft) -> dict[str, Any]:
    """Count the file slices that a build reads, as `IndexBuild` has them."""
    runs, kind = runs_there(state.store, draft.kind), draft.kind
    names = (run_name(part, draft.shards_of(part.partition), kind) for part in plan.slices)
    return {
        "file_slices": len(plan.slices),
        "with_logs": sum(bool(part.log_files) for part in plan.slices),
        "slices_left": sum(name not in runs for name in names),
    }


def build_by(
    store: Store, draft: Draft, listing: Listing, *, tasks: Tasks, clock: Clock
) -> BuiltIndex | None:
    """Go on with a draft until the index is listed; None if another was faster."""
    try:
        draft = _read_all(store, draft, tasks)
        _put_rounds(store, draft, tasks)
        return _follow_and_list(store, draft, listing, tasks, clock)
    except (ProofError, UnsupportedError, CorruptTableError, ConfigError):
        throw_away(store, draft, listing)
        raise
    except (ConcurrentWriteError, FileNotFoundError) as fault:
        if listing.is_over(load_properties(store)):
            _sweep(store, draft, listing)
            return None  # another was faster, and took away what was left for tasks
        if isinstance(fault, ConcurrentWriteError):
            raise
        found = load_draft(store, draft.kind.partition).draft
        if found is not None and found.instant == draft.instant:
            throw_away(store, draft, listing)
        raise ConcurrentWriteError(
            f"{fault.filename} was deleted while the {draft.kind} of {store.uri} was built. Nothing was listed. Build "
            f"it again."
        ) from fault


def throw_away(store: Store, draft: Draft, listing: Listing) -> None:
    """Give a build up, so that the next begins anew."""
    with suppress(ConcurrentWriteError):
        listing.give_up(store)
    _sweep(store, draft, listing)


def _sweep(store: Store, draft: Draft, listing: Listing) -> None:
    """Delete what there is of a build that has listed nothing, and never will."""
    with table_lock(store):
        if not listing.is_spent(draft, load_properties(store)):
            files = store.list(folder_of(draft.kind.partition)).files
            mine = [f.path for f in files if f"_{draft.instant}." in f.path and WRITE_TOKEN in f.path]
            in_parallel(store.delete, mine, store)
        end_draft(store, draft)


def shards_for(rows: int) -> int:
    """Return how many shards an index of so many keys needs."""
    return min(SHARDS_MAX, -(-rows // KEYS_PER_SHARD))


# ----------------------------------------------------------------------------------------------------- look, read, put


def plan_slices(state: TableState, kind: IndexKind) -> ReadPlan:
    return plan_read(state, make_query(state, columns=kind.columns), NoIndex())


def look_at_slices(store: Store, kind: IndexKind) -> tuple[TableState, ReadPlan]:
    """Look at all file slices; again where others have taken something away meanwhile."""
    for looks_left in reversed(range(_LOOKS)):
        try:
            state = load_state(store)
            return state, plan_slices(state, kind)
        except (DamagedFileError, FileNotFoundError):
            if not looks_left:
                raise
    raise AssertionError("the last look returns or raises")


def rows_by_partition(store: Store, slices: Iterable[FileSlice]) -> dict[str, int]:
    def count(part: FileSlice) -> int:
        return 0 if part.base_file is None else read_footer(store, part.base_file.path).row_count

    slices = list(slices)
    found: dict[str, int] = {}
    for part, rows in zip(slices, in_parallel(count, slices, store), strict=True):
        found[part.partition] = found.get(part.partition, 0) + rows
    return found


def runs_there(store: Store, kind: IndexKind) -> frozenset[str]:
    names = (file.path.rpartition("/")[2] for file in store.list(runs_folder(kind)).files)
    return frozenset(name.removesuffix(".arrow") for name in names)


def _read_all(store: Store, draft: Draft, tasks: Tasks) -> Draft:
    """Read all file slices, unless that is done."""
    if draft.rounds:
        return draft
    for _ in range(_LOOKS):
        runs = runs_of(store, draft, look_at_slices(store, draft.kind), tasks)
        if runs is not None:
            return add_round(store, draft, runs)
    raise _restless(store, draft)


def runs_of(
    store: Store,
    draft: Draft,
    seen: tuple[TableState, ReadPlan],
    tasks: Tasks,
    only: Iterable[FileGroupId] | None = None,
) -> dict[FileGroupId, Run] | None:
    """Read the file slices of all groups, or of some, that have no run yet; None if files of one are gone by now."""
    state, plan = seen
    chosen = None if only is None else set(only)
    zone = state.properties.timeline_timezone
    work = {
        (part.partition, part.file_id): SliceTask(
            kind=draft.kind,
            context=plan.context,
            slice=part,
            shards=draft.shards_of(part.partition),
            instant_ms=instant_ms(part.instant, zone),
            is_needed=draft.kind.knows_places and state.properties.engine in RECORD_LEVEL,
        )
        for part in plan.slices
        if chosen is None or (part.partition, part.file_id) in chosen
    }
    there = runs_there(store, draft.kind)
    names = {group: task.name for group, task in work.items()}
    left = [task for group, task in work.items() if names[group] not in there]
    done = tasks(leave_run, left)
    if any(run is None for run in done):
        return None
    runs = {run.name: run for run in done if run is not None}
    known = sorted(set(names.values()) - runs.keys())
    runs |= {
        run.name: run for run in in_parallel(lambda name: read_run(store, draft.kind, name), known, store)
    }
    return {group: runs[name] for group, name in names.items()}


def _put_rounds(store: Store, draft: Draft, tasks: Tasks) -> dict[tuple[str, int], Told]:
    """Put the files of all shards that are not there yet, round after round; return what was told of all of them."""
    there = {file.path: file for file in store.list(folder_of(draft.kind.partition)).files}
    told = _told_before(store, draft, there)
    for round_ in range(len(draft.rounds)):
        shards = [shard for shard in draft.shards_in(round_) if (shard.file_id, round_) not in told]
        work = [_shard_task(store, draft, shard, round_, told, there) for shard in shards]
        put = tasks(put_base if round_ == 0 else put_log, work)
        told |= {(one.file_id, one.round): one for one in put}
        if put and round_ + 1 < len(draft.rounds):
            there = {file.path: file for file in store.list(folder_of(draft.kind.partition)).files}
    return told


def _told_before(store: Store, draft: Draft, there: Mapping[str, FileStat]) -> dict[tuple[str, int], Told]:
    """Read what was put by an earlier run, as far as it is there."""
    paths = [file.path for file in store.list(told_folder(draft.kind, draft.instant)).files]
    found = in_parallel(lambda path: Told.of_json(store.read(path)), paths, store)
    return {
        (told.file_id, told.round): told
        for told in found
        if all(f.path in there and there[f.path].size_bytes == f.size_bytes for f in told.files)
    }


def _shard_task(
    store: Store,
    draft: Draft,
    shard: Shard,
    round_: int,
    told: Mapping[tuple[str, int], Told],
    there: Mapping[str, FileStat],
) -> ShardTask:
    changed = {
        group: run for group, run in draft.rounds[round_].items() if shard.partition in (None, group[0])
    }
    was = draft.groups(before=round_)
    runs = [run for run in changed.values() if run is not None and run.keys.rows]
    outdated = [was[group] for group in changed if group in was and was[group].keys.rows]
    files = [f for number in range(round_) for f in _files_told(told, shard.file_id, number)]
    bases = [there[path] for path in files if path.endswith(".hfile")]
    logs = tuple(there[path] for path in files if not path.endswith(".hfile"))
    rows = sum(run.keys.rows for run in (*runs, *outdated))
    return ShardTask(
        kind=draft.kind,
        store=store,
        instant=draft.instant,
        file_id=shard.file_id,
        shard=shard.number,
        runs=tuple(run.name for run in runs),
        size_bytes=draft.kind.bytes_per_entry * rows // draft.shards,
        round=round_,
        outdated=tuple(run.name for run in outdated),
        before=ShardSlice(bases[0] if bases else None, logs) if files else None,
    )


def _files_told(told: Mapping[tuple[str, int], Told], file_id: str, round_: int) -> list[str]:
    found = told.get((file_id, round_))
    return [] if found is None else [file.path for file in found.files]


# ---------------------------------------------------------------------------------------------------- follow, list


def _follow_and_list(
    store: Store, draft: Draft, listing: Listing, tasks: Tasks, clock: Clock
) -> BuiltIndex | None:
    """Take in what was written since, until it is little enough to do so while others wait; then list the index."""
    for rounds_left in reversed(range(_ROUNDS)):
        # A plan that names the files of an older index must be done with before this one is there.
        compact_metadata(store, is_due=False, tasks=tasks, clock=clock)
        seen = look_at_slices(store, draft.kind)
        changed = _changed(draft, seen[1].slices)
        if rounds_left and sum(part.size_bytes for part in changed.values() if part) > LOCKED_BYTES:
            draft = _take_in(store, draft, seen, changed, tasks) or draft
            continue
        with table_lock(store, now_ms=clock.now_ms) as held:
            if listing.is_over(load_properties(store)):
                _sweep(store, draft, listing)
                return None  # another was faster
            check_draft(store, draft)
            listed = _list(store, held, draft, listing, tasks, clock)
        if isinstance(listed, BuiltIndex):
            end_draft(store, load_draft(store, draft.kind.partition).draft or draft)
            return listed
        draft = listed
    raise _restless(store, draft)


def _changed(draft: Draft, slices: Iterable[FileSlice]) -> dict[FileGroupId, FileSlice | None]:
    """Find the file groups that are not as they were read."""
    known = {group: run.name for group, run in draft.groups().items()}
    now = {(part.partition, part.file_id): part for part in slices}
    gone: dict[FileGroupId, FileSlice | None] = {group: None for group in known if group not in now}
    return gone | {
        group: part
        for group, part in now.items()
        if known.get(group) != run_name(part, draft.shards_of(part.partition), draft.kind)
    }


def _take_in(
    store: Store,
    draft: Draft,
    seen: tuple[TableState, ReadPlan],
    changed: Mapping[FileGroupId, FileSlice | None],
    tasks: Tasks,
) -> Draft | None:
    """Read file groups again that have changed, and put what became of their keys; None if they change meanwhile."""
    runs = runs_of(store, draft, seen, tasks, only=changed)
    if runs is None:
        return None
    draft = add_round(store, draft, {group: runs.get(group) for group in changed})
    _put_rounds(store, draft, tasks)
    return draft


def _list(
    store: Store, held: Store, draft: Draft, listing: Listing, tasks: Tasks, clock: Clock
) -> BuiltIndex | Draft:
    """Take in the rest, prove, and list; the draft as far as it came if others went on.

    For who holds the lock: `held` is the store as long as he does.
    """
    properties, kind = load_properties(store), draft.kind
    claims, timeline = settle(store, properties)
    refuse_others(store, properties, timeline, kind)
    listing.refuse(store, properties)
    own = load_metadata_timeline(store, properties)
    if own.pending(Action.COMPACTION):
        return draft
    seen = look_at_slices(store, kind)
    changed = _changed(draft, seen[1].slices)
    if changed:
        further = _take_in(store, draft, seen, changed, tasks)
        if further is None:
            return draft
        draft = further
    told = _put_rounds(store, draft, tasks)
    check_told(draft, told)
    files = {file.path: file for one in told.values() for file in one.files}
    there = {file.path: file.size_bytes for file in store.list(folder_of(kind.partition)).files}
    if any(there.get(path) != file.size_bytes for path, file in files.items()):
        return draft
    if not listing.shares_folder(properties):
        # Shards are counted by listing: what an older index has left goes.
        in_parallel(held.delete, sorted(there.keys() - files.keys()), store)
    take_off(held, properties, own, draft.instant)
    completed = clock.next_instant(after=max(latest_time(timeline, claims), latest_metadata_time(own)))
    marker = partition_metadata_path(folder_of(kind.partition))
    held.put(marker, render_partition_metadata(draft.instant, 1))
    body = built_index_commit(files[path] for path in sorted(files))
    put_instant(held, properties, draft.instant, Action.DELTA_COMMIT, completed=completed, body=body)
    define(held, kind.partition, listing.definition(draft))
    if is_overtaken(store, properties, claims, timeline):
        return draft
    now = load_properties(store)
    changes = {DEFINITIONS_KEY: INDEX_DEFINITIONS_PATH, **listing.changes(now, draft, completed)}
    listing.after(held, update_properties(held, changes))
    return BuiltIndex(
        table=store.uri,
        shards=len({file_id for file_id, _ in told}),
        entries=draft.keys.rows,
        size_bytes=sum(file.size_bytes for file in files.values()),
        rounds=len(draft.rounds) - 1,
        completed=completed,
    )


def check_told(draft: Draft, told: Mapping[tuple[str, int], Told]) -> None:
    """The proof: all shards together have grown to what the file slices tell, and none is left out."""
    wanted = {(shard.file_id, n) for n in range(len(draft.rounds)) for shard in draft.shards_in(n)}
    found = total(one.keys for one in told.values())
    if wanted != told.keys() or found != draft.keys:
        raise ProofError(
            f"the index would have {found.rows:,} keys with the sum {found.key_hash_sum} in {len(told):,} files, and "
            f"the file slices tell of {draft.keys.rows:,} with {draft.keys.key_hash_sum}. Nothing was listed. Build it "
            f"again: what there is of it is thrown away."
        )


def refuse_keyless(state: TableState, kind: str) -> None:
    """Refuse an index of a table whose files do not say which key a row has."""
    if not state.properties.has_meta_columns or not state.properties.record_key_fields:
        raise UnsupportedError(
            subject=f"the keys of {state.store.uri}",
            found="not stored in its files, or made up by who wrote them",
            supported=f"{kind} indexes of tables that store keys of their own",
            remedy="Read the table without one.",
        )


def refuse_non_blocking(state: TableState, kind: str) -> None:
    """Refuse an index of a table in which two writers may bring one key, and neither is run again."""
    if is_non_blocking(state.properties):
        raise UnsupportedError(
            subject=f"the table {state.store.uri}",
            found="non-blocking: of two writers that bring a key, none knows whether it is new",
            supported=f"{kind} indexes of tables whose writers wait for each other",
            remedy="Read with filters on partitions and keys; or make a table without non_blocking, and copy the rows.",
        )


def refuse_others(store: Store, properties: TableProperties, timeline: Timeline, kind: IndexKind) -> None:
    """Refuse to list an index while others are at work who would not tell it, or its metadata table is gone."""
    if not is_listed(properties):
        raise ConcurrentWriteError(
            f"the metadata table of {store.uri} was delisted meanwhile. The {kind} was not listed. Build "
            f"both again: table.metadata.build()."
        )
    refuse_hudi(store, timeline)
    for undoing in timeline.pending(Action.ROLLBACK, Action.RESTORE):
        raise ConcurrentWriteError(
            f"the {kind} of {store.uri} is not listed while the {undoing.action} of {undoing.requested} is pending. "
            f"Build it again when that is done, to go on; if its process died, the next write finishes it."
        )


def take_off(store: Store, properties: TableProperties, own: Timeline, instant: str) -> None:
    """Take the instant off the metadata table's timeline if a build was cut off before it was listed."""
    for found in own.instants:
        if found.requested == instant and found.is_completed:
            store.delete(found.path)
    if any(found.requested == instant for found in own.instants):
        delete_pending(store, timeline_properties(properties), instant=instant, action=Action.DELTA_COMMIT)


def _restless(store: Store, draft: Draft) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"the {draft.kind} of {store.uri} was not listed: others went on, or took commits back, {_ROUNDS} times. "
        f"Build it again to go on when they are done."
    )
