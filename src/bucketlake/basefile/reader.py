"""The rows of a base file, all of them or those of a few keys.

With keys, the file is opened up only as far as they lead: a row group whose
smallest and largest key exclude them is not read; of the others the key column
is read first, and the rest of a row group only if it has a hit. Hudi keeps the
file's range in the footer too, beside a Bloom filter of hundreds of kilobytes
that comes along; the row groups' own ranges say the same. The hashes of keys
that were read once are kept, within bounds: a lookup that comes later opens only
the files that have its keys.

A key that is one column's text stands in the file twice, as that column and as Hudi's. Where the bytes of both are
the same, they are decoded once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.basefile.footer import open_parquet
from bucketlake.basefile.seal import damaged
from bucketlake.errors import CorruptTableError
from bucketlake.schema import RECORD_KEY_COLUMN, align, key_hashes
from bucketlake.storage import FileCache, LocalStore, Store, open_input

_BATCH_ROWS = 32768
"""Of half, once and twice as many the cheapest for a merged scan, in a rough trial."""

_PIECE_ROWS = 8192


def read_base_file(
    store: Store,
    path: str,
    schema: pa.Schema,
    *,
    keys: pa.Array | None = None,
    batch_rows: int = _BATCH_ROWS,
    on_keys: Callable[[pa.ChunkedArray], object] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a base file with exactly the columns of `schema`, in the file's order.

    A column the file does not have is null. With `keys`, only rows whose record key is among them, and
    `on_keys` is shown the key column of every row group that has to be searched.
    No batch has more than `batch_rows` rows, and none is empty.
    """
    if keys is not None:
        for table in _rows_of_keys(store, path, schema, keys, on_keys):
            yield from align(table, schema, path=path).combine_chunks().to_batches(batch_rows)
        return
    with open_parquet(store, path) as file:
        present = _present(file, schema)
        copies = _copies_of_keys(store, path, file, present)
        decoded = [name for name in present if name not in copies]
        rows = 0
        for batch in file.iter_batches(batch_size=batch_rows, columns=decoded, use_threads=False):
            if batch.num_rows:
                rows += batch.num_rows
                for name in copies:
                    batch = batch.append_column(name, batch.column(RECORD_KEY_COLUMN))
                yield align(batch, schema, path=path)
        if decoded and rows != file.metadata.num_rows:
            raise _miscounted(path, rows, file.metadata.num_rows)


@dataclass(slots=True)
class _KeysOfFile:
    """What is known of the keys of a whole file."""

    hashes: npt.NDArray[np.uint64]
    first: pa.ChunkedArray
    """Some of them, for who wants to see keys."""

    def may_hold(self, keys: pa.Array) -> bool:
        return any((self.hashes == wanted).any() for wanted in key_hashes(keys))


_KEYS: FileCache[_KeysOfFile] = FileCache("key hashes")
_FIRST_KEYS = 64
_FEW = 16
"""For more keys than these it is cheaper to look into the file."""


def _rows_of_keys(
    store: Store,
    path: str,
    schema: pa.Schema,
    keys: pa.Array,
    on_keys: Callable[[pa.ChunkedArray], object] | None,
) -> Iterator[pa.Table]:
    stat = store.stat(path)
    known = _KEYS.get(store, stat)
    if known is not None and len(keys) <= _FEW and not known.may_hold(keys):
        if on_keys is not None:
            on_keys(known.first)
        return
    hashes: list[npt.NDArray[np.uint64]] = []
    first: list[str] = []

    def note(stored: pa.ChunkedArray) -> None:
        if known is None:
            hashes.append(key_hashes(stored))
            first.extend(stored[: _FIRST_KEYS - len(first)].to_pylist())
        if on_keys is not None:
            on_keys(stored)

    with open_parquet(store, path, stat) as file:
        yield from _rows_in_groups(file, schema, keys, path, note)
        is_whole = len(hashes) == file.metadata.num_row_groups > 0
    if is_whole:
        found = _KeysOfFile(np.concatenate(hashes), pa.chunked_array([pa.array(first, pa.string())]))
        _KEYS.put(store, stat, found, found.hashes.nbytes + found.first.nbytes)


def _rows_in_groups(
    file: pq.ParquetFile,
    schema: pa.Schema,
    keys: pa.Array,
    path: str,
    on_keys: Callable[[pa.ChunkedArray], object],
) -> Iterator[pa.Table]:
    columns = file.schema_arrow.names
    if RECORD_KEY_COLUMN not in columns:
        raise CorruptTableError(
            path=path,
            found=f"no column {RECORD_KEY_COLUMN!r}",
            expected="a base file with Hudi's meta columns",
            remedy="Read it without keys; a table that leaves its meta columns empty can't be searched.",
        )
    ordered = sorted(keys.drop_null().unique().to_pylist())
    wanted = pa.array(ordered, pa.string())
    others = [name for name in schema.names if name in columns and name != RECORD_KEY_COLUMN]
    key_position = _leaf_position(file, RECORD_KEY_COLUMN)
    for group in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(group).column(key_position).statistics
        # A range of plain bytes, from a writer that did not say the column is text, tells nothing.
        has_range = statistics is not None and statistics.has_min_max and isinstance(statistics.min, str)
        if has_range and not _may_hold(ordered, statistics.min, statistics.max):
            continue
        stored = align(
            file.read_row_group(group, columns=[RECORD_KEY_COLUMN], use_threads=False),
            pa.schema([(RECORD_KEY_COLUMN, pa.string())]),
            path=path,
        )
        if stored.num_rows != file.metadata.row_group(group).num_rows:
            raise _miscounted(path, stored.num_rows, file.metadata.row_group(group).num_rows)
        on_keys(stored.column(0))
        # To compare is cheaper than to hash, and one key is what most lookups have.
        is_one = len(wanted) == 1
        found_in = (
            pc.equal(stored.column(0), wanted[0]) if is_one else pc.is_in(stored.column(0), value_set=wanted)
        )
        hits = pc.indices_nonzero(found_in)
        if not len(hits):
            continue
        found = stored.take(hits)
        if others:
            rest = _rows_at(file, group, others, hits.to_numpy(), path)
            for name, column in zip(rest.column_names, rest.columns, strict=True):
                found = found.append_column(name, column)
        yield found


