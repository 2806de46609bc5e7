"""What one write has decided, before any row is touched.

`plan_write` decides on the driver: columns, file groups, tasks. The result, a
`WriteState`, is a small frozen value that travels to every task, and all that
a task knows: no timeline, no session, no listing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from bucketlake.commit.operation import Operation
from bucketlake.config import TableProperties, TableType
from bucketlake.errors import CorruptTableError, SchemaError
from bucketlake.index import Index
from bucketlake.index.listed import KeyRecords, resolve_listed
from bucketlake.index.recorded import LOGS_NEW_KEYS
from bucketlake.index.resizes import Offspring, offspring_of
from bucketlake.index.rings import VIRTUAL_LOGS
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import DataFile, FileGroupId, FileSlice, file_groups_of, slices_of
from bucketlake.layout.names import fixed_file_id
from bucketlake.logfile import LogFormat
from bucketlake.merge import MergeRules
from bucketlake.metadata.places import COLUMN_STATS
from bucketlake.schema import arrow_to_avro, with_meta_columns
from bucketlake.state import TableState, may_hold_deletes, table_schema, view_for
from bucketlake.storage import Store
from bucketlake.write.change_feed import ChangeFeed

if TYPE_CHECKING:
    from bucketlake.write.rounds import Earlier

NULL_ELEMENTS_ALLOWED = "bucketlake.allow.null.elements"
"""A table property: arrays may hold nulls. Default: `false`, because Hudi's own writer fails on such rows."""

SCHEMA_MERGED = "bucketlake.merge.schema"
"""A table property: every write may add columns, widen a type, or let a column be null. Default: `false`, because a
writer that does not know of a new column is refused from then on."""

MISSING_COLUMNS_ALLOWED = "bucketlake.allow.missing.columns"
"""A table property: rows may lack columns, which are null then. Default: `false`, because an update that lacks a column
sets its value to null."""

HUDI_WRITES = "bucketlake.hudi.writes"
"""A table property: whether Hudi may write to the table too. Default: `true`; pipelined streams need `false`."""

NON_BLOCKING = "bucketlake.non.blocking"
"""A table property: two writers that open one bucket at the same time may both commit. Default: `false`, because the
ids of file groups are then fixed, and the table can be neither overwritten nor clustered.

Every writer knows the id of a bucket's file group beforehand, and the first one, too, writes a log.
"""

TASKS_PER_CORE = 2
TASK_BYTES = 256 << 20
"""A task rewrites about this much of the table at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteState:
    """What every task of one write is told. Frozen, small, picklable."""

    store: Store
    instant: str
    operation: Operation
    is_copy_on_write: bool
    keys: KeyGenerator
    index: Index
    rules: MergeRules
    schema: pa.Schema
    """The table's columns once this write is committed, without meta columns."""
    avro_schema: str
    """The same with meta columns, as files declare it."""
    groups: Mapping[str, Mapping[str, FileSlice]]
    """Partition -> file id -> what a reader sees of that file group."""
    ids: Mapping[str, Mapping[str, str]]
    """Partition -> slot -> the id of the file group that is there."""
    partitions: frozenset[str]
    """Partitions that are there already."""
    tasks: int
    places: Mapping[FileGroupId, int]
    """The tasks that write file groups. Who is not named goes where its slot's number says."""
    log_format: LogFormat
    allows_null_elements: bool
    appends: bool = False
    """Whether several tasks, or writers, may have rows of one file group: each has its own logs, and no base files."""
    fixed_ids: bool = False
    """Whether a new file group's id follows from its bucket alone."""
    retired: frozenset[FileGroupId] = frozenset()
    """File groups that were replaced: their ids are not used again."""
    only: frozenset[FileGroupId] | None = None
    """The groups that are to be written; None for all. Rows of others are passed over."""
    stale: Mapping[str, str] = field(default_factory=dict)
    """Path -> version of the files of an earlier run of this write, which give way to those of this one."""
    earlier: Earlier | None = None
    """What earlier rounds of this write have left, where keys are looked up; tasks are not told."""
    kept: frozenset[FileGroupId] = frozenset()
    """File groups whose files of an earlier round stay, and what these have told of keys."""
    feed: ChangeFeed | None = None
    """What rows say became of them, if they do; from where they get their codes on, in numbers."""
    log_version: int = 1
    """In the names of log files; where a write appends, the number of the task, from 1."""
    offspring: Mapping[FileGroupId, Offspring] = field(default_factory=dict)
    """What file groups are turning into, of those that are being resized."""
    is_virtual: bool = False
    """Whether rows of such a bucket go to what it is turning into only."""
    told_of_keys: tuple[KeyRecords, ...] = ()
    """What is told which keys came and went: the index, if it records them, and those that the table lists."""
    overwritten: frozenset[str] = frozenset()
    """The partitions that are replaced, where keys are looked up: what the index has of them is no more."""
    giving_way: Mapping[str, Mapping[str, FileSlice]] = field(default_factory=dict)
    """Partition -> file id -> what gives way if the partition is replaced; where somebody is told of keys."""
    has_ranges: bool = False
    """Whether logs say what range their columns have, for who commits them: the table has statistics of columns."""
    logs_new_keys: bool = False
    """Whether a key that was looked up, and is new, may go to a log."""
    undeleted: frozenset[FileGroupId] = frozenset()
    """File groups whose logs are known to hold no deletes: a key that is new there cannot lose to one."""
    layout_version: str = ""
    """The instant of the bucket rules that the index is by; empty if the table has none."""

    @property
    def file_schema(self) -> pa.Schema:
        return with_meta_columns(self.schema)

    @property
    def asked_columns(self) -> tuple[str, ...]:
        """The columns whose values somebody has to know, before and after the write."""
        return asked_columns(self.told_of_keys)

    def file_id_of(self, partition: str, slot: str) -> str:
        """Return the id of the file group in a slot: the one that is there, or the one that this write opens."""
        present = self.ids.get(partition, {}).get(slot)
        if present is not None:
            return present
        if self.fixed_ids and (partition, fixed_file_id(slot)) not in self.retired:
            return fixed_file_id(slot)
        assert self.index.placed is not None, "what is not placed comes with its file id"
        return self.index.placed.new_file_id(partition, slot, instant=self.instant)


