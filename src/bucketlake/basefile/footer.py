"""What a base file says about itself, without a look at its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.errors import CorruptTableError
from bucketlake.storage import LocalStore, Store, open_input


@dataclass(frozen=True, slots=True)
class Footer:
    row_count: int
    metadata: Mapping[str, str]
    """The key-value pairs Hudi keeps here: Avro schema, smallest and largest key, Bloom filter."""
    arrow_schema: pa.Schema
    """As the columns are stored, not yet aligned to a table."""


def read_footer(store: Store, path: str) -> Footer:
    """Read the footer of a base file; a file that has none raises `CorruptTableError`."""
    with open_parquet(store, path) as file:
        return Footer(file.metadata.num_rows, _pairs(file), file.schema_arrow)


def _pairs(file: pq.ParquetFile) -> dict[str, str]:
    pairs = file.metadata.metadata or {}
    return {key.decode(errors="replace"): text.decode(errors="replace") for key, text in pairs.items()}


@contextmanager
def open_parquet(store: Store, path: str) -> Iterator[pq.ParquetFile]:
    """Open a base file; whatever Arrow finds wrong in it, then or while it is read, names the file."""
    try:
        with (
            open_input(store, path) as source,
            # On a disk the file is mapped, and reading ahead would copy it; elsewhere it saves requests.
            pq.ParquetFile(
                source, pre_buffer=not isinstance(store, LocalStore), coerce_int96_timestamp_unit="us"
            ) as file,
        ):
            yield file
    except (pa.ArrowException, OSError) as error:
        # Memory that ran out, a missing file, a disk or network that failed: none of them damages a file.
        # What Arrow itself finds wrong comes as an OSError too, but without an errno.
        if isinstance(error, (pa.ArrowMemoryError, FileNotFoundError)) or getattr(error, "errno", None):
            raise
        raise CorruptTableError(
            path=path,
            found=f"a file that does not read as Parquet ({error})",
            expected="a base file",
            remedy="Restore the file from a copy, or roll back the commit that wrote it.",
        ) from error
