"""The five columns Hudi puts before every row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
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


def numbered(prefix: str, count: int) -> pa.StringArray:
    """Return texts that begin with `prefix` and end with the numbers below `count`.

    Those of as many digits are as long, so they are laid out together: Arrow's join takes thrice the time.

    >>> numbered("a_", 11)[8:].to_pylist()
    ['a_8', 'a_9', 'a_10']
    """
    head = prefix.encode()
    digits = range(1, len(str(count)) + 1)
    bounds = [0, *(min(10**width, count) for width in digits)]
    sizes = [
        (stop - start) * (len(head) + width)
        for width, (start, stop) in zip(digits, pairwise(bounds), strict=True)
    ]
    ends = np.cumsum([0, *sizes]).tolist()
    data = np.empty(ends[-1], np.uint8)
    offsets = np.empty(count + 1, np.int32)
    for width, (start, stop), (begin, end) in zip(digits, pairwise(bounds), pairwise(ends), strict=True):
        texts = data[begin:end].view([("head", f"V{len(head)}"), ("digits", f"V{width}")])
        texts["head"] = np.void(head)
        texts["digits"] = _spelled(width, 1 << (stop - start).bit_length())[: stop - start]
        offsets[start:stop] = np.arange(begin, end, len(head) + width)
    offsets[count] = ends[-1]
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))


@lru_cache(maxsize=8)
def _spelled(width: int, count: int) -> npt.NDArray[Any]:
    """Spell the first `count` numbers of so many digits, for columns of about the same length."""
    first = 0 if width == 1 else 10 ** (width - 1)
    numbers = np.arange(first, min(first + count, 10**width))
    spelled = np.stack([numbers // 10**place % 10 for place in reversed(range(width))], axis=1) + ord("0")
    return spelled.astype(np.uint8).view(f"V{width}").reshape(-1)