def plan_write(
    state: TableState,
    index: Index,
    files: Mapping[str, tuple[DataFile, ...]],
    *,
    instant: str,
    operation: Operation,
    schema: pa.Schema,
    cores: int,
    log_format: LogFormat,
    unmarked: Collection[str] = (),
    overwritten: Collection[str] = (),
    feed: ChangeFeed | None = None,
) -> WriteState:
    """Decide everything about a write but its rows. `files` are those of the partitions it may touch.

    Those that are `unmarked` get the file that says they are partitions. Those that are `overwritten` are replaced; a
    table that does not look keys up finds out when it has written.
    """
    properties = state.properties
    told = told_of_keys(state, index)
    _check_asked(asked_columns(told), table_schema(state), schema)
    is_looked_up = index.recorded is not None
    found = {} if operation.replaces and not is_looked_up else groups_of(state, index, files)
    found = {partition: by_slot for partition, by_slot in found.items() if partition not in overwritten}
    goes = {p: f for p, f in files.items() if p in overwritten or not is_looked_up}
    groups = {p: {part.file_id: part for part in by_slot.values()} for p, by_slot in found.items()}
    for records in told:
        records.check_there([partition for partition, of_partition in groups.items() if of_partition])
    if operation.replaces:
        index = index.replacing(instant)
    if index.recorded is not None:
        index = index.recorded.knowing(state, groups)
    non_blocking = is_non_blocking(properties)
    tasks, places = place_groups(groups, cores)
    return WriteState(
        store=state.store,
        instant=instant,
        operation=operation,
        is_copy_on_write=properties.table_type is TableType.COPY_ON_WRITE,
        keys=KeyGenerator.from_properties(properties),
        index=index,
        rules=rules_of(properties),
        schema=schema,
        avro_schema=arrow_to_avro(with_meta_columns(schema), table=properties.name),
        groups=groups,
        ids={p: {slot: part.file_id for slot, part in by_slot.items()} for p, by_slot in found.items()},
        # The root of a table without partitions is always listed, and is marked as a partition by its first file.
        partitions=frozenset(name for name, group in files.items() if name or group) - frozenset(unmarked),
        tasks=tasks,
        places=places,
        log_format=log_format,
        feed=feed,
        has_ranges=COLUMN_STATS in properties.metadata_partitions,
        allows_null_elements=is_set(properties, NULL_ELEMENTS_ALLOWED),
        appends=non_blocking and operation is Operation.UPSERT,
        fixed_ids=non_blocking,
        retired=frozenset(state.view.replaced) if non_blocking else frozenset(),
        offspring={} if operation.replaces else offspring_of(state, index, instant=instant),
        is_virtual=is_set(properties, VIRTUAL_LOGS),
        told_of_keys=told,
        overwritten=frozenset(overwritten),
        giving_way=_giving_way(state, goes) if operation.replaces and told else {},
        logs_new_keys=is_set(properties, LOGS_NEW_KEYS),
        undeleted=_undeleted(state, groups) if is_set(properties, LOGS_NEW_KEYS) else frozenset(),
        layout_version=index.version,
    )


def rules_of(properties: TableProperties) -> MergeRules:
    """Return how a table merges."""
    return MergeRules(
        properties.merge_mode,
        properties.ordering_fields,
        properties.delete_field,
        properties.delete_marker,
    )


def _undeleted(state: TableState, groups: Mapping[str, Mapping[str, FileSlice]]) -> frozenset[FileGroupId]:
    instants = {
        (partition, part.file_id): {log.instant for log in part.log_files}
        for partition, of_partition in groups.items()
        for part in of_partition.values()
        if part.log_files
    }
    deleting = may_hold_deletes(state, frozenset[str]().union(*instants.values()))
    return frozenset(group for group, of_group in instants.items() if not of_group & deleting)


