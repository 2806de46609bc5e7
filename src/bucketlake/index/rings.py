"""Consistent hashing: every partition has a ring of hash ranges, which are split and merged as the table grows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar
from weakref import ref

import pyarrow as pa

from bucketlake.config import BucketEngine, TableType
from bucketlake.errors import ConfigError
from bucketlake.index.bucket_numbers import BUCKET_COUNT, check_count, occurring
from bucketlake.index.consistent import HashingMetadata, StoredRings, decode_children
from bucketlake.index.engines import NewTable
from bucketlake.index.hashing import ring_hash_of
from bucketlake.index.hashing_arrow import ring_hashes_of
from bucketlake.index.index import BUCKETS_DEFAULT, Pieces, Place, ResizableIndex, nowhere
from bucketlake.index.ring import Ring

VIRTUAL_LOGS = "bucketlake.resize.virtual"
"""A table property: a write to a bucket that is being resized puts its rows into the new file groups only, and a
reference to them into the old one. Default: `false`, because Hudi cannot read the bucket until the resize ends."""


@dataclass(frozen=True, slots=True)
class GrowingBuckets:
    """What tables have in common whose buckets are split and merged."""

    count: int = BUCKETS_DEFAULT
    """How many buckets a partition begins with."""
    hash_fields: tuple[str, ...] = ()
    """The key columns that decide the bucket; empty: all of them."""
    virtual_logs: bool = False
    """Whether rows for a bucket that is being resized are written once, to the new file groups, and not twice."""

    engine: ClassVar[str]
    title: ClassVar[str]

    def check(self, table: NewTable) -> None:
        check_count(self.count)
        if table.non_blocking:
            raise ConfigError(
                f"a table with {self} cannot be non-blocking: its buckets grow by themselves. Drop the option, or give "
                f"it simple buckets: buckets=N."
            )
        if self.virtual_logs and table.table_type is TableType.COPY_ON_WRITE:
            raise ConfigError(
                f"virtual logs are for merge-on-read tables whose buckets are resized; found {table.table_type}. Drop "
                f"the option."
            )

    def settings(self) -> Mapping[str, str]:
        return {BUCKET_COUNT: str(self.count)} | ({VIRTUAL_LOGS: "true"} if self.virtual_logs else {})

    def first_files(self) -> Mapping[str, bytes]:
        return {}

    def __str__(self) -> str:
        by = f", hashed from {', '.join(self.hash_fields)}" if self.hash_fields else ""
        virtual = ", virtual logs while they are resized" if self.virtual_logs else ""
        return f"{self.title}: {self.count} buckets at first{virtual}{by}"


@dataclass(frozen=True, slots=True)
class ConsistentBuckets(GrowingBuckets):
    """Buckets that are split and merged as the table grows: `index=ConsistentBuckets(4)`.

    A partition begins with `count` buckets, as ranges of a hash ring. `table.buckets.resize()` splits and merges them.

    >>> print(ConsistentBuckets(4))
    consistent hashing: 4 buckets at first
    """

    engine: ClassVar[str] = BucketEngine.CONSISTENT_HASHING
    title: ClassVar[str] = "consistent hashing"


class _LastHashed:
    """The hashes of the column that was asked for last: beside a resize a writer asks two rings for the same keys."""

    def __init__(self) -> None:
        self._last: tuple[ref[Any], tuple[str, ...], Any] | None = None

    def hashes_of(self, index: RingIndex, record_keys: Any) -> Any:
        last, by = self._last, (type(index).__name__, *index.hash_fields)
        if last is not None and last[0]() is record_keys and last[1] == by:
            return last[2]
        hashes = index.hashes_of(record_keys)
        self._last = ref(record_keys), by, hashes
        return hashes


_last_hashed = _LastHashed()


@dataclass(frozen=True, slots=True)
class RingIndex(ResizableIndex):
    """Every partition has a ring of hash ranges; a node is a file group whose id begins with its prefix."""

    kind: ClassVar[type[HashingMetadata]] = HashingMetadata
    """Of the rings."""

    rings: Mapping[str, HashingMetadata] = field()
    hash_fields: tuple[str, ...] = field()
    initial_count: int | None = None
    """How many nodes the ring of a new partition gets; None if that is not known."""
    replaced_at: str = ""
    """The instant that gives every partition file groups of new ids, with the same ranges; empty for none."""
    _known: dict[str, tuple[HashingMetadata, Ring]] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"consistent hashing: a ring per partition, hashed from {', '.join(self.hash_fields)}"

    def hash_of(self, pieces: Pieces) -> int:
        """Return the hash by which a ring finds the owner of a key."""
        return ring_hash_of(pieces)

    def hashes_of(self, record_keys: Any) -> Any:
        """Return `hash_of` for a column of record keys; below 0 for a null key."""
        return ring_hashes_of(record_keys, self.hash_fields)

    def positions_of(self, partition: str, record_keys: Any) -> Any:
        ring = self.ring(partition)
        assert ring is not None, f"{partition}: no ring"
        return ring.positions(self.hashes_of(record_keys))

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
                found = self.kind.initial(partition, self.initial_count)
            else:
                return None
            self._known[partition] = found, found.ring
        return self._known[partition]

    def bucket_count(self, partition: str) -> int | None:
        ring = self.ring(partition)
        return None if ring is None else len(ring.prefixes)

    def slot_of(self, partition: str, pieces: Pieces) -> str | None:
        ring = self.ring(partition)
        return None if ring is None else ring.owner(self.hash_of(pieces)).file_id_prefix

    def locate(self, partition: str, record_keys: Any) -> Any:
        ring = self.ring(partition)
        if ring is None:
            return nowhere(record_keys)
        hashes = _last_hashed.hashes_of(self, record_keys)
        found, numbers = occurring(ring.owners(hashes), len(ring.nodes))
        prefixes = [ring.nodes[place].file_id_prefix for place in found]
        return pa.DictionaryArray.from_arrays(
            pa.array(numbers, mask=hashes < 0), pa.array(prefixes, pa.string())
        )

    def slot_of_file(self, partition: str, file_id: str) -> str | None:
        ring = self.ring(partition)
        return None if ring is None else self.prefix_among(file_id, frozenset(ring.prefixes))

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        every = frozenset(file_ids)
        ring = self.ring(partition)
        if ring is None:
            return every
        prefixes = frozenset(ring.prefixes)
        owner = {file_id: self.prefix_among(file_id, prefixes) for file_id in every}
        if None in owner.values():
            return every
        wanted = {ring.owner(self.hash_of(piece)).file_id_prefix for piece in pieces}
        return frozenset(file_id for file_id in every if owner[file_id] in wanted)

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        return Place(slot=self.slot_of(partition, pieces), hash=self.hash_of(pieces))

    def with_rings(self, rings: Mapping[str, HashingMetadata]) -> RingIndex:
        return replace(self, rings=rings, initial_count=None, replaced_at="", _known={})

    def replacing(self, instant: str) -> RingIndex:
        return replace(self, replaced_at=instant, _known={})

    def layout_files(self, partition: str) -> Mapping[str, bytes]:
        found = self.metadata(partition)
        is_stored = isinstance(self.rings, StoredRings) and partition in self.rings and not self.replaced_at
        if found is None or is_stored:
            return {}
        return {found.path: found.render()}

    def prefix_among(self, file_id: str, prefixes: frozenset[str]) -> str | None:
        """Return which of a ring's prefixes a file group bears."""
        if file_id in prefixes:
            return file_id
        prefix = file_id.rpartition("-")[0]
        return prefix if prefix in prefixes else None


def after_resize(
    index: ResizableIndex, partition: str, children: Iterable[str], *, path: str
) -> ResizableIndex:
    """Return the index of one partition once a resize is completed; `children` as its plan has them.

    `path` says where the plan is, for the error if it makes no sense.
    """
    before = index.metadata(partition)
    assert before is not None, f"{partition}: no ring to resize"
    nodes = [node for text in children for node in decode_children(text, path=path)]
    after = before.resized(nodes, instant=before.instant)
    return index.with_rings({partition: after})
