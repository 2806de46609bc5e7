"""One file group's new rows -> one file: what an executor does, and nothing else.

Rows arrive sorted by their tag, so a task holds the new rows of one file
group, and batches of its base file, and no more. What becomes of them:

    no file group yet, or one that is replaced     a base file; a log file if the write appends
    copy-on-write                                  a base file: the old one's rows, merged with the new
    merge-on-read                                  a log file

A file has one name per file group and instant and is put with `put_new`.
Whoever finds it there, a second attempt or a speculative one, compares what
it would have written with what the file says of itself, and reports the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import IntEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.basefile import BaseFileWriter, FileFacts, read_base_file, read_file_facts
from bucketlake.basefile.footer import NO_ROWS
from bucketlake.commit.operation import Operation
from bucketlake.errors import ConfigError, CorruptTableError
from bucketlake.index.resizes import Offspring
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    LogFileName,
    marker_path,
    partition_metadata_path,
    path_in_partition,
    render_base_file_name,
    render_log_file_name,
    split_path,
)
from bucketlake.layout.partition_metadata import partition_depth, render_partition_metadata
from bucketlake.logfile import (
    Deletes,
    LogDeletes,
    LogFormat,
    LogRecords,
    encode_log_file,
    encode_reference,
    log_file_facts,
    read_log_files,
)
from bucketlake.merge import SliceMerge, Winners, fold_logs, merge_slice
from bucketlake.schema import (
    COMMIT_TIME_COLUMN,
    FILE_NAME_COLUMN,
    PARTITION_PATH_COLUMN,
    RECORD_KEY_COLUMN,
    bytes_of,
    find_null_element,
    fit_rows,
    key_hash_sum,
    numbered,
    with_constants,
)
from bucketlake.storage import Spill
from bucketlake.write.exchange import GROUP_BITS, Piece
from bucketlake.write.state import WriteState
from bucketlake.write.tag import group_hash, nested_column

_LARGE_BYTES = 1 << 20
"""Pieces of this size are written as they are: a copy of them all would take as much memory again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWritten:
    """What a task did to one file group; travels to the driver as JSON."""

    partition: str
    file_id: str
    received: int
    """Rows that reached the task for this group, versions of one key counted each."""
    received_sum: int
    """The sum of their keys' hashes, modulo 2**64."""
    path: str | None = None
    """The file, or None where there was nothing to write."""
    is_log: bool = False
    previous_instant: str | None = None
    """The instant of the base file that was rewritten; of a log, its own."""
    previous_base_file: str | None = None
    """The name of that file."""
    rows: int = 0
    """Records in the file."""
    key_hash_sum: int = 0
    """Over the keys in the file, deletes included."""
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    outdated: int = 0
    """New versions that lost to what the table has."""
    size_bytes: int = 0
    is_copy: bool = False
    """Whether the rows are told of by another file group too, of which this one is taking the place."""
    moved: int = 0
    """Of what it received, word of keys that went to another partition; there they were received too."""
    unsent: int = 0
    """Rows of the write that reached no file group; said by its first one, for all."""
    beaten: int = 0
    """Of these, rows that lost to another version of their key in the batch."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


CHANGE = "_bucketlake_change"
"""The column of rows, on their way to a file group, that says what they do there."""


class KeyChange(IntEnum):
    """What a row means for its key, as the index found it."""

    KNOWN = 0
    NEW = 1
    GONE = 2
    MOVED_AWAY = 3
    """It is in another partition from now on, where it is new."""


@dataclass(frozen=True, slots=True)
class KeysChanged:
    """Which keys came to a file group, and which went."""

    partition: str
    file_id: str
    came: pa.Array
    went: pa.Array


@dataclass(slots=True)
class _Group:
    """New rows of one file group."""

    partition: str
    file_id: str
    rows: pa.Table
    record_keys: pa.Array = field(repr=False)
    change: npt.NDArray[np.int8] | None = None
    """What looking them up has told of the keys, if they were: a `KeyChange` for each row, those that leave last."""
    came: pa.Array | None = None
    """Keys that the file group did not have; None if nobody asked, or there are none."""
    went: pa.Array | None = None

    @property
    def changed(self) -> KeysChanged:
        none = pa.array([], pa.string())
        return KeysChanged(
            self.partition,
            self.file_id,
            none if self.came is None else self.came,
            none if self.went is None else self.went,
        )

    @property
    def staying(self) -> int:
        """How many of the rows are not just words of keys that leave."""
        return len(self.record_keys) if self.change is None else int((self.change < KeyChange.GONE).sum())


def write_groups(pieces: Iterable[Piece], state: WriteState) -> Iterator[GroupWritten]:
    """Write the rows of a task, which come sorted by their codes, group by group."""
    for written, _ in write_telling(pieces, state):
        yield from written


def write_telling(
    pieces: Iterable[Piece], state: WriteState
) -> Iterator[tuple[tuple[GroupWritten, ...], KeysChanged]]:
    """Do the same; and say of each group which keys came to it, and which went, if somebody is to be told."""
    for _, run in groupby((piece for piece in pieces if piece.rows.num_rows), key=attrgetter("code")):
        for group in _groups_in(*_together(run), state):
            yield write_group(group, state), group.changed


def write_looked_up(
    place: FileGroupId, rows: pa.Table, state: WriteState
) -> tuple[tuple[GroupWritten, ...], KeysChanged]:
    """Write rows of one file group that say what they do there; and say which keys came to it, and which went."""
    change = rows.column(CHANGE).to_numpy()
    order = np.argsort(change, kind="stable")
    rows, change = rows.drop_columns([CHANGE]).take(pa.array(order)), change[order]
    if state.operation is not Operation.DELETE:
        rows = fit_rows(rows, state.schema)
        _check_elements(rows, state)
    keys = state.keys.record_keys(rows)
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    group = _Group(*place, rows, keys, change=change)
    return write_group(group, state), group.changed


def delete_keys(place: FileGroupId, keys: pa.Array, state: WriteState) -> tuple[GroupWritten, ...]:
    """Delete keys from one file group, whatever anybody has recorded of them."""
    assert state.operation is Operation.DELETE
    gone = np.full(len(keys), KeyChange.GONE, np.int8)
    return write_group(_Group(*place, pa.table({}), keys, change=gone), state)


def write_group(group: _Group, state: WriteState) -> tuple[GroupWritten, ...]:
    """Write the new rows of one file group, and of those that are taking its place."""
    present = state.groups.get(group.partition, {}).get(group.file_id)
    if present is None and state.operation is Operation.DELETE:
        return (_report(group, group.file_id),)
    file_id = group.file_id
    winners = fold_logs(_new_versions(group, state), state.rules, state.file_schema)
    if present is None and not state.appends:
        return (_write_base(group, file_id, None, winners, state),)
    if state.is_copy_on_write or _takes_new_keys(group, present):
        return (_write_base(group, file_id, present, winners, state),)
    _tell_logged(group, present, winners, state)
    name = LogFileName(file_id, state.instant, state.log_version, WRITE_TOKEN)
    offspring = state.offspring.get((group.partition, file_id))
    if offspring is None:
        return (_write_log(group, name, winners, state),)
    shadows = _write_shadows(group, offspring, winners, state)
    if state.is_virtual:
        return (_write_reference(group, name, shadows, state), *shadows)
    return (_write_log(group, name, winners, state), *shadows)


def _takes_new_keys(group: _Group, present: FileSlice | None) -> bool:
    """Tell whether a file group of a merge-on-read table is to be rewritten, because it takes keys that are new.

    Hudi's indexes look for keys in base files only, so that is where new ones go. Whoever placed them there has seen
    that there are no logs.
    """
    is_filled = present is not None and present.base_file is not None and not present.log_files
    return is_filled and group.change is not None and bool((group.change == KeyChange.NEW).any())


def _together(run: Iterable[Piece]) -> tuple[pa.Table, set[FileGroupId | None]]:
    """Bring the rows of pieces together: small ones are copied, and not kept."""
    groups, batches = zip(*((piece.group, piece.rows) for piece in run), strict=True)
    rows = pa.Table.from_batches(batches)
    return rows if bytes_of(rows) > len(batches) * _LARGE_BYTES else rows.combine_chunks(), set(groups)


def _groups_in(rows: pa.Table, groups: set[FileGroupId | None], state: WriteState) -> Iterator[_Group]:
    """Divide rows of one code: they are of one file group, unless two hashes agree."""
    if state.operation is not Operation.DELETE:
        rows = fit_rows(rows, state.schema)
        _check_elements(rows, state)
    record_keys = state.keys.record_keys(rows)
    record_keys = record_keys.combine_chunks() if isinstance(record_keys, pa.ChunkedArray) else record_keys
    if None not in groups and len(groups) == 1:
        (group,) = groups
        assert group is not None
        yield _Group(*group, rows, record_keys)
        return
    rows = rows.combine_chunks()
    paths = state.keys.partition_paths(rows)
    for path in pc.unique(paths).to_pylist():
        chosen = pc.equal(paths, path)
        is_all = pc.all(chosen).as_py()
        of_path = rows if is_all else rows.filter(chosen)
        keys_of_path = record_keys if is_all else record_keys.filter(chosen)
        assert state.index.placed is not None, "a file group that was looked up is told"
        located = state.index.placed.locate(path, keys_of_path)
        for number, slot in enumerate(located.dictionary.to_pylist()):
            file_id = state.file_id_of(path, slot)
            if len(located.dictionary) == 1:
                yield _Group(path, file_id, of_path, keys_of_path)
                break
            here = pc.equal(located.indices, number)
            yield _Group(path, file_id, of_path.filter(here), keys_of_path.filter(here))


def _new_versions(group: _Group, state: WriteState) -> list[LogRecords | LogDeletes]:
    """Return the rows as logs are read: first those with values, then the keys that go."""
    staying = 0 if state.operation is Operation.DELETE else group.staying
    found: list[LogRecords | LogDeletes] = []
    if staying:
        found.append(LogRecords(_with_meta(group, state), False, state.instant))
    if staying < len(group.record_keys):
        gone = group.record_keys.slice(staying)
        found.append(LogDeletes(gone, None, pa.repeat(pa.scalar(True), len(gone)), state.instant))
    return found


def _tell_merged(group: _Group, winners: Winners, merge: SliceMerge, state: WriteState) -> None:
    """Say which keys came and which went, by the base file that the winners went through."""
    if state.told_of_keys:
        _tell(group, winners, merge.was_new, merge.has_deleted)


def _tell_logged(group: _Group, present: FileSlice | None, winners: Winners, state: WriteState) -> None:
    """Say the same where a log is written: by what the index knew of the keys, or by reading what is there.

    What is looked up is not enough where ordering values decide: an old delete, or a row that is older than a delete
    in the logs, changes nothing.
    """
    if not state.told_of_keys:
        return
    if group.change is not None:
        change = group.change[winners.entries]
        came = winners.is_record & (change == KeyChange.NEW)
        gone = ~winners.is_record & (change != KeyChange.NEW)
        has_logs = present is not None and bool(present.log_files)
        is_certain = state.rules.by_commit_time or not (
            (gone & ~winners.undated).any() or (came.any() and has_logs)
        )
        if is_certain:
            _tell(group, winners, came, gone)
            return
    before, after = _keys_before_and_after(group, present, state)
    keys = group.record_keys.take(pa.array(winners.entries))
    was, will_be = (
        pc.is_in(keys, value_set=found).to_numpy(zero_copy_only=False) for found in (before, after)
    )
    _tell(group, winners, will_be & ~was, was & ~will_be)


def _tell(group: _Group, winners: Winners, came: npt.NDArray[np.bool_], gone: npt.NDArray[np.bool_]) -> None:
    if group.change is not None:  # where a key has moved to, it is told
        gone = gone & (group.change[winners.entries] != KeyChange.MOVED_AWAY)
    group.came = group.record_keys.take(pa.array(winners.entries[came]))
    group.went = group.record_keys.take(pa.array(winners.entries[gone]))


def _keys_before_and_after(
    group: _Group, present: FileSlice | None, state: WriteState
) -> tuple[pa.Array, pa.Array]:
    """Return which of the keys a reader finds in the file group, before the write and after it.

    Reads the columns that merging looks at, and of these the rows of the keys.
    """
    schema = pa.schema([state.file_schema.field(name) for name in state.rules.columns(state.file_schema)])
    base: list[pa.RecordBatch] = []
    logs: Sequence[LogRecords | LogDeletes] = ()
    if present is not None and present.base_file is not None:
        base = list(read_base_file(state.store, present.base_file.path, schema, keys=group.record_keys))
    if present is not None:
        logs = read_log_files(
            state.store,
            [log.path for log in present.log_files],
            schema,
            ordering_fields=state.rules.ordering_fields,
            table_schema=state.file_schema,
            keys=group.record_keys,
            whole=frozenset(log.path for log in present.log_files if log.is_whole),
        )
    new = [
        LogRecords(log.records.select(schema.names), log.is_partial, log.instant)
        if isinstance(log, LogRecords)
        else log
        for log in _new_versions(group, state)
    ]

    def keys_of(versions: Sequence[LogRecords | LogDeletes]) -> pa.Array:
        rows = merge_slice(base, versions, state.rules, schema, shown=[RECORD_KEY_COLUMN])
        return pa.chunked_array([batch.column(0) for batch in rows], pa.string()).combine_chunks()

    return keys_of(logs), keys_of([*logs, *new])


def _with_meta(group: _Group, state: WriteState) -> pa.Table:
    """Put the meta columns before the rows. Who writes them to a file says which one it is, and in which partition."""
    count = group.staying
    # Unique in a commit, also where several tasks append to a file group.
    place = (state.log_version - 1) << GROUP_BITS | group_hash((group.partition, group.file_id))
    meta = [
        pa.repeat(pa.scalar(state.instant), count),
        numbered(f"{state.instant}_{place}_", count),
        group.record_keys.slice(0, count),
        pa.nulls(count, pa.string()),
        pa.nulls(count, pa.string()),
    ]
    return pa.Table.from_arrays([*meta, *group.rows.slice(0, count).columns], schema=state.file_schema)


def _partition_values(batch: pa.RecordBatch, state: WriteState) -> dict[str, str]:
    """Return the texts of partition columns that are the same in every row, as they are where paths are made of them
    alone."""
    found = {}
    for name in (column.name for column in state.keys.partition_fields):
        if name in batch.schema.names and pa.types.is_string(batch.schema.field(name).type):
            first = batch.column(name)[0]
            if pc.all(pc.equal(batch.column(name), first), skip_nulls=False).as_py():
                found[name] = first.as_py()
    return found


def _write_base(
    group: _Group, file_id: str, present: FileSlice | None, winners: Winners, state: WriteState
) -> GroupWritten:
    name = render_base_file_name(BaseFileName(file_id, WRITE_TOKEN, state.instant))
    path = path_in_partition(group.partition, name)
    schema = state.file_schema
    old = present.base_file if present is not None else None
    if present is not None and (old is None or present.log_files):
        raise CorruptTableError(
            path=path_in_partition(group.partition, file_id),
            found="log files in a copy-on-write table",
            expected="base files only",
            remedy="Nobody compacts such a table. If somebody has changed hoodie.table.type, put MERGE_ON_READ back "
            "into hoodie.properties.",
        )
    base: Iterable[pa.RecordBatch] = () if old is None else read_base_file(state.store, old.path, schema)
    merge = SliceMerge(winners)
    constants = {FILE_NAME_COLUMN: name, PARTITION_PATH_COLUMN: group.partition}
    if old is None:
        constants[COMMIT_TIME_COLUMN] = state.instant
    with Spill() as spill:
        writer = BaseFileWriter(spill, schema, avro_schema=state.avro_schema)
        for batch in merge.over(base):
            writer.write(with_constants(batch, constants | _partition_values(batch, state)))
        facts = writer.finish({})
        _tell_merged(group, winners, merge, state)
        is_idle = old is not None and not (merge.inserted or merge.updated or merge.deleted)
        if is_idle and path not in state.stale:
            return _report(group, file_id, outdated=merge.outdated)
        size = _put(path, spill.content, facts, "CREATE" if old is None else "MERGE", group.partition, state)
    return _report(
        group,
        file_id,
        path=path,
        previous_instant=old.instant if old is not None else None,
        previous_base_file=split_path(old.path)[1] if old is not None else None,
        rows=facts.rows,
        key_hash_sum=facts.key_hash_sum,
        inserted=merge.inserted,
        updated=merge.updated,
        deleted=merge.deleted,
        outdated=merge.outdated,
        size_bytes=size,
    )


def _write_shadows(
    group: _Group, offspring: Offspring, winners: Winners, state: WriteState
) -> tuple[GroupWritten, ...]:
    """Write the rows to the file groups that are taking this one's place, to each its own."""
    located = offspring.index.locate(group.partition, group.record_keys)
    owners = located.indices.to_numpy()[winners.entries]
    written = []
    for number, slot in enumerate(located.dictionary.to_pylist()):
        chosen = owners == number
        if not chosen.any():
            continue
        file_id = offspring.index.new_file_id(group.partition, slot, instant=offspring.instant)
        name = offspring.log_name(file_id, instant=state.instant, task=state.log_version)
        done = _write_log(group, name, winners, state, chosen=chosen)
        written.append(replace(done, is_copy=not state.is_virtual))
    return tuple(written)