def told_of_keys(state: TableState, index: Index) -> tuple[KeyRecords, ...]:
    """Return what a table keeps that has to know which keys a write brings and takes away."""
    listed = resolve_listed(state)
    return listed if index.recorded is None else (index.recorded, *listed)


def asked_columns(told: Iterable[KeyRecords]) -> tuple[str, ...]:
    """Return the columns whose values those who are told have to know."""
    return tuple(dict.fromkeys(name for records in told for name in records.columns))


def _check_asked(asked: Iterable[str], before: pa.Schema, after: pa.Schema) -> None:
    """Refuse another type for a column with an index of its values: those that it has are spelled by the old one.

    Nor can one be kept of a column that is no more, after somebody has dropped or renamed it.
    """
    for name in asked:
        if name not in before.names:
            raise SchemaError(
                f"there is an index of the values of column {name!r}, which the table does not have any more; it has "
                f"{', '.join(before.names)}. The index cannot be kept: drop it, then write. Nothing was written."
            )
        was, is_now = before.field(name).type, after.field(name).type
        if was != is_now and not (pa.types.is_integer(was) and pa.types.is_integer(is_now)):
            raise SchemaError(
                f"column {name!r} is {was} in the table and would become {is_now}, and there is an index of its "
                f"values, which would be spelled in another way. Cast it to {was} before writing; or drop the index, "
                f"write, and build it again."
            )


def _giving_way(
    state: TableState, files: Mapping[str, tuple[DataFile, ...]]
) -> dict[str, dict[str, FileSlice]]:
    view = view_for(state, (file for group in files.values() for file in group))
    return {
        partition: {part.file_id: part for part in slices_of(partition, group, view)}
        for partition, group in files.items()
    }


def is_non_blocking(properties: TableProperties) -> bool:
    """Tell whether writers that open a bucket at the same time may both commit."""
    return is_set(properties, NON_BLOCKING)


def is_set(properties: TableProperties, key: str) -> bool:
    """Tell whether a property of ours, which a table need not have, is true."""
    return properties.raw.get(key, "").strip().lower() == "true"


def is_without_hudi(properties: TableProperties) -> bool:
    """Tell whether somebody has promised that no writer of Hudi's is beside ours."""
    return properties.raw.get(HUDI_WRITES, "").strip().lower() == "false"


def groups_of(
    state: TableState, index: Index, files: Mapping[str, tuple[DataFile, ...]]
) -> dict[str, dict[str, FileSlice]]:
    """Find the file group in every slot. Two for one slot, or one without, is an error."""
    view = view_for(state, (file for group in files.values() for file in group))
    found: dict[str, dict[str, FileSlice]] = {}
    index.foresee(files)
    for partition, group in files.items():
        by_slot = found.setdefault(partition, {})
        for file_slice in slices_of(partition, group, view):
            slot = index.slot_of_file(partition, file_slice.file_id)
            if slot is None:
                raise _stray(index, partition, file_slice.file_id)
            if slot in by_slot:
                raise CorruptTableError(
                    path=partition or ".",
                    found=f"the file groups {by_slot[slot].file_id} and {file_slice.file_id}, both of bucket {slot}",
                    expected="one file group per bucket",
                    remedy="A key may now have two rows. Read the partition, and write it anew with overwrite.",
                )
            by_slot[slot] = file_slice
    return found


def _stray(index: Index, partition: str, file_id: str) -> CorruptTableError:
    return CorruptTableError(
        path=partition or ".",
        found=f"the file group {file_id}",
        expected=index.expected_groups(partition),
        remedy="Rows written now could not be found beside it: its files were written with another index, another "
        "bucket count or other rules. Read the partition, and write it anew with overwrite: it then has the buckets "
        "that the table says.",
    )


def place_groups(
    groups: Mapping[str, Mapping[str, FileSlice]], cores: int
) -> tuple[int, dict[FileGroupId, int]]:
    """Choose the number of tasks, and share the known file groups out: the largest first, to whoever has least."""
    sizes = sorted(
        (
            (_size(file_slice), (partition, file_id))
            for partition, by_id in groups.items()
            for file_id, file_slice in by_id.items()
        ),
        reverse=True,
    )
    total = sum(size for size, _ in sizes)
    tasks = max(TASKS_PER_CORE * cores, -(-total // TASK_BYTES))
    loads = [(0, task) for task in range(tasks)]
    places: dict[FileGroupId, int] = {}
    for size, group in sizes:
        load, task = loads[0]
        places[group] = task
        # A group costs something even if it is empty: a file is opened and another written.
        heapq.heapreplace(loads, (load + size + (1 << 16), task))
    return tasks, places


def _size(file_slice: FileSlice) -> int:
    base = file_slice.base_file.size_bytes if file_slice.base_file else 0
    return base + sum(log.size_bytes for log in file_slice.log_files)


def replaced_by(
    state: TableState, files: Mapping[str, tuple[DataFile, ...]], partitions: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """Return the file groups that give way when `partitions` are replaced."""
    view = view_for(state, (file for group in files.values() for file in group))
    visible = {p: file_groups_of(p, files.get(p, ()), view) for p in partitions}
    return {p: file_ids for p, file_ids in visible.items() if file_ids}
