"""The five columns Hudi puts before every row."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

COMMIT_TIME_COLUMN = "_hoodie_commit_time"
RECORD_KEY_COLUMN = "_hoodie_record_key"
PARTITION_PATH_COLUMN = "_hoodie_partition_path"
FILE_NAME_COLUMN = "_hoodie_file_name"

META_COLUMNS: tuple[str, ...] = (
    COMMIT_TIME_COLUMN,
    "_hoodie_commit_seqno",
    RECORD_KEY_COLUMN,
    PARTITION_PATH_COLUMN,
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
    """Say in every row which file it is in now."""
    return with_constants(batch, {FILE_NAME_COLUMN: file_name})


def with_constants(batch: pa.RecordBatch, values: Mapping[str, str]) -> pa.RecordBatch:
    """Give columns one value in every row.

    They come dictionary-encoded, the cheap form of a column that has the same value in every row.
    """
    columns, fields = batch.columns, list(batch.schema)
    places = pa.array(np.zeros(batch.num_rows, np.int32))
    for name, value in values.items():
        position = batch.schema.get_field_index(name)
        columns[position] = pa.DictionaryArray.from_arrays(places, pa.array([value]))
        fields[position] = pa.field(name, columns[position].type)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
