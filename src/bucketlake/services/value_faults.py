"""Entries of secondary indexes that do not agree with the rows: found, whole tables and single keys.

    look_for_value_faults    every row and every entry, in both directions, by the hashes of entries    by `Tasks`
    value_faults_of          the same of some keys only, exactly: entries and rows are read again

An entry is the text of a value and a record key. It is wrong in one of two ways: a row has it and the index does not,
or the index has it and no row does. A row whose entry has another value is wrong in both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import CorruptTableError
from bucketlake.index import ENTRIES, RecordedIndex
from bucketlake.index.secondary import SecondaryIndex, secondary_indexes_of
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import path_in_partition
from bucketlake.metadata.secondary_keys import prefixes_of_entries, record_keys_of_entries, value_of_prefix
from bucketlake.schema import RECORD_KEY_COLUMN, key_hashes
from bucketlake.services.key_faults import Columns, looked_up, slices_by_group
from bucketlake.services.tasks import Tasks
from bucketlake.state import TableState
from bucketlake.storage import Store
from bucketlake.write.state import asked_columns
from bucketlake.write.stored_rows import read_stored

Hashes = npt.NDArray[np.uint64]


class ValueFaultKind(StrEnum):
    """What is wrong with an entry."""

    MISSING = "without its entry"
    SURPLUS = "with an entry and no such row"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ValueFault:
    """An entry that a secondary index lacks, or has too much."""

    index: str
    """Its name."""
    column: str
    entry: str
    """The key of the entry: value and record key."""
    is_there: bool
    """Whether the index has it."""
    place: FileGroupId | None
    """Where the row is that has the value, or the record-level index has its key; None if there is none."""

    @property
    def kind(self) -> ValueFaultKind:
        return ValueFaultKind.SURPLUS if self.is_there else ValueFaultKind.MISSING

    @property
    def name(self) -> tuple[str, str, bool]:
        """What it is about, wherever the row may be."""
        return self.index, self.entry, self.is_there

    @property
    def key(self) -> str:
        """The record key."""
        found: str = record_keys_of_entries(pa.array([self.entry]))[0].as_py()
        return found

    def __str__(self) -> str:
        value = value_of_prefix(prefixes_of_entries(pa.array([self.entry]))[0].as_py())
        where = "" if self.place is None else f" in {path_in_partition(*self.place)}"
        row = f"the key {self.key!r}{where}"
        said = f"{self.column} = {'null' if value is None else repr(value)}"
        if self.is_there:
            return f"{self.index} has {said} for {row}, which has no such row"
        return f"{self.index} lacks {said} of {row}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupEntries:
    """A file group whose rows are to be read, and the indexes that they have entries in. Frozen and picklable."""

    store: Store
    columns: Columns
    indexes: tuple[SecondaryIndex, ...]
    part: FileSlice
    wanted: tuple[Hashes, ...] | None = None
    """Of each index, which entries are to be named; None: none is, and the hashes of all are told."""
    keys: pa.Array | None = None
    """The rows that are meant; None for all."""

    @property
    def size_bytes(self) -> int:
        base = 0 if self.part.base_file is None else self.part.base_file.size_bytes
        return base + sum(log.size_bytes for log in self.part.log_files)

    def entries(self) -> list[pa.Array]:
        """Return, of each index, the keys of the entries that the rows should have."""
        asked = asked_columns(self.indexes)
        stored = read_stored(
            self.store,
            self.part,
            self.columns.rules,
            table_schema=self.columns.file_schema,
            columns=asked,
            keys=self.keys,
        )
        rows = stored.merged([RECORD_KEY_COLUMN, *asked])
        if self.keys is not None:
            rows = rows.filter(pc.is_in(rows[RECORD_KEY_COLUMN], value_set=self.keys))
        return [index.entry_keys_of(rows) for index in self.indexes]


def hash_rows(task: GroupEntries) -> list[Hashes]:
    """Return, of each index, the hashes of the entries that the rows of a file group should have."""
    return [key_hashes(keys) for keys in task.entries()]


def name_rows(task: GroupEntries) -> list[pa.Array]:
    """Return, of each index, those of the entries that are wanted; or all."""
    found = task.entries()
    if task.wanted is None:
        return found
    return [_with_hashes(keys, wanted) for keys, wanted in zip(found, task.wanted, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardEntriesTask:
    """A shard of a secondary index to be read. Frozen and picklable."""

    index: SecondaryIndex
    shard: int
    wanted: Hashes | None = None

    def entries(self) -> tuple[pa.Array, int]:
        """Return its entries, and how many it has that are another shard's: nobody finds those."""
        keys = self.index.entries_of(self.shard)
        is_own = self.index.shard_of(None, keys) == self.shard
        return keys.filter(pa.array(is_own)), int(len(keys) - is_own.sum())


