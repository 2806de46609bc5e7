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
from bucketlake.index.listed import RowsChanged
from bucketlake.index.recorded import Probed
from bucketlake.layout import FileGroupId
from bucketlake.layout.names import path_in_partition
from bucketlake.logfile import LogRecords
from bucketlake.merge import fold_logs
from bucketlake.metadata.change import IndexFile
from bucketlake.schema import RECORD_KEY_COLUMN, bytes_of, fit_rows, key_hashes
from bucketlake.storage import in_parallel, overlapped
from bucketlake.write.exchange import GROUP_BITS, PASSED_OVER, Coded, Exchange, KeySum, Piece, Pieces
from bucketlake.write.key_changes import REPORT, compare, leave_changes, record_changes, report, said
from bucketlake.write.late_rows import is_late
from bucketlake.write.newest_changes import loosely_fitted, newest_changes
from bucketlake.write.report import Ran, received_sum
from bucketlake.write.rounds import (
    Again,
    Earlier,
    LookedUp,
    check_placed,
    check_written_again,
    still_counted,
    what_again,
)
from bucketlake.write.state import WriteState
from bucketlake.write.tag import check_rows, code_of, group_hash, order_of, told_rows
from bucketlake.write.task import CHANGE, GroupWritten, KeyChange, bytes_at_work, write_looked_up

UNPLACED = "?"
"""Begins what stands in the place of the file id of keys that have none yet: a number of the share follows."""
SHARE_BYTES = 16 << 20
"""New keys of one partition are placed together up to this size, so that file groups can be filled evenly."""
STORED_PART = 0.5
"""What rows take in a file, of what they take in memory: about half, columns being compressed."""
_PROBE_BYTES = 64 << 10
"""Looking a key up reads a block at most."""
_WHAT = (1 << GROUP_BITS) - 1


def write_looked_up_rows(exchange: Exchange[Pieces], columns: Sequence[str], plan: WriteState) -> Ran:
    """Write rows into the file groups that the table's index names; return what was sent to these, and done."""
    index, earlier, plan = index_of(plan), plan.earlier, replace(plan, earlier=None)
    by_shard = min(plan.tasks, index.shards)
    routed = exchange.scatter(columns, partial(route, state=plan))
    probed = exchange.gather(routed, partial(probe, state=plan), tasks=by_shard)
    seen = said(exchange.fetch(probed, REPORT))
    arrived = KeySum(sum(s["rows"] for s in seen), sum(s["sum"] for s in seen) % (1 << 64))
    compare(exchange.sum_of(routed, received=arrived), arrived, "rows", "the tasks that look keys up")
    row_bytes = _row_bytes(sum(s["bytes"] for s in seen), arrived.rows)
    facts = exchange.facts(probed)
    codes, groups = place(facts, plan, earlier, row_bytes=row_bytes)
    looked_up = LookedUp(
        arrived=arrived,
        places=_places(facts, groups),
        keys=sum(s["looked_up"] for s in seen),
        cache_hits=sum(s["cache_hits"] for s in seen),
    )
    stays: tuple[GroupWritten, ...] = ()
    emptied: frozenset[FileGroupId] = frozenset()
    if earlier is not None:
        compare(earlier.looked_up.arrived, arrived, "rows", "the tasks that look keys up, in a second round")
        again = what_again(earlier, _sums_of(facts, groups))
        check_written_again(again, earlier, plan.groups, instant=plan.instant)
        stays, emptied = still_counted(earlier.written, again), again.emptied
        plan = replace(plan, stale=_versions(again, earlier, plan), kept=again.kept)
        codes[[group in again.kept for group in groups]] = PASSED_OVER
    placed = exchange.recoded(probed, codes, groups)
    if emptied:
        placed = exchange.joined(placed, exchange.of(_words_of(emptied, plan)))
    done = exchange.gather(placed, partial(write, state=plan), tasks=plan.tasks)
    before = () if earlier is None else earlier.recorded
    anew, recorded = record_changes(exchange, done, plan, before=before)
    written = stays + anew
    # What was said to the driver, and by it, is among the pieces too, with a sum of nothing.
    reached = received_sum(written)
    told = KeySum(reached.rows + len(seen) + len(emptied), reached.key_hash_sum)
    compare(exchange.sum_of(placed, received=told), told, "rows", "the tasks that write them")
    _check_recorded(written, recorded, plan)
    unsent = arrived.rows - reached.rows + sum(group.moved for group in written)
    beaten = sum(s["beaten"] for s in seen)
    first = tuple(replace(group, unsent=unsent, beaten=beaten) for group in written[:1])
    return Ran(reached, first + written[1:], recorded, looked_up)


