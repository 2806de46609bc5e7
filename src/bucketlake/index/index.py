"""Where may a key live? One protocol, four answers.

    SimpleBuckets      one count for the whole table
    PartitionBuckets   a count per partition, by rules
    ConsistentBuckets  a hash ring per partition
    NoIndex            nothing is known; every file group may hold every key

An index is asked for pruning, so it must never leave out a file group that holds the key. Whenever what it
finds is not what it expects (a file id without a bucket number, a bucket beyond the count, a file group that
the ring does not know) it gives all file groups back: slow is allowed, a lost row is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, Self
from weakref import ref

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.index.consistent import HashingMetadata, StoredRings, decode_children
from bucketlake.index.hashing import bucket_of, ring_hash_of
from bucketlake.index.hashing_arrow import buckets_of, ring_hashes_of
from bucketlake.index.ring import Ring
from bucketlake.index.rules import CountRules
from bucketlake.layout.names import hashing_metadata_path

Pieces = tuple[str | None, ...]

_BUCKET_FILE_ID = re.compile(r"([0-9]{8})-")


class Index(Protocol):
    """What a bucket index answers. An implementation is a value: picklable, the same answer every time."""

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The record-key fields that decide where a key lives."""

    @property
    def version(self) -> str:
        """The instant of the version of the layout that it goes by; empty if the engine has none for a whole table."""

    def bucket_count(self, partition: str) -> int | None:
        """Return how many file groups a partition can have, None if that is not known."""

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:
        """Return how the file id of these pieces' file group begins, None if that is not known."""

    def locate(self, partition: str, record_keys: Any) -> Any:
        """Return `prefix_of` for a column of record keys, as a `pa.DictionaryArray` of text.

        Null where it is not known, and for a null key.
        """

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:
        """Return the `prefix_of` every key in this file group, None if no key can live there."""

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        """Return those of `file_ids`, the partition's visible file groups, that may hold any of `pieces`.

        All of them whenever in doubt.
        """

    def replacing(self, instant: str) -> Index:
        """Return the index that holds once `instant` has replaced all file groups of the partitions it writes to."""

    def layout_files(self, partition: str) -> Mapping[str, bytes]:
        """Return what must be on disk, path -> bytes, before a write to this partition is committed.

        Derived by every writer alike: it does not matter who puts it there.
        """


class _Unwritten:
    """What an index says that keeps nothing on disk, and whose ids never come back."""

    __slots__ = ()

    @property
    def version(self) -> str:
        return ""

    def replacing(self, instant: str) -> Self:  # noqa: ARG002 # the protocol's
        return self

    def layout_files(self, partition: str) -> Mapping[str, bytes]:  # noqa: ARG002 # the protocol's
        return {}


@dataclass(frozen=True, slots=True)
class SimpleBuckets(_Unwritten):
    """Every partition has `count` buckets; a bucket is a file group whose id begins with its eight digits."""

    count: int
    hash_fields: tuple[str, ...]

    def __post_init__(self) -> None:
        assert self.count > 0

    def __str__(self) -> str:
        return f"simple buckets: {self.count} per partition, hashed from {', '.join(self.hash_fields)}"

    def bucket_count(self, partition: str) -> int | None:  # noqa: ARG002 # the protocol's
        return self.count

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:  # noqa: ARG002 # the protocol's
        return _bucket_prefix(bucket_of(pieces, self.count))

    def locate(self, partition: str, record_keys: Any) -> Any:  # noqa: ARG002 # the protocol's
        return _locate_buckets(record_keys, self.hash_fields, self.count)

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return _bucket_of_file(file_id, self.count)

    def file_groups(
        self,
        partition: str,  # noqa: ARG002 # the protocol's
        file_ids: Collection[str],
        pieces: Collection[Pieces],
    ) -> frozenset[str]:
        return _bucket_groups(self.count, file_ids, pieces)


@dataclass(frozen=True, slots=True)
class PartitionBuckets:
    """Every partition has its own count, by rules on its path."""

    rules: CountRules
    hash_fields: tuple[str, ...]
    version: str = ""
    """The instant of the `.hashing_config` that the rules are from; empty if a caller gave them."""

    def __str__(self) -> str:
        return f"partition-level buckets: {self.rules}, hashed from {', '.join(self.hash_fields)}"

    def bucket_count(self, partition: str) -> int | None:
        return self.rules.count_of(partition)

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:
        return _bucket_prefix(bucket_of(pieces, self.rules.count_of(partition)))

    def locate(self, partition: str, record_keys: Any) -> Any:
        return _locate_buckets(record_keys, self.hash_fields, self.rules.count_of(partition))

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:
        return _bucket_of_file(file_id, self.rules.count_of(partition))

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        return _bucket_groups(self.rules.count_of(partition), file_ids, pieces)

    def replacing(self, instant: str) -> PartitionBuckets:  # noqa: ARG002 # the protocol's
        return self

    def layout_files(self, partition: str) -> Mapping[str, bytes]:  # noqa: ARG002 # the protocol's
        return {}


