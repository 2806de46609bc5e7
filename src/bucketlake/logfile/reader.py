"""The log files of a file slice, as what they do to its rows.

Reading is two questions. First, which blocks count (`_applied_blocks`, after
Hudi's `BaseHoodieLogRecordReader`):

1. torn blocks are passed over, where nobody says that there are none;
2. blocks later than the query, of an uncommitted write (table version 6, where
   a log file outlives the write that began it), or outside the wanted
   instants are left out;
3. a rollback command takes away the blocks of its target that stand before it;
4. the blocks of an instant apply together, where the first of them stands;
5. a block that a log compaction made stands in the place of the newest block
   it was made of, and the others are left out.

Then, what each says: bytes to columns, fitted to the wanted schema.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import types

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile.avro_columns import decode_records
from bucketlake.logfile.deletes import decode_deletes
from bucketlake.logfile.frame import Block, BlockType, HeaderKey, decode_blocks, find_bytes, has_checksum
from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.logfile.reference import decode_reference
from bucketlake.schema import RECORD_KEY_COLUMN, align, parse_avro
from bucketlake.storage import FileCache, Store, open_input

_logger = logging.getLogger("bucketlake.logfile")

_ROLLBACK_COMMAND = "0"


def read_log_files(
    store: Store,
    paths: Sequence[str],
    schema: pa.Schema,
    *,
    ordering_fields: Sequence[str],
    table_schema: pa.Schema,
    up_to: str | None = None,
    instants: Container[str] | None = None,
    is_committed: Callable[[str], bool] | None = None,
    keys: pa.Array | None = None,
    whole: Container[str] = (),
) -> tuple[LogRecords | LogDeletes, ...]:
    """Read what the log files of a slice say, in the order in which it applies.

    `paths` come in the slice's order. Rows have the columns of `schema`, those of a partial update only the
    ones it holds. `table_schema` gives the types of the ordering fields. `up_to` is the last instant that
    counts, `instants` all that count; `is_committed` asks the timeline about a block's instant, as table
    version 6 needs. With `keys`, only what is said of these record keys; a block that does not have them costs
    no more than its key column.

    A torn block on a disk is what a dead writer leaves and is passed over, as Hudi does. It means lost data and
    raises `CorruptTableError` in a file of `whole`, those that a completed commit tells of; in a block of ours; and
    in an object store. The latter two are put whole or not at all.
    """
    ordering_types = {name: _type_of(name, table_schema) for name in ordering_fields}
    decode = _decoded if keys is None else _decoded_and_kept
    placed = [entry for path in paths for entry in _blocks_of(store, path, decode)]
    sound = list(_sound_blocks(placed, whole=whole, may_be_torn=_writes_may_tear(store)))
    applied = _applied_blocks(sound, up_to=up_to, instants=instants, is_committed=is_committed)
    decoded = (_decode(entry, schema, ordering_types, keys) for entry in applied)
    return tuple(log for log in decoded if log is not None)


def data_blocks(store: Store, path: str) -> Iterator[DataBlock]:
    """Yield the rows of a log file that a writer has just made, block by block, and of the files it refers to."""
    for entry in _sound_blocks(list(_blocks_of(store, path, _decoded)), whole=(path,), may_be_torn=False):
        if entry.block.type in _READERS:
            yield DataBlock(entry)


@dataclass(frozen=True, slots=True)
class DataBlock:
    """A block with rows, read as far as one asks."""

    _placed: _Placed

    def rows(self, columns: Sequence[str]) -> pa.Table:
        """Return those of the columns that there are, in the types of the block."""
        return _READERS[self._placed.block.type](self._placed, columns)

    def parquet(self) -> pq.ParquetFile | None:
        """Open a block of Parquet, None if it is Avro."""
        return _open_parquet(self._placed) if self._placed.block.type is BlockType.PARQUET_DATA else None


@dataclass(frozen=True, slots=True)
class _Placed:
    """A block and the file it stands in."""

    block: Block
    path: str

    @property
    def instant(self) -> str:
        return self.header(HeaderKey.INSTANT_TIME)

    def header(self, key: HeaderKey) -> str:
        if key not in self.block.header:
            raise CorruptTableError(
                path=self.path,
                found=f"a {self.block.type.name} block without {key.name}, at byte {self.block.offset}",
                expected="a header that has it",
                remedy="Restore the file from a copy, or roll back the commit that wrote it.",
            )
        return self.block.header[key]


def _blocks_of(store: Store, path: str, decode: Callable[[Store, str], Iterable[Block]]) -> Iterator[_Placed]:
    """Yield the blocks of a file, and where it refers to others, theirs."""
    for block in decode(store, path):
        if block.type is BlockType.REFERENCE:
            folder = path.rpartition("/")[0]
            for name in decode_reference(block, path=path):
                yield from _blocks_of(store, f"{folder}/{name}" if folder else name, decode)
        else:
            yield _Placed(block, path)


def _decoded(store: Store, path: str) -> Iterable[Block]:
    with open_input(store, path) as file:
        return decode_blocks(memoryview(file.read_buffer(file.size())), path=path)


_SMALL_BYTES = 1 << 20
_BLOCKS: FileCache[tuple[Block, ...]] = FileCache("log blocks")
_BLOCK_BYTES = 700
"""What a block takes beside the bytes of the file and the texts of its header."""


def _decoded_and_kept(store: Store, path: str) -> Iterable[Block]:
    """Keep small files for the next lookup: to open one takes longer than to search it."""
    stat = store.stat(path)
    if stat.size_bytes > _SMALL_BYTES:
        return _decoded(store, path)
    blocks = _BLOCKS.get(store, stat)
    if blocks is None:
        blocks = tuple(decode_blocks(memoryview(store.read(path)), path=path))
        texts = sum(len(text) for block in blocks for text in block.header.values())
        _BLOCKS.put(store, stat, blocks, stat.size_bytes + texts + _BLOCK_BYTES * len(blocks))
    return blocks


def _writes_may_tear(store: Store) -> bool:
    scheme, separator, _ = store.uri.partition("://")
    return not separator or scheme == "file"


def _sound_blocks(
    placed: Sequence[_Placed], *, whole: Container[str], may_be_torn: bool
) -> Iterator[_Placed]:
    for entry in placed:
        if entry.block.type is not BlockType.CORRUPT:
            yield entry
            continue
        if not may_be_torn or entry.path in whole or has_checksum(entry.block):
            raise CorruptTableError(
                path=entry.path,
                found=f"a block that is torn or overwritten, at byte {entry.block.offset}",
                expected="whole blocks, as the completed commit wrote them",
                remedy="Restore the file from a copy, or roll back the commit that wrote it.",
            )
        _logger.warning(
            "%s: passing over %d bytes of a torn block at byte %d",
            entry.path,
            len(entry.block.content),
            entry.block.offset,
        )


def _applied_blocks(
    placed: Sequence[_Placed],
    *,
    up_to: str | None,
    instants: Container[str] | None,
    is_committed: Callable[[str], bool] | None,
) -> list[_Placed]:
    """Return the data and delete blocks that count, in the order in which they apply."""
    by_instant: dict[str, list[_Placed]] = {}  # in the order of each instant's first block
    for entry in placed:
        if entry.block.type is BlockType.COMMAND:
            command = entry.header(HeaderKey.COMMAND_BLOCK_TYPE)
            if command != _ROLLBACK_COMMAND:
                raise UnsupportedError(
                    subject=f"the command block at byte {entry.block.offset} of {entry.path}",
                    found=f"command {command!r}",
                    supported="rollbacks",
                    remedy="Compact the table with the engine that wrote it.",
                )
            by_instant.pop(entry.header(HeaderKey.TARGET_INSTANT_TIME), None)
            continue
        instant = entry.instant
        if up_to is not None and instant > up_to:
            continue
        if is_committed is not None and not is_committed(instant):
            continue
        if instants is not None and instant not in instants:
            continue
        by_instant.setdefault(instant, []).append(entry)
    return [entry for instant in _applied_instants(by_instant) for entry in by_instant[instant]]


def _applied_instants(by_instant: dict[str, list[_Placed]]) -> list[str]:
    """Put log-compacted instants in the place of what they were made of.

    Walking back from the newest, a compaction is met before its sources, so that a compaction of compactions
    leads to the last one.
    """
    compacted_into: dict[str, str] = {}
    newest_first: dict[str, None] = {}
    for instant in reversed(by_instant):
        sources = by_instant[instant][0].block.header.get(HeaderKey.COMPACTED_BLOCK_TIMES)
        if sources is None:
            newest_first.setdefault(compacted_into.get(instant, instant))
        else:
            final = compacted_into.get(instant, instant)
            compacted_into.update(dict.fromkeys(sources.split(","), final))
    return list(reversed(newest_first))


def _decode(
    entry: _Placed,
    schema: pa.Schema,
    ordering_types: Mapping[str, pa.DataType],
    keys: pa.Array | None,
) -> LogRecords | LogDeletes | None:
    """Decode a block; None if it says nothing of `keys`."""
    if keys is not None and not _may_mention(entry.block, keys):
        return None
    if entry.block.type in _READERS:
        return _records(entry, schema, keys)
    if entry.block.type is not BlockType.DELETE:
        raise UnsupportedError(
            subject=f"the log block at byte {entry.block.offset} of {entry.path}",
            found=f"of type {entry.block.type.name}",
            supported="blocks of Avro or Parquet records, and of deletes",
            remedy="Compact the table with the engine that wrote it.",
        )
    deleted, ordering, is_commit_time = decode_deletes(
        entry.block.content,
        ordering_types,
        path=entry.path,
        offset=entry.block.offset,
        millis=_millisecond_fields(entry, ordering_types),
    )
    if keys is not None:
        found = pc.is_in(deleted, value_set=keys)
        deleted, is_commit_time = deleted.filter(found), is_commit_time.filter(found)
        ordering = None if ordering is None else ordering.filter(found)
    return LogDeletes(deleted, ordering, is_commit_time, entry.instant)


_KEYS_SEARCHED_MAX = 16


def _may_mention(block: Block, keys: pa.Array) -> bool:
    """Say whether a block can hold one of a few keys: Avro leaves text as it is, so it stands in the bytes."""
    if block.type not in (BlockType.AVRO_DATA, BlockType.DELETE) or len(keys) > _KEYS_SEARCHED_MAX:
        return True
    return any(find_bytes(block.content, key.encode()) >= 0 for key in keys.to_pylist())


def _records(entry: _Placed, schema: pa.Schema, keys: pa.Array | None) -> LogRecords | None:
    read = _READERS[entry.block.type]
    found = None
    if keys is not None:
        found = pc.is_in(read(entry, [RECORD_KEY_COLUMN]).column(RECORD_KEY_COLUMN), value_set=keys)
        if not pc.any(found).as_py():
            return None
    records = read(entry, schema.names)
    if found is not None:
        records = records.filter(found)
    is_partial = entry.block.header.get(HeaderKey.IS_PARTIAL, "").lower() == "true"
    if is_partial:
        schema = pa.schema([field for field in schema if field.name in records.column_names])
    return LogRecords(align(records, schema, path=entry.path), is_partial, entry.instant)


def _read_avro(entry: _Placed, wanted: Sequence[str]) -> pa.Table:
    schema_json = entry.header(HeaderKey.SCHEMA)
    block = entry.block
    batch = decode_records(block.content, schema_json, wanted, path=entry.path, offset=block.offset)
    return pa.Table.from_batches([batch])


def _open_parquet(entry: _Placed) -> pq.ParquetFile:
    return pq.ParquetFile(
        pa.BufferReader(pa.py_buffer(entry.block.content)),
        coerce_int96_timestamp_unit="us",
        page_checksum_verification=True,
    )


def _read_parquet(entry: _Placed, wanted: Sequence[str]) -> pa.Table:
    try:
        file = _open_parquet(entry)
        present = [name for name in file.schema_arrow.names if name in wanted]
        rows = file.read(columns=present, use_threads=False)
        if present and rows.num_rows != file.metadata.num_rows:
            raise OSError(f"{rows.num_rows:,} rows where there are {file.metadata.num_rows:,}")
        return rows
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptTableError(
            path=entry.path,
            found=f"a block that is no Parquet file ({error}), at byte {entry.block.offset}",
            expected="a whole Parquet file inside the block",
            remedy="Restore the file from a copy, or roll back the commit that wrote it.",
        ) from error


_READERS: Mapping[BlockType, Callable[[_Placed, Sequence[str]], pa.Table]] = {
    BlockType.AVRO_DATA: _read_avro,
    BlockType.PARQUET_DATA: _read_parquet,
}


def _type_of(column: str, schema: pa.Schema) -> pa.DataType:
    """Return the type of an ordering field, which may be a field inside a struct: `a.b`."""
    if column in schema.names:
        return schema.field(column).type
    outer, _, inner = column.partition(".")
    assert inner and outer in schema.names, f"no ordering field {column!r} in the table's schema"
    return _type_of(inner, pa.schema(list(schema.field(outer).type)))


def _millisecond_fields(entry: _Placed, ordering_types: Mapping[str, pa.DataType]) -> frozenset[str]:
    """Return the ordering fields the writer counted in milliseconds: a bare Long does not say its unit."""
    schema_json = entry.block.header.get(HeaderKey.SCHEMA)
    if schema_json is None or not any(map(types.is_timestamp, ordering_types.values())):
        return frozenset()
    fields = parse_avro(schema_json, path=entry.path).children
    return frozenset(
        field.name for field in fields if types.is_timestamp(field.wire_type) and field.wire_type.unit == "ms"
    )
