"""One row for a key in the whole table: our record-level index, Hudi's, and Delta's MERGE on the key.

The same orders and upserts as in `write`. Delta has one type of table and takes part in both cases.
"""

from __future__ import annotations

from benchmarks.contestants import DELTA, HUDI_RECORD, RECORD
from benchmarks.write_race import WriteCase


def cases() -> tuple[WriteCase, ...]:
    contestants = tuple(c.name for c in (HUDI_RECORD, RECORD, DELTA))
    return (
        WriteCase("record-level index, copy-on-write", "COPY_ON_WRITE", contestants),
        WriteCase("record-level index, merge-on-read", "MERGE_ON_READ", contestants),
    )
