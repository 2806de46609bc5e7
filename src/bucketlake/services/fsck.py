"""Check a table against itself: folders, timeline, keys and sums must all tell the same story.

    rows      a key has one live row in its partition, spelled as its columns say, in the bucket that its hash says
    groups    a bucket has one file group
    files     who lists the folders and who follows the timeline sees the same files; nobody left any behind
    bytes     every file can be read, every column of it, and is as its checksums say
    proofs    what footers and commits say of rows and keys is what is in the files
    layout    the table says where its keys live, and its key generator agrees
    metadata  the metadata table is in step, and lists what is committed and there, with its size
    values    secondary indexes have the values of the rows, and no others

`check_table` reads every file, a file group per task, and changes nothing. What it finds is a list of values; what
cannot be read is one of them, and the rest is still checked. A table without findings, but for the notes on what dead
writers left, is sound. What Hudi wrote is held to less: it proves nothing, its logs have no checksums, and its spelling
of keys may depend on options that it does not keep.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake import notebook
from bucketlake.basefile import FileFacts, check_bytes, read_base_file, read_footer
from bucketlake.basefile.footer import NO_ROWS, ROWS_KEY
from bucketlake.commit.heartbeat import is_alive, list_heartbeats
from bucketlake.commit.metadata_build import committed_files
from bucketlake.commit.metadata_table import is_listed
from bucketlake.commit.operation import PLANNED
from bucketlake.config import COPY_PATH, MEND, PROPERTIES_PATH, RECORD_LEVEL, lost_properties
from bucketlake.errors import (
    BucketlakeError,
    ConfigError,
    CorruptTableError,
    IndexBeingBuiltError,
    UnsupportedError,
)
from bucketlake.index import Index, NoIndex, RecordedIndex, resolve_index
from bucketlake.index.fingerprint import is_adopted, writing_index
from bucketlake.index.listed import resolve_listed
from bucketlake.index.recorded_counts import load_counts
from bucketlake.index.secondary import secondary_indexes_of
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import (
    BaseFile,
    DataFile,
    FileGroupId,
    FileSlice,
    data_files_of,
    parse_data_file,
    slices_of,
)
from bucketlake.layout.names import (
    META_FOLDER,
    METADATA_TABLE_FOLDER,
    TEMPORARY_FOLDER,
    is_partition_metadata,
    partition_metadata_path,
    path_in_partition,
    split_path,
)
from bucketlake.layout.partition_metadata import partition_depth
from bucketlake.logfile import LogRecords, log_file_facts, read_log_files
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.metadata.step import look_at_step
from bucketlake.read import ReadContext, make_query, plan_read, read_slice
from bucketlake.schema import (
    COMMIT_TIME_COLUMN,
    FILE_NAME_COLUMN,
    PARTITION_PATH_COLUMN,
    RECORD_KEY_COLUMN,
    key_hashes,
)
from bucketlake.services.key_faults import ShardCheck, list_shard
from bucketlake.services.tasks import Tasks, here
from bucketlake.services.value_faults import look_for_value_faults
from bucketlake.state import TableState, commit_metadata, load_state, table_schema, view_for
from bucketlake.storage import Store
from bucketlake.timeline import (
    WRITE_ACTIONS,
    Action,
    ArchivedInstant,
    CommitMetadata,
    Instant,
    WriteStat,
    load_history,
    process_clock,
    read_cleaner_plan,
)
from bucketlake.write.report import PROOF_KEY

_MODULUS = 1 << 64
_CLUSTER = "CLUSTER"
"""The operation of a clustering, and of a resize."""

Progress = Callable[[int, int], None]
"""Called with the number of file groups that were checked, and of all."""


class Kind(StrEnum):
    """What is wrong."""

    DUPLICATE_KEY = "a key with more than one live row"
    MISPLACED_KEY = "a key in a bucket that is not its own"
    WRONG_KEY = "a key that is not that of its columns"
    WRONG_PARTITION = "a row in a partition that is not its own"
    UNKNOWN_COMMIT = "rows of a commit that is not known"
    SHARED_BUCKET = "a bucket with two file groups"
    STRAY_GROUP = "a file group that is no bucket"
    MISSING_FILE = "a file on the timeline that is not there"
    UNNAMED_FILE = "a visible file that no commit names"
    WRONG_SIZE = "a file of another size than its commit says"
    MISNAMED_LOG = "a log named after another write than the one that wrote it"
    UNREADABLE = "a file that cannot be read"
    WRONG_FOOTER = "a file whose footer does not tell what is in it"
    WRONG_PROOF = "a commit whose sums are not those of its files"
    STALE_ENTRY = "an entry of the index without a row"
    MISSING_ENTRY = "a row that an index does not have"
    NO_PARTITION = "a partition that is not marked as one"
    LOST_PROPERTY = "a property that was lost or changed"
    WRONG_LAYOUT = "a layout that does not fit the table"
    OUT_OF_STEP = "a metadata table that is not to be relied on"
    WRONG_LISTING = "a file that the metadata table does not list as it is"
    UNCOMMITTED = "a visible file of no completed write"
    ORPHAN = "a hidden file of no completed write"
    UNFINISHED = "a write that was cut off"
    LEFT_MARKERS = "markers of a write that has ended"

    @property
    def is_remains(self) -> bool:
        """Whether it is what a dead writer may leave: it harms nobody, and a later write or archive takes it away."""
        return self in (Kind.UNFINISHED, Kind.LEFT_MARKERS, Kind.ORPHAN)


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    kind: Kind
    place: str
    """A path, a partition, or an instant."""
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.place or 'the table'}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check has looked at, and found; prints as a list."""

    findings: tuple[Finding, ...]
    rows: int
    file_groups: int
    files: int
    commits: int
    index: str

    @property
    def is_sound(self) -> bool:
        return not self.damage

    @property
    def damage(self) -> tuple[Finding, ...]:
        """The findings that no recovery takes away."""
        return tuple(finding for finding in self.findings if not finding.kind.is_remains)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """The others: harmless leftovers."""
        return tuple(finding for finding in self.findings if finding.kind.is_remains)

    @property
    def _verdict(self) -> str:
        return "sound" if self.is_sound else f"{len(self.damage):,} findings"

    def _repr_html_(self) -> str:
        facts = {
            "rows": self.rows,
            "file groups": self.file_groups,
            "files": self.files,
            "commits": self.commits,
            "index": self.index,
        }
        drawn = notebook.facts_html(f"fsck: {self._verdict}", facts)
        found = [(str(one.kind), one.place or "the table", one.text) for one in self.damage]
        found += [(f"note: {one.kind}", one.place or "the table", one.text) for one in self.notes]
        return drawn + (notebook.grid_html(("finding", "where", "what"), found) if found else "")

    def __str__(self) -> str:
        seen = (
            f"{self.rows:,} rows in {self.file_groups:,} file groups, {self.files:,} files, {self.commits:,} commits; "
            f"{self.index}"
        )
        lines = [f"  {finding}" for finding in self.damage] + [f"  note: {note}" for note in self.notes]
        return "\n".join([f"{self._verdict}: {seen}", *lines])


