"""The five columns Hudi puts before every row."""

from __future__ import annotations

import pyarrow as pa

RECORD_KEY_COLUMN = "_hoodie_record_key"

META_COLUMNS: tuple[str, ...] = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    RECORD_KEY_COLUMN,
    "_hoodie_partition_path",
    "_hoodie_file_name",
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