def _sums_of(facts: pa.Table, groups: Sequence[FileGroupId | None]) -> dict[FileGroupId, KeySum]:
    """Sum up the rows that each file group is to get."""
    found: dict[FileGroupId, KeySum] = {}
    columns = (facts[name].to_pylist() for name in ("rows", "key_hash_sum"))
    for group, rows, total in zip(groups, *columns, strict=True):
        if group is not None:
            before = found.get(group, KeySum(0, 0))
            found[group] = KeySum(before.rows + rows, (before.key_hash_sum + total) % (1 << 64))
    return found


def _versions(again: Again, earlier: Earlier, plan: WriteState) -> dict[str, str]:
    """Return the versions of the files that an earlier round has put and that may be replaced."""
    files = earlier.files
    paths = [path for group in again.written if group in files and (path := files[group].path) is not None]
    paths += [file.path for file in earlier.recorded]
    return {file.path: file.version for file in in_parallel(plan.store.stat, paths, plan.store)}


def _words_of(emptied: frozenset[FileGroupId], plan: WriteState) -> Coded:
    """Tell those who write file groups that these get no rows any more."""
    by_code: dict[int, FileGroupId | None] = {_code_of(group, plan): group for group in emptied}
    codes = np.sort(np.array(list(by_code), np.int64))
    rows = pa.RecordBatch.from_arrays([pa.nulls(len(codes))], names=["emptied"])
    return Coded(rows, codes, np.zeros(len(codes), np.uint64), by_code)


def _check_recorded(written: Sequence[GroupWritten], recorded: Sequence[IndexFile], plan: WriteState) -> None:
    """Compare what all rounds have told of keys with what is recorded of them, where nothing else is told."""
    if len(plan.told_of_keys) > 1 or plan.giving_way:
        return
    told = KeySum(sum(g.told for g in written), sum(g.told_sum for g in written) % (1 << 64))
    rows, total = sum(f.came + f.gone for f in recorded), sum(f.key_hash_sum for f in recorded)
    compare(told, KeySum(rows, total % (1 << 64)), "changes of keys", "the index, in all rounds")


def index_of(plan: WriteState) -> RecordedIndex:
    assert plan.index.recorded is not None
    return plan.index.recorded


def route(rows: pa.Table, state: WriteState) -> Coded:
    """Give rows the codes of the shards that can have their keys."""
    whole = told_rows(rows, state)
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

    def probe_one(one: tuple[int, pa.Table]) -> tuple[Coded, Coded]:
        return _probed(*one, state)

    shards = (
        (code & _WHAT, pa.Table.from_batches([piece.rows for piece in run]).combine_chunks())
        for code, run in groupby(pieces, key=attrgetter("code"))
    )
    for told, routed in overlapped(
        probe_one, shards, state.store, bytes_of=lambda one: one[1].num_rows * _PROBE_BYTES
    ):
        yield told
        yield routed


def _probed(shard: int, rows: pa.Table, state: WriteState) -> tuple[Coded, Coded]:
    """Return what is to be reported of the keys of a shard, and the rows with what was found of them."""
    keys = state.keys.record_keys(rows)
    total = int(key_hashes(keys).sum(dtype=np.uint64))
    batch = _settled(rows, keys, state)
    asked, (where, ids, hits) = _look_up(shard, batch, state)
    counts = {
        "rows": len(keys),
        "sum": total,
        "bytes": bytes_of(rows),
        "beaten": len(keys) - len(batch.keys),
        "looked_up": asked,
        "cache_hits": hits,
    }
    _check_locations(batch.keys, where, ids, state)
    return report(counts), _routed(shard, batch, where, ids, state)


