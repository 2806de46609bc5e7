"""Which keys a write brought and took away, told to whatever the table keeps of keys.

Tasks that write files leave the changes as Arrow pieces, by the shards of those who are told of them
(`WriteState.told_of_keys`). The next stage brings the pieces of a shard together and puts one file for it. What was
left and what was recorded is compared, in number and by the sum of the keys' hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError, ProofError
from bucketlake.index import ENTRIES
from bucketlake.index.listed import EntryFile, KeyRecords
from bucketlake.metadata.change import IndexFile
from bucketlake.schema import key_hash_sum, key_hashes
from bucketlake.write.exchange import GROUP_BITS, Coded, Exchange, KeySum, Piece, Pieces
from bucketlake.write.state import WriteState
from bucketlake.write.tag import order_of
from bucketlake.write.task import GroupWritten, KeysChanged

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
    written: Iterable[GroupWritten], changed: KeysChanged, state: WriteState
) -> Iterator[Coded]:
    """Say what was done to a file group, and leave what became of its keys to those who are told."""
    for group in written:
        yield report(group.as_dict())
    for keys, file_id in ((changed.came, changed.file_id), (changed.went, None)):
        if not len(keys):
            continue
        partitions = pa.repeat(pa.scalar(changed.partition), len(keys))
        ids = pa.repeat(pa.scalar(file_id, pa.string()), len(keys))
        entries = pa.RecordBatch.from_arrays([keys, partitions, ids], schema=ENTRIES)
        hashes = key_hashes(keys)
        for number, records in enumerate(state.told_of_keys):
            codes = _codes(records.shard_of(partitions, keys), number, records, state)
            order = order_of(codes)
            yield Coded(entries.take(pa.array(order)), codes[order], hashes[order], {})


def _codes(
    shards: npt.NDArray[np.int64], number: int, records: KeyRecords, state: WriteState
) -> npt.NDArray[np.int64]:
    codes: npt.NDArray[np.int64] = (shards % min(state.tasks, records.shards)) << GROUP_BITS | (
        number << SHARD_BITS | shards
    )
    return codes


def record_changes(
    exchange: Exchange[Pieces], done: Pieces, plan: WriteState
) -> tuple[tuple[GroupWritten, ...], tuple[IndexFile, ...]]:
    """Have the changes recorded that the writing tasks have left; return what these did, and what was recorded."""
    written = tuple(GroupWritten(**facts) for facts in said(exchange.fetch(done, REPORT)))
    tasks = min(plan.tasks, max(records.shards for records in plan.told_of_keys))
    texts = exchange.finish(done, partial(_record, state=plan), tasks=tasks)
    files = tuple(IndexFile(**facts) for text in texts for facts in json.loads(text))
    rows, total = sum(f.came + f.gone for f in files), sum(f.key_hash_sum for f in files) % (1 << 64)
    # What was said to the driver is among the pieces too, with a sum of nothing.
    received = KeySum(rows + len(written), total)
    compare(exchange.sum_of(done, received=received), received, "changes of keys", "the index")
    return written, files + _new_shards(files, plan)


def _new_shards(files: Sequence[IndexFile], plan: WriteState) -> tuple[IndexFile, ...]:
    """Put what has to be there beside the files in which keys were recorded."""
    recorded = plan.index.recorded
    if recorded is None:
        return ()
    more = recorded.files_of_new_shards({file.path for file in files}, instant=plan.instant)
    for path, data in more.items():
        plan.store.put_new(path, data)
    return tuple(
        IndexFile(path=path, size_bytes=len(data), came=0, gone=0, key_hash_sum=0)
        for path, data in more.items()
    )


def _record(pieces: Iterator[Piece], state: WriteState) -> Iterator[str]:
    """Put one file per shard that says what became of its keys; say what is in it."""
    for code, run in groupby(pieces, key=attrgetter("code")):
        number, shard = (code & _WHAT) >> SHARD_BITS, code & _SHARD
        order = [("key", "ascending"), ("partition", "ascending"), ("file_id", "ascending")]
        entries = pa.Table.from_batches([piece.rows for piece in run]).sort_by(order)
        files = state.told_of_keys[number].entry_files(shard, entries, instant=state.instant)
        for path, recorded in files.items():
            if not state.store.put_new(path, recorded.data) and state.store.read(path) != recorded.data:
                raise ConfigError(
                    f"two attempts at {path} had different keys. The frame's rows change from one evaluation to the "
                    f"next (rand(), a source that is being written). Write it down first, e.g. as Parquet, or cache it."
                )
        yield json.dumps([_facts(path, recorded) for path, recorded in files.items()])


def _facts(path: str, recorded: EntryFile) -> dict[str, Any]:
    gone = recorded.entries["file_id"].null_count
    return asdict(
        IndexFile(
            path=path,
            size_bytes=len(recorded.data),
            came=recorded.entries.num_rows - gone,
            gone=gone,
            key_hash_sum=key_hash_sum(recorded.entries["key"].combine_chunks()),
        )
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