class _LastHashed:
    """The hashes of the column that was asked for last: beside a resize a writer asks two rings for the same keys."""

    def __init__(self) -> None:
        self._last: tuple[ref[Any], tuple[str, ...], Any] | None = None

    def hashes_of(self, record_keys: Any, hash_fields: tuple[str, ...]) -> Any:
        last = self._last
        if last is not None and last[0]() is record_keys and last[1] == hash_fields:
            return last[2]
        hashes = ring_hashes_of(record_keys, hash_fields)
        self._last = ref(record_keys), hash_fields, hashes
        return hashes


_last_hashed = _LastHashed()


@dataclass(frozen=True, slots=True)
class ConsistentBuckets:
    """Every partition has a ring of hash ranges; a node is a file group whose id begins with its prefix."""

    rings: Mapping[str, HashingMetadata]
    hash_fields: tuple[str, ...]
    initial_count: int | None = None
    """How many nodes the ring of a new partition gets; None if that is not known."""
    replaced_at: str = ""
    """The instant that gives every partition file groups of new ids, with the same ranges; empty for none."""
    _known: dict[str, tuple[HashingMetadata, Ring]] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"consistent hashing: a ring per partition, hashed from {', '.join(self.hash_fields)}"

    @property
    def version(self) -> str:
        return ""  # every partition has its own

    def metadata(self, partition: str) -> HashingMetadata | None:
        """Return the version of a partition's ring that this index goes by, None if it has none."""
        found = self._find(partition)
        return None if found is None else found[0]

    def ring(self, partition: str) -> Ring | None:
        found = self._find(partition)
        return None if found is None else found[1]

    def _find(self, partition: str) -> tuple[HashingMetadata, Ring] | None:
        if partition not in self._known:
            if partition in self.rings:
                stored = self.rings[partition]
                found = stored.refounded(self.replaced_at) if self.replaced_at else stored
            elif self.initial_count is not None:
                found = HashingMetadata.initial(partition, self.initial_count)
            else:
                return None
            self._known[partition] = found, found.ring
        return self._known[partition]

    def bucket_count(self, partition: str) -> int | None:
        ring = self.ring(partition)
        return None if ring is None else len(ring.prefixes)

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:
        ring = self.ring(partition)
        return None if ring is None else ring.node_of(ring_hash_of(pieces)).file_id_prefix

    def locate(self, partition: str, record_keys: Any) -> Any:
        ring = self.ring(partition)
        if ring is None:
            return _nowhere(record_keys)
        hashes = _last_hashed.hashes_of(record_keys, self.hash_fields)
        found, numbers = _occurring(ring.nodes_of(hashes), len(ring.nodes))
        prefixes = [ring.nodes[place].file_id_prefix for place in found]
        return pa.DictionaryArray.from_arrays(
            pa.array(numbers, mask=hashes < 0), pa.array(prefixes, pa.string())
        )

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:
        ring = self.ring(partition)
        return None if ring is None else _prefix_among(file_id, frozenset(ring.prefixes))

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        every = frozenset(file_ids)
        ring = self.ring(partition)
        if ring is None:
            return every
        owner = {file_id: _prefix_among(file_id, frozenset(ring.prefixes)) for file_id in every}
        if None in owner.values():
            return every
        wanted = {ring.node_of(ring_hash_of(piece)).file_id_prefix for piece in pieces}
        return frozenset(file_id for file_id in every if owner[file_id] in wanted)

    def replacing(self, instant: str) -> ConsistentBuckets:
        return ConsistentBuckets(self.rings, self.hash_fields, self.initial_count, instant)

    def layout_files(self, partition: str) -> Mapping[str, bytes]:
        found = self.metadata(partition)
        is_stored = isinstance(self.rings, StoredRings) and partition in self.rings and not self.replaced_at
        if found is None or is_stored:
            return {}
        return {hashing_metadata_path(partition, found.instant): found.render()}


@dataclass(frozen=True, slots=True)
class NoIndex(_Unwritten):
    """Nothing tells where a key lives."""

    hash_fields: tuple[str, ...] = ()
    reason: str = "the table has no bucket index that we know of"
    """Why, for people: shown where a plan is explained."""

    def __str__(self) -> str:
        return f"none: {self.reason}"

    def bucket_count(self, partition: str) -> int | None:  # noqa: ARG002 # the protocol's
        return None

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def locate(self, partition: str, record_keys: Any) -> Any:  # noqa: ARG002 # the protocol's
        return _nowhere(record_keys)

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def file_groups(
        self,
        partition: str,  # noqa: ARG002 # the protocol's
        file_ids: Collection[str],
        pieces: Collection[Pieces],  # noqa: ARG002
    ) -> frozenset[str]:
        return frozenset(file_ids)