def _look_up(shard: int, batch: _Batch, state: WriteState) -> tuple[int, Probed]:
    """Return how many keys the index was asked about, and where they live.

    Those of partitions that are replaced live nowhere any more.
    """
    index = index_of(state)
    if state.operation.replaces:
        _check_overwritten(batch, state)
        is_all = state.operation is Operation.INSERT_OVERWRITE_TABLE
        if is_all or not index.is_global:
            nowhere = pa.nulls(len(batch.keys), pa.string())
            return 0, Probed(nowhere, nowhere)
    where, ids, hits = index.probe(shard, batch.paths, batch.keys)
    if state.overwritten:
        stays = pc.invert(pc.is_in(where, value_set=pa.array(sorted(state.overwritten), pa.string())))
        where, ids = (pc.if_else(stays, column, None) for column in (where, ids))
    return len(batch.keys), Probed(where, ids, hits)


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
    elif state.feed is not None:
        newest = newest_changes(rows, _identity(keys, paths, state), state)
        deletes = ~newest.is_staying
        rows, chosen = loosely_fitted(rows, state), np.sort(np.concatenate([newest.staying, newest.going]))
    else:
        rows = fit_rows(rows, state.schema)
        identity = _identity(keys, paths, state)
        winners = fold_logs(
            [LogRecords(rows.append_column(RECORD_KEY_COLUMN, identity), False, state.instant)],
            state.rules,
            rows.schema.append(pa.field(RECORD_KEY_COLUMN, pa.string())),
        )
        chosen = np.sort(winners.entries)
        deletes = np.zeros(len(keys), np.bool_)
        deletes[winners.entries] = ~winners.is_record
    return _Batch(rows, keys, paths, deletes).take(chosen)


def _identity(keys: Any, paths: Any, state: WriteState) -> Any:
    """Return what rows of one record have in common."""
    return keys if index_of(state).is_global else pc.binary_join_element_wise(paths, keys, "\0")


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


def _routed(shard: int, batch: _Batch, where: Any, ids: Any, state: WriteState) -> Coded:
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
        rows = batch.rows.take(taken)
        rows = rows if state.feed is None else fit_rows(rows, state.schema)
        late = is_late(rows, batch.keys.take(taken), where.take(taken), ids.take(taken), state)
        # A late row goes where the newer one is, which it does not change: so it is counted as outdated.
        has_moved[moving[late]] = False
    is_new = ~is_known | has_moved
    change = np.where(is_new, KeyChange.NEW, KeyChange.KNOWN).astype(np.int8)
    if state.feed is not None:
        change[batch.deletes] = KeyChange.GOING
    paths = pc.if_else(pa.array(is_new), batch.paths, where)
    target = pc.if_else(pa.array(is_new), _targets(shard, batch, is_new, state), ids)
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


def _targets(shard: int, batch: _Batch, is_new: npt.NDArray[np.bool_], state: WriteState) -> pa.Array:
    """Return the file groups of the rows whose keys are new, or the shares in which the driver is to place them."""
    new = np.flatnonzero(is_new)
    if len(new):
        taken = pa.array(new)
        placed = index_of(state).place_new(
            batch.paths.take(taken),
            batch.keys.take(taken),
            state.groups,
            instant=state.instant,
            row_bytes=_row_bytes(bytes_of(batch.rows), len(batch.keys)),
        )
        if placed is not None:
            return pc.replace_with_mask(pa.nulls(len(is_new), pa.string()), pa.array(is_new), placed)
    return _shares(shard, batch, is_new, state)


def _row_bytes(size: int, rows: int) -> int:
    """Say about how much a row takes in a file, of so many that take so much in memory."""
    return max(1, round(STORED_PART * size / max(1, rows)))