def _refuse_without_keys(state: TableState) -> None:
    if not state.properties.has_meta_columns:
        raise UnsupportedError(
            subject=f"hoodie.populate.meta.fields of {state.store.uri}",
            found="false: its files do not say which keys they hold",
            supported="checking tables that store their keys",
            remedy="Its rows are read all the same; compare them with those of Hudi.",
        )


def check_table(store: Store, *, tasks: Tasks = here, on_progress: Progress | None = None) -> Report:
    """Check everything; nobody should write to the table meanwhile, or its newest files look like orphans."""
    findings: list[Finding] = []
    try:
        state = load_state(store)
        _refuse_without_keys(state)
        seen = _look(state, findings)
    except (ConfigError, UnsupportedError):
        raise
    except Exception as error:
        found = (_unreadable("", error),)
        return Report(findings=found, rows=0, file_groups=0, files=0, commits=0, index="it cannot be opened")
    findings += _check_properties(state)
    index, wrong = _index_of(state)
    findings += wrong
    asked = _recorded_indexes(state, index)
    groups: list[GroupCheck] = []
    done: list[GroupFound] = []
    try:
        findings += _check_files(seen)
        findings += _check_groups(seen, index)
        findings += _check_recorded(state, index)
        findings += _check_metadata(state)
        groups = _group_checks(seen, index, asked)
    except Exception as error:
        findings.append(_unreadable("", error))
    # In a few batches, so that progress can be told between them.
    step = max(1, len(groups) // 100) if on_progress is not None else max(1, len(groups))
    for start in range(0, len(groups), step):
        done += tasks(check_group, groups[start : start + step])
        if on_progress is not None:
            on_progress(len(done), len(groups))
    findings += [finding for group in done for finding in group.findings]
    findings += _check_commits(seen, done)
    findings += _check_across_groups(done)
    for recorded in asked:
        findings += _check_entries(recorded, done, tasks)
    findings += _check_values(state, asked, tasks)
    return Report(
        findings=tuple(sorted(set(findings))),
        rows=sum(group.rows for group in done),
        file_groups=len(seen.slices),
        files=sum(len(files) for files in seen.files.values()),
        commits=len(seen.commits),
        index=str(index),
    )


def _unreadable(place: str, error: Exception) -> Finding:
    """Turn whatever damaged bytes have led to into a finding: decoders raise what they stumble on."""
    if isinstance(error, CorruptTableError):
        return Finding(Kind.UNREADABLE, place or error.path, str(error))
    text = str(error) if isinstance(error, BucketlakeError) else f"{type(error).__name__}: {error}"
    return Finding(Kind.UNREADABLE, place, text)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A table, as its folders and its timeline show it."""

    state: TableState
    sizes: Mapping[str, int]
    """Every file below the root that is not the table's own."""
    files: Mapping[str, tuple[DataFile, ...]]
    """Partition -> its data files, committed or not."""
    slices: tuple[FileSlice, ...]
    """What a reader sees."""
    commits: Mapping[str, CommitMetadata]
    """Requested time -> what a completed write said, archived ones too."""
    has_history: bool
    """Whether `commits` is all there ever was."""
    unread: frozenset[str] = frozenset()
    """The requested times of completed writes whose words cannot be read."""

    @property
    def teller(self) -> dict[str, str]:
        """The commit that tells of a file. Beside a resize it is not the one that the file is named after."""
        return {stat.path: i for i, commit in self.commits.items() for stat in commit.write_stats}

    @property
    def given_back(self) -> frozenset[str]:
        """Commits that were made beside a resize which was taken back: its file groups are gone.

        Where they had left a reference to rows in those, the rows stand in its place.
        """
        return frozenset(
            instant
            for path, instant in self.teller.items()
            if path not in self.sizes and _instant_of(path) not in self.commits
        )


def _look(state: TableState, findings: list[Finding]) -> _Seen:
    listed = [
        f for f in state.store.list("", recursive=True).files if not f.path.startswith(META_FOLDER + "/")
    ]
    files: dict[str, tuple[DataFile, ...]] = {}
    for file in data_files_of(listed):
        partition = split_path(file.path)[0]
        files[partition] = (*files.get(partition, ()), file)
    archived: tuple[ArchivedInstant, ...] = ()
    try:
        archived = load_history(state.store, state.properties)
        has_history = True
    except UnsupportedError:
        has_history = not state.store.list(state.properties.history_folder).files
    except Exception as error:
        findings.append(_unreadable(state.properties.history_folder, error))
        has_history = False
    commits: dict[str, CommitMetadata] = {}
    unread = set()
    writes: list[Instant | ArchivedInstant] = [a for a in archived if a.action in WRITE_ACTIONS]
    for write in [*writes, *state.timeline.writes]:
        try:
            commits[write.requested] = commit_metadata(state, write)
        except Exception as error:
            unread.add(write.requested)
            findings.append(_unreadable(f"{write.action} of {write.requested}", error))
    sizes = {file.path: file.size_bytes for file in listed}
    return _Seen(state, sizes, files, _slices(state, files), commits, has_history, frozenset(unread))


def _slices(state: TableState, files: Mapping[str, tuple[DataFile, ...]]) -> tuple[FileSlice, ...]:
    # A file that a commit tells of and that is gone is a finding of its own.
    view = view_for(state, (file for group in files.values() for file in group), trusts_listing=True)
    return tuple(part for partition in sorted(files) for part in slices_of(partition, files[partition], view))


def _check_properties(state: TableState) -> list[Finding]:
    lost = lost_properties(state.store, state.properties)
    if not lost:
        return []
    text = f"{', '.join(lost)}: not as in {COPY_PATH}; if that is meant, delete the copy. {MEND}"
    return [Finding(Kind.LOST_PROPERTY, PROPERTIES_PATH, text)]


def _index_of(state: TableState) -> tuple[Index, list[Finding]]:
    """Return the table's index, and what is wrong with what it says of it."""
    try:
        if is_adopted(state.properties):
            return writing_index(state), []
        return resolve_index(state), []
    except (UnsupportedError, IndexBeingBuiltError) as error:
        if state.properties.engine in RECORD_LEVEL:
            # Nobody can write the table until its index is there again.
            return NoIndex(reason="the index is not there"), [Finding(Kind.OUT_OF_STEP, "", str(error))]
        return resolve_index(state), []  # another engine's buckets: not ours to write, and sound all the same
    except Exception as error:
        text = str(error) if isinstance(error, BucketlakeError) else _unreadable("", error).text
        return NoIndex(reason="what the table says of its buckets does not fit it"), [
            Finding(Kind.WRONG_LAYOUT, "", text)
        ]


def _check_files(seen: _Seen) -> list[Finding]:
    state = seen.state
    told = {stat.path: stat for commit in seen.commits.values() for stat in commit.write_stats}
    named = set(told) | {
        path_in_partition(stat.partition, name) for stat in told.values() for name in stat.log_files
    }
    marked = {
        file.path.removeprefix(TEMPORARY_FOLDER + "/").partition("/")[0]
        for file in state.store.list(TEMPORARY_FOLDER, recursive=True).files
    }
    pending = {instant.requested: instant for instant in state.timeline.pending()}
    found = [
        Finding(Kind.LEFT_MARKERS, instant, "the next write, or archive, deletes them after a while")
        for instant in sorted(marked - pending.keys())
    ]
    for instant in _cut_off(state):
        text = f"{instant.state} and not completed; the next write takes it back or finishes it"
        found.append(Finding(Kind.UNFINISHED, f"{instant.action} of {instant.requested}", text))
    for partition, files in sorted(seen.files.items()):
        if not _is_partition(seen, partition):
            text = f"no {partition_metadata_path('')}, or one of another depth: Hudi does not see its files"
            found.append(Finding(Kind.NO_PARTITION, partition, text))
        for file in files:
            is_committed = file.instant in seen.commits or (
                not seen.has_history and state.view.is_committed(file.instant)
            )
            if is_committed:
                if file.path not in named and seen.has_history and state.properties.table_version >= 8:
                    found.append(
                        Finding(
                            Kind.UNNAMED_FILE, file.path, f"the commit of {file.instant} does not name it"
                        )
                    )
            elif file.instant not in pending and file.instant not in marked | seen.unread:
                is_visible = state.view.is_committed(file.instant)
                text = f"{file.instant} is no completed write" + (
                    ", and readers take it for one" if is_visible else "; archive deletes the file in time"
                )
                found.append(Finding(Kind.UNCOMMITTED if is_visible else Kind.ORPHAN, file.path, text))
    teller, given_back = seen.teller, seen.given_back
    for path, stat in sorted(told.items()):
        # Hudi gives a log file the size of what one commit appended to it.
        is_proven = PROOF_KEY in seen.commits[teller[path]].extra and teller[path] not in given_back
        is_told = (is_proven and not _is_reference(stat)) or (stat.size_bytes > 0 and not stat.log_files)
        if is_told and path in seen.sizes and seen.sizes[path] != stat.size_bytes:
            text = f"{seen.sizes[path]:,} bytes, and its commit says {stat.size_bytes:,}"
            found.append(Finding(Kind.WRONG_SIZE, path, text))
    return found + _check_names(seen, told) + _check_visible(seen, told)


def _check_names(seen: _Seen, told: Mapping[str, WriteStat]) -> list[Finding]:
    """Find logs that carry the instant of an earlier write, by which readers take them for older than they are.

    UPDATE and DELETE of Hudi's SQL put a log of a table with consistent hashing under the instant of the row that they
    change. If the file group was compacted in between, the log belongs to what the compaction has replaced. A log with
    the instant of a resize or a clustering is as it should be: it was written while that was pending.
    """
    if seen.state.properties.table_version < 8:
        return []  # there a log has the instant of its base file
    teller = seen.teller
    visible = {path for part in seen.slices for path in _paths(part)}
    found = []
    for path, stat in sorted(told.items()):
        own, named = teller[path], _instant_of(path)
        if not stat.log_files or own == named or path not in seen.sizes:
            continue
        other = seen.commits.get(named)
        if other is None or other.operation == _CLUSTER:
            continue
        fate = (
            "Readers see its rows now, and take them for older ones than they are"
            if path in visible
            else "Readers do not see its rows, unless a compaction took them in"
        )
        text = (
            f"the write of {own} put it under the instant of {named}. {fate}. UPDATE and DELETE of Hudi's SQL do so: "
            f"set hoodie.spark.sql.optimized.writes.enable=false there, and make the change again"
        )
        found.append(Finding(Kind.MISNAMED_LOG, path, text))
    return found


def _cut_off(state: TableState) -> list[Instant]:
    """The pending instants that nobody is at. A plan that waits to be run is none of them."""
    heartbeats = list_heartbeats(state.store)
    now_ms = process_clock(state.properties.timeline_timezone).now_ms()
    return [
        instant
        for instant in state.timeline.pending()
        if instant.action not in PLANNED and not is_alive(heartbeats.get(instant.requested), now_ms=now_ms)
    ]


def _check_visible(seen: _Seen, told: Mapping[str, WriteStat]) -> list[Finding]:
    """Compare what a reader of the folders sees with what a reader of the timeline would.

    Cleaning deletes files that commits name, but never what a reader of the present sees.
    """
    named: dict[str, tuple[DataFile, ...]] = {}
    for path, stat in told.items():
        if seen.has_history and _instant_of(path) not in seen.commits:
            continue  # of a resize that is not completed: nobody is to see it
        partition = split_path(path)[0]
        file = parse_data_file(path, size_bytes=seen.sizes.get(path, stat.size_bytes))
        named[partition] = (*named.get(partition, ()), file)
    # The view knows the replaced groups of the active timeline only.
    replaced = {
        (partition, file_id)
        for commit in seen.commits.values()
        for partition, file_ids in commit.replaced.items()
        for file_id in file_ids
    }
    in_folder = {(part.partition, part.file_id): part for part in seen.slices}
    found = []
    for part in _slices(seen.state, named):
        group = (part.partition, part.file_id)
        if group in replaced and group not in in_folder:
            continue
        listed = set(_paths(in_folder[group])) if group in in_folder else set()
        if not seen.has_history and group in in_folder and in_folder[group].instant != part.instant:
            continue
        for path in _paths(part):
            if path not in listed:
                is_there = path in seen.sizes
                text = (
                    "it is there, but readers pass it over"
                    if is_there
                    else "a reader of the present needs it"
                )
                found.append(Finding(Kind.MISSING_FILE, path, text))
    return found


def _check_metadata(state: TableState) -> list[Finding]:
    """Compare what the metadata table lists with what is committed, and there."""
    if not is_listed(state.properties):
        return []
    pending = {instant.requested for instant in state.timeline.pending()}
    mend = f"Build it anew: `bucketlake metadata rebuild {state.store.uri}`."
    step = look_at_step(state.store, state.properties, state.timeline)
    if not step.is_kept:
        return [Finding(Kind.OUT_OF_STEP, METADATA_TABLE_FOLDER, f"it is {step}. {mend}")]
    try:
        told = list_by_metadata(state.store, state.properties, state.timeline, None)
    except BucketlakeError as error:
        return [_unreadable("", error)]
    if told is None:
        return [Finding(Kind.OUT_OF_STEP, METADATA_TABLE_FOLDER, f"logs of it are gone. {mend}")]
    # What Hudi has rolled back may stay listed there: readers pass it over.
    listed = {
        file.path: file.size_bytes
        for files in told.values()
        for file in files
        if state.view.is_committed(file.instant) or file.instant in pending
    }
    there = {
        path_in_partition(partition, name): size
        for partition, files in committed_files(state).items()
        for name, size in files.items()
    }
    # A clean deletes first, and tells then.
    half_cleaned = {
        path_in_partition(partition, name)
        for clean in state.timeline.pending(Action.CLEAN)
        for partition, names in read_cleaner_plan(state.store, clean).files.items()
        for name in names
    }
    return [
        Finding(
            Kind.WRONG_LISTING,
            path,
            f"it lists {_bytes(listed.get(path))}, and there is {_bytes(there.get(path))}. {mend}",
        )
        for path in sorted(listed.keys() | there.keys())
        if listed.get(path) != there.get(path) and not (path in half_cleaned and path not in there)
    ]


def _bytes(size: int | None) -> str:
    return "nothing" if size is None else f"{size:,} bytes"


def _recorded_indexes(state: TableState, index: Index) -> tuple[RecordedIndex, ...]:
    """Return what says where keys live, and can be held against the rows: the index, and those beside it."""
    own = index.recorded
    listed = [found for records in resolve_listed(state) if (found := records.recorded) is not None]
    return tuple(listed) if own is None else (own, *(one for one in listed if type(one) is not type(own)))


def _check_groups(seen: _Seen, index: Index) -> list[Finding]:
    found: list[Finding] = []
    if not index.is_known:
        return found
    owners: dict[tuple[str, str], str] = {}
    index.foresee(sorted({part.partition for part in seen.slices}))
    for part in seen.slices:
        slot = index.slot_of_file(part.partition, part.file_id)
        if slot is None:
            text = f"file group {part.file_id} is none of the {index.expected_groups(part.partition)}"
            text += ". To mend it, overwrite the partition with its rows"
            found.append(Finding(Kind.STRAY_GROUP, part.partition, text))
            continue
        other = owners.setdefault((part.partition, slot), part.file_id)
        if other != part.file_id:
            text = f"bucket {slot} has {other} and {part.file_id}"
            found.append(Finding(Kind.SHARED_BUCKET, part.partition, text))
    return found


def _check_recorded(state: TableState, index: Index) -> list[Finding]:
    """Compare the counts that partitions were given with those that the rules say."""
    if index.rescalable is None or index.rescalable.rules is None:
        return []
    try:
        recorded = load_counts(state.store, state.timeline)
    except CorruptTableError as error:
        return [Finding(Kind.WRONG_LAYOUT, error.path, str(error))]
    index.foresee(recorded)
    return [
        Finding(
            Kind.WRONG_LAYOUT,
            partition,
            f"{before.count} buckets by the write of {before.instant}; the rules of {index.version} say "
            f"{index.bucket_count(partition)}. Put the rules back as they were",
        )
        for partition, before in sorted(recorded.items())
        if before.instant >= index.version and before.count != index.bucket_count(partition)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """A data file to count the keys of."""

    file: DataFile
    instant: str
    is_ours: bool
    """Whether its commit proves anything."""
    written: int | None
    """How many rows its commit says it has; None if it says nothing of it."""
    deleted: int
    """And how many deletes, if it is a log."""
    is_reference: bool
    """Whether it stood for other files when it was written. Their rows may have taken its place since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCheck:
    """What a task checks: one file group. Frozen and picklable."""

    context: ReadContext
    index: Index
    recorded: tuple[RecordedIndex, ...]
    """What says where keys live, the index among it."""
    partition: str
    file_id: str
    slice: FileSlice | None
    """None if a reader sees nothing of it."""
    files: tuple[FileCheck, ...]
    commits: frozenset[str] | None
    """What rows may be of; None where that is not known."""
    checks_spelling: bool

    @property
    def size_bytes(self) -> int:
        return sum(check.file.size_bytes for check in self.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFound:
    partition: str
    file_id: str
    findings: tuple[Finding, ...]
    rows: int
    sums: tuple[tuple[str, int, int], ...]
    """Of every file with a proof: its instant, the number of its keys, and the sum of their hashes."""
    hashes: np.ndarray[tuple[int], np.dtype[np.uint64]] | None
    """Of the live keys, where no bucket tells that another group cannot have them; None if they cannot be read."""


def _group_checks(seen: _Seen, index: Index, recorded: tuple[RecordedIndex, ...]) -> list[GroupCheck]:
    state = seen.state
    generator = KeyGenerator.from_properties(state.properties)
    names = [*generator.record_key_fields, *(column.name for column in generator.partition_fields)]
    own = [RECORD_KEY_COLUMN, PARTITION_PATH_COLUMN, COMMIT_TIME_COLUMN]
    adopted = is_adopted(state.properties)
    columns = dict.fromkeys([*own, *(name.partition(".")[0] for name in names if adopted)])
    query = make_query(state, columns=list(columns))
    context = plan_read(state, query, NoIndex(), trusts_listing=True).context
    if adopted and not context.path_columns_are_dropped:
        # Readers take partition columns from the path; what is to be checked is what the files have.
        context = replace(context, path_columns=())
    visible = {(part.partition, part.file_id): part for part in seen.slices}
    files: dict[tuple[str, str], list[FileCheck]] = {}
    teller, given_back = seen.teller, seen.given_back
    stats = {stat.path: stat for commit in seen.commits.values() for stat in commit.write_stats}
    for partition, listed in seen.files.items():
        for file in listed:
            instant = teller.get(file.path, file.instant)
            commit = seen.commits.get(instant)
            if commit is None:
                continue
            stat = stats.get(file.path)
            check = FileCheck(
                file=file,
                instant=instant,
                is_ours=PROOF_KEY in commit.extra and stat is not None and instant not in given_back,
                written=stat.written if stat else None,
                deleted=stat.deleted if stat else 0,
                is_reference=stat is not None and _is_reference(stat),
            )
            files.setdefault((partition, file.file_id), []).append(check)
    known = frozenset(seen.commits) if adopted and seen.has_history else None
    return [
        GroupCheck(
            context=context,
            index=index,
            recorded=recorded,
            partition=partition,
            file_id=file_id,
            slice=visible.get((partition, file_id)),
            files=tuple(files.get((partition, file_id), ())),
            commits=known,
            checks_spelling=adopted,
        )
        for partition, file_id in sorted({*visible, *files})
    ]


def check_group(check: GroupCheck) -> GroupFound:
    """Check one file group: its live rows, and the keys of its files."""
    findings: list[Finding] = []
    sums: list[tuple[str, int, int]] = []
    for file in check.files:
        try:
            counted = _check_file(check.context, file, findings)
        except Exception as error:
            findings.append(_unreadable(file.file.path, error))
            continue
        if file.is_ours and counted is not None:
            sums.append((file.instant, counted.rows, counted.key_hash_sum))
    keys: pa.ChunkedArray = pa.chunked_array([], pa.string())
    wants_hashes = bool(check.recorded) or not check.index.is_known
    hashes = key_hashes(keys) if wants_hashes and check.slice is None else None
    if check.slice is not None:
        try:
            rows = pa.Table.from_batches(read_slice(check.slice, check.context), check.context.schema)
            keys = rows.column(RECORD_KEY_COLUMN)
            findings += _check_rows(check, rows)
            hashes = key_hashes(keys) if wants_hashes else None
        except Exception as error:
            findings.append(_unreadable(path_in_partition(check.partition, check.file_id), error))
    return GroupFound(
        partition=check.partition,
        file_id=check.file_id,
        findings=tuple(findings),
        rows=len(keys),
        sums=tuple(sums),
        hashes=hashes,
    )


def _check_rows(check: GroupCheck, rows: pa.Table) -> list[Finding]:
    place = path_in_partition(check.partition, check.file_id)
    keys = rows.column(RECORD_KEY_COLUMN)
    found = []
    counts = pc.value_counts(keys)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(twice):
        text = f"{len(twice):,} keys, such as {twice[0].as_py()!r}"
        found.append(Finding(Kind.DUPLICATE_KEY, place, text))
    own = check.index.recorded
    for index in (check.index, *(one for one in check.recorded if one is not own)):
        stray = index.stray(check.partition, check.file_id, keys.combine_chunks())
        if stray is not None:
            found.append(Finding(Kind.MISPLACED_KEY, place, f"{stray!r}, by {index}"))
    elsewhere = pc.index(pc.equal(rows.column(PARTITION_PATH_COLUMN), check.partition), False).as_py()
    if elsewhere >= 0:
        said = rows.column(PARTITION_PATH_COLUMN)[elsewhere].as_py()
        found.append(
            Finding(Kind.WRONG_PARTITION, place, f"{keys[elsewhere].as_py()!r} says it is in {said!r}")
        )
    if check.commits is not None:
        times = set(pc.unique(rows.column(COMMIT_TIME_COLUMN)).to_pylist()) - check.commits
        if times:
            found.append(Finding(Kind.UNKNOWN_COMMIT, place, ", ".join(sorted(map(str, times)))))
    if check.checks_spelling:
        found += _check_spelling(check, rows, place)
    return found


def _check_spelling(check: GroupCheck, rows: pa.Table, place: str) -> list[Finding]:
    """The key, and the partition, must be the ones that we would give the row."""
    generator = check.context.keys
    keys = rows.column(RECORD_KEY_COLUMN)
    found = []
    made = generator.record_keys(rows)
    odd = pc.index(pc.equal(made, keys), False).as_py()
    if odd >= 0:
        text = f"{keys[odd].as_py()!r}, and its columns say {made[odd].as_py()!r}"
        found.append(Finding(Kind.WRONG_KEY, place, text))
    if check.index.recorded is not None and check.index.recorded.keeps_partition:
        return found  # a row whose partition has changed is where it was
    paths = generator.partition_paths(rows)
    odd = pc.index(pc.equal(paths, check.partition), False).as_py()
    if odd >= 0:
        text = f"{keys[odd].as_py()!r} belongs to {paths[odd].as_py()!r}"
        found.append(Finding(Kind.WRONG_PARTITION, place, text))
    return found


def _check_file(context: ReadContext, check: FileCheck, findings: list[Finding]) -> FileFacts | None:
    """Read a file, count its keys and compare; return them if the file says anything of itself."""
    store, path = context.store, check.file.path
    if check.is_reference:
        return NO_ROWS
    if not isinstance(check.file, BaseFile):
        return _check_log(context, check, findings)
    footer = read_footer(store, path)
    check_bytes(store, path)
    counted, others = NO_ROWS, set()
    for batch in read_base_file(store, path, footer.arrow_schema):
        counted += FileFacts.of_keys(batch.column(RECORD_KEY_COLUMN))
        others |= set(pc.unique(batch.column(FILE_NAME_COLUMN)).to_pylist()) - {split_path(path)[1]}
    if check.written is not None and check.written != counted.rows:
        text = f"it holds {counted.rows:,} rows, and its commit says {check.written:,}"
        findings.append(Finding(Kind.WRONG_PROOF, path, text))
    if ROWS_KEY not in footer.metadata:
        return None
    if others:
        text = f"rows that say they are in {sorted(map(str, others))}"
        findings.append(Finding(Kind.WRONG_FOOTER, path, text))
    said = FileFacts.of_footer(footer.metadata, path=path)
    if said != counted:
        findings.append(Finding(Kind.WRONG_FOOTER, path, f"it says {said}, and holds {counted}"))
    return counted


def _check_log(context: ReadContext, check: FileCheck, findings: list[Finding]) -> FileFacts | None:
    """Read all columns of a log, and compare what is in one of ours with what it and its commit say."""
    path = check.file.path
    counted, written, deleted = NO_ROWS, 0, 0
    for log in read_log_files(
        context.store,
        [path],
        context.table_schema,
        ordering_fields=context.rules.ordering_fields,
        table_schema=context.table_schema,
        whole=[path] if check.is_ours else (),
    ):
        if isinstance(log, LogRecords):
            counted += FileFacts.of_keys(log.records.column(RECORD_KEY_COLUMN))
            written += log.records.num_rows
        else:
            counted += FileFacts.of_keys(log.keys)
            deleted += len(log.keys)
    if not check.is_ours:
        return None
    facts = log_file_facts(context.store.read(path), path=path)
    said = FileFacts(facts.rows + facts.deletes, facts.key_hash_sum, facts.min_key, facts.max_key)
    if said != counted:
        findings.append(Finding(Kind.WRONG_FOOTER, path, f"it says {said}, and holds {counted}"))
    if (check.written, check.deleted) != (written, deleted):
        text = (
            f"it holds {written:,} rows and {deleted:,} deletes, and its commit says {check.written:,} and "
            f"{check.deleted:,}"
        )
        findings.append(Finding(Kind.WRONG_PROOF, path, text))
    return counted


def _check_commits(seen: _Seen, done: Iterable[GroupFound]) -> list[Finding]:
    """Add the sums of each commit's files up, and compare them with its proof."""
    rows: dict[str, list[int]] = {}
    for group in done:
        for instant, count, key_hash_sum in group.sums:
            total = rows.setdefault(instant, [0, 0, 0])
            total[0] += 1
            total[1] += count
            total[2] = (total[2] + key_hash_sum) % _MODULUS
    found = []
    for instant, commit in sorted(seen.commits.items()):
        if PROOF_KEY not in commit.extra:
            continue
        files, count, key_hash_sum = rows.get(instant, [0, 0, 0])
        if files < len(commit.write_stats):
            continue  # some were cleaned, or cannot be read
        try:
            proof = json.loads(commit.extra[PROOF_KEY])
            said = (int(proof["file_rows"]), int(proof["file_key_hash_sum"]))
        except (ValueError, KeyError, TypeError) as fault:
            found.append(Finding(Kind.WRONG_PROOF, instant, f"no proof that can be read ({fault})"))
            continue
        if said != (count, key_hash_sum):
            text = f"it proves {said[0]:,} keys with the sum {said[1]}; its files hold {count:,} with {key_hash_sum}"
            found.append(Finding(Kind.WRONG_PROOF, instant, text))
    return found


def _check_across_groups(done: Sequence[GroupFound]) -> list[Finding]:
    """Where no bucket tells where a key lives, look for keys that live in two file groups of a partition."""
    by_partition: dict[str, list[np.ndarray[tuple[int], np.dtype[np.uint64]]]] = {}
    for group in done:
        if group.hashes is not None:
            by_partition.setdefault(group.partition, []).append(np.unique(group.hashes))
    found = []
    for partition, hashes in sorted(by_partition.items()):
        every = np.concatenate(hashes)
        repeated = len(every) - len(np.unique(every))
        if repeated:
            text = f"{repeated:,} keys are in more than one file group"
            found.append(Finding(Kind.DUPLICATE_KEY, partition, text))
    return found


def _check_entries(recorded: RecordedIndex, done: Sequence[GroupFound], tasks: Tasks) -> list[Finding]:
    """Look for keys that an index has and no file group. That it has those of the rows, each group has checked."""
    live = {(group.partition, group.file_id): group.hashes for group in done}
    nothing = np.empty(0, np.uint64)
    stale: dict[FileGroupId, list[str]] = {}
    try:
        shards = tasks(list_shard, [ShardCheck(recorded, shard) for shard in range(recorded.shards_there)])
        for shard, found in enumerate(shards):
            for number, place in enumerate(found.groups):
                held = live.get(place, nothing)
                if held is None:
                    continue  # it cannot be read
                mine = np.flatnonzero(found.numbers == number)
                lost = mine[~np.isin(found.hashes[mine], held)]
                if len(lost):
                    keys = recorded.entries(shard)["key"].take(pa.array(lost)).to_pylist()
                    stale.setdefault(place, []).extend(keys)
    except Exception as error:
        return [_unreadable("", error)]
    return [
        Finding(Kind.STALE_ENTRY, path_in_partition(*place), f"{len(keys):,} keys, such as {min(keys)!r}")
        for place, keys in sorted(stale.items())
    ]


def _check_values(state: TableState, asked: Sequence[RecordedIndex], tasks: Tasks) -> list[Finding]:
    """Compare secondary indexes with the values of the rows, in both directions."""
    found: list[Finding] = []
    try:
        indexes, columns = secondary_indexes_of(state), table_schema(state).names
        for index in indexes:
            if index.fault is not None:
                found.append(Finding(Kind.OUT_OF_STEP, index.definition.partition, index.fault))
            elif index.definition.column not in columns:
                text = (
                    f"it is of the column {index.definition.column!r}, which the table does not have. Drop it"
                )
                found.append(Finding(Kind.OUT_OF_STEP, index.definition.partition, text))
        if found or not indexes:
            return found
        recorded = next((one for one in asked if one.is_global), None)
        looked = look_for_value_faults(state, recorded, tasks=tasks)
    except Exception as error:
        return [_unreadable("", error)]
    mend = f"To mend it: `bucketlake repair {state.store.uri}`"
    for index in indexes:
        name, partition = index.definition.name, index.definition.partition
        mine = [fault for fault in looked.faults if fault.index == name]
        for kind, is_there in ((Kind.MISSING_ENTRY, False), (Kind.STALE_ENTRY, True)):
            of_kind = [fault for fault in mine if fault.is_there is is_there]
            if of_kind:
                text = f"{len(of_kind):,} entries. {of_kind[0]}. {mend}"
                found.append(Finding(kind, partition, text))
        if name in looked.strays:
            text = f"{looked.strays[name]:,} entries are in shards that are not their own. Drop it, and create it again"
            found.append(Finding(Kind.STALE_ENTRY, partition, text))
    return found


def _is_partition(seen: _Seen, partition: str) -> bool:
    if not seen.state.properties.partition_fields and not is_adopted(seen.state.properties):
        return True  # Hudi's readers do not ask the root of such a table
    path = partition_metadata_path(partition)
    if path in seen.sizes:
        wanted = f"partitionDepth={partition_depth(partition)}".encode()
        return wanted in seen.state.store.read(path)
    folder = f"{partition}/" if partition else ""
    return any(is_partition_metadata(p.removeprefix(folder)) for p in seen.sizes if p.startswith(folder))


def _is_reference(stat: WriteStat) -> bool:
    """Tell a log that says nothing itself: no other is without rows and deletes."""
    return bool(stat.log_files) and not (stat.written or stat.deleted)


def _instant_of(path: str) -> str:
    return parse_data_file(path, size_bytes=0).instant


def _paths(part: FileSlice) -> list[str]:
    return ([part.base_file.path] if part.base_file else []) + [log.path for log in part.log_files]
