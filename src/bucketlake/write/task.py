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
from dataclasses import dataclass, field, fields, replace
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
from bucketlake.index.listed import RowsChanged
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
)
from bucketlake.merge import SliceMerge, Winners, fold_logs
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
from bucketlake.storage import Spill, overlapped
from bucketlake.write.changed_values import changed_values
from bucketlake.write.exchange import GROUP_BITS, Piece
from bucketlake.write.newest_changes import deletes_of, loosely_fitted, newest_changes
from bucketlake.write.state import WriteState
from bucketlake.write.stored_rows import read_stored
from bucketlake.write.tag import group_hash, nested_column

_LARGE_BYTES = 1 << 20
"""Pieces of this size are written as they are: a copy of them all would take as much memory again."""
_UNPACKED = 4
"""So many times its size a stored file may take in memory."""


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
    grown: int = 0
    """By how many keys its log makes the file group grow, where new keys may go to logs."""
    room: int | None = None
    """How many more keys the file group takes after that; None: no limit is known."""
    told: int = 0
    """Keys of which the index is told that they came or went, where keys are looked up."""
    told_sum: int = 0
    """The sum of their hashes, modulo 2**64."""

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _FIELDS}


_FIELDS = tuple(one.name for one in fields(GroupWritten))
"""`asdict` would copy every value, which takes longer than to encode them."""

CHANGE = "_bucketlake_change"
"""The column of rows, on their way to a file group, that says what they do there."""


class KeyChange(IntEnum):
    """What a row means for its key, as the index found it."""

    KNOWN = 0
    NEW = 1
    GOING = 2
    """The row of a feed says that its key goes, if that is no older than what is there."""
    GONE = 3
    MOVED_AWAY = 4
    """It is in another partition from now on, where it is new."""


@dataclass(slots=True)
class _Group:
    """New rows of one file group."""

    partition: str
    file_id: str
    rows: pa.Table
    record_keys: pa.Array = field(repr=False)
    """Of the rows; then of those that are `going`; then of keys that leave, or of the `lost`."""
    going: LogDeletes | None = None
    """Of a feed, whose `rows` are those with values only: what else it says."""
    lost: int = 0
    """Of a feed: how many rows lost to others of their keys."""
    change: npt.NDArray[np.int8] | None = None
    """What looking them up has told of the keys, if they were: a `KeyChange` for each row, those that leave last."""
    came: pa.Array | None = None
    """Keys that the file group did not have; None if nobody asked, or there are none."""
    went: pa.Array | None = None
    values: tuple[pa.Table, pa.Table] | None = None
    """Rows whose values changed, as they were and as they are; None if nobody asked, or nothing was there."""
    beaten: npt.NDArray[np.bool_] | None = None
    """Which winners lose to a newer delete in the logs, if that was looked at. They are not written: once these logs
    are compacted the delete is gone, and a row would be there of which nobody was told."""

    @property
    def changed(self) -> RowsChanged:
        none = pa.array([], pa.string())
        before, after = (None, None) if self.values is None else self.values
        return RowsChanged(
            self.partition,
            self.file_id,
            none if self.came is None else self.came,
            none if self.went is None else self.went,
            before,
            after,
        )

    @property
    def staying(self) -> int:
        """How many of the rows are not just words of keys that leave."""
        if self.going is not None:
            return int(self.rows.num_rows)
        return len(self.record_keys) if self.change is None else int((self.change < KeyChange.GONE).sum())

    @property
    def going_count(self) -> int:
        return 0 if self.going is None else len(self.going.keys)


def write_groups(pieces: Iterable[Piece], state: WriteState) -> Iterator[GroupWritten]:
    """Write the rows of a task, which come sorted by their codes, group by group."""
    for written, _ in write_telling(pieces, state):
        yield from written


def write_telling(
    pieces: Iterable[Piece], state: WriteState
) -> Iterator[tuple[tuple[GroupWritten, ...], RowsChanged]]:
    """Do the same; and say of each group which keys came to it, and which went, if somebody is to be told."""
    runs = groupby((piece for piece in pieces if piece.rows.num_rows), key=attrgetter("code"))
    groups = (group for _, run in runs for group in _groups_in(*_together(run), state))

    def write(group: _Group) -> tuple[tuple[GroupWritten, ...], RowsChanged]:
        return write_group(group, state), group.changed

    def size_of(group: _Group) -> int:
        return bytes_at_work((group.partition, group.file_id), group.rows, state)

    yield from overlapped(write, groups, state.store, bytes_of=size_of)


