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
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.commit.operation import Operation
from bucketlake.errors import CorruptTableError, ProofError
from bucketlake.index import NewKeys, RecordedIndex
from bucketlake.layout import FileGroupId
from bucketlake.layout.names import path_in_partition
from bucketlake.logfile import LogRecords
from bucketlake.merge import fold_logs
from bucketlake.schema import RECORD_KEY_COLUMN, bytes_of, fit_rows, key_hashes
from bucketlake.write.exchange import GROUP_BITS, Coded, Exchange, KeySum, Piece, Pieces
from bucketlake.write.key_changes import REPORT, compare, leave_changes, record_changes, report, said
from bucketlake.write.late_rows import is_late
from bucketlake.write.report import Ran, received_sum
from bucketlake.write.state import WriteState
from bucketlake.write.tag import check_rows, code_of, group_hash, order_of
from bucketlake.write.task import CHANGE, KeyChange, write_looked_up

UNPLACED = "?"
"""Begins what stands in the place of the file id of keys that have none yet: a number of the share follows."""
SHARE_BYTES = 16 << 20
"""New keys of one partition are placed together up to this size, so that file groups can be filled evenly."""
STORED_PART = 0.5
"""What rows take in a file, of what they take in memory: about half, columns being compressed."""
_WHAT = (1 << GROUP_BITS) - 1


def write_looked_up_rows(exchange: Exchange[Pieces], columns: Sequence[str], plan: WriteState) -> Ran:
    """Write rows into the file groups that the table's index names; return what was sent to these, and done."""
    index = index_of(plan)
    by_shard = min(plan.tasks, index.shards)
    routed = exchange.scatter(columns, partial(route, state=plan))
    probed = exchange.gather(routed, partial(probe, state=plan), tasks=by_shard)
    seen = said(exchange.fetch(probed, REPORT))
    arrived = KeySum(sum(s["rows"] for s in seen), sum(s["sum"] for s in seen) % (1 << 64))
    compare(exchange.sum_of(routed, received=arrived), arrived, "rows", "the tasks that look keys up")
    row_bytes = round(STORED_PART * sum(s["bytes"] for s in seen) / max(1, arrived.rows))
    placed = exchange.recoded(probed, *place(exchange.facts(probed), plan, row_bytes=max(1, row_bytes)))
    done = exchange.gather(placed, partial(write, state=plan), tasks=plan.tasks)
    written, recorded = record_changes(exchange, done, plan)
    # What was said to the driver is among the pieces too, with a sum of nothing.
    reached = received_sum(written)
    told = KeySum(reached.rows + len(seen), reached.key_hash_sum)
    compare(exchange.sum_of(placed, received=told), told, "rows", "the tasks that write them")
    unsent = arrived.rows - reached.rows + sum(group.moved for group in written)
    beaten = sum(s["beaten"] for s in seen)
    first = tuple(replace(group, unsent=unsent, beaten=beaten) for group in written[:1])
    return Ran(reached, first + written[1:], recorded)


def index_of(plan: WriteState) -> RecordedIndex:
    assert plan.index.recorded is not None
    return plan.index.recorded


def route(rows: pa.Table, state: WriteState) -> Coded:
    """Give rows the codes of the shards that can have their keys."""
    whole = rows.combine_chunks().to_batches()[0]
    record_keys, paths = check_rows(whole, state)
    index = index_of(state)
    index.check_keys(record_keys)
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
    for code, run in groupby(pieces, key=attrgetter("code")):
        rows = pa.Table.from_batches([piece.rows for piece in run]).combine_chunks()
        keys = state.keys.record_keys(rows)
        total = int(key_hashes(keys).sum(dtype=np.uint64))
        batch = _settled(rows, keys, state)
        beaten = len(keys) - len(batch.keys)
        yield report({"rows": len(keys), "sum": total, "bytes": bytes_of(rows), "beaten": beaten})
        where, ids = _look_up(code & _WHAT, batch, state)
        _check_locations(batch.keys, where, ids, state)
        yield _routed(batch, where, ids, state)


