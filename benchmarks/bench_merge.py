"""Merging the log of a file slice over its base file, both already columns.

Budget: ten million base rows a second, so that merging is not what a reader waits for: decoding the base file
takes longer than that.
"""

from __future__ import annotations

import pyarrow as pa
from pytest_benchmark.fixture import BenchmarkFixture

from bucketlake.config import MergeMode
from bucketlake.logfile import LogRecords
from bucketlake.merge import MergeRules, merge_slice

BASE_ROWS = 100_000
LOG_ROWS = 10_000
"""Half of them change a base row, half are new."""

SCHEMA = pa.schema([("_hoodie_record_key", pa.string()), ("amount", pa.float64()), ("ts", pa.int64())])
RULES = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts",))


def _rows(first: int, count: int, step: int, ts: int) -> pa.Table:
    numbers = range(first, first + count * step, step)
    keys = pa.array([f"o-{number:016x}" for number in numbers])
    return pa.table([keys, pa.array(map(float, numbers)), pa.array([ts] * count)], schema=SCHEMA)


BASE = _rows(0, BASE_ROWS, 1, ts=1)
CHANGES = _rows(0, LOG_ROWS // 2, 20, ts=2)
NEW = _rows(BASE_ROWS, LOG_ROWS // 2, 1, ts=2)
LOG = LogRecords(records=pa.concat_tables([CHANGES, NEW]), is_partial=False, instant="20260618000000000")


def _merged_rows() -> int:
    batches = BASE.to_batches(max_chunksize=65_536)
    return sum(batch.num_rows for batch in merge_slice(batches, [LOG], RULES, SCHEMA))


def bench_merge_a_log_over_its_base_file(benchmark: BenchmarkFixture) -> None:
    benchmark.extra_info["base rows"] = BASE_ROWS
    benchmark.extra_info["log rows"] = LOG_ROWS
    assert benchmark(_merged_rows) == BASE_ROWS + LOG_ROWS // 2
