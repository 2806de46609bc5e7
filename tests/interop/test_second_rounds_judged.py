"""Hudi reads, finds, updates and deletes what a write has left that was overtaken, and wrote again what was stale.

It has file groups that it filled, rewrote and emptied under one instant, a log of an index shard that says nothing any
more, and on merge-on-read tables base files and logs of one instant, though never of one file group.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex
from bucketlake.commit.transaction import begin
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.timeline import read_commit_metadata
from bucketlake.write import ArrowRows, Operation, WriteOptions, WriteState, job, run_write
from bucketlake.write.finish import Prepared, finish
from interop.test_record_index_judged import KINDS, SCHEMA, Kind, Turns
from judges.hudi_jvm import HudiJvm

# Those with dynamic buckets run such a write again whole.
IN_ROUNDS = {name: kind for name, kind in KINDS.items() if isinstance(kind.index, RecordIndex)}

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_600)]


class Passed(ArrowRows):
    """Rows that another write passes after their first round."""

    def __init__(self, rows: pa.Table, other: Prepared) -> None:
        super().__init__(rows)
        self.other = other
        self.instants: list[str] = []

    def run(self, plan: WriteState) -> Any:
        done = super().run(plan)
        self.instants.append(plan.instant)
        if len(self.instants) == 1:
            finish(self.other)
        return done


def prepared(store: Store, rows: pa.Table) -> Prepared:
    options = WriteOptions()
    transaction, state = begin(store, operation=Operation.UPSERT, index_of=options.index_of)
    return job.prepare(ArrowRows(rows), transaction, state, options, job._Stopwatch())


def told(turns: Turns, by: str, ts: int, **keys: list[int]) -> pa.Table:
    """Make rows of keys by their partitions, and tell the model."""
    made = []
    for partition, of_partition in keys.items():
        for key in of_partition:
            name = f"{by} {key}"
            made.append({"id": key, "name": name, "ts": ts, "dt": partition})
            turns.rows[turns.identity((key, partition))] = key, name, partition, ts
    turns.writes = ts
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.mark.shows("R1", "R2", "X2")
@pytest.mark.parametrize("kind", IN_ROUNDS.values(), ids=IN_ROUNDS)
def test_hudi_takes_up_a_write_that_has_written_again_what_was_stale(
    hudi: HudiJvm, tmp_path: Path, kind: Kind
) -> None:
    turns = Turns(hudi, tmp_path / "t", kind, Random(17))
    store = turns.table.store
    turns.table.upsert(told(turns, "before", 1, p0=[1, 2, 3]))
    theirs = prepared(store, told(turns, "theirs", 2, p0=[4], p1=[10, 11], p2=[20]))
    rows = Passed(told(turns, "ours", 3, p0=[2, 5], p1=[10, 11], p2=[20, 21, 22], p3=[30]), theirs)
    summary = run_write(rows, store, Operation.UPSERT)
    assert rows.instants == [summary.instant] * 2
    (ours,) = (i for i in load_state(store).timeline.writes if i.requested == summary.instant)
    stats = read_commit_metadata(store, ours).write_stats
    assert len({(stat.partition, stat.file_id) for stat in stats}) == len(stats), "one file of a file group"
    assert any(stat.written == 0 for stat in stats), "a file group was emptied"
    turns.check()
    turns.hudis([(2, "p0"), (10, "p1"), (20, "p2"), (31, "p3"), (12, "p1")])
    turns.check()
    turns.hudis([(11, "p1"), (21, "p2"), (5, "p0")], operation="delete")
    turns.check()
    turns.table.upsert(told(turns, "later", turns.writes + 1, p1=[10, 13], p2=[22, 23]))
    turns.check()
