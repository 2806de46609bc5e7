"""What became of keys between two completion times: inserted, updated, deleted.

An incremental read finds rows that were written, and no deletes; whether a row is new it does not say. Here the slices
before and after are compared by key, file group by file group. Where file groups were replaced, those of a
partition and the new ones in it are compared together, for their keys may be in any of them.

A row counts as changed if the row that is there after all was written in between. So a late version that lost to an
older one is no change, and a key that came and went is none either. A row that comes to light again, because a log
forgot that it was deleted, was inserted, whenever it was written.

Partitions are apart: a row that moved is deleted in one and inserted in the other. Where rows may move, all deletes are
told first. Else a delete that comes after the insert takes the row away again, in a table that goes by keys alone.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import IndexType, TableProperties
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import DataFile, FileGroupId, FileSlice, TimelineView, slices_of
from bucketlake.read.as_completed import place_of, view_completed
from bucketlake.read.plan import blocks_for, context_for
from bucketlake.read.query import Query
from bucketlake.read.task import ReadContext, read_slice
from bucketlake.schema import COMMIT_TIME_COLUMN, RECORD_KEY_COLUMN
from bucketlake.state import TableState, files_of, instants_between
from bucketlake.timeline import CommitMetadata

_BOUND = frozenset({IndexType.BUCKET, IndexType.RECORD_LEVEL_INDEX})
"""Indexes by which a key is one of its partition."""
_SERVICES = frozenset({"COMPACT", "LOG_COMPACT", "CLUSTER"})


class Change(StrEnum):
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


def is_service(commit: CommitMetadata) -> bool:
    """Whether a commit is known to have changed no row. A rescale is not: it looks like an overwrite."""
    return commit.is_compaction or commit.operation in _SERVICES


class ChangeKinds(StrEnum):
    """Which changes a comparison tells."""

    ALL = "all"
    DELETES = "deletes"
    ROWS = "rows"
    """Inserted and updated ones."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """File groups of one partition, before and after."""

    before: tuple[FileSlice, ...]
    after: tuple[FileSlice, ...]
    kinds: ChangeKinds = ChangeKinds.ALL

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset(map(place_of, self.before + self.after))

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.before + self.after)


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What is to be compared, and how it is read."""

    comparisons: tuple[Comparison, ...]
    """The same ones, in the same order, whenever the plan is made. Those of deletes alone come first."""
    before: ReadContext
    after: ReadContext
    commit_times: frozenset[str]
    """Requested times of the writes in between."""


def plan_comparisons(state: TableState, query: Query, begin: str, end: str) -> ChangePlan:
    """Decide what to compare to tell the changes of (begin, end]."""
    found = instants_between(state, begin, end)
    touched = _touched_by(commit for _, commit in found)
    files = files_of(state, frozenset(partition for partition, _ in touched.groups))
    every = [file for group in files.values() for file in group]
    views = [view_completed(state, every, time) for time in (begin, end)]
    cuts = [_by_group(files, view) for view in views]
    comparisons = []
    for family in _families(touched, cuts[0]):
        before, after = (tuple(cut[group] for group in family if group in cut) for cut in cuts)
        if before or after:
            comparisons.append(Comparison(before, after))
    keys = KeyGenerator.from_properties(state.properties)
    before_and_after = [
        context_for(
            state,
            query,
            keys,
            commit_times=None,
            up_to=None,
            blocks_of=blocks_for(state, list(cut.values()), view),
        )
        for cut, view in zip(cuts, views, strict=True)
    ]
    comparisons.sort(key=lambda one: min(one.groups))
    if _may_move(state.properties):
        comparisons = [
            *(replace(one, kinds=ChangeKinds.DELETES) for one in comparisons if one.before),
            *(replace(one, kinds=ChangeKinds.ROWS) for one in comparisons if one.after),
        ]
    return ChangePlan(
        comparisons=tuple(comparisons),
        before=before_and_after[0],
        after=before_and_after[1],
        commit_times=frozenset(instant.requested for instant, _ in found),
    )


