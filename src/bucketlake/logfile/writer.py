"""A log file: the rows and deletes of one write to one file group.

    file := data block*, delete block?

Rows are Parquet (the image of a base file) or Avro. They come before the
deletes; a key is in one of the two, so their order does not matter to a
reader. Large writes are cut into several data blocks, for Java holds a block
in one array.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.basefile import BaseFileWriter, FileFacts
from bucketlake.basefile.footer import NO_ROWS
from bucketlake.errors import CorruptTableError
from bucketlake.logfile.avro_columns import decode_records
from bucketlake.logfile.avro_encoder import encode_records
from bucketlake.logfile.deletes import Deletes, delete_records, encode_deletes
from bucketlake.logfile.frame import Block, BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.schema import RECORD_KEY_COLUMN, bytes_of

BLOCK_BYTES = 256 << 20


class LogFormat(StrEnum):
    """How the rows of a data block are stored: `hoodie.logfile.data.block.format`."""

    PARQUET = "parquet"
    AVRO = "avro"


@dataclass(frozen=True, slots=True)
class LogFacts(FileFacts):
    """What is in a log file: `rows` to merge and `deletes`; the sum and the range are over the keys of both."""

    deletes: int = 0


def encode_log_file(
    *,
    instant: str,
    avro_schema: str,
    records: pa.Table | None,
    deletes: Deletes | None,
    block_format: LogFormat,
    gone: Deletes | None = None,
    extra: Mapping[str, str] | None = None,
    block_bytes: int = BLOCK_BYTES,
    has_statistics: bool = False,
) -> tuple[bytes, LogFacts]:
    """Return a whole log file, and what is in it: counted by the writer of Parquet, read back from other blocks.

    `records` has the columns of `avro_schema`, meta columns first, in its order and types. `extra` goes into
    the footer of every Parquet block, and so does the range of each column, if it `has_statistics`. All rows of a
    block are merged, so no reader would skip any; but who describes the file need not read them. `gone` are more
    deletes, in a block of their own: with ordering values beside those that have none, Hudi could not read the block.
    """
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: avro_schema}
    blocks = []
    of_rows = of_deletes = NO_ROWS
    if records is not None and records.num_rows:
        for piece in _pieces(records, block_bytes):
            if block_format is LogFormat.PARQUET:
                image, facts = _parquet_image(piece, avro_schema, extra or {}, has_statistics)
                blocks.append(encode_block(BlockType.PARQUET_DATA, header, image))
            else:
                blocks.append(encode_block(BlockType.AVRO_DATA, header, encode_records(piece, avro_schema)))
                facts = _read_back(blocks[-1])
            of_rows += facts
    for some in (deletes, gone):
        if some is not None and len(some.keys):
            blocks.append(encode_block(BlockType.DELETE, header, encode_deletes(some)))
            of_deletes += _read_back(blocks[-1])
    assert blocks, "a log file that says nothing"
    return b"".join(blocks), _log_facts(of_rows, of_deletes)


def log_file_facts(data: bytes | memoryview, *, path: str) -> LogFacts:
    """Count what is in a log file that bucketlake wrote; `path` names it in errors."""
    of_rows = of_deletes = NO_ROWS
    for block in decode_blocks(data, path=path):
        if block.type is BlockType.DELETE:
            of_deletes += _facts_of(block, path)
        else:
            of_rows += _facts_of(block, path)
    return _log_facts(of_rows, of_deletes)


def _read_back(encoded: bytes) -> FileFacts:
    """Count what a block says that is about to be written."""
    (block,) = decode_blocks(encoded, path="")
    return _facts_of(block, "")


def _log_facts(rows: FileFacts, deletes: FileFacts) -> LogFacts:
    total = rows + deletes
    return LogFacts(rows.rows, total.key_hash_sum, total.min_key, total.max_key, deletes.rows)


def _pieces(records: pa.Table, block_bytes: int) -> Iterator[pa.Table]:
    count = -(-bytes_of(records) // block_bytes) or 1
    step = -(-records.num_rows // count)
    for start in range(0, records.num_rows, step):
        yield records.slice(start, step)


def _parquet_image(
    records: pa.Table, avro_schema: str, extra: Mapping[str, str], has_statistics: bool
) -> tuple[bytes, FileFacts]:
    sink = io.BytesIO()
    schema = _plain(records.schema)
    writer = BaseFileWriter(sink, schema, avro_schema=avro_schema, has_statistics=has_statistics)
    for batch in records.to_batches():
        writer.write(batch)
    facts = writer.finish(extra)
    return sink.getvalue(), facts


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in schema
        ]
    )


def _facts_of(block: Block, path: str) -> FileFacts:
    match block.type:
        case BlockType.REFERENCE:
            return NO_ROWS  # they are counted where they are
        case BlockType.PARQUET_DATA:
            metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(block.content))).metadata or {}
            pairs = {key.decode(): value.decode() for key, value in metadata.items()}
            return FileFacts.of_footer(pairs, path=path)
        case BlockType.AVRO_DATA:
            schema = block.header[HeaderKey.SCHEMA]
            batch = decode_records(block.content, schema, [RECORD_KEY_COLUMN], path=path, offset=block.offset)
            return FileFacts.of_keys(batch.column(0))
        case BlockType.DELETE:
            return FileFacts.of_keys(
                delete_records(block.content, path=path, offset=block.offset).field("recordKey")
            )
    raise CorruptTableError(
        path=path,
        found=f"a block of type {block.type.name}, at byte {block.offset}",
        expected="a log file of bucketlake, with rows and deletes only",
        remedy="Another writer has put a file under this name; roll back its commit.",
    )