def bytes_at_work(place: FileGroupId, rows: pa.Table, state: WriteState) -> int:
    """Estimate how much memory it takes to write rows into a file group."""
    present = state.groups.get(place[0], {}).get(place[1])
    stored = 0 if present is None else present.size_bytes
    return 2 * bytes_of(rows) + _UNPACKED * stored


def write_looked_up(
    place: FileGroupId, rows: pa.Table, state: WriteState
) -> tuple[tuple[GroupWritten, ...], RowsChanged]:
    """Write rows of one file group that say what they do there; and say which keys came to it, and which went."""
    change = rows.column(CHANGE).to_numpy()
    order = np.argsort(change, kind="stable")
    rows, change = rows.drop_columns([CHANGE]).take(pa.array(order)), change[order]
    if state.feed is not None:
        group = _of_feed(place, rows, change, state)
        return write_group(group, state), group.changed
    if state.operation is not Operation.DELETE:
        rows = _checked(rows, state)
    keys = _in_one(state.keys.record_keys(rows))
    group = _Group(*place, rows, keys, change=change)
    return write_group(group, state), group.changed


def _of_feed(place: FileGroupId, rows: pa.Table, change: npt.NDArray[np.int8], state: WriteState) -> _Group:
    """Tell apart the rows of a feed that were looked up, in the order of what they do."""
    keys = _in_one(state.keys.record_keys(rows))
    staying, dated = np.searchsorted(change, [KeyChange.GOING, KeyChange.GONE]).tolist()
    going = deletes_of(rows.slice(staying, dated - staying), keys.slice(staying, dated - staying), state)
    return _Group(*place, _checked(rows.slice(0, staying), state), keys, going, change=change)


def delete_keys(
    place: FileGroupId, keys: pa.Array, state: WriteState
) -> tuple[tuple[GroupWritten, ...], RowsChanged]:
    """Delete keys from one file group, whatever anybody has recorded of them; and say which rows went."""
    assert state.operation is Operation.DELETE
    gone = np.full(len(keys), KeyChange.GONE, np.int8)
    group = _Group(*place, pa.table({}), keys, change=gone)
    return write_group(group, state), group.changed


def write_group(group: _Group, state: WriteState) -> tuple[GroupWritten, ...]:
    """Write the new rows of one file group, and of those that are taking its place."""
    present = state.groups.get(group.partition, {}).get(group.file_id)
    if present is None and state.operation is Operation.DELETE:
        return (_report(group, group.file_id),)
    file_id = group.file_id
    winners = fold_logs(_new_versions(group, state), state.rules, state.file_schema)
    if present is None and not state.appends:
        if not (winners.is_record.any() or _has_base(group, state)):
            return (_report(group, group.file_id),)
        return (_write_base(group, file_id, None, winners, state),)
    if (
        state.is_copy_on_write
        or (not state.logs_new_keys and _takes_new_keys(group, present))
        or _has_base(group, state)
    ):
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


def _has_base(group: _Group, state: WriteState) -> bool:
    """Tell whether an earlier round of the write has put a base file, which cannot go and may have no log beside it."""
    return _base_path(group.partition, group.file_id, state) in state.stale


def _base_path(partition: str, file_id: str, state: WriteState) -> str:
    name = render_base_file_name(BaseFileName(file_id, WRITE_TOKEN, state.instant))
    return path_in_partition(partition, name)


def _together(run: Iterable[Piece]) -> tuple[pa.Table, set[FileGroupId | None]]:
    """Bring the rows of pieces together: small ones are copied, and not kept."""
    groups, batches = zip(*((piece.group, piece.rows) for piece in run), strict=True)
    rows = pa.Table.from_batches(batches)
    if len(batches) == 1:
        return rows, set(groups)
    return rows if bytes_of(rows) > len(batches) * _LARGE_BYTES else rows.combine_chunks(), set(groups)


def _groups_in(rows: pa.Table, groups: set[FileGroupId | None], state: WriteState) -> Iterator[_Group]:
    """Divide rows of one code: they are of one file group, unless two hashes agree."""
    if state.operation is not Operation.DELETE and state.feed is None:
        rows = _checked(rows, state)
    record_keys = _in_one(state.keys.record_keys(rows))
    if None not in groups and len(groups) == 1:
        (group,) = groups
        assert group is not None
        yield _group_of(*group, rows, record_keys, state)
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
                yield _group_of(path, file_id, of_path, keys_of_path, state)
                break
            here = pc.equal(located.indices, number)
            yield _group_of(path, file_id, of_path.filter(here), keys_of_path.filter(here), state)


