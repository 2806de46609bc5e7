"""A write to a table whose index looks keys up: three times rows are brought together.

    route     rows by the shard of the index that has their key
    probe     one task per shard: versions of a key are settled, and every key is looked up, once
    place     the driver: which file groups take the keys that are new
    write     one task per file group: files, and what became of which keys
    record    one task per shard: one file with what became of its keys

What is sent and what arrives is compared each time. Nothing of it is visible before the commit; entries count when the
instant that they are named after does.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.commit.operation import Operation
from bucketlake.errors import CorruptTableError
from bucketlake.index import NewKeys, RecordedIndex
from bucketlake.layout import FileGroupId
from bucketlake.layout.names import path_in_partition
from bucketlake.logfile import LogRecords
from bucketlake.merge import fold_logs
from bucketlake.schema import RECORD_KEY_COLUMN, fit_rows, key_hashes
from bucketlake.write.exchange import GROUP_BITS, Coded, Exchange, KeySum, Piece, Pieces
from bucketlake.write.key_changes import REPORT, compare, leave_changes, record_changes, report, said
from bucketlake.write.report import received_sum
from bucketlake.write.state import WriteState
from bucketlake.write.tag import check_rows, code_of, group_hash, order_of
from bucketlake.write.task import CHANGE, GroupWritten, KeyChange, write_looked_up

UNPLACED = ""
"""In the place of the file id of keys that have none yet."""
_WHAT = (1 << GROUP_BITS) - 1


def write_looked_up_rows(
    exchange: Exchange[Pieces], columns: Sequence[str], plan: WriteState
) -> tuple[KeySum, tuple[GroupWritten, ...]]:
    """Write rows into the file groups that the table's index names; return what was sent to these, and done."""
    index = index_of(plan)
    by_shard = min(plan.tasks, index.shards)
    routed = exchange.scatter(columns, partial(route, state=plan))
    probed = exchange.gather(routed, partial(probe, state=plan), tasks=by_shard)
    seen = said(exchange.fetch(probed, REPORT))
    arrived = KeySum(sum(s["rows"] for s in seen), sum(s["sum"] for s in seen) % (1 << 64))
    compare(exchange.sum_of(routed, received=arrived), arrived, "rows", "the tasks that look keys up")
    placed = exchange.recoded(probed, *place(exchange.facts(probed), plan))
    done = exchange.gather(placed, partial(write, state=plan), tasks=plan.tasks)
    written = record_changes(exchange, done, plan)
    return received_sum(written), written


def index_of(plan: WriteState) -> RecordedIndex:
    assert plan.index.recorded is not None
    return plan.index.recorded


def route(rows: pa.Table, state: WriteState) -> Coded:
    """Give rows the codes of the shards that can have their keys."""
    whole = rows.combine_chunks().to_batches()[0]
    record_keys, paths = check_rows(whole, state)
    index = index_of(state)
    shards = index.shard_of(pc.cast(paths, pa.string()), record_keys)
    codes = _shard_codes(shards, state)
    order = order_of(codes)
    chosen = pc.take(whole, pa.array(order), boundscheck=False)
    return Coded(chosen, codes[order], key_hashes(record_keys)[order], {})


def _shard_codes(shards: npt.NDArray[np.int64], state: WriteState) -> npt.NDArray[np.int64]:
    tasks = min(state.tasks, index_of(state).shards)
    codes: npt.NDArray[np.int64] = (shards % tasks) << GROUP_BITS | shards
    return codes


def probe(pieces: Iterator[Piece], state: WriteState) -> Iterator[Coded]:
    """Look the keys of a task's shards up, each shard once."""
    index = index_of(state)
    for code, run in groupby(pieces, key=attrgetter("code")):
        rows = pa.Table.from_batches([piece.rows for piece in run]).combine_chunks()
        keys = state.keys.record_keys(rows)
        total = int(key_hashes(keys).sum(dtype=np.uint64))
        yield report({"rows": len(keys), "sum": total})
        rows, keys, paths = _settled(rows, keys, state)
        where, ids = index.look_up(code & _WHAT, paths, keys)
        _check_locations(keys, where, ids, state)
        yield _routed(rows, keys, paths, where, ids, state)


def _settled(rows: pa.Table, keys: Any, state: WriteState) -> tuple[pa.Table, Any, Any]:
    """Keep one version of every key: all of them have come together here."""
    paths = state.keys.partition_paths(rows)
    keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    paths = paths.combine_chunks() if isinstance(paths, pa.ChunkedArray) else paths
    if state.operation is Operation.DELETE:
        numbers = pa.array(np.arange(len(keys)))
        names = ["key", "path"] if not index_of(state).is_global else ["key"]
        firsts = (
            pa.table({"key": keys, "path": paths, "n": numbers}).group_by(names).aggregate([("n", "min")])
        )
        chosen = np.sort(firsts["n_min"].to_numpy())
    else:
        rows = fit_rows(rows, state.schema)
        identity = keys if index_of(state).is_global else pc.binary_join_element_wise(paths, keys, "\0")
        winners = fold_logs(
            [LogRecords(rows.append_column(RECORD_KEY_COLUMN, identity), False, state.instant)],
            state.rules,
            rows.schema.append(pa.field(RECORD_KEY_COLUMN, pa.string())),
        )
        chosen = np.sort(winners.entries)
    if len(chosen) == len(keys):
        return rows, keys, paths
    taken = pa.array(chosen)
    return rows.take(taken), keys.take(taken), paths.take(taken)