def _shares(shard: int, batch: _Batch, is_new: npt.NDArray[np.bool_], state: WriteState) -> pa.Array:
    """Name the share of new keys that each row is in: those of a partition are cut where they become too large.

    By its shard's name, so that another round knows it again.
    """
    row_bytes = max(1, bytes_of(batch.rows) // max(1, len(batch.keys)))
    rows_max = max(1, SHARE_BYTES // row_bytes)
    encoded = batch.paths.dictionary_encode()
    partitions, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    count = int(codes.max()) + 1 if len(codes) else 0
    places = np.zeros(len(codes), np.int64)
    if count and len(codes) > rows_max:
        order = np.argsort(codes, kind="stable")
        sorted_new = is_new[order].astype(np.int64)
        running = np.cumsum(sorted_new) - sorted_new
        starts = np.searchsorted(codes[order], np.arange(count))
        places[order] = (running - running[starts][codes[order]]) // rows_max
    shares = range(int(places.max(initial=0)) + 1)
    of_shard = [index_of(state).shard_name(shard, partition) for partition in partitions]
    names = pa.array([f"{UNPLACED}{name}-{share}" for name in of_shard for share in shares], pa.string())
    return names.take(pa.array(codes * len(shares) + places))


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
    facts: pa.Table, plan: WriteState, earlier: Earlier | None = None, *, row_bytes: int
) -> tuple[npt.NDArray[np.int64], list[FileGroupId | None]]:
    """Decide where the new keys go, the code and file group of every piece: where an earlier round put them, if any."""
    codes = facts["code"].to_numpy().copy()
    names = zip(facts["partition"].to_pylist(), facts["file_id"].to_pylist(), strict=True)
    groups: list[FileGroupId | None] = [None if p is None else (p, f) for p, f in names]
    new = [n for n, group in enumerate(groups) if group is not None and group[1].startswith(UNPLACED)]
    rows = facts["rows"].to_pylist()
    if earlier is None:
        demand = [NewKeys((groups[n] or ("", ""))[0], rows[n]) for n in new]
        assigned = index_of(plan).assign(demand, plan.groups, instant=plan.instant, row_bytes=row_bytes)
    else:
        known, shares = earlier.looked_up.places, [groups[n] or ("", "") for n in new]
        check_placed({share for share in shares if share not in known}, instant=plan.instant)
        assigned = [known[share] for share in shares]
    for n, file_id in zip(new, assigned, strict=True):
        group = (groups[n] or ("", ""))[0], file_id
        groups[n] = group
        codes[n] = _code_of(group, plan)
    return codes, groups


def _places(facts: pa.Table, groups: Sequence[FileGroupId | None]) -> dict[FileGroupId, str]:
    """Return where every share of new keys has gone."""
    names = zip(facts["partition"].to_pylist(), facts["file_id"].to_pylist(), groups, strict=True)
    return {(p, f): group[1] for p, f, group in names if group is not None and f.startswith(UNPLACED)}


def write(pieces: Iterator[Piece], state: WriteState) -> Iterator[Coded]:
    """Write a task's file groups; say what was done, and what became of which keys, by the shards that have them."""

    def write_one(one: tuple[FileGroupId, pa.Table]) -> tuple[tuple[GroupWritten, ...], RowsChanged]:
        written, changed = write_looked_up(*one, state)
        return tuple(_with_room(group, one[1], state) for group in written), changed

    def size_of(one: tuple[FileGroupId, pa.Table]) -> int:
        return bytes_at_work(*one, state)

    for done in overlapped(write_one, _of_groups(pieces, state), state.store, bytes_of=size_of):
        yield from leave_changes(*done, state)


def _with_room(group: GroupWritten, rows: pa.Table, state: WriteState) -> GroupWritten:
    """Add how many more keys a file group takes that has got some: others may be filling it too."""
    part = state.groups.get(group.partition, {}).get(group.file_id)
    if group.grown <= 0 or part is None:
        return group
    row_bytes = _row_bytes(bytes_of(rows), rows.num_rows)
    room = index_of(state).room_in(group.partition, part, row_bytes=row_bytes)
    return group if room is None else replace(group, room=room - group.grown)


def _of_groups(pieces: Iterator[Piece], state: WriteState) -> Iterator[tuple[FileGroupId, pa.Table]]:
    nothing = state.schema.append(pa.field(CHANGE, pa.int8()))
    for _, run in groupby(pieces, key=attrgetter("code")):
        by_group: dict[FileGroupId, list[pa.RecordBatch]] = {}
        for piece in run:
            assert piece.group is not None, "every key has a place by now"
            batches = by_group.setdefault(piece.group, [])
            if CHANGE in piece.rows.schema.names:  # others are words of groups that get no rows
                batches.append(piece.rows)
        for group, batches in by_group.items():
            yield (
                group,
                pa.Table.from_batches(batches, batches[0].schema if batches else nothing).combine_chunks(),
            )