def _group_of(
    partition: str, file_id: str, rows: pa.Table, record_keys: pa.Array, state: WriteState
) -> _Group:
    """Make a group of its rows; of a feed, of those that count."""
    if state.feed is None:
        return _Group(partition, file_id, rows, record_keys)
    newest = newest_changes(rows, record_keys, state)
    staying = rows.filter(pa.array(newest.is_staying))
    going = pa.array(newest.going)
    of_going = loosely_fitted(rows.take(going), state, state.rules.columns(state.schema))
    deletes = deletes_of(of_going, record_keys.take(going), state)
    keys = record_keys.take(pa.array(newest.order))
    return _Group(partition, file_id, _checked(staying, state), keys, deletes, len(newest.lost))


def _checked(rows: pa.Table, state: WriteState) -> pa.Table:
    """Return rows with the columns of the table. An error for what it takes in none of them."""
    if not rows.num_rows:
        return state.schema.empty_table()  # a feed that only deletes may lack columns
    rows = fit_rows(rows, state.schema)
    _check_elements(rows, state)
    return rows


def _in_one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _new_versions(group: _Group, state: WriteState) -> list[LogRecords | LogDeletes]:
    """Return the rows as logs are read: first those with values, then the keys that go."""
    staying = 0 if state.operation is Operation.DELETE else group.staying
    found: list[LogRecords | LogDeletes] = []
    if staying:
        found.append(LogRecords(_with_meta(group, state), False, state.instant))
    if group.going is not None:
        found.append(group.going)
    told = staying + group.going_count
    gone = group.record_keys.slice(told, len(group.record_keys) - group.lost - told)
    if len(gone) or not found:
        found.append(LogDeletes(gone, None, pa.repeat(pa.scalar(True), len(gone)), state.instant))
    return found


def _tell_merged(group: _Group, winners: Winners, merge: SliceMerge, state: WriteState) -> None:
    """Say which keys came and which went, by the base file that the winners went through; and which values."""
    if not state.told_of_keys:
        return
    _tell(group, winners, merge.was_new, merge.has_deleted)
    if state.asked_columns:
        names = [RECORD_KEY_COLUMN, *state.asked_columns]
        schema = pa.schema([state.file_schema.field(name) for name in names])
        after = winners.rows(winners.is_record & ~merge.has_lost, names)
        group.values = changed_values(*(pa.Table.from_batches(rows, schema) for rows in (merge.gone, after)))


def _tell_logged(group: _Group, present: FileSlice | None, winners: Winners, state: WriteState) -> None:
    """Say the same where a log is written: by what the index knew of the keys, or by reading what is there."""
    if not state.told_of_keys:
        return
    looked_up = _told_by_index(group, present, winners, state)
    if looked_up is not None and not state.asked_columns:
        _tell(group, winners, *looked_up)
        return
    before, after = _before_and_after(group, present, winners, state)
    keys = group.record_keys.take(pa.array(winners.entries))
    was, will_be = (
        pc.is_in(keys, value_set=found.column(0)).to_numpy(zero_copy_only=False) for found in (before, after)
    )
    group.beaten = winners.is_record & ~will_be
    _tell(group, winners, *((will_be & ~was, was & ~will_be) if looked_up is None else looked_up))
    if state.asked_columns:
        group.values = changed_values(before, after)


