"""Build the record-level index of a table that has rows, while writers go on.

    read     the keys of every file slice, a run per slice                               by `Tasks`
    put      a base file per shard, of all runs; each is read again, and must hold what the slices told
    follow   file groups that have changed since are read again; a log per shard says what became of their keys
    list     the last such round under the table's lock, and the proof: as many keys in all shards, with the same sum,
             as the slices tell; then the delta commit of the index, its definition, and the table lists it

Nobody looks at the index before it is listed. Cut off, it goes on where it was, slice by slice, shard by shard. What is
decided is in `record_index_draft.py`, what tasks do in `record_index_tasks.py`. Writers of ours who began before it was
listed, or before it was listed again, do not commit after that, and run again. Hudi's look when they begin, so while
one of them is at work nothing is listed.

A table that finds its keys by the index takes no writes until it is listed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bucketlake.basefile import read_footer
from bucketlake.commit.claims import latest_time
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import check_buildable, is_overtaken, refuse_hudi
from bucketlake.commit.metadata_table import (
    INDEX_BUILT,
    LISTED,
    delist_index,
    is_listed,
    latest_metadata_time,
    put_instant,
    wanted_partitions,
)
from bucketlake.commit.publishing import settle
from bucketlake.config import RECORD_LEVEL, IndexType, TableProperties, load_properties, update_properties
from bucketlake.errors import (
    BucketlakeError,
    ConcurrentWriteError,
    ConfigError,
    CorruptTableError,
    DamagedFileError,
    ProofError,
    UnsupportedError,
)
from bucketlake.index import NoIndex
from bucketlake.index.record_level import (
    SHARDS_DEFAULT,
    SHARDS_KEY,
    RecordIndex,
    check_record_index,
    stored_record_index,
)
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import INDEX_DEFINITIONS_PATH, partition_metadata_path
from bucketlake.layout.partition_metadata import render_partition_metadata
from bucketlake.metadata.delta import built_record_commit
from bucketlake.metadata.index_definitions import (
    DEFINITIONS_KEY,
    define,
    definitions,
    forget_definition,
    is_record_index_partitioned,
    record_index_definition,
)
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import RECORD_INDEX, WANTED, folder_of, timeline_properties
from bucketlake.metadata.record_shards import SHARDS_MAX
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.read import ReadPlan, make_query, plan_read
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.services.record_index_draft import (
    Draft,
    Shard,
    add_round,
    begin_draft,
    check_draft,
    end_draft,
    load_draft,
)
from bucketlake.services.record_index_tasks import (
    RUNS_FOLDER,
    TOLD_FOLDER,
    Run,
    ShardTask,
    SliceTask,
    Told,
    leave_run,
    put_base,
    put_log,
    read_run,
    run_name,
    total,
)
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, load_state
from bucketlake.storage import FileStat, Store, in_parallel, render_bytes
from bucketlake.timeline import Action, Clock, Timeline, delete_pending, instant_ms, process_clock

BYTES_PER_KEY = 27
"""What an entry takes in a base file, about."""
KEYS_PER_SHARD = 4_000_000
"""How many keys a shard is to have if nobody says how many shards there are."""
LOCKED_BYTES = 64 << 20
"""File groups of so many bytes may be read again while others wait to commit."""

_LOOKS = 8
_ROUNDS = 8
_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordIndexBuild:
    """What building a record-level index means; prints as a few lines."""

    table: str
    per_partition: bool
    shards: int
    """In all."""
    rows: int
    """By the footers of base files; what logs add and take away is not counted."""
    file_slices: int
    with_logs: int
    """Slices that have logs."""
    slices_left: int
    """Those whose keys are not read yet: an earlier build may have read some."""
    delists: bool = False
    """Whether the table has one, which gives way."""

    @property
    def size_bytes(self) -> int:
        """About what it takes."""
        return BYTES_PER_KEY * self.rows

    def __str__(self) -> str:
        of = "for each partition" if self.per_partition else "of the whole table"
        logs = f", and logs over {self.with_logs:,} of them" if self.with_logs else ""
        done = self.file_slices - self.slices_left
        lines = [f"delist {RECORD_INDEX} of {self.table}"] if self.delists else []
        lines += [
            f"build a record-level index of {self.table}, {of}:",
            f"  {self.rows:,} rows by the footers of {self.file_slices:,} file groups{logs}"
            + (f"; the keys of {done:,} are read already" if done else ""),
            f"  {self.shards:,} shard{'' if self.shards == 1 else 's'}, about {render_bytes(self.size_bytes)} "
            f"({BYTES_PER_KEY} bytes per key)",
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltRecordIndex:
    """A record-level index that was built; prints as a line."""

    table: str
    per_partition: bool
    shards: int
    entries: int
    size_bytes: int
    rounds: int
    """How often file groups that had changed meanwhile were read again."""
    completed: str

    def __str__(self) -> str:
        of = "for each partition" if self.per_partition else "of the whole table"
        return (
            f"{self.table} has a record-level index now, {of}: {self.entries:,} keys in {self.shards:,} "
            f"shard{'' if self.shards == 1 else 's'}, {self.size_bytes:,} bytes"
        )


def wanted_index(store: Store, properties: TableProperties) -> RecordIndex | None:
    """Return the index that a table has, or is to have again; None if it wants none."""
    if properties.engine in RECORD_LEVEL:
        return stored_record_index(properties)
    if RECORD_INDEX not in (*properties.metadata_partitions, *wanted_partitions(properties)):
        return None
    said = properties.raw.get(SHARDS_KEY, "").strip()
    return RecordIndex(
        per_partition=bool(is_record_index_partitioned(store)),
        shards=int(said) if said.isdigit() and int(said) else None,
    )


def is_index_wanted(properties: TableProperties) -> bool:
    """Tell whether a table is to have an index, and does not list it."""
    if RECORD_INDEX in properties.metadata_partitions:
        return False
    return properties.engine in RECORD_LEVEL or RECORD_INDEX in wanted_partitions(properties)


def check_index(state: TableState, index: RecordIndex) -> None:
    """Refuse an index that a table cannot have."""
    check_buildable(state)
    check_record_index(index)
    properties, uri = state.properties, state.store.uri
    if not properties.has_meta_columns or not properties.record_key_fields:
        raise UnsupportedError(
            subject=f"the keys of {uri}",
            found="not stored in its files, or made up by who wrote them",
            supported="record-level indexes of tables that store keys of their own",
            remedy="Read the table without one.",
        )
    if properties.engine in RECORD_LEVEL:
        is_said = properties.engine == IndexType.RECORD_LEVEL_INDEX
        if index.per_partition != is_said:
            raise ConfigError(
                f"{uri} finds its keys by a record-level index {'for each partition' if is_said else 'of the table'}; "
                f"leave per_partition out, or say {is_said}."
            )


def refuse_other_index(state: TableState, asked: RecordIndex) -> None:
    """Refuse to build an index where there is another."""
    has = wanted_index(state.store, state.properties)
    if has is not None and (
        has.per_partition != asked.per_partition or asked.shards not in (None, has.shards)
    ):
        raise ConfigError(
            f"{state.store.uri} has a record-level index, and not the one that is asked for: {has}. For more shards: "
            f"table.metadata.grow_record_index(shards=N); else drop it first: table.metadata.drop(record_index=True)."
        )


def plan_record_index(state: TableState, index: RecordIndex, *, delists: bool = False) -> RecordIndexBuild:
    """Say what a build would read and make. Reads the footers of all base files."""
    check_index(state, index)
    plan = _plan(state)
    rows = _rows_by_partition(state.store, plan.slices)
    shards, sized = _sizes(index, rows)
    draft = Draft(instant="", per_partition=index.per_partition, shards=shards, sized=sized)
    runs = _runs_there(state.store)
    left = [part for part in plan.slices if run_name(part, draft.shards_of(part.partition)) not in runs]
    in_all = sum(draft.shards_of(partition) for partition in rows) if index.per_partition else shards
    return RecordIndexBuild(
        table=state.store.uri,
        per_partition=index.per_partition,
        shards=in_all,
        rows=sum(rows.values()),
        file_slices=len(plan.slices),
        with_logs=sum(bool(part.log_files) for part in plan.slices),
        slices_left=len(left),
        delists=delists,
    )


def build_record_index(
    store: Store, asked: RecordIndex | None = None, *, tasks: Tasks = here, clock: Clock | None = None
) -> BuiltRecordIndex | None:
    """Build the index and list it; None if one is listed already. Goes on with a build that was cut off.

    `asked` is what a caller wants; None: what is being built, or what the table says. `files` is listed before.
    """
    state = load_state(store)
    properties = state.properties
    if RECORD_INDEX in properties.metadata_partitions:
        left = load_draft(store).draft
        if left is not None and _is_spent(left, properties):
            end_draft(store, left)
        return None
    draft = _begun(state, asked)
    clock = clock or process_clock(properties.timeline_timezone)
    try:
        draft = _read_all(store, draft, tasks)
        _put_rounds(store, draft, tasks)
        return _follow_and_list(store, draft, tasks, clock)
    except (ProofError, UnsupportedError, CorruptTableError, ConfigError):
        throw_away(store, draft)
        raise
    except (ConcurrentWriteError, FileNotFoundError) as fault:
        if RECORD_INDEX in load_properties(store).metadata_partitions:
            return None  # another was faster, and took away what was left for tasks
        if isinstance(fault, ConcurrentWriteError):
            raise
        found = load_draft(store).draft
        if found is not None and found.instant == draft.instant:
            throw_away(store, draft)
        raise ConcurrentWriteError(
            f"{fault.filename} was deleted while the record-level index of {store.uri} was built. Nothing was listed. "
            f"Build it again."
        ) from fault


def grow_record_index(
    store: Store, shards: int, *, tasks: Tasks = here, clock: Clock | None = None
) -> BuiltRecordIndex | None:
    """Build the index that a table has anew, with another number of shards.

    The keys are read, and cut, while the old index is there. Then it is delisted, for Hudi and for us, until the new
    one is listed: Hudi counts shards by listing one folder, so there is no room for two. A table that finds its keys by
    the index takes no writes meanwhile; in this version of bucketlake its writers are refused, and told so.
    """
    state = load_state(store)
    index = grown_index(state, shards)
    if RECORD_INDEX in state.properties.metadata_partitions:
        # A draft of the same kind is gone on with: its runs are cut as these are to be.
        draft = _begun(state, index)
        if not draft.rounds:
            _runs_of(store, draft, _look(store), tasks)
        with table_lock(store):
            check_draft(store, draft)
            delist_index(store)
    return build_record_index(store, index, tasks=tasks, clock=clock)


def grown_index(state: TableState, shards: int) -> RecordIndex:
    """Return the index that a table has, with another number of shards; `ConfigError` if it has none."""
    has = wanted_index(state.store, state.properties)
    if has is None:
        raise ConfigError(
            f"{state.store.uri} has no record-level index that could get more shards. Build one: "
            f"table.metadata.build(record_index=True, shards={shards})."
        )
    index = RecordIndex(per_partition=has.per_partition, shards=shards)
    check_index(state, index)
    return index


def drop_record_index(store: Store) -> tuple[str, ...]:
    """Delist the index of a table that does without, and delete it; return what was deleted."""
    with table_lock(store):
        properties = load_properties(store)
        refuse_drop(store, properties)
        found = load_draft(store).draft
        if found is not None:
            end_draft(store, found)
        delist_index(store)
        files = store.list(folder_of(RECORD_INDEX), recursive=True).files
        in_parallel(store.delete, [file.path for file in files], store)
        forget_definition(store, RECORD_INDEX)
        rest = set(wanted_partitions(load_properties(store))) - {RECORD_INDEX}
        changes = {WANTED: ",".join(sorted(rest)) or None, SHARDS_KEY: None, INDEX_BUILT: None}
        if not definitions(store):
            changes[DEFINITIONS_KEY] = None
            store.delete(INDEX_DEFINITIONS_PATH)
        update_properties(store, changes)
    return tuple(file.path for file in files)


def refuse_drop(store: Store, properties: TableProperties) -> None:
    """Refuse to drop an index by which a table finds its keys."""
    if properties.engine in RECORD_LEVEL:
        raise ConfigError(
            f"{store.uri} finds its keys by its record-level index, and could not be written without. To make it anew: "
            f"table.metadata.rebuild()."
        )


def build_wanted_index(
    store: Store, *, tasks: Tasks = here, clock: Clock | None = None
) -> BuiltRecordIndex | None:
    """Build the index that a table has lost to a rollback or restore, or whose build was cut off, if that is possible.

    It fails nobody: what the caller was about is done, and who needs the index is told that it is not there.
    """
    properties = load_properties(store)
    if not is_listed(properties) or not is_index_wanted(properties):
        return None
    try:
        return build_record_index(store, tasks=tasks, clock=clock)
    except BucketlakeError as fault:
        _log.warning("%s: its record-level index was not built: %s", store.uri, fault)
        return None


def throw_away(store: Store, draft: Draft) -> None:
    """Give a build up, so that the next begins anew."""
    with table_lock(store):
        if RECORD_INDEX not in load_properties(store).metadata_partitions:
            files = store.list(folder_of(RECORD_INDEX)).files
            mine = [file.path for file in files if f"_{draft.instant}." in file.path]
            in_parallel(store.delete, mine, store)
        end_draft(store, draft)


# ----------------------------------------------------------------------------------------------- begin, read, put


def _begun(state: TableState, asked: RecordIndex | None) -> Draft:
    """Return the draft to go on with, or a new one."""
    store, properties = state.store, state.properties
    index = asked or wanted_index(store, properties)
    if index is None:
        raise ConfigError(f"{store.uri} wants no record-level index. Ask for one.")
    check_index(state, index)
    draft = load_draft(store).draft
    if draft is not None and not _is_spent(draft, properties):
        is_that = draft.per_partition == index.per_partition
        if is_that and (asked is None or asked.shards in (None, draft.shards)):
            return draft
    rows: Mapping[str, int] = {}
    if index.shards is None:
        rows = _rows_by_partition(store, _plan(state).slices)
    shards, sized = _sizes(index, rows)
    return begin_draft(store, properties, per_partition=index.per_partition, shards=shards, sized=sized)


def _is_spent(draft: Draft, properties: TableProperties) -> bool:
    """Tell whether an index was listed by this draft already, and who did so was cut off after that."""
    return properties.raw.get(INDEX_BUILT, "").startswith(f"{draft.instant}_")


def _sizes(index: RecordIndex, rows: Mapping[str, int]) -> tuple[int, dict[str, int]]:
    """Return how many shards there are to be, and which partitions get another number."""
    if index.shards is not None:
        return index.shards, {}

    def enough_for(count: int) -> int:
        return min(SHARDS_MAX, -(-count // KEYS_PER_SHARD))

    if index.per_partition:
        return 1, {p: n for p, count in rows.items() if (n := enough_for(count)) > 1}
    return max(SHARDS_DEFAULT, enough_for(sum(rows.values()))), {}


def _plan(state: TableState) -> ReadPlan:
    return plan_read(state, make_query(state, columns=[RECORD_KEY_COLUMN]), NoIndex())


def _look(store: Store) -> tuple[TableState, ReadPlan]:
    """Look at all file slices; again where others have taken something away meanwhile."""
    for looks_left in reversed(range(_LOOKS)):
        try:
            state = load_state(store)
            return state, _plan(state)
        except (DamagedFileError, FileNotFoundError):
            if not looks_left:
                raise
    raise AssertionError("the last look returns or raises")


def _rows_by_partition(store: Store, slices: Iterable[FileSlice]) -> dict[str, int]:
    def count(part: FileSlice) -> int:
        return 0 if part.base_file is None else read_footer(store, part.base_file.path).row_count

    slices = list(slices)
    found: dict[str, int] = {}
    for part, rows in zip(slices, in_parallel(count, slices, store), strict=True):
        found[part.partition] = found.get(part.partition, 0) + rows
    return found


def _runs_there(store: Store) -> frozenset[str]:
    names = (file.path.rpartition("/")[2] for file in store.list(RUNS_FOLDER).files)
    return frozenset(name.removesuffix(".arrow") for name in names)


def _read_all(store: Store, draft: Draft, tasks: Tasks) -> Draft:
    """Read all file slices, unless that is done."""
    if draft.rounds:
        return draft
    for _ in range(_LOOKS):
        runs = _runs_of(store, draft, _look(store), tasks)
        if runs is not None:
            return add_round(store, draft, runs)
    raise _restless(store)


def _runs_of(
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
            context=plan.context,
            slice=part,
            shards=draft.shards_of(part.partition),
            instant_ms=instant_ms(part.instant, zone),
            is_needed=state.properties.engine in RECORD_LEVEL,
        )
        for part in plan.slices
        if chosen is None or (part.partition, part.file_id) in chosen
    }
    there = _runs_there(store)
    names = {group: task.name for group, task in work.items()}
    left = [task for group, task in work.items() if names[group] not in there]
    done = tasks(leave_run, left)
    if any(run is None for run in done):
        return None
    runs = {run.name: run for run in done if run is not None}
    known = sorted(set(names.values()) - runs.keys())
    runs |= {run.name: run for run in in_parallel(lambda name: read_run(store, name), known, store)}
    return {group: runs[name] for group, name in names.items()}


def _put_rounds(store: Store, draft: Draft, tasks: Tasks) -> dict[tuple[str, int], Told]:
    """Put the files of all shards that are not there yet, round after round; return what was told of all of them."""
    there = {file.path: file for file in store.list(folder_of(RECORD_INDEX)).files}
    told = _told_before(store, draft, there)
    for round_ in range(len(draft.rounds)):
        shards = [shard for shard in draft.shards_in(round_) if (shard.file_id, round_) not in told]
        work = [_shard_task(store, draft, shard, round_, told, there) for shard in shards]
        put = tasks(put_base if round_ == 0 else put_log, work)
        told |= {(one.file_id, one.round): one for one in put}
        if put and round_ + 1 < len(draft.rounds):
            there = {file.path: file for file in store.list(folder_of(RECORD_INDEX)).files}
    return told


def _told_before(store: Store, draft: Draft, there: Mapping[str, FileStat]) -> dict[tuple[str, int], Told]:
    """Read what was put by an earlier run, as far as it is there."""
    paths = [file.path for file in store.list(f"{TOLD_FOLDER}/{draft.instant}").files]
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
        store=store,
        instant=draft.instant,
        file_id=shard.file_id,
        shard=shard.number,
        is_global=not draft.per_partition,
        runs=tuple(run.name for run in runs),
        size_bytes=BYTES_PER_KEY * rows // draft.shards,
        round=round_,
        outdated=tuple(run.name for run in outdated),
        before=ShardSlice(bases[0] if bases else None, logs) if files else None,
    )


def _files_told(told: Mapping[tuple[str, int], Told], file_id: str, round_: int) -> list[str]:
    found = told.get((file_id, round_))
    return [] if found is None else [file.path for file in found.files]


# ---------------------------------------------------------------------------------------------------- follow, list


def _follow_and_list(store: Store, draft: Draft, tasks: Tasks, clock: Clock) -> BuiltRecordIndex | None:
    """Take in what was written since, until it is little enough to do so while others wait; then list the index."""
    for rounds_left in reversed(range(_ROUNDS)):
        # A plan that names the files of an older index must be done with before this one is there.
        compact_metadata(store, is_due=False, tasks=tasks, clock=clock)
        seen = _look(store)
        changed = _changed(draft, seen[1].slices)
        if rounds_left and sum(part.size_bytes for part in changed.values() if part) > LOCKED_BYTES:
            draft = _take_in(store, draft, seen, changed, tasks) or draft
            continue
        with table_lock(store, now_ms=clock.now_ms):
            if RECORD_INDEX in load_properties(store).metadata_partitions:
                return None  # another was faster
            check_draft(store, draft)
            listed = _list(store, draft, tasks, clock)
        if isinstance(listed, BuiltRecordIndex):
            end_draft(store, load_draft(store).draft or draft)
            return listed
        draft = listed
    raise _restless(store)


def _changed(draft: Draft, slices: Iterable[FileSlice]) -> dict[FileGroupId, FileSlice | None]:
    """Find the file groups that are not as they were read."""
    known = {group: run.name for group, run in draft.groups().items()}
    now = {(part.partition, part.file_id): part for part in slices}
    gone: dict[FileGroupId, FileSlice | None] = {group: None for group in known if group not in now}
    return gone | {
        group: part
        for group, part in now.items()
        if known.get(group) != run_name(part, draft.shards_of(part.partition))
    }


def _take_in(
    store: Store,
    draft: Draft,
    seen: tuple[TableState, ReadPlan],
    changed: Mapping[FileGroupId, FileSlice | None],
    tasks: Tasks,
) -> Draft | None:
    """Read file groups again that have changed, and put what became of their keys; None if they change meanwhile."""
    runs = _runs_of(store, draft, seen, tasks, only=changed)
    if runs is None:
        return None
    draft = add_round(store, draft, {group: runs.get(group) for group in changed})
    _put_rounds(store, draft, tasks)
    return draft


def _list(store: Store, draft: Draft, tasks: Tasks, clock: Clock) -> BuiltRecordIndex | Draft:
    """Take in the rest, prove, and list; the draft as far as it came if others went on. For who holds the lock."""
    properties = load_properties(store)
    claims, timeline = settle(store, properties)
    _refuse_others(store, properties, timeline)
    own = load_metadata_timeline(store, properties)
    if own.pending(Action.COMPACTION):
        return draft
    seen = _look(store)
    changed = _changed(draft, seen[1].slices)
    if changed:
        further = _take_in(store, draft, seen, changed, tasks)
        if further is None:
            return draft
        draft = further
    told = _put_rounds(store, draft, tasks)
    check_told(draft, told)
    files = {file.path: file for one in told.values() for file in one.files}
    there = {file.path: file.size_bytes for file in store.list(folder_of(RECORD_INDEX)).files}
    if any(there.get(path) != file.size_bytes for path, file in files.items()):
        return draft
    # Shards are counted by listing: what an older index has left goes.
    in_parallel(store.delete, sorted(there.keys() - files.keys()), store)
    _take_off(store, properties, own, draft.instant)
    completed = clock.next_instant(after=max(latest_time(timeline, claims), latest_metadata_time(own)))
    marker = partition_metadata_path(folder_of(RECORD_INDEX))
    store.put(marker, render_partition_metadata(draft.instant, 1))
    body = built_record_commit(files[path] for path in sorted(files))
    put_instant(store, properties, draft.instant, Action.DELTA_COMMIT, completed=completed, body=body)
    define(store, RECORD_INDEX, record_index_definition(is_partitioned=draft.per_partition))
    if is_overtaken(store, properties, claims, timeline):
        return draft
    now = load_properties(store)
    rest = set(wanted_partitions(now)) - {RECORD_INDEX}
    changes = {
        LISTED: ",".join(sorted({*now.metadata_partitions, RECORD_INDEX})),
        WANTED: ",".join(sorted(rest)) or None,
        DEFINITIONS_KEY: INDEX_DEFINITIONS_PATH,
        SHARDS_KEY: str(draft.shards),
        INDEX_BUILT: f"{draft.instant}_{completed}",
    }
    update_properties(store, changes)
    return BuiltRecordIndex(
        table=store.uri,
        per_partition=draft.per_partition,
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


def _refuse_others(store: Store, properties: TableProperties, timeline: Timeline) -> None:
    if not is_listed(properties):
        raise ConcurrentWriteError(
            f"the metadata table of {store.uri} was delisted meanwhile. The record-level index was not listed. Build "
            f"both again: table.metadata.build()."
        )
    refuse_hudi(store, timeline)
    for undoing in timeline.pending(Action.ROLLBACK, Action.RESTORE):
        raise ConcurrentWriteError(
            f"the record-level index of {store.uri} is not listed while the {undoing.action} of {undoing.requested} is "
            f"pending. Build it again when that is done, to go on; if its process died, the next write finishes it."
        )


def _take_off(store: Store, properties: TableProperties, own: Timeline, instant: str) -> None:
    """Take the instant off the metadata table's timeline if a build was cut off before it was listed."""
    for found in own.instants:
        if found.requested == instant and found.is_completed:
            store.delete(found.path)
    if any(found.requested == instant for found in own.instants):
        delete_pending(store, timeline_properties(properties), instant=instant, action=Action.DELTA_COMMIT)


def _restless(store: Store) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"the record-level index of {store.uri} was not listed: others went on, or took commits back, {_ROUNDS} times. "
        f"Build it again to go on when they are done."
    )
