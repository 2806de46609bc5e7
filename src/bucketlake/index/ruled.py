"""Partition-level buckets: every partition has its own number of them, by rules on its path."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bucketlake.config import BucketEngine
from bucketlake.errors import ConfigError
from bucketlake.index.bucket_numbers import (
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
from bucketlake.index.partition import INITIAL_INSTANT, HashingConfig
from bucketlake.index.rule_types import check_fit, declare_rules
from bucketlake.index.rules import RULE_TYPE, CountRules
from bucketlake.layout.names import hashing_config_path

RULE_TYPE_KEY = "hoodie.bucket.index.partition.rule.type"
"""Where a table says that rules give its partitions their counts."""


@dataclass(frozen=True, slots=True)
class PartitionBuckets:
    """Rules give each partition its bucket count: `index=PartitionBuckets("2026-.*,16;^eu/,8", default=4)`.

    The first expression that matches a partition's path decides. `default` is for the other partitions.

    >>> print(PartitionBuckets("2026-.*,16", default=4))
    partition-level buckets: 2026-.*,16; otherwise 4
    """

    rules: str
    """`expression,count`, with semicolons between them."""
    default: int = BUCKETS_DEFAULT
    """The count of partitions that no rule matches."""
    hash_fields: tuple[str, ...] = ()
    """The key columns that decide the bucket; empty: all of them."""
    rule_type: str = RULE_TYPE
    """What an expression is: `regex`, `range`, or a type that you have registered."""

    engine: ClassVar[str] = BucketEngine.SIMPLE

    def check(self, table: NewTable) -> None:
        check_count(self.default)
        if table.non_blocking:
            raise ConfigError(
                f"a table with {self} cannot be non-blocking: a rescale gives file groups new ids, and those of a "
                f"non-blocking table are fixed. Drop the option, or give it one count: buckets=N."
            )
        if not table.partition:
            raise ConfigError(
                f"the partition rules are {self.rules!r}, and the table has no partition columns. Name some, or give "
                f"buckets= alone."
            )
        rules = declare_rules(self.rules, self.default, rule_type=self.rule_type)
        check_fit(rules, list(zip(table.partition, table.partition_types, strict=False)))

    def settings(self) -> Mapping[str, str]:
        return {RULE_TYPE_KEY: self.rule_type}

    def first_files(self) -> Mapping[str, bytes]:
        first = self.config(INITIAL_INSTANT)
        return {hashing_config_path(first.instant): first.render()}

    def config(self, instant: str) -> HashingConfig:
        """Return the rules as a version of them."""
        return HashingConfig(
            expressions=self.rules, default_count=self.default, rule_type=self.rule_type, instant=instant
        )

    def __str__(self) -> str:
        by = f", hashed from {', '.join(self.hash_fields)}" if self.hash_fields else ""
        return f"partition-level buckets: {self.rules}; otherwise {self.default}{by}"


@dataclass(frozen=True, slots=True)
class RuledIndex(RescalableIndex):
    """Every partition has its own count, by rules on its path."""

    rules: CountRules = field()
    hash_fields: tuple[str, ...] = field()
    version: str = ""
    """The instant of the `.hashing_config` that the rules are from; empty if a caller gave them."""

    def __str__(self) -> str:
        return f"partition-level buckets: {self.rules}, hashed from {', '.join(self.hash_fields)}"

    def bucket_count(self, partition: str) -> int | None:
        return self.rules.count_of(partition)

    def slot_of(self, partition: str, pieces: Pieces) -> str | None:
        return bucket_prefix(bucket_of(pieces, self.rules.count_of(partition)))

    def locate(self, partition: str, record_keys: Any) -> Any:
        return locate_buckets(record_keys, self.hash_fields, self.rules.count_of(partition))

    def slot_of_file(self, partition: str, file_id: str) -> str | None:
        return bucket_of_file(file_id, self.rules.count_of(partition))

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        return bucket_groups(self.rules.count_of(partition), file_ids, pieces)

    def foresee(self, partitions: Iterable[str]) -> None:
        self.rules.counts_of(list(partitions))

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        place = bucket_place(pieces, self.rules.count_of(partition))
        return replace(place, rule=self.rules.explain(partition).reason, rules_version=self.version)

    def expected_groups(self, partition: str) -> str:
        return (
            f"file groups of buckets below {self.rules.count_of(partition)} ({self.rules.explain(partition).reason}; "
            f"the rules of {self.version or 'the caller'})"
        )

    def with_rules(self, rules: CountRules, version: str = "") -> RuledIndex:
        return RuledIndex(rules, self.hash_fields, version)