def after_resize(index: Index, partition: str, children: Iterable[str], *, path: str) -> Index:
    """Return the index of one partition once a resize is completed; `children` as its plan has them.

    `path` says where the plan is, for the error if it makes no sense.
    """
    assert isinstance(index, ConsistentBuckets), "only rings are resized"
    before = index.metadata(partition)
    assert before is not None, f"{partition}: no ring to resize"
    nodes = [node for text in children for node in decode_children(text, path=path)]
    after = before.resized(nodes, instant=before.instant)
    return ConsistentBuckets({partition: after}, index.hash_fields)


def resolve_counts(index: Index, partitions: Iterable[str]) -> None:
    """Let an index work out the counts of many partitions at once; asked for one by one, rules are slow."""
    if isinstance(index, PartitionBuckets):
        index.rules.counts_of(list(partitions))


def verify(index: Index, partition: str, file_id: str, record_keys: Any) -> str | None:
    """Return the first of a file group's record keys that does not belong there, None if they all do.

    For bucket counts that a caller gave: Hudi stores none, and a wrong one would prune away rows. A key whose
    place the index doesn't know is no offence.

    >>> verify(SimpleBuckets(4, ("id",)), "", "00000000-159a-4953-a3c4-b777b847ae7f-0", pa.array(["1", "2"]))
    '2'
    """
    located = index.locate(partition, record_keys)
    fits = [_begins(file_id, prefix) for prefix in located.dictionary.to_pylist()]
    if all(fits):
        return None
    offender = pc.index(pa.array(fits, pa.bool_()).take(located.indices), False).as_py()
    return None if offender < 0 else str(record_keys[offender].as_py())


def _begins(file_id: str, prefix: str) -> bool:
    """Tell whether a file id has this prefix: bulk inserts leave the closing `-0` away, others have it."""
    return file_id == prefix or file_id.startswith(prefix + "-")


def _bucket_prefix(bucket: int) -> str:
    return f"{bucket:08d}"


def _locate_buckets(record_keys: Any, hash_fields: Collection[str], count: int) -> Any:
    buckets = buckets_of(record_keys, hash_fields, count)
    unknown = buckets < 0
    found, numbers = _occurring(np.where(unknown, 0, buckets), count)
    prefixes = [_bucket_prefix(bucket) for bucket in found]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=unknown), pa.array(prefixes, pa.string()))


def _occurring(places: npt.NDArray[Any], count: int) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Return the numbers below `count` that occur, and for each place which of them it is.

    A dictionary holds no others, because a table may have millions of buckets. Told by counting, as long as that
    takes no more than to sort the places.
    """
    if count > len(places):
        distinct, inverse = np.unique(places, return_inverse=True)
        return distinct.tolist(), inverse.astype(np.int32)
    found = np.flatnonzero(np.bincount(places, minlength=1))
    numbers = np.zeros(count, np.int32)
    numbers[found] = np.arange(len(found), dtype=np.int32)
    return found.tolist(), numbers[places]


def is_bucket_file_id(file_id: str) -> bool:
    """Tell whether a file id begins with a bucket's number, as those of tables with counts do.

    >>> is_bucket_file_id("00000003-159a-4953-a3c4-b777b847ae7f-0")
    True
    >>> is_bucket_file_id("9d4157e4-36db-4672-9652-f509e920c4a7-0")
    False
    """
    return _BUCKET_FILE_ID.match(file_id) is not None


def _bucket_of_file(file_id: str, count: int) -> str | None:
    match = _BUCKET_FILE_ID.match(file_id)
    return match[1] if match is not None and int(match[1]) < count else None


def _bucket_groups(count: int, file_ids: Collection[str], pieces: Collection[Pieces]) -> frozenset[str]:
    every = frozenset(file_ids)
    bucket_by_group: dict[str, int] = {}
    for file_id in every:
        prefix = _bucket_of_file(file_id, count)
        if prefix is None:
            return every
        bucket_by_group[file_id] = int(prefix)
    wanted = {bucket_of(piece, count) for piece in pieces}
    return frozenset(file_id for file_id, bucket in bucket_by_group.items() if bucket in wanted)


def _prefix_among(file_id: str, prefixes: frozenset[str]) -> str | None:
    if file_id in prefixes:
        return file_id
    prefix = file_id.rpartition("-")[0]
    return prefix if prefix in prefixes else None


def _nowhere(record_keys: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.nulls(len(record_keys), pa.int32()), pa.array([], pa.string()))