def _look_up(shard: int, batch: _Batch, state: WriteState) -> tuple[Any, Any]:
    """Return where keys live; those of partitions that are replaced live nowhere any more."""
    index = index_of(state)
    if state.operation.replaces:
        _check_overwritten(batch, state)
        is_all = state.operation is Operation.INSERT_OVERWRITE_TABLE
        if is_all or not index.is_global:
            nowhere = pa.nulls(len(batch.keys), pa.string())
            return nowhere, nowhere
    where, ids = index.look_up(shard, batch.paths, batch.keys)
    if state.overwritten:
        stays = pc.invert(pc.is_in(where, value_set=pa.array(sorted(state.overwritten), pa.string())))
        where, ids = (pc.if_else(stays, column, None) for column in (where, ids))
    return where, ids


def _check_overwritten(batch: _Batch, state: WriteState) -> None:
    """Refuse rows of a partition that was not among those that the rows named when they were asked."""
    if state.operation is Operation.INSERT_OVERWRITE:
        strangers = set(pc.unique(batch.paths).to_pylist()) - state.overwritten
        if strangers:
            raise ProofError(
                f"rows of the partition {min(strangers)!r} arrived, and there were none when the rows were asked for "
                f"their partitions. Nothing was committed. The rows change from one evaluation to the next: write them "
                f"down first, e.g. as Parquet."
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Rows of one shard, one version of every key."""

    rows: pa.Table
    keys: pa.Array
    paths: pa.Array
    deletes: npt.NDArray[np.bool_]
    """Whether a row says that its key goes."""

    def take(self, chosen: npt.NDArray[np.int64]) -> _Batch:
        if len(chosen) == len(self.keys):
            return self
        taken = pa.array(chosen)
        return _Batch(
            self.rows.take(taken), self.keys.take(taken), self.paths.take(taken), self.deletes[chosen]
        )


def _settled(rows: pa.Table, keys: Any, state: WriteState) -> _Batch:
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
        deletes = np.ones(len(keys), np.bool_)
    else:
        rows = fit_rows(rows, state.schema)
        identity = keys if index_of(state).is_global else pc.binary_join_element_wise(paths, keys, "\0")
        winners = fold_logs(
            [LogRecords(rows.append_column(RECORD_KEY_COLUMN, identity), False, state.instant)],
            state.rules,
            rows.schema.append(pa.field(RECORD_KEY_COLUMN, pa.string())),
        )
        chosen = np.sort(winners.entries)
        deletes = np.zeros(len(keys), np.bool_)
        deletes[winners.entries] = ~winners.is_record
    return _Batch(rows, keys, paths, deletes).take(chosen)


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
                remedy="The index is out of step with the table, and nothing was written. See what is wrong, and mend "
                "it: `bucketlake repair`, or table.plan_repair(). Or build it anew: `bucketlake metadata rebuild`, or "
                "table.metadata.rebuild().",
            )


def _routed(batch: _Batch, where: Any, ids: Any, state: WriteState) -> Coded:
    """Send every row to its file group, with what it does there; and word of those that leave one.

    A row that says that its key goes is sent to where the key is; if it is nowhere, nothing is to be done.
    """
    is_known = pc.is_valid(ids).to_numpy(zero_copy_only=False)
    needed = np.flatnonzero(is_known | ~batch.deletes)
    if len(needed) < len(is_known):
        batch, is_known = batch.take(needed), is_known[needed]
        where, ids = where.take(pa.array(needed)), ids.take(pa.array(needed))
    if state.operation is Operation.DELETE:
        changes = np.full(len(is_known), KeyChange.GONE, np.int8)
        return _by_group(batch.rows, batch.keys, changes, where, ids, state)
    is_elsewhere = pc.fill_null(pc.not_equal(where, batch.paths), False).to_numpy(zero_copy_only=False)
    has_moved = is_known & is_elsewhere & ~batch.deletes
    if index_of(state).keeps_partition:
        has_moved[:] = False
    if has_moved.any():
        moving = np.flatnonzero(has_moved)
        taken = pa.array(moving)
        late = is_late(
            batch.rows.take(taken), batch.keys.take(taken), where.take(taken), ids.take(taken), state
        )
        # A late row goes where the newer one is, which it does not change: so it is counted as outdated.
        has_moved[moving[late]] = False
    is_new = ~is_known | has_moved
    change = np.where(is_new, KeyChange.NEW, KeyChange.KNOWN).astype(np.int8)
    paths = pc.if_else(pa.array(is_new), batch.paths, where)
    target = pc.if_else(pa.array(is_new), _shares(batch, is_new), ids)
    moved = np.flatnonzero(has_moved)
    rows, keys = batch.rows, batch.keys
    if len(moved):
        taken = pa.array(moved)
        rows = pa.concat_tables([rows, rows.take(taken)])
        keys = pa.concat_arrays([keys, keys.take(taken)])
        change = np.concatenate([change, np.full(len(moved), KeyChange.MOVED_AWAY, np.int8)])
        paths = pa.concat_arrays([paths, where.take(taken)])
        target = pa.concat_arrays([target, ids.take(taken)])
    return _by_group(rows, keys, change, paths, target, state)


def _shares(batch: _Batch, is_new: npt.NDArray[np.bool_]) -> pa.Array:
    """Name the share of new keys that each row is in: those of a partition are cut where they become too large."""
    row_bytes = max(1, bytes_of(batch.rows) // max(1, len(batch.keys)))
    rows_max = max(1, SHARE_BYTES // row_bytes)
    codes = batch.paths.dictionary_encode().indices.to_numpy()
    count = int(codes.max()) + 1 if len(codes) else 0
    places = np.zeros(len(codes), np.int64)
    if count and len(codes) > rows_max:
        order = np.argsort(codes, kind="stable")
        sorted_new = is_new[order].astype(np.int64)
        running = np.cumsum(sorted_new) - sorted_new
        starts = np.searchsorted(codes[order], np.arange(count))
        places[order] = (running - running[starts][codes[order]]) // rows_max
    names = pa.array([f"{UNPLACED}{share}" for share in range(int(places.max(initial=0)) + 1)])
    return names.take(pa.array(places))


def _by_group(
    rows: pa.Table, keys: Any, change: npt.NDArray[np.int8], partitions: Any, ids: Any, state: WriteState
) -> Coded:
    rows = rows.append_column(CHANGE, pa.array(change))
    both = pc.binary_join_element_wise(partitions, ids, "\0").dictionary_encode()
    groups = [tuple(text.split("\0")) for text in both.dictionary.to_pylist()]
    by_code = {_code_of((partition, file_id), state): (partition, file_id) for partition, file_id in groups}
    codes = np.array([_code_of((p, f), state) for p, f in groups], np.int64)[both.indices.to_numpy()]
    order = order_of(codes) if len(codes) else np.empty(0, np.int64)
    taken = rows.take(pa.array(order)).combine_chunks().to_batches()
    whole = taken[0] if taken else pa.RecordBatch.from_pylist([], rows.schema)
    return Coded(whole, codes[order], key_hashes(keys)[order], dict(by_code))


def _code_of(group: FileGroupId, state: WriteState) -> int:
    if group[1].startswith(UNPLACED):
        return group_hash(group)  # the driver says which task it is
    return code_of(group, zlib.crc32(group[1].encode()), state)


def place(
    facts: pa.Table, plan: WriteState, *, row_bytes: int
) -> tuple[npt.NDArray[np.int64], list[FileGroupId | None]]:
    """Decide where the new keys go: the code and file group of every piece."""
    codes = facts["code"].to_numpy().copy()
    names = zip(facts["partition"].to_pylist(), facts["file_id"].to_pylist(), strict=True)
    groups: list[FileGroupId | None] = [None if p is None else (p, f) for p, f in names]
    new = [n for n, group in enumerate(groups) if group is not None and group[1].startswith(UNPLACED)]
    rows = facts["rows"].to_pylist()
    demand = [NewKeys((groups[n] or ("", ""))[0], rows[n]) for n in new]
    assigned = index_of(plan).assign(demand, plan.groups, instant=plan.instant, row_bytes=row_bytes)
    for n, file_id in zip(new, assigned, strict=True):
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