def read_comparison(comparison: Comparison, plan: ChangePlan, op: str) -> Iterator[pa.RecordBatch]:
    """Yield what changed in some file groups: what was deleted as it was, the rest as it is. `op` is one column more.

    Held are the keys of both sides, and the rows that were written in between.
    """
    wanted = list(plan.after.columns)
    written: list[pa.RecordBatch] = []
    if comparison.kinds is ChangeKinds.DELETES:
        after = _keys_of(comparison.after, plan.after)
    else:
        after, written = _keys_and_written(comparison.after, plan)
    keys_before = []
    for part in comparison.before:
        keys = _keys_of((part,), plan.before)
        keys_before.append(keys)
        if comparison.kinds is ChangeKinds.ROWS:
            continue
        gone = keys.filter(pc.invert(pc.is_in(keys, value_set=after)))
        if len(gone):
            sought = gone if len(gone) < len(keys) else None
            for batch in read_slice(part, plan.before, record_keys=sought):
                yield _said(batch, wanted, op, Change.DELETE)
    if comparison.kinds is ChangeKinds.DELETES:
        return
    new = after.filter(pc.invert(pc.is_in(after, value_set=pa.concat_arrays([_NO_KEYS, *keys_before]))))
    # At once: every call makes a table of the keys that are sought.
    of_rows = pa.concat_arrays([_NO_KEYS, *(batch.column(RECORD_KEY_COLUMN) for batch in written)])
    is_new = pc.is_in(of_rows, value_set=new)
    start = 0
    for batch in written:
        is_insert = is_new.slice(start, batch.num_rows)
        start += batch.num_rows
        yield _said(batch, wanted, op, pc.if_else(is_insert, str(Change.INSERT), str(Change.UPDATE)))
    if len(new) > (pc.sum(is_new).as_py() or 0):
        again = new.filter(pc.invert(pc.is_in(new, value_set=of_rows)))
        for part in comparison.after:
            for batch in read_slice(part, plan.after, record_keys=again):
                yield _said(batch, wanted, op, Change.INSERT)


def _keys_of(parts: Iterable[FileSlice], read_with: ReadContext) -> pa.Array:
    only_keys = replace(read_with, columns=(RECORD_KEY_COLUMN,))
    found = [batch.column(0) for part in parts for batch in read_slice(part, only_keys)]
    return pa.concat_arrays([_NO_KEYS, *found])


def _keys_and_written(parts: Iterable[FileSlice], plan: ChangePlan) -> tuple[pa.Array, list[pa.RecordBatch]]:
    """Read the keys of slices, and their rows that were written in between."""
    with_key = (*dict.fromkeys((*plan.after.columns, RECORD_KEY_COLUMN, COMMIT_TIME_COLUMN)),)
    times = pa.array(sorted(plan.commit_times), pa.string())
    keys, written = [_NO_KEYS], []
    for part in parts:
        for batch in read_slice(part, replace(plan.after, columns=with_key)):
            keys.append(batch.column(RECORD_KEY_COLUMN))
            found = batch.filter(pc.is_in(batch.column(COMMIT_TIME_COLUMN), value_set=times))
            if found.num_rows:
                written.append(found)
    return pa.concat_arrays(keys), written


def with_change(batch: pa.RecordBatch, op: str, change: Change) -> pa.RecordBatch:
    """Add a column that says the same of all rows."""
    return _said(batch, batch.schema.names, op, change)


_NO_KEYS = pa.array([], pa.string())


def _said(batch: pa.RecordBatch, columns: list[str], op: str, changes: pa.Array | Change) -> pa.RecordBatch:
    if isinstance(changes, Change):
        changes = pa.repeat(pa.scalar(str(changes), pa.string()), batch.num_rows)
    return batch.select(columns).append_column(pa.field(op, pa.string()), changes)


def _may_move(properties: TableProperties) -> bool:
    """Tell whether a row may go from one partition to another; if nothing says that it may not."""
    is_bound = properties.index_type in _BOUND or properties.bucket_engine is not None
    return bool(properties.partition_fields) and not is_bound


def _by_group(files: dict[str, tuple[DataFile, ...]], view: TimelineView) -> dict[FileGroupId, FileSlice]:
    return {
        place_of(part): part
        for partition, group in files.items()
        for part in slices_of(partition, group, view)
    }


@dataclass(frozen=True, slots=True)
class _Touched:
    """The file groups that some writes have to do with."""

    groups: frozenset[FileGroupId]
    replaced: frozenset[FileGroupId]
    by_services: frozenset[FileGroupId]
    """And by nobody else: no row of theirs has changed."""


def _touched_by(commits: Iterable[CommitMetadata]) -> _Touched:
    groups: set[FileGroupId] = set()
    replaced: set[FileGroupId] = set()
    changed: set[FileGroupId] = set()
    for commit in commits:
        hidden = {(partition, file_id) for partition, ids in commit.replaced.items() for file_id in ids}
        touched = hidden | {(stat.partition, stat.file_id) for stat in commit.write_stats}
        groups |= touched
        replaced |= hidden
        if not is_service(commit):
            changed |= touched
    return _Touched(frozenset(groups), frozenset(replaced), frozenset(groups - changed))


def _families(touched: _Touched, before: Container[FileGroupId]) -> list[list[FileGroupId]]:
    """Gather file groups whose keys may be in each other: of a partition, those that were replaced and the new ones.

    Any other has its keys to itself.
    """
    replacing = {partition for partition, _ in touched.replaced}
    families: dict[FileGroupId | str, list[FileGroupId]] = {}
    for group in sorted(touched.groups):
        is_mixed = group[0] in replacing and (group in touched.replaced or group not in before)
        families.setdefault(group[0] if is_mixed else group, []).append(group)
    return [family for family in families.values() if not touched.by_services.issuperset(family)]
