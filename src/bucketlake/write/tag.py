"""Which task writes a row, and what its key sums up to. Rows in, two numbers per row out.

    code := task (15 bits) group (48 bits)
    group := a hash of partition and file id

Rows are shuffled by `task` and sorted by `code`, one integer, which Spark
does by radix sort; so the rows of a file group reach their task in one run.
They come in pieces that say which group it is. Two groups whose hashes agree
share a run, and the task tells them apart.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.commit.operation import Operation
from bucketlake.errors import ConfigError
from bucketlake.keygen import KeyGenerator
from bucketlake.layout import FileGroupId
from bucketlake.schema import META_COLUMNS, key_hashes
from bucketlake.write.change_feed import FIRST_WITHOUT_VALUES, ROW_CHANGE
from bucketlake.write.exchange import GROUP_BITS, PASSED_OVER, Coded
from bucketlake.write.state import WriteState


@dataclass(slots=True)
class Tags:
    """What is known of rows by their keys, a number per row each."""

    codes: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    """Of their keys."""
    successors: npt.NDArray[np.int16]
    """Stands for the file group that takes the place of one that is being resized; 0 without one."""
    groups: dict[int, FileGroupId | None]
    """Code -> the file group; None if two have it."""


def tag(rows: pa.RecordBatch, state: WriteState) -> Tags:
    """Find out where rows belong. ConfigError for a row that can have no key, or no place."""
    record_keys, paths = check_rows(rows, state)
    tags = Tags(np.empty(len(rows), np.int64), key_hashes(record_keys), np.zeros(len(rows), np.int16), {})
    index = state.index.placed
    assert index is not None, "rows that are looked up are routed first"
    afterwards = {partition: offspring.index for (partition, _), offspring in state.offspring.items()}
    for path, chosen, of_path in _by_path(paths, record_keys):
        located = index.locate(path, of_path)
        slots = located.dictionary.to_pylist()
        groups = [(path, state.file_id_of(path, slot)) for slot in slots]
        codes = [
            code_of(group, index.number_of(slot), state) for group, slot in zip(groups, slots, strict=True)
        ]
        for code, group in zip(codes, groups, strict=True):
            tags.groups[code] = group if tags.groups.get(code, group) == group else None
        tags.codes[chosen] = np.array(codes, np.int64)[located.indices.to_numpy()]
        if path in afterwards:
            tags.successors[chosen] = afterwards[path].locate(path, of_path).indices.to_numpy() % (1 << 15)
    return tags


def told_rows(rows: pa.Table, state: WriteState) -> pa.RecordBatch:
    """Put rows in one piece; those of a feed with numbers for the words that say what became of them."""
    whole: pa.RecordBatch = rows.combine_chunks().to_batches()[0]
    feed = state.feed
    return whole if feed is None else feed.told(whole, keeps_column=feed.column in state.schema.names)


def check_rows(rows: pa.RecordBatch, state: WriteState) -> tuple[pa.Array, pa.DictionaryArray]:
    """Return record keys and partition paths of rows. ConfigError for a row that can have none."""
    _check_required(rows, state)
    _check_unhashed(rows, state)
    if state.operation is not Operation.DELETE:
        state.keys.check_spelling(rows)
    record_keys = state.keys.record_keys(rows)
    paths = state.keys.encoded_partition_paths(rows)
    for path in paths.dictionary.to_pylist():
        state.keys.check_partition_path(path)
    return record_keys, paths


def _by_path(paths: pa.DictionaryArray, record_keys: pa.Array) -> Iterator[tuple[str, Any, pa.Array]]:
    """Yield each partition path that occurs, which rows have it, and the keys of these."""
    names = paths.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], slice(None), record_keys
        return
    order = _sorting(paths.indices.to_numpy(), len(names))
    keys = pc.take(record_keys, pa.array(order), boundscheck=False)
    ends = np.cumsum(np.bincount(paths.indices.to_numpy(), minlength=len(names))).tolist()
    for name, start, stop in zip(names, [0, *ends], ends, strict=False):
        yield name, order[start:stop], keys[start:stop]


def sort_by_code(rows: pa.Table, state: WriteState) -> Coded:
    """Tag rows, and bring those of a file group together; those that are passed over are gone."""
    whole = told_rows(rows, state)
    tags = tag(whole, state)
    if state.offspring:
        # Those that go to one successor stand together too, and need not be picked out one by one.
        order = np.argsort(tags.successors, kind="stable")
        order = order[order_of(tags.codes[order])]
    else:
        order = order_of(tags.codes)
    if state.only is not None:
        order = order[tags.codes[order] != PASSED_OVER]
    chosen = pc.take(whole, pa.array(order), boundscheck=False)
    return Coded(chosen, tags.codes[order], tags.hashes[order], tags.groups)


def order_of(codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the stable order of numbers of which few are distinct.

    Their ranks are sorted in their place, which have 16 bits as a rule.

    >>> order_of(np.array([30, 10, 20, 10])).tolist()
    [1, 3, 2, 0]
    """
    encoded = pa.array(codes).dictionary_encode()
    distinct = encoded.dictionary.to_numpy()
    ranks = np.empty(len(distinct), np.int64)
    ranks[np.argsort(distinct)] = np.arange(len(distinct))
    return _sorting(ranks[encoded.indices.to_numpy()], len(distinct))