def hash_shard(task: ShardEntriesTask) -> tuple[Hashes, int]:
    """Return the hashes of the entries of a shard, and how many it has that are another shard's."""
    keys, strays = task.entries()
    return key_hashes(keys), strays


def name_shard(task: ShardEntriesTask) -> pa.Array:
    """Return those of the entries of a shard that are wanted."""
    assert task.wanted is not None
    return _with_hashes(task.entries()[0], task.wanted)


def _with_hashes(keys: pa.Array, wanted: Hashes) -> pa.Array:
    return keys.filter(pa.array(np.isin(key_hashes(keys), wanted)))


@dataclass(frozen=True, slots=True)
class ValuesLooked:
    """What a look at whole secondary indexes has found."""

    faults: tuple[ValueFault, ...] = ()
    entries: int = 0
    strays: Mapping[str, int] = field(default_factory=dict)
    """By the index: how many entries are in a shard that is not their own."""


def look_for_value_faults(state: TableState, recorded: RecordedIndex | None, *, tasks: Tasks) -> ValuesLooked:
    """Compare every secondary index with all rows. `recorded` says where keys of entries without a row live."""
    indexes = secondary_indexes_of(state)
    if not indexes:
        return ValuesLooked()
    columns = Columns.of(state)
    for index in indexes:
        _refuse_unsound(index, columns.file_schema.names)
    slices = slices_by_group(state, None)
    groups = [
        GroupEntries(store=state.store, columns=columns, indexes=indexes, part=part)
        for part in slices.values()
    ]
    of_rows = tasks(hash_rows, groups)
    shards = [
        ShardEntriesTask(index=index, shard=shard) for index in indexes for shard in range(index.shards)
    ]
    of_shards = tasks(hash_shard, shards)
    lacking, surplus, strays = [], [], {}
    for number, index in enumerate(indexes):
        mine = [found for task, found in zip(shards, of_shards, strict=True) if task.index is index]
        there, wanted = _together(hashes for hashes, _ in mine), _together(found[number] for found in of_rows)
        lacking.append(np.setdiff1d(wanted, there))
        surplus.append(np.setdiff1d(there, wanted))
        count = sum(found for _, found in mine)
        if count:
            strays[index.definition.name] = count
    faults = _missing(groups, of_rows, lacking, indexes, tasks)
    faults += _surplus(shards, of_shards, surplus, indexes, recorded, tasks)
    return ValuesLooked(tuple(sorted(faults, key=_in_order)), sum(len(h) for h, _ in of_shards), strays)


def _refuse_unsound(index: SecondaryIndex, columns: Sequence[str]) -> None:
    """Raise `CorruptTableError` for an index that no entry can mend."""
    fault = index.fault
    if fault is None and index.definition.column not in columns:
        fault = f"the table has no column {index.definition.column!r}"
    if fault is not None:
        raise CorruptTableError(
            path=index.definition.partition,
            found=f"a {index} that cannot be relied on: {fault}",
            expected="one that is in step with the table, and whole",
            remedy=f"It is beyond repair. Drop it, table.drop_index({index.definition.name!r}), and create it again.",
        )


def _together(parts: Iterable[Hashes]) -> Hashes:
    return np.concatenate([np.empty(0, np.uint64), *parts])


def _in_order(fault: ValueFault) -> tuple[str, bool, str]:
    return fault.index, fault.is_there, fault.entry


def _missing(
    groups: Sequence[GroupEntries],
    of_rows: Sequence[Sequence[Hashes]],
    lacking: Sequence[Hashes],
    indexes: Sequence[SecondaryIndex],
    tasks: Tasks,
) -> list[ValueFault]:
    """Name the entries that rows should have, by reading those file groups again."""
    again = [
        GroupEntries(
            store=group.store,
            columns=group.columns,
            indexes=group.indexes,
            part=group.part,
            wanted=tuple(lacking),
        )
        for group, found in zip(groups, of_rows, strict=True)
        if any(np.isin(mine, wanted).any() for mine, wanted in zip(found, lacking, strict=True))
    ]
    faults = []
    for group, named in zip(again, tasks(name_rows, again) if again else (), strict=True):
        place = group.part.partition, group.part.file_id
        for index, keys in zip(indexes, named, strict=True):
            faults += [_fault(index, entry, is_there=False, place=place) for entry in keys.to_pylist()]
    return faults


