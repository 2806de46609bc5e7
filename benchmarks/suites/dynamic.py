"""Buckets that open as others fill: ours, Paimon's, and what both can be made from: an index of each partition's keys.

The same orders and upserts as in `write`. Paimon merges on read, and so does everybody here. Beside them are simple
buckets, whose number somebody has chosen: what it costs to find keys, and buckets for them, is the difference.
"""

from __future__ import annotations

from benchmarks.contestants import (
    BUCKETLAKE,
    DYNAMIC,
    HUDI_PARTITIONED_RECORD,
    PAIMON_DYNAMIC,
    PARTITIONED_RECORD,
)
from benchmarks.write_race import WriteCase


def cases() -> tuple[WriteCase, ...]:
    contestants = (HUDI_PARTITIONED_RECORD, PARTITIONED_RECORD, DYNAMIC, BUCKETLAKE, PAIMON_DYNAMIC)
    return (WriteCase("dynamic buckets, merge-on-read", "MERGE_ON_READ", tuple(c.name for c in contestants)),)
