"""Simple buckets: every partition has the same number of them, for the life of the table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bucketlake.config import BucketEngine
from bucketlake.index.bucket_numbers import (
    BUCKET_COUNT,
    bucket_groups,
    bucket_of_file,
    bucket_place,
    bucket_prefix,
    check_count,
    locate_buckets,
)
from bucketlake.index.engines import NewTable
from bucketlake.index.hashing import bucket_of
from bucketlake.index.index import BUCKETS_DEFAULT, Pieces, Place, RescalableIndex
from bucketlake.index.ruled import RuledIndex
from bucketlake.index.rules import CountRules


@dataclass(frozen=True, slots=True)
class SimpleBuckets:
    """Every partition has `count` buckets: `create_table(..., index=SimpleBuckets(8))`.

    >>> print(SimpleBuckets(8))
    simple buckets: 8 per partition
    """

    count: int = BUCKETS_DEFAULT
    """How many buckets a partition has."""
    hash_fields: tuple[str, ...] = ()
    """The key columns that decide the bucket; empty: all of them."""

    engine: ClassVar[str] = BucketEngine.SIMPLE

    def check(self, table: NewTable) -> None:  # noqa: ARG002 # it fits any
        check_count(self.count)

    def settings(self) -> Mapping[str, str]:
        return {BUCKET_COUNT: str(self.count)}

    def first_files(self) -> Mapping[str, bytes]:
        return {}

    def __str__(self) -> str:
        by = f", hashed from {', '.join(self.hash_fields)}" if self.hash_fields else ""
        return f"simple buckets: {self.count} per partition{by}"


@dataclass(frozen=True, slots=True)
class SimpleIndex(RescalableIndex):
    """Every partition has `count` buckets; a bucket is a file group whose id begins with its eight digits."""

    count: int
    hash_fields: tuple[str, ...] = field()

    def __post_init__(self) -> None:
        assert self.count > 0

    def __str__(self) -> str:
        return f"simple buckets: {self.count} per partition, hashed from {', '.join(self.hash_fields)}"

    def bucket_count(self, partition: str) -> int | None:  # noqa: ARG002 # the protocol's
        return self.count

    def slot_of(self, partition: str, pieces: Pieces) -> str | None:  # noqa: ARG002 # the protocol's
        return bucket_prefix(bucket_of(pieces, self.count))

    def locate(self, partition: str, record_keys: Any) -> Any:  # noqa: ARG002 # the protocol's
        return locate_buckets(record_keys, self.hash_fields, self.count)

    def slot_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return bucket_of_file(file_id, self.count)

    def file_groups(
        self,
        partition: str,  # noqa: ARG002 # the protocol's
        file_ids: Collection[str],
        pieces: Collection[Pieces],
    ) -> frozenset[str]:
        return bucket_groups(self.count, file_ids, pieces)

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        return bucket_place(pieces, self.count)

    @property
    def rules(self) -> CountRules | None:
        return None

    def with_rules(self, rules: CountRules, version: str = "") -> RuledIndex:
        return RuledIndex(rules, self.hash_fields, version)