def _sorting(ranks: npt.NDArray[Any], count: int) -> npt.NDArray[np.int64]:
    """Return the stable order of numbers below `count`: numpy sorts those of 16 bits by radix."""
    return np.argsort(ranks.astype(np.uint16) if count <= 1 << 16 else ranks, kind="stable")


def columns_to_write(names: Iterable[str], state: WriteState) -> list[str]:
    """Choose the columns of the rows that a write needs: a delete needs their keys only."""
    if state.operation is Operation.DELETE:
        return tops_of(key_columns(state.keys))
    return [name for name in names if name not in META_COLUMNS]


def tops_of(names: Iterable[str]) -> list[str]:
    """Name the columns that these, possibly inside structs, are in."""
    return list(dict.fromkeys(name.partition(".")[0] for name in names))


def code_of(group: FileGroupId, number: int, state: WriteState) -> int:
    """Return the code of a file group's rows; `PASSED_OVER` if they are not to be written.

    `number` is its slot's: the groups of a partition go to different tasks, for a partition may hold most of the rows.
    """
    if state.only is not None and group not in state.only:
        return PASSED_OVER
    task = state.places.get(group)
    if task is None:
        task = (zlib.crc32(group[0].encode()) + number) % state.tasks
    return task << GROUP_BITS | group_hash(group)


def group_hash(group: FileGroupId) -> int:
    """Return a number of 48 bits that stands for a file group; hardly ever for two of a write."""
    partition, file_id = group
    digest = hashlib.blake2b(f"{partition}\0{file_id}".encode(), digest_size=GROUP_BITS // 8).digest()
    return int.from_bytes(digest)


def key_columns(keys: KeyGenerator) -> tuple[str, ...]:
    """Name the columns, possibly inside structs, that keys and partition paths are made from."""
    return tuple(dict.fromkeys((*keys.record_key_fields, *(field.name for field in keys.partition_fields))))


def _check_unhashed(rows: pa.RecordBatch, state: WriteState) -> None:
    """Refuse a colon where the hash is made from a part of the key only.

    Hudi finds the parts by their colons: one in a value of the rest hides a part, or sends it into an endless loop
    (KeyGenUtils.extractRecordKeysByFields).
    """
    hashed = state.index.hash_fields
    for name in () if state.index.placed is None else set(state.keys.record_key_fields) - set(hashed):
        column = nested_column(rows, name)
        if pa.types.is_string(column.type) and pc.any(pc.match_substring(column, ":"), min_count=0).as_py():
            raise ConfigError(
                f"column {name!r} of the key holds a colon, and buckets are hashed from {', '.join(hashed)} only. Hudi "
                f"cannot find these in such a key. Replace the colon, or make a table that hashes the whole key."
            )


def nested_column(rows: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """Return a column in one piece; a dotted name that is none leads into a struct."""
    top, *inner = [name] if name in rows.schema.names else name.split(".")
    column = rows.column(top)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pc.struct_field(column, inner) if inner else column


def _check_required(rows: pa.RecordBatch, state: WriteState) -> None:
    # Of a feed only rows that stay need all values.
    stays = None if state.feed is None else pc.less(rows.column(ROW_CHANGE), FIRST_WITHOUT_VALUES)
    ordering = tops_of(state.rules.ordering_fields)
    for name in columns_without_null(rows.schema, state):
        is_of_all = stays is None or name.partition(".")[0] in ordering
        if not is_of_all and name not in rows.schema.names:
            continue  # there are no rows that stay
        column = nested_column(rows, name)
        if column.null_count and (is_of_all or pc.any(pc.and_(column.is_null(), stays)).as_py()):
            raise ConfigError(
                f"column {name!r} is null in some rows, and the table needs a value there: it is required, or orders "
                f"the versions of a record. Fill the column, or drop the rows."
            )


def columns_without_null(schema: pa.Schema, plan: WriteState) -> tuple[str, ...]:
    """Name the columns, possibly inside structs, in which the table takes no null and rows of `schema` may have one.

    Those that the table declares so, and those that order the versions of a record.
    """
    if plan.operation is Operation.DELETE:
        return ()
    required = [column.name for column in plan.schema if not column.nullable]
    ordering = () if plan.rules.by_commit_time else plan.rules.ordering_fields
    certain = {column.name for column in schema if not column.nullable}
    return tuple(name for name in dict.fromkeys((*required, *ordering)) if name not in certain)
