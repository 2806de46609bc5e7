"""Extendible hashing: every partition has a directory of buckets, which split by their next hash bit and merge again.

    .hoodie/.bucket_index/extendible_hashing_metadata/<partition>/
        <instant>.hashing_meta    a version of the directory
        <instant>.commit          an empty marker: that version is committed

Versions count, and come and go, as those of hash rings do (`index/consistent.py`). One that was never resized is that
of simple buckets, file ids and all.

Hudi has the engine's word for no engine: it reads the table, and does not write to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Self

from bucketlake.config import BucketEngine
from bucketlake.index.bucket_numbers import ALL_HASHES
from bucketlake.index.consistent import INITIAL_INSTANT, HashingMetadata, corrupt_ring, typed
from bucketlake.index.directory import Bucket, Directory, base_of, bucket_digits
from bucketlake.index.hashing import bucket_of
from bucketlake.index.hashing_arrow import buckets_of
from bucketlake.index.index import Pieces, Place
from bucketlake.index.ring import Node, derived_prefix
from bucketlake.index.rings import GrowingBuckets, RingIndex
from bucketlake.index.rules import BUCKETS_MAX
from bucketlake.layout.names import EXTENDIBLE_METADATA_FOLDER


@dataclass(frozen=True, slots=True)
class ExtendibleBuckets(GrowingBuckets):
    """Buckets that split in two by the next bit of the hash, and merge again: `index=ExtendibleBuckets(4)`.

    Hudi reads such a table and refuses to write to it.

    >>> print(ExtendibleBuckets(4))
    extendible hashing: 4 buckets at first
    """

    engine: ClassVar[str] = BucketEngine.EXTENDIBLE_HASHING
    title: ClassVar[str] = "extendible hashing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryMetadata(HashingMetadata):
    """One version of a partition's directory, as stored."""

    folder: ClassVar[str] = EXTENDIBLE_METADATA_FOLDER

    @classmethod
    def initial(cls, partition: str, count: int) -> Self:
        """Return the first version: simple buckets.

        >>> DirectoryMetadata.initial("p0", 4).directory.buckets[3]
        Bucket(number=3, depth=2, file_id_prefix='00000003')
        """
        return cls(
            partition=partition, instant=INITIAL_INSTANT, initial_count=count, nodes=_first_nodes(count)
        )

    @classmethod
    def parse(cls, data: bytes, *, path: str) -> Self:
        """Read a version; CorruptTableError names the file and what makes no sense."""
        try:
            body = json.loads(data)
        except ValueError as error:
            raise corrupt_ring(path, f"bytes that are no JSON ({error})", "a JSON object") from None
        if not isinstance(body, dict):
            raise corrupt_ring(path, f"a JSON {type(body).__name__}", "a JSON object")
        count = typed(body, "firstBuckets", int, path)
        if not 1 <= count <= BUCKETS_MAX:
            raise corrupt_ring(path, f"'firstBuckets': {count}", f"1 to {BUCKETS_MAX}")
        try:
            directory = Directory.of(
                base_of(count)[0], [_bucket(one, path) for one in typed(body, "buckets", list, path)]
            )
        except ValueError as fault:
            raise corrupt_ring(path, str(fault), "every hash in exactly one bucket") from None
        return cls(
            partition=typed(body, "partitionPath", str, path),
            instant=typed(body, "instant", str, path),
            initial_count=count,
            sequence=typed(body, "seqNo", int, path),
            nodes=directory.nodes,
            version=typed(body, "version", int, path),
        )

    def render(self) -> bytes:
        directory = self.directory
        body = {
            "version": self.version,
            "partitionPath": self.partition,
            "instant": self.instant,
            "seqNo": self.sequence,
            "firstBuckets": self.initial_count,
            "depth": directory.depth,
            "buckets": [
                {"number": one.number, "depth": one.depth, "fileIdPrefix": one.file_id_prefix}
                for one in sorted(directory.buckets, key=lambda bucket: bucket.number)
            ],
        }
        return json.dumps(body, ensure_ascii=False, indent=1).encode()

    @property
    def directory(self) -> Directory:
        return Directory(self.nodes, base_of(self.initial_count)[0])

    @property
    def ring(self) -> Directory:
        return self.directory

    def refounded(self, instant: str) -> Self:
        """Return the version after all file groups were replaced: the same buckets, under ids that were never used."""
        directory = self.directory
        nodes = tuple(
            replace(
                node,
                file_id_prefix=bucket_digits(directory.number_of(place))
                + derived_prefix(instant, node.value, self.partition)[8:],
            )
            for place, node in enumerate(directory.nodes)
        )
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=nodes)


@dataclass(frozen=True, slots=True)
class DirectoryIndex(RingIndex):
    """Every partition has a directory; a bucket is a file group whose id begins with its number, in eight digits."""

    kind: ClassVar[type[HashingMetadata]] = DirectoryMetadata

    rings: Mapping[str, HashingMetadata] = field()
    hash_fields: tuple[str, ...] = field()
    doubled: int | None = None
    """How many buckets a table had whose buckets are being doubled."""

    def __str__(self) -> str:
        doubling = f", while {self.doubled} simple buckets are doubled" if self.doubled is not None else ""
        return f"extendible hashing: a directory per partition{doubling}, hashed from {', '.join(self.hash_fields)}"

    @property
    def resize_strategy(self) -> str:
        return "bucketlake.SplitsByBits"

    def number_of(self, slot: str) -> int:
        return int(slot.partition("-")[0])

    def hash_of(self, pieces: Pieces) -> int:
        return bucket_of(pieces, ALL_HASHES)

    def hashes_of(self, record_keys: Any) -> Any:
        return buckets_of(record_keys, self.hash_fields, ALL_HASHES)

    def prefix_among(self, file_id: str, prefixes: frozenset[str]) -> str | None:
        whole, digits = file_id.rpartition("-")[0], file_id.partition("-")[0]
        return whole if whole in prefixes else digits if digits in prefixes and digits != file_id else None

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        directory, key_hash = self.ring(partition), self.hash_of(pieces)
        if not isinstance(directory, Directory):
            return Place(hash=key_hash)
        place = directory.place_of(directory.owner(key_hash).file_id_prefix)
        number, depth = directory.number_of(place), directory.depth_of(place)
        return Place(
            slot=directory.prefixes[place],
            hash=key_hash,
            more={"bucket": f"{key_hash} mod {directory.base << depth} = {number}, of depth {depth}"},
        )


@lru_cache(maxsize=8)
def _first_nodes(count: int) -> tuple[Node, ...]:
    """Return the nodes of so many simple buckets: those of all partitions alike."""
    base, depth = base_of(count)
    return Directory.of(base, [Bucket(number, depth, bucket_digits(number)) for number in range(count)]).nodes


def _bucket(body: object, path: str) -> Bucket:
    if not isinstance(body, dict):
        raise corrupt_ring(path, f"{body!r} among 'buckets'", "a JSON object")
    number = typed(body, "number", int, path)
    prefix = typed(body, "fileIdPrefix", str, path)
    digits = bucket_digits(number)
    if prefix != digits and not prefix.startswith(f"{digits}-"):
        raise corrupt_ring(
            path, f"'fileIdPrefix': {prefix!r} of bucket {number}", f"one that begins with {digits}"
        )
    return Bucket(number, typed(body, "depth", int, path), prefix)
