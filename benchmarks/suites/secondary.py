"""A secondary index: building it over all orders, and queries for 1, 100 and 10,000 of them by a value.

Hudi on Spark 3.5, `Table.create_index` and `Table.read` on Spark 4.1, and the same with `Table.get_by` in one process.
"""

from __future__ import annotations

from benchmarks.contestants import ALONE, HUDI_RECORD, RECORD
from benchmarks.index_race import IndexCase


def cases() -> tuple[IndexCase, ...]:
    contestants = tuple(c.name for c in (HUDI_RECORD, RECORD, ALONE))
    return (IndexCase("secondary index", "MERGE_ON_READ", contestants, loader=RECORD.name),)
