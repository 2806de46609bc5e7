"""The five columns Hudi puts before every row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

RECORD_KEY_COLUMN = "_hoodie_record_key"
FILE_NAME_COLUMN = "_hoodie_file_name"

META_COLUMNS: tuple[str, ...] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    RECORD_KEY_COLUMN,
    "_hoodie_partition_path",
    FILE_NAME_COLUMN,
)


def with_meta_columns(schema: pa.Schema) -> pa.Schema:
    """Put the meta columns, nullable text, before the columns of `schema`.

    A schema that names them already (as those in files do) gets them once, in front.

    >>> with_meta_columns(pa.schema([("id", pa.int64())])).names[-2:]
    ['_hoodie_file_name', 'id']
    """
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    own = [field for field in schema if field.name not in META_COLUMNS]
    return pa.schema(meta + own, metadata=schema.metadata)


def named_in(batch: pa.RecordBatch, file_name: str) -> pa.RecordBatch:
    """Say in every row which file it is in now.

    The column comes dictionary-encoded, the cheap form of one that has the same value in every row.
    """
    position = batch.schema.get_field_index(FILE_NAME_COLUMN)
    names = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(batch.num_rows, np.int32)), pa.array([file_name])
    )
    columns = batch.columns
    columns[position] = names
    fields = list(batch.schema)
    fields[position] = pa.field(FILE_NAME_COLUMN, names.type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
