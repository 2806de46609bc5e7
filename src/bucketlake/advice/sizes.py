"""How many bytes a row takes in a base file: some rows are written as one, to memory."""

from __future__ import annotations

import io

import numpy as np
import pyarrow as pa

from bucketlake.basefile import BaseFileWriter
from bucketlake.keygen import KeyGenerator
from bucketlake.schema import META_COLUMNS, RECORD_KEY_COLUMN, named_in, with_meta_columns
from bucketlake.schema.meta import numbered

SAMPLE_ROWS = 50_000
_INSTANT = "20260101000000000"


def row_bytes_of(rows: pa.Table, generator: KeyGenerator) -> float:
    """Write the first rows as a table would, with Hudi's columns, and weigh what each adds.

    What a file has whatever its rows, the footer, is left out: half of the rows are written too, and subtracted.
    """
    some = rows.slice(0, SAMPLE_ROWS).combine_chunks()
    if some.num_rows < 2:
        return float(max(1, some.nbytes))
    whole, half = (
        _file_bytes(some.slice(0, count), generator) for count in (some.num_rows, some.num_rows // 2)
    )
    added = (whole - half) / (some.num_rows - some.num_rows // 2)
    return float(max(1.0, added))


def _file_bytes(rows: pa.Table, generator: KeyGenerator) -> int:
    own = rows.select([name for name in rows.column_names if name not in META_COLUMNS])
    keys = generator.record_keys(own.combine_chunks().to_batches()[0])
    order = pa.array(np.argsort(keys.to_numpy(zero_copy_only=False), kind="stable"))
    nothing = pa.repeat(pa.scalar(""), own.num_rows)
    meta = dict.fromkeys(META_COLUMNS, nothing) | {
        "_hoodie_commit_seqno": numbered(f"{_INSTANT}_0_", own.num_rows),
        RECORD_KEY_COLUMN: keys.take(order),
    }
    schema = with_meta_columns(own.schema.remove_metadata())
    ordered = own.take(order).combine_chunks()
    columns = [
        meta[field.name] if field.name in meta else ordered.column(field.name).combine_chunks()
        for field in schema
    ]
    batch = named_in(pa.RecordBatch.from_arrays(columns, schema=schema), "a")
    sink = io.BytesIO()
    writer = BaseFileWriter(sink, schema, avro_schema="{}")
    writer.write(batch)
    writer.finish({})
    return len(sink.getvalue())
