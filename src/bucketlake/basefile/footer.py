"""What a base file says about itself, without a look at its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.basefile.seal import DATA_CRC_KEY, check_data, check_seal, damaged
from bucketlake.errors import CorruptTableError
from bucketlake.schema import key_hash_sum
from bucketlake.storage import FileCache, FileStat, LocalStore, Store, open_input

AVRO_SCHEMA_KEY = "parquet.avro.schema"
MODEL_KEY = "writer.model.name"
MIN_KEY_KEY = "hoodie_min_record_key"
MAX_KEY_KEY = "hoodie_max_record_key"
ROWS_KEY = "bucketlake.rows"
KEY_HASH_SUM_KEY = "bucketlake.key_hash_sum"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What a footer of ours says of the rows in the file."""

    rows: int
    key_hash_sum: int
    """Sum of the hashes of all record keys, modulo 2**64."""
    min_key: str | None
    """The least key by its UTF-8 bytes; None if there are no rows."""
    max_key: str | None

    @classmethod
    def of_keys(cls, keys: pa.Array | pa.ChunkedArray) -> FileFacts:
        """Count the rows that have these record keys."""
        bounds = pc.min_max(keys)
        return cls(
            rows=len(keys),
            key_hash_sum=key_hash_sum(keys),
            min_key=bounds["min"].as_py(),
            max_key=bounds["max"].as_py(),
        )

    def __add__(self, other: FileFacts) -> FileFacts:
        """Say it of both files' rows together."""
        # Code points and UTF-8 bytes have the same order.
        keys = [key for key in (self.min_key, self.max_key, other.min_key, other.max_key) if key is not None]
        return FileFacts(
            rows=self.rows + other.rows,
            key_hash_sum=(self.key_hash_sum + other.key_hash_sum) % 2**64,
            min_key=min(keys, default=None),
            max_key=max(keys, default=None),
        )

    def footer_pairs(self) -> dict[str, str]:
        pairs = {ROWS_KEY: str(self.rows), KEY_HASH_SUM_KEY: str(self.key_hash_sum)}
        if self.min_key is not None and self.max_key is not None:
            pairs |= {MIN_KEY_KEY: self.min_key, MAX_KEY_KEY: self.max_key}
        return pairs

    @classmethod
    def of_footer(cls, pairs: Mapping[str, str], *, path: str) -> FileFacts:
        """Read them back; a footer that has none raises `CorruptTableError`."""
        try:
            return cls(
                rows=int(pairs[ROWS_KEY]),
                key_hash_sum=int(pairs[KEY_HASH_SUM_KEY]),
                min_key=pairs.get(MIN_KEY_KEY),
                max_key=pairs.get(MAX_KEY_KEY),
            )
        except (KeyError, ValueError) as error:
            raise CorruptTableError(
                path=path,
                found="a footer that does not count rows and keys",
                expected=f"{ROWS_KEY} and {KEY_HASH_SUM_KEY}, as bucketlake writes them",
                remedy="Another writer has put a file under this name; roll back its commit.",
            ) from error


NO_ROWS = FileFacts(rows=0, key_hash_sum=0, min_key=None, max_key=None)


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


def read_file_facts(store: Store, path: str) -> FileFacts:
    """Read what the footer of a base file that bucketlake wrote says of its rows."""
    return FileFacts.of_footer(read_footer(store, path).metadata, path=path)


def check_footer(store: Store, path: str) -> None:
    """Compare the footer of a base file with its checksum, if it has one, for whom another reader is to read it."""
    with open_input(store, path) as source:
        check_seal(source, path=path)


def check_bytes(store: Store, path: str) -> None:
    """Compare every byte of a base file with its checksums, if it has any."""
    crc = read_footer(store, path).metadata.get(DATA_CRC_KEY)
    if crc is not None:
        with open_input(store, path) as source:
            check_data(source, path=path, crc=crc)


def _pairs(file: pq.ParquetFile) -> dict[str, str]:
    pairs = file.metadata.metadata or {}
    return {key.decode(errors="replace"): text.decode(errors="replace") for key, text in pairs.items()}


_FOOTERS: FileCache[pq.FileMetaData] = FileCache("footers")


def _bytes_in_memory(footer: pq.FileMetaData) -> int:
    """Guess what a parsed footer takes: several times its bytes in the file.

    Measured on footers of 2 to 200 columns and 1 to 20 row groups, and on one with a Bloom filter's worth of text.
    """
    parts: int = footer.num_columns * (1 + footer.num_row_groups)
    stored: int = footer.serialized_size
    return 2_000 + 800 * parts + stored * 5 // 2


@contextmanager
def open_parquet(store: Store, path: str, stat: FileStat | None = None) -> Iterator[pq.ParquetFile]:
    """Open a base file; whatever Arrow finds wrong in it, then or while it is read, names the file.

    Pages and footers that carry checksums are compared with them.
    With its `stat` the footer is kept, for who comes back: to parse one takes longer than to find a row with it.
    """
    kept = _FOOTERS.get(store, stat) if stat else None
    try:
        with open_input(store, path, stat) as source:
            is_sealed = kept is not None or check_seal(source, path=path)
            # On a disk the file is mapped, and reading ahead would copy it; elsewhere it saves requests.
            with pq.ParquetFile(
                source,
                metadata=kept,
                pre_buffer=not isinstance(store, LocalStore),
                coerce_int96_timestamp_unit="us",
                page_checksum_verification=True,
            ) as file:
                if not is_sealed and DATA_CRC_KEY.encode() in (file.metadata.metadata or {}):
                    raise damaged(path, "a footer without its checksum")
                if stat and kept is None:
                    _FOOTERS.put(store, stat, file.metadata, _bytes_in_memory(file.metadata))
                yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
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
