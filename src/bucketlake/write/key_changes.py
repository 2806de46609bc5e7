"""Which keys a write brought and took away, told to whatever the table keeps of keys.

Tasks that write files leave the changes as Arrow pieces, by the shards of those who are told of them
(`WriteState.told_of_keys`). The next stage brings the pieces of a shard together and puts one file for it. What was
left and what was recorded is compared, in number and by the sum of the keys' hashes.

A write that replaces file groups has their keys read too: those are gone that do not come again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.commit.operation import Operation
from bucketlake.errors import ConfigError, ProofError
from bucketlake.index.listed import EntryFile, KeyRecords, RowsChanged
from bucketlake.index.recorded import Reread
from bucketlake.metadata.change import IndexFile
from bucketlake.schema import bytes_of, key_hash_sum, key_hashes
from bucketlake.storage import overlapped
from bucketlake.write.exchange import GROUP_BITS, Coded, Exchange, InProcess, KeySum, Piece, Pieces
from bucketlake.write.replaced_keys import replaced_keys, share_out_replaced
from bucketlake.write.state import WriteState
from bucketlake.write.tag import order_of
from bucketlake.write.task import GroupWritten

REPORT = -2
"""The code of what tasks say to the driver."""
SHARD_BITS = 32
_SHARD = (1 << SHARD_BITS) - 1
_WHAT = (1 << GROUP_BITS) - 1


def report(facts: Mapping[str, Any]) -> Coded:
    """Make a piece of what a task says to the driver."""
    batch = pa.RecordBatch.from_pydict({"report": [json.dumps(facts)]})
    return Coded(batch, np.array([REPORT], np.int64), np.zeros(1, np.uint64), {})


def said(batches: Sequence[pa.RecordBatch]) -> list[Any]:
    return [json.loads(text) for batch in batches for text in batch.column("report").to_pylist()]


def leave_changes(
    written: Iterable[GroupWritten], changed: RowsChanged, state: WriteState
) -> Iterator[Coded]:
    """Say what was done to a file group, and leave what became of its keys to those who are told."""
    if state.index.recorded is not None:
        keys = pa.concat_arrays([changed.came, changed.went])
        written = [replace(group, told=len(keys), told_sum=key_hash_sum(keys)) for group in written]
    for group in written:
        yield report(group.as_dict())
    for number, records in enumerate(state.told_of_keys):
        yield from _left_to(number, records.told(changed), state)


def _left_to(number: int, entries: pa.RecordBatch, state: WriteState) -> Iterator[Coded]:
    """Leave entries to one of those who are told, by its shards."""
    if not entries.num_rows:
        return
    records = state.told_of_keys[number]
    keys = entries.column("key")
    codes = _codes(records.shard_of(entries.column("partition"), keys), number, records, state)
    order = order_of(codes)
    yield Coded(entries.take(pa.array(order)), codes[order], key_hashes(keys)[order], {})


def _codes(
    shards: npt.NDArray[np.int64], number: int, records: KeyRecords, state: WriteState
) -> npt.NDArray[np.int64]:
    codes: npt.NDArray[np.int64] = (shards % min(state.tasks, records.shards)) << GROUP_BITS | (
        number << SHARD_BITS | shards
    )
    return codes


def record_changes(
    exchange: Exchange[Pieces], done: Pieces, plan: WriteState, *, before: Sequence[IndexFile] = ()
) -> tuple[tuple[GroupWritten, ...], tuple[IndexFile, ...]]:
    """Have the changes recorded that the writing tasks have left; return what these did, and what was recorded.

    What was recorded `before`, by earlier rounds of the write, is recorded again, of the file groups that stay.
    """
    written = tuple(GroupWritten(**facts) for facts in said(exchange.fetch(done, REPORT)))
    replaced = share_out_replaced(_replaced_partitions(written, plan), plan)
    if replaced is not None:
        left = exchange.gather(exchange.of(replaced), partial(_leave_replaced, state=plan), tasks=plan.tasks)
        done = exchange.joined(done, left)
    if before:
        asked = exchange.of(_share_out_files(before, plan))
        done = exchange.joined(
            done, exchange.gather(asked, partial(_leave_again, state=plan), tasks=plan.tasks)
        )
    tasks = min(plan.tasks, max(records.shards for records in plan.told_of_keys))
    codes = frozenset(code for code in exchange.facts(done)["code"].to_pylist() if code >= 0)
    texts = exchange.finish(done, partial(_record, state=plan, codes=codes), tasks=tasks)
    files = tuple(IndexFile(**facts) for text in texts for facts in json.loads(text))
    rows, total = sum(f.came + f.gone for f in files), sum(f.key_hash_sum for f in files) % (1 << 64)
    # What was said to the driver is among the pieces too, with a sum of nothing.
    received = KeySum(rows + len(written), total)
    compare(exchange.sum_of(done, received=received), received, "changes of keys", "the index")
    files += _cleared({file.path for file in before} - {file.path for file in files}, plan)
    return written, files + _new_shards(files, plan)


def _share_out_files(files: Sequence[IndexFile], plan: WriteState) -> Coded:
    """Make a piece for each file in which an earlier round has recorded keys."""
    codes = np.sort(np.array([(n % plan.tasks) << GROUP_BITS | n for n in range(len(files))], np.int64))
    rows = pa.RecordBatch.from_pydict({"recorded": [file.path for file in files]})
    return Coded(rows, codes, np.zeros(len(codes), np.uint64), {})


def _leave_again(pieces: Iterator[Piece], state: WriteState) -> Iterator[Coded]:
    """Leave what an earlier round has recorded of the file groups whose files stay."""
    for piece in pieces:
        for path in piece.rows.column("recorded").to_pylist():
            entries = _reread(state).entries_in(path, state.kept).combine_chunks()
            for batch in entries.to_batches():
                yield from _left_to(0, batch, state)  # an index that looks keys up is the first who is told


def _reread(state: WriteState) -> Reread:
    reread = None if state.index.recorded is None else state.index.recorded.reread
    assert reread is not None, "others write in one round"
    return reread


def _cleared(paths: Iterable[str], plan: WriteState) -> tuple[IndexFile, ...]:
    """Have files of an earlier round say nothing, of shards of which there is nothing to say any more.

    They do not go: an attempt of that round may still put them, and finds the name taken.
    """
    files = []
    for path in sorted(paths):
        data = _reread(plan).no_entries(instant=plan.instant)
        _put(path, data, plan)
        files.append(IndexFile(path=path, size_bytes=len(data), came=0, gone=0, key_hash_sum=0))
    return tuple(files)


def record_replaced(plan: WriteState) -> tuple[IndexFile, ...] | None:
    """Have recorded, by this process, that the keys of what gives way are gone; None if nobody is told.

    For partitions that go, and get no rows: their keys are read one file group after the other.
    """
    if not plan.told_of_keys:
        return None
    nothing: list[Piece] = []
    return record_changes(InProcess(pa.table({})), nothing, plan)[1]


def _replaced_partitions(written: Iterable[GroupWritten], plan: WriteState) -> frozenset[str]:
    """Say which partitions are replaced: all that the plan names, unless it depends on what rows there are."""
    if plan.operation is Operation.INSERT_OVERWRITE and plan.index.recorded is None:
        return frozenset(group.partition for group in written)
    return frozenset(plan.giving_way)


def _leave_replaced(pieces: Iterator[Piece], state: WriteState) -> Iterator[Coded]:
    for changed in replaced_keys(pieces, state):
        yield from leave_changes((), changed, state)


def _new_shards(files: Sequence[IndexFile], plan: WriteState) -> tuple[IndexFile, ...]:
    """Put what has to be there beside the files in which keys were recorded."""
    written = {file.path for file in files}
    more: dict[str, bytes] = {}
    for records in plan.told_of_keys:
        more |= records.files_of_new_shards(written, instant=plan.instant)
    for path, data in more.items():
        plan.store.put_new(path, data)
    return tuple(
        IndexFile(path=path, size_bytes=len(data), came=0, gone=0, key_hash_sum=0)
        for path, data in more.items()
    )


def _record(pieces: Iterator[Piece], state: WriteState, codes: Collection[int]) -> Iterator[str]:
    """Put one file per shard that says what became of its keys; say what is in it.

    A file counts by its name when the instant is complete, whether the commit tells of it or not. So no attempt puts
    one for a shard that is not among `codes`: those of which the driver knows, and tells.
    """

    def put(one: tuple[int, pa.Table]) -> str:
        code, entries = one
        if code not in codes:
            raise _other_keys(f"what is recorded by {state.instant}")
        number, shard = (code & _WHAT) >> SHARD_BITS, code & _SHARD
        records = state.told_of_keys[number]
        records.check_entries(shard, entries)
        files = records.entry_files(shard, entries, instant=state.instant)
        for path, recorded in files.items():
            _put(path, recorded.data, state)
        return json.dumps([asdict(index_file(path, recorded)) for path, recorded in files.items()])

    shards = (
        (code, in_order(pa.Table.from_batches([piece.rows for piece in run])))
        for code, run in groupby(pieces, key=attrgetter("code"))
    )
    yield from overlapped(put, shards, state.store, bytes_of=lambda one: 4 * bytes_of(one[1]))


def _put(path: str, data: bytes, state: WriteState) -> None:
    """Put a file of entries, unless it is there; one of an earlier round that says something else is replaced."""
    if state.store.put_new(path, data) or state.store.read(path) == data:
        return
    version = state.stale.get(path)
    if version is not None and state.store.replace_if(path, data, version):
        return
    if version is None or state.store.read(path) != data:
        raise _other_keys(path)


def _other_keys(what: str) -> ConfigError:
    return ConfigError(
        f"two attempts at {what} had different keys. The frame's rows change from one evaluation to the next "
        f"(rand(), a source that is being written). Write it down first, e.g. as Parquet, or cache it."
    )


def in_order(entries: pa.Table) -> pa.Table:
    """Sort what became of keys: first those that went, then those that came."""
    order = [("key", "ascending"), ("partition", "ascending"), ("file_id", "ascending")]
    has_come = pc.is_valid(entries["file_id"])
    parts = (entries.filter(pc.invert(has_come)), entries.filter(has_come))
    return pa.concat_tables([part.sort_by(order) for part in parts])


def index_file(path: str, recorded: EntryFile) -> IndexFile:
    """Say what a file of entries holds."""
    gone = recorded.entries["file_id"].null_count
    return IndexFile(
        path=path,
        size_bytes=len(recorded.data),
        came=recorded.entries.num_rows - gone,
        gone=gone,
        key_hash_sum=key_hash_sum(recorded.entries["key"].combine_chunks()),
    )


def compare(sent: KeySum, received: KeySum, what: str, whom: str) -> None:
    """Raise `ProofError` if what arrived is not what was sent."""
    if sent != received:
        raise ProofError(
            f"{sent.rows} {what} with the key sum {sent.key_hash_sum} were sent to {whom}, and {received.rows} with "
            f"{received.key_hash_sum} arrived. Nothing was committed. Either the frame's rows change from one "
            f"evaluation to the next (rand(), a source that is being written): then write it down first, e.g. as "
            f"Parquet. Or rows were damaged on their way: then try again."
        )
