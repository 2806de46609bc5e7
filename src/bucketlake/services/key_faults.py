"""Keys whose rows and whose entry in an index do not agree: found, and decided what is to become of each.

    look_for_faults    every key of every file group is looked up, every entry is held against the rows    by `Tasks`
    faults_of          the same for some keys only, exactly: entries and rows are read again               by `Tasks`

Of a key with several rows one stays: the one that the table's ordering prefers; of equals the one of the newest commit;
then the one that the index names; then the first by partition and file group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.basefile import read_base_file
from bucketlake.index import RecordedIndex
from bucketlake.layout import FileGroupId, FileSlice, slices_of
from bucketlake.layout.names import path_in_partition
from bucketlake.logfile import LogRecords, read_log_files
from bucketlake.merge import MergeRules, fold_logs, merge_slice
from bucketlake.schema import COMMIT_TIME_COLUMN, RECORD_KEY_COLUMN, key_hashes, with_meta_columns
from bucketlake.services.tasks import Tasks
from bucketlake.state import TableState, files_of, table_schema, view_for
from bucketlake.storage import Store
from bucketlake.write.stored_rows import merged_keys

Identity = tuple[str, str]
"""A key, and the partition in which it is unique; empty where it is in the whole table."""

_NOTHING = np.empty(0, np.uint64)


class Fault(StrEnum):
    """What is wrong with a key."""

    MISSING = "without an entry"
    WRONG = "whose entry names another place"
    SURPLUS = "with an entry and no row"
    DUPLICATE = "with more than one row"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class KeyFault:
    """A key that is not as it should be, and what would be right."""

    key: str
    partition: str
    """In which it is unique; empty where it is in the whole table."""
    entry: FileGroupId | None
    """Where the index has it."""
    stays: FileGroupId | None
    """Where its row is, or the one of its rows that stays; None if there is none."""
    goes: tuple[FileGroupId, ...] = ()
    """Where its other rows are."""

    @property
    def kind(self) -> Fault:
        if self.goes:
            return Fault.DUPLICATE
        if self.stays is None:
            return Fault.SURPLUS
        return Fault.MISSING if self.entry is None else Fault.WRONG

    @property
    def identity(self) -> Identity:
        return self.key, self.partition

    @property
    def places(self) -> frozenset[FileGroupId]:
        """The file groups that it is about."""
        named = (place for place in (self.entry, self.stays) if place is not None)
        return frozenset((*named, *self.goes))

    def __str__(self) -> str:
        entry = "" if self.entry is None else path_in_partition(*self.entry)
        row = "" if self.stays is None else path_in_partition(*self.stays)
        match self.kind:
            case Fault.MISSING:
                return f"{self.key!r} is in {row}"
            case Fault.WRONG:
                return f"{self.key!r} is in {row}, and the index says {entry}"
            case Fault.SURPLUS:
                return f"{self.key!r}, which is not in {entry}"
            case Fault.DUPLICATE:
                gone = ", ".join(path_in_partition(*place) for place in self.goes)
                return f"{self.key!r} stays in {row}, and goes from {gone}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What is read of rows to merge and to compare them. Frozen and picklable."""

    rules: MergeRules
    file_schema: pa.Schema

    @classmethod
    def of(cls, state: TableState) -> Columns:
        properties = state.properties
        rules = MergeRules(
            properties.merge_mode,
            properties.ordering_fields,
            properties.delete_field,
            properties.delete_marker,
        )
        return cls(rules=rules, file_schema=with_meta_columns(table_schema(state)))

    @property
    def merged(self) -> pa.Schema:
        """What merging looks at."""
        return pa.schema([self.file_schema.field(name) for name in self.rules.columns(self.file_schema)])

    @property
    def compared(self) -> pa.Schema:
        """The same, and when a row was written."""
        return self.merged.append(self.file_schema.field(COMMIT_TIME_COLUMN))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLook:
    """A file group whose keys are to be looked up. Frozen and picklable."""

    store: Store
    index: RecordedIndex
    columns: Columns
    part: FileSlice

    @property
    def size_bytes(self) -> int:
        base = 0 if self.part.base_file is None else self.part.base_file.size_bytes
        return base + sum(log.size_bytes for log in self.part.log_files)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupSeen:
    """Which keys a file group has, and which of them the index has elsewhere, or not at all."""

    rows: int
    hashes: npt.NDArray[np.uint64]
    """Of all keys."""
    strays: pa.Array


def look_at_group(look: GroupLook) -> GroupSeen:
    """Look up every key that a reader finds in a file group."""
    partition, file_id = look.part.partition, look.part.file_id
    columns = look.columns
    keys = merged_keys(look.store, look.part, columns.rules, table_schema=columns.file_schema)
    where, ids = looked_up(look.index, pa.repeat(pa.scalar(partition), len(keys)), keys)
    fits = pc.fill_null(pc.and_(pc.equal(where, partition), pc.equal(ids, file_id)), False)
    return GroupSeen(rows=len(keys), hashes=key_hashes(keys), strays=keys.filter(pc.invert(fits)))