def _told_by_index(
    group: _Group, present: FileSlice | None, winners: Winners, state: WriteState
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None:
    """Tell which of the winners come and which go, by what was looked up; None if that does not tell.

    It is not enough where ordering values decide: an old delete, or a row that is older than a delete in the logs,
    changes nothing.
    """
    if group.change is None:
        return None
    change = group.change[winners.entries]
    came = winners.is_record & (change == KeyChange.NEW)
    gone = ~winners.is_record & (change != KeyChange.NEW)
    is_undeleted = (group.partition, group.file_id) in state.undeleted
    has_logs = present is not None and bool(present.log_files) and not is_undeleted
    is_certain = state.rules.by_commit_time or not (
        (gone & ~winners.undated).any() or (came.any() and has_logs)
    )
    return (came, gone) if is_certain else None


def _tell(group: _Group, winners: Winners, came: npt.NDArray[np.bool_], gone: npt.NDArray[np.bool_]) -> None:
    if group.change is not None:  # where a key has moved to, it is told
        gone = gone & (group.change[winners.entries] != KeyChange.MOVED_AWAY)
    group.came = group.record_keys.take(pa.array(winners.entries[came]))
    group.went = group.record_keys.take(pa.array(winners.entries[gone]))


def _before_and_after(
    group: _Group, present: FileSlice | None, winners: Winners, state: WriteState
) -> tuple[pa.Table, pa.Table]:
    """Return what a reader finds of the keys in the file group, before the write and after it: keys, and what is asked.

    Reads these columns and those that merging looks at, and of these the rows of the keys.
    """
    asked = state.asked_columns
    stored = read_stored(
        state.store,
        present,
        state.rules,
        table_schema=state.file_schema,
        columns=asked,
        keys=group.record_keys,
    )
    new = _as_logged(group, winners, stored.schema.names, state)
    shown = [RECORD_KEY_COLUMN, *asked]
    return stored.merged(shown), stored.merged(shown, new=new)


def _as_logged(
    group: _Group, winners: Winners, names: Sequence[str], state: WriteState
) -> list[LogRecords | LogDeletes]:
    """Return the winners as they will be read from the log.

    A row that deletes becomes a word of a delete block there, and these are not merged alike: over a delete without an
    ordering value a row's counts, and another word does not.
    """
    found: list[LogRecords | LogDeletes] = []
    rows = list(winners.rows(winners.is_record, names))
    if rows:
        found.append(LogRecords(pa.Table.from_batches(rows), False, state.instant))
    goes = ~winners.is_record
    dated, gone = _deletes(group, winners, goes, state)
    if dated is not None:
        undated = winners.undated[goes & _has_ordering(group, winners, state)]
        found.append(LogDeletes(dated.keys, dated.ordering, pa.array(undated), state.instant))
    if gone is not None:
        found.append(LogDeletes(gone.keys, None, pa.repeat(pa.scalar(True), len(gone.keys)), state.instant))
    return found


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
    path = _base_path(group.partition, file_id, state)
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
    asked = state.asked_columns
    merge = SliceMerge(winners, noted=[RECORD_KEY_COLUMN, *asked] if asked else ())
    constants = {FILE_NAME_COLUMN: split_path(path)[1], PARTITION_PATH_COLUMN: group.partition}
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
    outdated = 0
    if group.beaten is not None and group.beaten.any():
        outdated = 0 if chosen is not None else int(group.beaten.sum())
        everything = everything & ~group.beaten
    if not everything.any():
        return _report(group, name.file_id, is_receiver=chosen is None, outdated=outdated)
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
    data, facts = encode_log_file(
        instant=state.instant,
        avro_schema=state.avro_schema,
        records=records,
        deletes=deletes,
        gone=gone,
        block_format=state.log_format,
        has_statistics=state.has_ranges,
    )
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
        outdated=outdated,
        grown=len(group.changed.came) - len(group.changed.went) if state.logs_new_keys else 0,
        size_bytes=size,
    )


def _deletes(
    group: _Group, winners: Winners, chosen: npt.NDArray[np.bool_], state: WriteState
) -> tuple[Deletes | None, Deletes | None]:
    """Collect deletes among the winners: with the ordering values of their rows, and those that have none.

    A key that only leaves goes whatever its row says. The value of such a delete must be the Int 0, by which Hudi knows
    it. A null in its place fails every read of Hudi's, if the logs have a row of the key.
    """
    has_ordering = _has_ordering(group, winners, state)
    dated, gone = (pa.array(winners.entries[chosen & part]) for part in (has_ordering, ~has_ordering))
    return (
        Deletes(group.record_keys.take(dated), group.partition, _ordering_of(group, dated, state))
        if len(dated)
        else None,
        Deletes(group.record_keys.take(gone), group.partition, None) if len(gone) else None,
    )


def _has_ordering(group: _Group, winners: Winners, state: WriteState) -> npt.NDArray[np.bool_]:
    """Tell which winners, if they are deletes, are told with the ordering values of their rows."""
    if state.operation is Operation.DELETE or state.rules.by_commit_time:
        return np.zeros(len(winners.entries), np.bool_)
    is_dated = group.going is not None and group.going.ordering is not None
    has: npt.NDArray[np.bool_] = winners.entries < group.staying + (group.going_count if is_dated else 0)
    return has


def _ordering_of(group: _Group, entries: Any, state: WriteState) -> pa.StructArray:
    if group.going is not None:  # rows that stay are no deletes
        assert group.going.ordering is not None
        return group.going.ordering.take(pc.subtract(entries, group.staying))
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
