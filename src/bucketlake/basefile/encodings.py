"""How each column of a Parquet file is best laid out, by a look at a few of its values.

    few distinct values          dictionary
    others                       PLAIN
    values inside lists, maps    dictionary, as long as Arrow finds it small enough

A dictionary pays if values repeat within a large file; in a small one
compression finds the repeats as well, and the look is not worth its time. How
many distinct values there are is estimated from a sample, by how many of it
meet again: of s draws from D values about s*s/2D pairs agree.

The delta encodings would write a large file a quarter faster and a small one
no faster, and Flink's reader does not know them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
from pyarrow import types

from bucketlake.schema import META_COLUMNS, RECORD_KEY_COLUMN

SAMPLE_ROWS = 512
_SMALL_ROWS = 1 << 14
_DICTIONARY_BYTES_MAX = 1 << 20
"""Beyond this Arrow gives a dictionary up, after the work of building it."""
_REPEATS_MIN = 4
_SEQNO = META_COLUMNS[1]


def columns_with_dictionary(
    schema: pa.Schema, batches: Sequence[pa.RecordBatch], rows: int
) -> tuple[str, ...]:
    """Choose for a file of about `rows` rows that begins with `batches`; return paths of leaf columns."""
    if rows < _SMALL_ROWS:
        return _in_small_files(schema)
    repeating = [
        field.name
        for position, field in enumerate(schema)
        if not types.is_nested(field.type)
        and _repeats(field, [batch.column(position) for batch in batches], rows)
    ]
    return _paths(schema, repeating)


@lru_cache(maxsize=64)
def _in_small_files(schema: pa.Schema) -> tuple[str, ...]:
    """Choose for a small file, whose values need no look: all files of a write get the same."""
    return _paths(schema, [field.name for field in schema if types.is_dictionary(field.type)])


def _paths(schema: pa.Schema, repeating: Collection[str]) -> tuple[str, ...]:
    return tuple(
        path
        for field in schema
        if types.is_nested(field.type) or field.name in repeating
        for path in leaf_paths(field)
    )


def leaf_paths(field: pa.Field) -> Iterator[str]:
    """Yield the paths of the Parquet columns that hold a field.

    >>> list(leaf_paths(pa.field("s", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]))))
    ['s.a', 's.b.list.element']
    """
    kind = field.type
    if types.is_struct(kind):
        inner = [(field.name, child) for child in kind]
    elif types.is_map(kind):
        inner = [(f"{field.name}.key_value", kind.key_field), (f"{field.name}.key_value", kind.item_field)]
    elif types.is_list(kind):
        inner = [(f"{field.name}.list", kind.value_field.with_name("element"))]
    else:
        yield field.name
        return
    for prefix, child in inner:
        for path in leaf_paths(child):
            yield f"{prefix}.{path}"


def _repeats(field: pa.Field, columns: Sequence[pa.Array], rows: int) -> bool:
    """Say whether the values of a column repeat enough for a dictionary."""
    if types.is_dictionary(field.type):
        return True
    if types.is_boolean(field.type) or field.name in (_SEQNO, RECORD_KEY_COLUMN):
        return False
    used = columns[:8]
    sample = pa.concat_arrays([column[: SAMPLE_ROWS // len(used)] for column in used])
    drawn = len(sample) - sample.null_count
    if drawn < 2:
        return True
    again = drawn - (len(sample.unique()) - (sample.null_count > 0))
    distinct = drawn * drawn / (2 * again) if again else float("inf")
    return distinct * _REPEATS_MIN <= rows and distinct * sample.nbytes / len(sample) <= _DICTIONARY_BYTES_MAX
