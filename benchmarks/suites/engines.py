"""What finding a key's file group costs a write: buckets by arithmetic, buckets on a ring, and a Bloom filter.

The same orders and upserts as in `write`, into merge-on-read tables. Buckets are four per partition; a table with a
Bloom index has as many files as Hudi gives it.
"""

from __future__ import annotations

from benchmarks.contestants import BUCKETLAKE, HUDI, HUDI_BLOOM, HUDI_RING, RING
from benchmarks.write_race import WriteCase


def cases() -> tuple[WriteCase, ...]:
    contestants = tuple(c.name for c in (HUDI, HUDI_RING, HUDI_BLOOM, BUCKETLAKE, RING))
    return (WriteCase("index engines", "MERGE_ON_READ", contestants),)