def looked_up(index: RecordedIndex, partitions: pa.Array, keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return partition and file id that an index has of each key, null where it has none; a shard is opened once."""
    shards = index.shard_of(partitions, keys)
    order = np.argsort(shards, kind="stable")
    where: list[Any] = [pa.array([], pa.string())]
    ids: list[Any] = [pa.array([], pa.string())]
    for run in np.split(order, np.flatnonzero(np.diff(shards[order])) + 1) if len(order) else []:
        taken = pa.array(run)
        found = index.look_up(int(shards[run[0]]), partitions.take(taken), keys.take(taken))
        for column, part in zip((where, ids), found, strict=True):
            column.append(pc.cast(part, pa.string()))
    back = pa.array(np.argsort(order, kind="stable"))
    return pa.concat_arrays(where).take(back), pa.concat_arrays(ids).take(back)


@dataclass(frozen=True, slots=True)
class ShardCheck:
    """One shard of an index that records keys."""

    index: RecordedIndex
    shard: int


@dataclass(frozen=True, slots=True)
class ShardFound:
    """Where a shard says that keys live."""

    groups: tuple[FileGroupId, ...]
    numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    """Of every key, which of the groups it is in."""
    hashes: np.ndarray[tuple[int], np.dtype[np.uint64]]


def list_shard(check: ShardCheck) -> ShardFound:
    """List the keys of a shard, by their hashes."""
    entries = check.index.entries(check.shard).combine_chunks()
    names = ["partition", "file_id"]
    groups = entries.select(names).group_by(names).aggregate([])
    places = list(zip(*(groups[name].to_pylist() for name in names), strict=True))
    both = pc.binary_join_element_wise(entries["partition"], entries["file_id"], "\0")
    numbers = pc.index_in(both, value_set=pa.array(["\0".join(place) for place in places], pa.string()))
    return ShardFound(tuple(places), numbers.to_numpy().astype(np.int64), key_hashes(entries["key"]))


@dataclass(frozen=True, slots=True)
class Looked:
    """What a look at the whole table has found."""

    faults: tuple[KeyFault, ...]
    rows: int
    entries: int
    partitions: frozenset[str]
    """Those with file groups that a reader sees."""


def look_for_faults(state: TableState, index: RecordedIndex, *, tasks: Tasks) -> Looked:
    """Compare the whole index with the whole table, in both directions."""
    columns = Columns.of(state)
    slices = slices_by_group(state, None)
    index.check_there({partition for partition, _ in slices})
    looks = [
        GroupLook(store=state.store, index=index, columns=columns, part=part) for part in slices.values()
    ]
    seen = dict(zip(slices, tasks(look_at_group, looks), strict=True))
    doubtful: dict[Identity, set[FileGroupId]] = {}
    for place, group in seen.items():
        unique_in = "" if index.is_global else place[0]
        for key in group.strays.to_pylist():
            doubtful.setdefault((key, unique_in), set()).add(place)
    entries = 0
    for shard, found in enumerate(
        tasks(list_shard, [ShardCheck(index, shard) for shard in range(index.shards_there)])
    ):
        entries += len(found.hashes)
        for number, place in enumerate(found.groups):
            held = seen[place].hashes if place in seen else _NOTHING
            mine = np.flatnonzero(found.numbers == number)
            lost = mine[~np.isin(found.hashes[mine], held)]
            if len(lost):
                for key in index.entries(shard)["key"].take(pa.array(lost)).to_pylist():
                    doubtful.setdefault((key, "" if index.is_global else place[0]), set())
    return Looked(
        faults=faults_of(state, index, doubtful, tasks=tasks),
        rows=sum(group.rows for group in seen.values()),
        entries=entries,
        partitions=frozenset(partition for partition, _ in slices),
    )


def faults_of(
    state: TableState,
    index: RecordedIndex,
    doubtful: Mapping[Identity, Iterable[FileGroupId]],
    *,
    tasks: Tasks,
) -> tuple[KeyFault, ...]:
    """Say which of these keys are not as they should be; each may have rows in the places that are told of it.

    It may have one where the index says, too, and that is looked for.
    """
    if not doubtful:
        return ()
    identities = sorted(doubtful)
    keys, partitions = (pa.array(column, pa.string()) for column in zip(*identities, strict=True))
    found = (column.to_pylist() for column in looked_up(index, partitions, keys))
    entries: dict[Identity, FileGroupId | None] = {
        identity: None if file_id is None else (partition, file_id)
        for identity, partition, file_id in zip(identities, *found, strict=True)
    }
    asked: dict[FileGroupId, list[str]] = {}
    for identity in identities:
        entry = entries[identity]
        # An entry of a partition's own index that names another partition is wrong, whatever is there.
        is_its_own = entry is not None and (index.is_global or entry[0] == identity[1])
        for place in {*doubtful[identity], *([entry] if entry is not None and is_its_own else [])}:
            asked.setdefault(place, []).append(identity[0])
    slices = slices_by_group(state, {partition for partition, _ in asked})
    columns = Columns.of(state)
    work = [
        VersionTask(
            store=state.store, columns=columns, part=slices[place], keys=pa.array(of_place, pa.string())
        )
        for place, of_place in sorted(asked.items())
        if place in slices
    ]
    versions = _Versions.of(tasks(read_versions, work), work, is_global=index.is_global)
    stays = _winners(versions, entries, columns)
    rows = versions.places()
    faults = []
    for identity in identities:
        entry, places = entries[identity], rows.get(identity, ())
        winner = stays.get(identity, places[0] if places else None)
        goes = tuple(sorted(place for place in places if place != winner))
        if entry != winner or goes:
            faults.append(
                KeyFault(key=identity[0], partition=identity[1], entry=entry, stays=winner, goes=goes)
            )
    return tuple(faults)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTask:
    """Keys whose rows are wanted, of one file group. Frozen and picklable."""

    store: Store
    columns: Columns
    part: FileSlice
    keys: pa.Array

    @property
    def place(self) -> FileGroupId:
        return self.part.partition, self.part.file_id


def read_versions(task: VersionTask) -> pa.Table:
    """Read what a reader finds of some keys in a file group: the columns by which versions are compared."""
    schema, rules, part = task.columns.compared, task.columns.rules, task.part
    base = (
        ()
        if part.base_file is None
        else read_base_file(task.store, part.base_file.path, schema, keys=task.keys)
    )
    logs = read_log_files(
        task.store,
        [log.path for log in part.log_files],
        schema,
        ordering_fields=rules.ordering_fields,
        table_schema=task.columns.file_schema,
        keys=task.keys,
        whole=frozenset(log.path for log in part.log_files if log.is_whole),
    )
    rows = pa.Table.from_batches(merge_slice(base, list(logs), rules, schema), schema)
    return rows.filter(pc.is_in(rows[RECORD_KEY_COLUMN], value_set=task.keys))


@dataclass(frozen=True, slots=True, eq=False)
class _Versions:
    """Rows of doubtful keys, from everywhere."""

    rows: pa.Table
    identities: tuple[Identity, ...]
    """Of each row."""
    where: tuple[FileGroupId, ...]

    @classmethod
    def of(cls, found: Sequence[pa.Table], work: Sequence[VersionTask], *, is_global: bool) -> _Versions:
        identities: list[Identity] = []
        where: list[FileGroupId] = []
        for rows, task in zip(found, work, strict=True):
            unique_in = "" if is_global else task.place[0]
            identities += [(key, unique_in) for key in rows[RECORD_KEY_COLUMN].to_pylist()]
            where += [task.place] * rows.num_rows
        return cls(pa.concat_tables(found) if found else pa.table({}), tuple(identities), tuple(where))

    def places(self) -> dict[Identity, list[FileGroupId]]:
        found: dict[Identity, list[FileGroupId]] = {}
        for identity, place in zip(self.identities, self.where, strict=True):
            of_key = found.setdefault(identity, [])
            if (
                place not in of_key
            ):  # a key that is twice in one file group is none that deleting it would mend
                of_key.append(place)
        return found


def _winners(
    versions: _Versions, entries: Mapping[Identity, FileGroupId | None], columns: Columns
) -> dict[Identity, FileGroupId]:
    """Choose, of keys with several rows, the place whose row stays."""
    several = {identity for identity, places in versions.places().items() if len(places) > 1}
    if not several:
        return {}
    times = versions.rows[COMMIT_TIME_COLUMN].to_pylist()
    chosen = [row for row, identity in enumerate(versions.identities) if identity in several]
    # Of versions that are alike the last one counts.
    chosen.sort(key=lambda row: versions.where[row], reverse=True)
    chosen.sort(
        key=lambda row: (times[row], entries.get(versions.identities[row]) == versions.where[row]),
    )
    names = pa.array(["\0".join(versions.identities[row]) for row in chosen], pa.string())
    rows = versions.rows.take(pa.array(chosen)).combine_chunks()
    rows = rows.set_column(
        rows.schema.get_field_index(RECORD_KEY_COLUMN), rows.schema.field(RECORD_KEY_COLUMN), names
    )
    winners = fold_logs([LogRecords(rows, False, "")], columns.rules, rows.schema)
    found = (chosen[entry] for entry in winners.entries.tolist())
    return {versions.identities[row]: versions.where[row] for row in found}


def slices_by_group(state: TableState, partitions: Iterable[str] | None) -> dict[FileGroupId, FileSlice]:
    """Return what a reader sees of every file group, or of those in some partitions."""
    files = files_of(state, None if partitions is None else sorted(partitions))
    view = view_for(state, (file for group in files.values() for file in group))
    return {
        (partition, part.file_id): part
        for partition in sorted(files)
        for part in slices_of(partition, files[partition], view)
    }
