"""A batch of a stream that is in the table already: its rows are counted, and compared with what its commit says."""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from bucketlake.commit.stream import Batch, Mark
from bucketlake.config import TableProperties
from bucketlake.errors import ReplayError
from bucketlake.keygen import KeyGenerator
from bucketlake.schema import key_hashes
from bucketlake.write.exchange import Coded
from bucketlake.write.job import Rows
from bucketlake.write.tag import key_columns, tops_of


def check_replayed(rows: Rows, properties: TableProperties, batch: Batch, own: Mark | None) -> None:
    """Refuse a batch whose rows are not those that were committed under its number.

    `own` is the mark of the commit; None if there is none, because the batch had no rows. What Hudi committed cannot be
    compared: it says nothing of the rows.
    """
    if own is not None and "key_hash_sum" not in own.told:
        return
    keys = KeyGenerator.from_properties(properties)
    found = rows.key_sum(tops_of(key_columns(keys)), partial(only_hashed, keys=keys))
    expected = (0, 0) if own is None else (int(own.told["rows"]), int(own.told["key_hash_sum"]))
    if (found.rows, found.key_hash_sum) == expected:
        return
    committed = (
        "there is no commit of it, as of a batch without rows, or one whose rows all lost to newer ones"
        if own is None
        else f"{own.instant} committed it with {expected[0]:,} rows and the key sum {expected[1]}"
    )
    raise ReplayError(
        f"batch {batch.number} of the stream {batch.name or batch.stream} came again with {found.rows:,} rows and "
        f"the key sum {found.key_hash_sum}; {committed}. Nothing was written. The source was rewound, or changed. To "
        f"write its rows, start the query with a new checkpoint: they are upserted again."
    )


def only_hashed(rows: pa.Table, keys: KeyGenerator) -> Coded:
    """Hash the keys of rows, which go nowhere."""
    whole = rows.combine_chunks().to_batches()[0]
    record_keys = keys.record_keys(whole)
    nothing = pa.RecordBatch.from_arrays([pa.nulls(len(whole))], names=["nothing"])
    return Coded(nothing, np.zeros(len(whole), np.int64), key_hashes(record_keys), {})