def _rows_at(
    file: pq.ParquetFile,
    group: int,
    columns: Sequence[str],
    rows: np.ndarray[Any, np.dtype[np.uint64]],
    path: str,
) -> pa.Table:
    """Read some rows of a row group, piece by piece: what follows the last of them is never decoded."""
    pieces = []
    start = 0
    # Few rows of many columns are waited for by somebody; a scan is one of many tasks and keeps to its core.
    batches = file.iter_batches(_PIECE_ROWS, row_groups=[group], columns=columns, use_threads=True)
    for batch in batches:
        end = start + batch.num_rows
        inside = rows[np.searchsorted(rows, start) : np.searchsorted(rows, end)]
        if len(inside):
            pieces.append(batch.take(pa.array(inside - np.uint64(start))))
        if end > rows[-1]:
            break
        start = end
    found = sum(piece.num_rows for piece in pieces)
    if found != len(rows):
        raise _miscounted(path, found, len(rows))
    return pa.Table.from_batches(pieces)


def _miscounted(path: str, found: int, told: int) -> CorruptTableError:
    """A page tells its own number of rows, and its checksum is not of what it tells."""
    return damaged(path, f"columns of {found:,} rows where there are {told:,}")


def _present(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    columns = frozenset(file.schema_arrow.names)
    return [name for name in schema.names if name in columns]


def _copies_of_keys(store: Store, path: str, file: pq.ParquetFile, columns: Sequence[str]) -> tuple[str, ...]:
    """Return those of `columns` that hold the very bytes of the record keys, of one type with them.

    Only on a disk, where both are mapped into memory and to compare them is nothing beside decoding one.
    """
    if not isinstance(store, LocalStore) or RECORD_KEY_COLUMN not in columns:
        return ()
    leaves = {
        leaf.path: (position, leaf.max_definition_level)
        for position, leaf in enumerate(map(file.schema.column, range(len(file.schema))))
    }
    keys_at, levels = leaves[RECORD_KEY_COLUMN]
    kinds = file.schema_arrow
    # A dot may also lead into a struct: such a name is no place to look for keys.
    alike = {
        name: leaves[name][0]
        for name in columns
        if name != RECORD_KEY_COLUMN
        and "." not in name
        and kinds.field(name).type == kinds.field(RECORD_KEY_COLUMN).type
        and leaves[name][1] == levels
    }
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    pairs = {
        name: [(g.column(keys_at), g.column(position)) for g in groups] for name, position in alike.items()
    }
    likely = [name for name in pairs if all(_have_one_shape(keys, other) for keys, other in pairs[name])]
    if not likely:
        return ()
    with open_input(store, path) as source:
        return tuple(
            name
            for name in likely
            if all(_stored(source, keys).equals(_stored(source, other)) for keys, other in pairs[name])
        )


def _have_one_shape(one: pq.ColumnChunkMetaData, other: pq.ColumnChunkMetaData) -> bool:
    """Say whether equal bytes in both would mean equal values."""
    return bool(
        one.total_compressed_size == other.total_compressed_size
        and one.total_uncompressed_size == other.total_uncompressed_size
        and one.num_values == other.num_values
        and one.compression == other.compression
        and one.encodings == other.encodings
        and one.physical_type == other.physical_type
        # Where the offset of a dictionary is not told, it may lie outside of what `_stored` returns.
        and ((one.has_dictionary_page and other.has_dictionary_page) or not _mentions_dictionary(one))
    )


def _mentions_dictionary(chunk: pq.ColumnChunkMetaData) -> bool:
    return any("DICTIONARY" in encoding for encoding in chunk.encodings)


def _stored(source: pa.NativeFile, chunk: pq.ColumnChunkMetaData) -> pa.Buffer:
    source.seek(chunk.dictionary_page_offset if chunk.has_dictionary_page else chunk.data_page_offset)
    return source.read_buffer(chunk.total_compressed_size)


def _leaf_position(file: pq.ParquetFile, column: str) -> int:
    schema = file.schema
    return next(index for index in range(len(schema)) if schema.column(index).path == column)


def _may_hold(ordered: Sequence[str], smallest: str | None, largest: str | None) -> bool:
    """Say whether a range of keys can hold one of `ordered`; an end that is not known is open.

    >>> _may_hold(["a", "m"], "b", "f"), _may_hold(["a", "m"], "b", None)
    (False, True)
    """
    first = 0 if smallest is None else bisect_left(ordered, smallest)
    return first < len(ordered) and (largest is None or ordered[first] <= largest)