def _surplus(
    shards: Sequence[ShardEntriesTask],
    of_shards: Sequence[tuple[Hashes, int]],
    surplus: Sequence[Hashes],
    indexes: Sequence[SecondaryIndex],
    recorded: RecordedIndex | None,
    tasks: Tasks,
) -> list[ValueFault]:
    """Name the entries that no row has, and say where their keys live."""
    wanted = dict(zip((index.definition.name for index in indexes), surplus, strict=True))
    again = [
        ShardEntriesTask(index=task.index, shard=task.shard, wanted=wanted[task.index.definition.name])
        for task, (hashes, _) in zip(shards, of_shards, strict=True)
        if np.isin(hashes, wanted[task.index.definition.name]).any()
    ]
    faults = []
    for task, keys in zip(again, tasks(name_shard, again) if again else (), strict=True):
        places = _places(recorded, record_keys_of_entries(keys))
        faults += [
            _fault(task.index, entry, is_there=True, place=place)
            for entry, place in zip(keys.to_pylist(), places, strict=True)
        ]
    return faults


def _places(recorded: RecordedIndex | None, keys: pa.Array) -> list[FileGroupId | None]:
    """Say where an index of the whole table has keys."""
    if recorded is None or not recorded.is_global:
        return [None] * len(keys)
    where, ids = looked_up(recorded, pa.repeat(pa.scalar(""), len(keys)), keys.cast(pa.string()))
    both = zip(where.to_pylist(), ids.to_pylist(), strict=True)
    return [None if file_id is None else (partition, file_id) for partition, file_id in both]


def _fault(index: SecondaryIndex, entry: str, *, is_there: bool, place: FileGroupId | None) -> ValueFault:
    definition = index.definition
    return ValueFault(
        index=definition.name, column=definition.column, entry=entry, is_there=is_there, place=place
    )


def value_faults_of(
    state: TableState,
    recorded: RecordedIndex,
    doubtful: Sequence[ValueFault],
    *,
    tasks: Tasks,
) -> tuple[ValueFault, ...]:
    """Say which of these faults are there now; rows are looked for where they were, and where `recorded` says."""
    if not doubtful:
        return ()
    indexes = secondary_indexes_of(state)
    by_name = {index.definition.name: index for index in indexes}
    mine = [fault for fault in doubtful if fault.index in by_name]
    keys = [fault.key for fault in mine]
    now = _places(recorded, pa.array(keys, pa.string()))
    asked: dict[FileGroupId, set[str]] = {}
    for fault, key, place in zip(mine, keys, now, strict=True):
        for one in {fault.place, place} - {None}:
            assert one is not None
            asked.setdefault(one, set()).add(key)
    slices = slices_by_group(state, {partition for partition, _ in asked})
    columns = Columns.of(state)
    work = [
        GroupEntries(
            store=state.store,
            columns=columns,
            indexes=indexes,
            part=slices[place],
            keys=pa.array(sorted(of_place), pa.string()),
        )
        for place, of_place in sorted(asked.items())
        if place in slices
    ]
    wanted: set[tuple[str, str]] = set()
    where: dict[tuple[str, str], FileGroupId] = {}
    for task, named in zip(work, tasks(name_rows, work) if work else (), strict=True):
        for index, entries in zip(indexes, named, strict=True):
            found = {(index.definition.name, entry) for entry in entries.to_pylist()}
            wanted |= found
            where |= dict.fromkeys(found, (task.part.partition, task.part.file_id))
    there = _there(by_name, mine)
    faults = []
    for fault, place in zip(mine, now, strict=True):
        name = fault.index, fault.entry
        if (name in there) != (name in wanted):
            at = where.get(name, place)
            faults.append(_fault(by_name[fault.index], fault.entry, is_there=name in there, place=at))
    return tuple(faults)


def _there(indexes: Mapping[str, SecondaryIndex], faults: Sequence[ValueFault]) -> set[tuple[str, str]]:
    """Look entries up in their shards."""
    found: set[tuple[str, str]] = set()
    for name, index in indexes.items():
        keys = pa.array([fault.entry for fault in faults if fault.index == name], pa.string())
        if len(keys):
            found |= {(name, entry) for entry in index.those_there(keys).to_pylist()}
    return found


def entries_to_mend(faults: Sequence[ValueFault]) -> pa.RecordBatch:
    """Return what the index of these faults is to record, as `ENTRIES`."""
    keys = pa.array([fault.entry for fault in faults], pa.string())
    ids = pa.array([None if fault.is_there else "" for fault in faults], pa.string())
    return pa.RecordBatch.from_arrays([keys, pa.repeat(pa.scalar(""), len(keys)), ids], schema=ENTRIES)
