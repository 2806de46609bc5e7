"""The user's own keys, as columns: what every engine is asked to place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError
from bucketlake.index import buckets_of, ring_hashes_of, shards_of
from bucketlake.keygen import KeyGenerator
from bucketlake.schema import key_hashes

ROWS_MAX = 5_000_000
"""With more rows than these, a sample of the keys is replayed."""
_BATCH_ROWS = 1 << 20
_ALL_HASHES = 1 << 31
_ALL_SHARDS = 1 << 40
"""More shards than there are hashes: what is left is the hash itself, as the index of a partition has it."""

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Keys:
    """The rows that a table would have: one for each key in each partition."""

    record_keys: Any
    """A `pa.ChunkedArray`."""
    partitions: tuple[str, ...]
    codes: Codes
    """Of each key, the place of its partition in `partitions`."""
    newest: npt.NDArray[np.bool_]
    """Whether no later row has the key in another partition."""
    key_fields: tuple[str, ...]
    every: int
    """Each key stands for so many: more than one for a sample."""
    rows_given: int
    """All of them, versions of a key too, sampled or not."""
    row_bytes: float
    """What a row takes in a base file, about."""
    keys_in_several: int
    """Keys that several partitions have."""

    @property
    def rows(self) -> int:
        return len(self.codes) * self.every

    @property
    def distinct(self) -> int:
        """How many keys there are, whatever their partition."""
        return int(self.newest.sum()) * self.every

    @property
    def is_sample(self) -> bool:
        return self.every > 1

    @cached_property
    def rows_of_partitions(self) -> Floats:
        counts = np.bincount(self.codes, minlength=len(self.partitions))
        return counts.astype(np.float64) * self.every

    @cached_property
    def _hashed(self) -> dict[tuple[str, tuple[str, ...]], npt.NDArray[np.int32]]:
        return {}

    def bucket_hashes(self, fields: tuple[str, ...]) -> npt.NDArray[np.int32]:
        """What buckets are worked out from: the rest of its division by their count is the bucket."""
        wanted = "bucket", fields or self.key_fields
        if wanted not in self._hashed:
            self._hashed[wanted] = buckets_of(self.record_keys, wanted[1], _ALL_HASHES)
        return self._hashed[wanted]

    def ring_hashes(self, fields: tuple[str, ...]) -> npt.NDArray[np.int32]:
        wanted = "ring", fields or self.key_fields
        if wanted not in self._hashed:
            self._hashed[wanted] = ring_hashes_of(self.record_keys, wanted[1])
        return self._hashed[wanted]

    @cached_property
    def shard_hashes(self) -> Codes:
        """What shards of an index are worked out from."""
        return np.abs(shards_of(self.record_keys, _ALL_SHARDS).astype(np.int64))

    @cached_property
    def by_partition(self) -> npt.NDArray[np.int64]:
        """The places of keys, those of a partition together."""
        return np.argsort(self.codes, kind="stable")

    def places_of(self, partition: int) -> npt.NDArray[np.int64]:
        """Return the places of the keys of one partition."""
        ends = np.cumsum(np.bincount(self.codes, minlength=len(self.partitions)))
        start = int(ends[partition - 1]) if partition else 0
        return self.by_partition[start : int(ends[partition])]


def gather(
    tables: Iterable[pa.Table],
    generator: KeyGenerator,
    *,
    rows: int,
    row_bytes: float,
    every: int | None = None,
    rows_max: int = ROWS_MAX,
) -> Keys:
    """Make keys of rows; `rows` is about how many come. Of more than `rows_max`, keys are chosen by their hashes.

    So all rows of a key that is chosen are there, and no other. With `every`, somebody has chosen so already.
    """
    skips = 1 if every is not None else max(1, -(-rows // rows_max))
    keys: list[Any] = []
    paths: list[Any] = []
    hashes: list[npt.NDArray[np.uint64]] = []
    given = 0
    for batch in _batches(tables):
        check_keys(batch, generator.record_key_fields, given)
        given += batch.num_rows
        of_batch = generator.record_keys(batch)
        hashed = key_hashes(of_batch)
        where = generator.encoded_partition_paths(batch)
        if skips > 1:
            chosen = pa.array(np.flatnonzero((hashed >> np.uint64(20)) % np.uint64(skips) == 0))
            of_batch, where, hashed = of_batch.take(chosen), where.take(chosen), hashed[chosen.to_numpy()]
        keys.append(of_batch)
        paths.append(where)
        hashes.append(hashed)
    if not given:
        raise ConfigError(
            "there are no rows; expected some with keys to replay. Give files or rows with data."
        )
    encoded = pa.chunked_array(paths).cast(pa.dictionary(pa.int32(), pa.string())).unify_dictionaries()
    codes = np.concatenate([chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks])
    known = encoded.chunks[0].dictionary.to_pylist()
    return _stored(
        pa.chunked_array(keys),
        tuple(known),
        codes.astype(np.int64),
        np.concatenate(hashes),
        fields=generator.record_key_fields,
        every=every or skips,
        given=given * (every or 1),
        row_bytes=row_bytes,
    )


def decoded(table: pa.Table) -> pa.Table:
    """Return a table whose columns are not encoded by dictionaries, as pandas' categories are."""
    for number, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            plain = field.type.value_type
            table = table.set_column(number, field.with_type(plain), table.column(number).cast(plain))
    return table