def _write_reference(
    group: _Group, name: LogFileName, shadows: Sequence[GroupWritten], state: WriteState
) -> GroupWritten:
    """Write a log that only says where the rows are."""
    path = path_in_partition(group.partition, render_log_file_name(name))
    files = [split_path(shadow.path)[1] for shadow in shadows if shadow.path is not None]
    data = encode_reference(files, instant=state.instant, avro_schema=state.avro_schema)
    size = _put(path, data, NO_ROWS, "CREATE", group.partition, state)
    return _report(
        group, name.file_id, path=path, is_log=True, previous_instant=state.instant, size_bytes=size
    )


def _write_log(
    group: _Group,
    name: LogFileName,
    winners: Winners,
    state: WriteState,
    *,
    chosen: npt.NDArray[np.bool_] | None = None,
) -> GroupWritten:
    """Write the winners, or those that are `chosen`, to a log file.

    Of chosen ones nothing is reported as received: whoever writes the others, or refers to them all, says it.
    """
    path = path_in_partition(group.partition, render_log_file_name(name))
    everything = np.ones(len(winners.entries), np.bool_) if chosen is None else chosen
    constants = {
        COMMIT_TIME_COLUMN: state.instant,
        PARTITION_PATH_COLUMN: group.partition,
        FILE_NAME_COLUMN: name.file_id,
    }
    batches = [with_constants(batch, constants) for batch in winners.rows(winners.is_record & everything)]
    records = pa.Table.from_batches(batches) if batches else None
    if records is not None and state.log_format is LogFormat.AVRO:
        records = records.cast(state.file_schema)
    deletes, gone = _deletes(group, winners, ~winners.is_record & everything, state)
    data = encode_log_file(
        instant=state.instant,
        avro_schema=state.avro_schema,
        records=records,
        deletes=deletes,
        gone=gone,
        block_format=state.log_format,
        has_statistics=state.has_ranges,
    )
    facts = log_file_facts(data, path=path)
    size = _put(path, data, facts, "CREATE", group.partition, state)
    return _report(
        group,
        name.file_id,
        is_receiver=chosen is None,
        path=path,
        is_log=True,
        previous_instant=name.instant,
        rows=records.num_rows if records is not None else 0,
        key_hash_sum=facts.key_hash_sum,
        # Whether a key is new is known once the log is merged; until then, as for Hudi, a log holds updates.
        updated=records.num_rows if records is not None else 0,
        deleted=sum(len(some.keys) for some in (deletes, gone) if some is not None),
        size_bytes=size,
    )


