"""A base file, written as its rows arrive.

Rows are gathered to row groups: one for most files, several where one would
take too much memory. What the footer says of them (how many there are, the sum
of their key hashes, the least and the greatest key) is counted on the way, so
that nobody has to read the file to know what is in it. A column that holds a
NaN gets a range that no reader can be misled by (`ranges.py`). Pages, all of
them together, and the footer have checksums (`seal.py`).

A Parquet block of a log file is the image of such a file.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from bucketlake.basefile.encodings import columns_with_dictionary
from bucketlake.basefile.footer import AVRO_SCHEMA_KEY, MODEL_KEY, NO_ROWS, FileFacts
from bucketlake.basefile.ranges import Leaves, leaves_with_nan, widened
from bucketlake.basefile.seal import DATA_CRC_KEY, seal_footer, spell_crc
from bucketlake.schema import RECORD_KEY_COLUMN, bytes_of

ROW_GROUP_ROWS = 1 << 20
ROW_GROUP_BYTES = 128 << 20
_SINK_BUFFER_BYTES = 256 << 10


class Sink(Protocol):
    """Where the bytes go: a `Spill`, or any binary file."""

    def write(self, data: Any, /) -> Any: ...


class _Summed(io.RawIOBase):
    """Passes bytes on to a sink, counts their checksum, and holds the footer back."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink
        self._footer: list[bytes] | None = None
        self.crc = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self._footer is None:
            self.crc = zlib.crc32(data, self.crc)
            self._sink.write(data)
        else:
            self._footer.append(bytes(data))
        return len(data)

    def hold_footer(self) -> None:
        self._footer = []

    def write_footer(self, nan_in_groups: Sequence[Leaves]) -> None:
        """Write what was held back, true of columns with NaN, and sealed."""
        assert self._footer is not None
        footer = b"".join(self._footer)
        if any(nan_in_groups):
            footer = widened(footer, nan_in_groups)
        self._sink.write(seal_footer(footer))


class BaseFileWriter:
    """Writes batches of rows to `sink`; `finish` writes the footer and tells what it says.

    Batches have the columns of `schema`, meta columns first; a text column may come dictionary-encoded, which
    is the cheap form of one that has the same value in every row. `avro_schema` is the same schema in Avro.
    `has_statistics` gives row groups the range of each column, for readers that skip.

    >>> import io
    >>> schema = pa.schema([(RECORD_KEY_COLUMN, pa.string()), ("n", pa.int32())])
    >>> writer = BaseFileWriter(io.BytesIO(), schema, avro_schema="{}")
    >>> writer.write(pa.record_batch([["b", "a"], pa.array([1, 2], pa.int32())], schema=schema))
    >>> writer.finish({})
    FileFacts(rows=2, key_hash_sum=5373902194024123894, min_key='a', max_key='b')
    """

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        *,
        avro_schema: str,
        compression: str = "zstd",
        has_statistics: bool = True,
        row_group_rows: int = ROW_GROUP_ROWS,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        # A file written in Python is called for every page, and a page of a small file is small.
        self._summed = _Summed(sink)
        self._sink = pa.BufferedOutputStream(pa.PythonFile(self._summed, mode="w"), _SINK_BUFFER_BYTES)
        self._schema = schema.remove_metadata()
        self._avro_schema = avro_schema
        self._compression = compression
        self._has_statistics = has_statistics
        self._group_rows_max = row_group_rows
        self._group_bytes_max = row_group_bytes
        self._gathered: list[pa.RecordBatch] = []
        self._gathered_rows = 0
        self._gathered_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._facts = NO_ROWS
        self._nan_in_groups: list[Leaves] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. The batch is kept until its row group is full."""
        assert batch.schema.names == self._schema.names, "columns are written in the order of the schema"
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, self._group_rows_max - self._gathered_rows)
            start += piece.num_rows
            self._gathered.append(piece)
            self._gathered_rows += piece.num_rows
            self._gathered_bytes += bytes_of(piece)
            if self._gathered_rows == self._group_rows_max or self._gathered_bytes >= self._group_bytes_max:
                self._write_row_group()

    def finish(self, extra: Mapping[str, str]) -> FileFacts:
        """Write what is left, and the footer with `extra` in it."""
        if self._gathered or self._writer is None:
            self._write_row_group()
        assert self._writer is not None
        self._sink.flush()
        self._writer.add_key_value_metadata(
            {
                AVRO_SCHEMA_KEY: self._avro_schema,
                MODEL_KEY: "avro",
                **self._facts.footer_pairs(),
                DATA_CRC_KEY: spell_crc(self._summed.crc),
                **extra,
            }
        )
        self._summed.hold_footer()
        self._writer.close()
        self._sink.flush()
        self._summed.write_footer(self._nan_in_groups)
        return self._facts

    def _write_row_group(self) -> None:
        batches, self._gathered = self._gathered, []
        rows, self._gathered_rows = self._gathered_rows, 0
        self._gathered_bytes = 0
        if self._writer is None:
            self._writer = self._open(batches, rows)
        if not rows:
            return
        table = pa.Table.from_arrays(
            [
                _as_written([batch.column(position) for batch in batches], field.type)
                for position, field in enumerate(self._writer.schema)
            ],
            schema=self._writer.schema,
        )
        self._facts += FileFacts.of_keys(table.column(RECORD_KEY_COLUMN))
        if self._has_statistics:
            self._nan_in_groups.append(leaves_with_nan(table))
        self._writer.write_table(table, row_group_size=rows)

    def _open(self, batches: list[pa.RecordBatch], rows: int) -> pq.ParquetWriter:
        schema = self._schema
        dictionaries: tuple[str, ...] = ()
        if rows:
            schema = _with_dictionaries(self._schema, batches)
            dictionaries = columns_with_dictionary(schema, batches, rows)
        return pq.ParquetWriter(
            self._sink,
            schema,
            compression=self._compression,
            store_schema=False,
            use_dictionary=list(dictionaries),
            # Of every column or none: Hudi takes one without a range for a column of nulls, and skips the file.
            write_statistics=self._has_statistics,
            write_page_checksum=True,
        )


def _with_dictionaries(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Schema:
    """Let text columns that come dictionary-encoded go into the writer so: Parquet has them as text."""
    return pa.schema(
        [
            field.with_type(pa.dictionary(pa.int32(), field.type))
            if any(types.is_dictionary(batch.column(position).type) for batch in batches)
            else field
            for position, field in enumerate(schema)
        ]
    )


def _as_written(chunks: list[pa.Array], kind: pa.DataType) -> pa.ChunkedArray:
    fitted = []
    for chunk in chunks:
        if chunk.type == kind:
            fitted.append(chunk)
        elif types.is_dictionary(kind) and not types.is_dictionary(chunk.type):
            fitted.append(chunk.dictionary_encode().cast(kind))
        else:
            fitted.append(chunk.cast(kind))
    return pa.chunked_array(fitted, kind)