def _batches(tables: Iterable[pa.Table]) -> Iterator[pa.RecordBatch]:
    for table in tables:
        for batch in decoded(table).to_batches(max_chunksize=_BATCH_ROWS):
            if batch.num_rows:
                yield batch


def check_keys(batch: pa.RecordBatch | pa.Table, fields: Sequence[str], before: int) -> None:
    """Refuse rows without a key, by their number among all rows."""
    missing = None
    for field in fields:
        if field not in batch.schema.names:
            return  # one inside a struct, of which the generator says what is wrong
        column = batch.column(field)
        empty = pc.is_null(column)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            empty = pc.or_(empty, pc.fill_null(pc.equal(column, ""), True))
        missing = empty if missing is None else pc.and_(missing, empty)
    first = pc.index(missing, True).as_py()
    if first >= 0:
        count = pc.sum(missing).as_py()
        raise ConfigError(
            f"column {', '.join(map(repr, fields))} is null or empty in row {before + first + 1:,}"
            f"{f' and {count - 1:,} more near it' if count > 1 else ''}, and a key cannot be. Fill the column, drop "
            f"the rows, or choose another key."
        )


def _stored(
    record_keys: Any,
    partitions: tuple[str, ...],
    codes: Codes,
    hashes: npt.NDArray[np.uint64],
    *,
    fields: tuple[str, ...],
    every: int,
    given: int,
    row_bytes: float,
) -> Keys:
    """Keep the last row of each key in each partition."""
    ordered = np.sort(hashes)
    newest = np.ones(len(codes), np.bool_)
    in_several = 0
    if len(ordered) and (ordered[1:] == ordered[:-1]).any():
        order = np.lexsort((codes, hashes))  # stable: of equal ones the last is the newest
        same_key = hashes[order][1:] == hashes[order][:-1]
        same_row = same_key & (codes[order][1:] == codes[order][:-1])
        kept = np.sort(order[np.append(~same_row, True)])
        record_keys, codes, hashes = record_keys.take(pa.array(kept)), codes[kept], hashes[kept]
        order = np.argsort(hashes, kind="stable")
        followed = hashes[order][1:] == hashes[order][:-1]
        newest = np.ones(len(codes), np.bool_)
        newest[order[:-1][followed]] = False
        begins = followed & ~np.append(False, followed[:-1])
        in_several = int(begins.sum())
    return Keys(
        record_keys=record_keys,
        partitions=partitions,
        codes=codes,
        newest=newest,
        key_fields=fields,
        every=every,
        rows_given=given,
        row_bytes=row_bytes,
        keys_in_several=in_several * every,
    )