def _check_locations(keys: Any, where: Any, ids: Any, state: WriteState) -> None:
    """Refuse an index that names a file group which is not there: to take the key for a new one would double it."""
    known = pa.table({"partition": where, "file_id": ids}).group_by(["partition", "file_id"]).aggregate([])
    for partition, file_id in zip(known["partition"].to_pylist(), known["file_id"].to_pylist(), strict=True):
        if file_id is not None and file_id not in state.groups.get(partition, {}):
            lost = pc.index(pc.and_(pc.equal(where, partition), pc.equal(ids, file_id)), True).as_py()
            raise CorruptTableError(
                path=path_in_partition(partition, file_id),
                found=f"the index places the key {keys[lost].as_py()!r} there, and there is no such file group",
                expected="file groups that are there",
                remedy="The index is out of step with the table. Build it anew; nothing was written.",
            )


def _routed(rows: pa.Table, keys: Any, paths: Any, where: Any, ids: Any, state: WriteState) -> Coded:
    """Send every row to its file group, with what it does there; and word of those that leave one."""
    is_known = pc.is_valid(ids)
    if state.operation is Operation.DELETE:
        found = pa.array(np.flatnonzero(is_known.to_numpy(zero_copy_only=False)))
        changes = pa.array(np.full(len(found), KeyChange.GONE, np.int8))
        return _by_group(
            rows.take(found), keys.take(found), changes, where.take(found), ids.take(found), state
        )
    has_moved = pc.fill_null(pc.and_(is_known, pc.not_equal(where, paths)), False)
    is_new = pc.or_(pc.invert(is_known), has_moved)
    change = pc.if_else(is_new, pa.scalar(KeyChange.NEW, pa.int8()), pa.scalar(KeyChange.KNOWN, pa.int8()))
    target = pc.if_else(is_new, UNPLACED, ids)
    moved = pa.array(np.flatnonzero(has_moved.to_numpy(zero_copy_only=False)))
    if len(moved):
        left = pa.array(np.full(len(moved), KeyChange.MOVED_AWAY, np.int8))
        rows = pa.concat_tables([rows, rows.take(moved)])
        keys, change = pa.concat_arrays([keys, keys.take(moved)]), pa.concat_arrays([change, left])
        paths = pa.concat_arrays([paths, where.take(moved)])
        target = pa.concat_arrays([target, ids.take(moved)])
    return _by_group(rows, keys, change, paths, target, state)


def _by_group(rows: pa.Table, keys: Any, change: Any, partitions: Any, ids: Any, state: WriteState) -> Coded:
    rows = rows.append_column(CHANGE, change)
    both = pc.binary_join_element_wise(partitions, ids, "\0").dictionary_encode()
    groups = [tuple(text.split("\0")) for text in both.dictionary.to_pylist()]
    by_code = {_code_of((partition, file_id), state): (partition, file_id) for partition, file_id in groups}
    codes = np.array([_code_of((p, f), state) for p, f in groups], np.int64)[both.indices.to_numpy()]
    order = order_of(codes) if len(codes) else np.empty(0, np.int64)
    taken = rows.take(pa.array(order)).combine_chunks().to_batches()
    whole = taken[0] if taken else pa.RecordBatch.from_pylist([], rows.schema)
    return Coded(whole, codes[order], key_hashes(keys)[order], dict(by_code))


def _code_of(group: FileGroupId, state: WriteState) -> int:
    if group[1] == UNPLACED:
        return group_hash(group)  # the driver says which task it is
    return code_of(group, zlib.crc32(group[1].encode()), state)


def place(facts: pa.Table, plan: WriteState) -> tuple[npt.NDArray[np.int64], list[FileGroupId | None]]:
    """Decide where the new keys go: the code and file group of every piece."""
    codes = facts["code"].to_numpy().copy()
    names = zip(facts["partition"].to_pylist(), facts["file_id"].to_pylist(), strict=True)
    groups: list[FileGroupId | None] = [None if p is None else (p, f) for p, f in names]
    new = [n for n, group in enumerate(groups) if group is not None and group[1] == UNPLACED]
    rows = facts["rows"].to_pylist()
    demand = [NewKeys((groups[n] or ("", ""))[0], rows[n]) for n in new]
    for n, file_id in zip(new, index_of(plan).assign(demand, plan.groups, instant=plan.instant), strict=True):
        group = (groups[n] or ("", ""))[0], file_id
        groups[n] = group
        codes[n] = _code_of(group, plan)
    return codes, groups


def write(pieces: Iterator[Piece], state: WriteState) -> Iterator[Coded]:
    """Write a task's file groups; say what was done, and what became of which keys, by the shards that have them."""
    for _, run in groupby(pieces, key=attrgetter("code")):
        by_group: dict[FileGroupId, list[pa.RecordBatch]] = {}
        for piece in run:
            assert piece.group is not None, "every key has a place by now"
            by_group.setdefault(piece.group, []).append(piece.rows)
        for group, batches in by_group.items():
            rows = pa.Table.from_batches(batches).combine_chunks()
            yield from leave_changes(*write_looked_up(group, rows, state), state)