def _deletes(
    group: _Group, winners: Winners, chosen: npt.NDArray[np.bool_], state: WriteState
) -> tuple[Deletes | None, Deletes | None]:
    """Collect deletes among the winners: with the ordering values of their rows, and those that have none.

    A key that only leaves goes whatever its row says. The value of such a delete must be the Int 0, by which Hudi knows
    it. A null in its place fails every read of Hudi's, if the logs have a row of the key.
    """
    entries = winners.entries[chosen]
    has_ordering = np.zeros(len(entries), np.bool_)
    if state.operation is not Operation.DELETE and not state.rules.by_commit_time:
        has_ordering = entries < group.staying
    dated, gone = pa.array(entries[has_ordering]), pa.array(entries[~has_ordering])
    return (
        Deletes(group.record_keys.take(dated), group.partition, _ordering_of(group, dated, state))
        if len(dated)
        else None,
        Deletes(group.record_keys.take(gone), group.partition, None) if len(gone) else None,
    )


def _ordering_of(group: _Group, entries: Any, state: WriteState) -> pa.StructArray:
    rows = group.rows.take(entries)
    names = state.rules.ordering_fields
    return pa.StructArray.from_arrays([nested_column(rows, name) for name in names], names=list(names))


def _put(
    path: str, data: bytes | Path, facts: FileFacts, marker: str, partition: str, state: WriteState
) -> int:
    """Put a file, its marker first; return its size. An attempt that comes second must have had the same rows."""
    store = state.store
    # The marker comes before all else: by it the next comer finds what to take back.
    store.put(marker_path(state.instant, path, marker), b"")
    if partition not in state.partitions:
        metadata = render_partition_metadata(state.instant, partition_depth(partition))
        store.put_new(partition_metadata_path(partition), metadata)
    stale = state.stale.get(path)
    if not (store.put_new(path, data) if stale is None else store.replace_if(path, data, stale)):
        found = _facts_of(path, state)
        if (found.rows, found.key_hash_sum) != (facts.rows, facts.key_hash_sum):
            raise ConfigError(
                f"two attempts at {path} had different rows: {found.rows} with the key sum {found.key_hash_sum}, and "
                f"{facts.rows} with {facts.key_hash_sum}. The frame's rows change from one evaluation to the next "
                f"(rand(), a source that is being written, an unordered limit). Write it down first, e.g. as Parquet, "
                f"or cache it."
            )
        return store.stat(path).size_bytes
    return data.stat().st_size if isinstance(data, Path) else len(data)


def _facts_of(path: str, state: WriteState) -> FileFacts:
    if path.endswith(".parquet"):
        return read_file_facts(state.store, path)
    return log_file_facts(state.store.read(path), path=path)


def _check_elements(rows: pa.Table, state: WriteState) -> None:
    if state.allows_null_elements:
        return
    column = find_null_element(rows)
    if column is not None:
        raise ConfigError(
            f"column {column!r} has an array with a null in it. Hudi's own writer fails on such rows once they are in "
            f"the table. Filter the nulls out of the array, or make the table with allow_null_elements=True."
        )


def _report(group: _Group, file_id: str, *, is_receiver: bool = True, **facts: Any) -> GroupWritten:
    change = group.change if group.change is not None and is_receiver else np.empty(0, np.int8)
    return GroupWritten(
        partition=group.partition,
        file_id=file_id,
        received=len(group.record_keys) if is_receiver else 0,
        received_sum=key_hash_sum(group.record_keys) if is_receiver else 0,
        moved=int((change == KeyChange.MOVED_AWAY).sum()),
        **facts,
    )
