"""The machine of `test_table_machine`, on a table whose buckets are split and merged by some of those who use it.

A writer may know of a resize or not, when it begins; the resize may be completed, taken back, or given up in the middle
when the writer commits. Whatever the order, the table must be the dict.
"""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

from bucketlake.config import BucketEngine, TableType
from bucketlake.index.resizes import pending_resizes
from bucketlake.services import abort_resize, look_for_resize, resize_table, run_resize, schedule_resize
from bucketlake.services.resize_plan import ResizeTrigger, evenly
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.write import TableSpec, create
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.table_machine import IS_SOAK, KEYS, TALLY, TableMachine, Task, upserted

SPLIT = ResizeTrigger(file_bytes=100, split_threshold=1.0, merge_threshold=0.1, max_buckets=6, policy=evenly)
MERGE = ResizeTrigger(min_buckets=1)


class RingMachine(TableMachine):
    @initialize(table_type=st.sampled_from(list(TableType)), virtual_logs=st.booleans())
    def create(self, table_type: TableType, virtual_logs: bool) -> None:
        self.make(table_type, virtual_logs=virtual_logs)

    def make(self, table_type: TableType, *, virtual_logs: bool) -> None:
        spec = TableSpec(
            name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), buckets=2,
            table_type=table_type, engine=BucketEngine.CONSISTENT_HASHING,
            virtual_logs=virtual_logs and table_type is TableType.MERGE_ON_READ,
        )  # fmt: skip
        create(self.store, spec)
        self.table_type = table_type

    @rule(slot=st.integers(0, 2), splits=st.booleans(), what=st.sampled_from(["plan", "round", "all"]))
    def resize(self, slot: int, splits: bool, what: str) -> None:
        trigger = SPLIT if splits else MERGE

        def act(store: Store) -> object:
            if what == "plan":
                return schedule_resize(store, look_for_resize(store, trigger))
            TALLY["resizes"] += 1
            return resize_table(store, trigger, rounds=1 if what == "round" else 3)

        self.start(slot, Task(f"resize, {what}", act))

    @rule(slot=st.integers(0, 2), aborts=st.booleans())
    def end_resize(self, slot: int, aborts: bool) -> None:
        pending = sorted(pending_resizes(self.store, load_state(self.store).timeline))
        if pending:
            end = abort_resize if aborts else run_resize
            self.start(slot, Task(end.__name__, lambda store: end(store, pending[-1])))


class RingDuel(RingMachine):
    """Writers and resizes only, on a table that has rows: so that they meet more often."""

    overwrite = delete_partition = delete = serve = roll_back = restore = remember = None  # type: ignore[assignment]

    @initialize(
        table_type=st.sampled_from([TableType.MERGE_ON_READ] * 3 + [TableType.COPY_ON_WRITE]),
        virtual_logs=st.booleans(),
    )
    def create(self, table_type: TableType, virtual_logs: bool) -> None:
        self.make(table_type, virtual_logs=virtual_logs)
        given = orders(range(KEYS), "loaded", 0)
        rows = {key: (f"loaded {key}", 0) for key in range(KEYS)}
        self.begin(0, "load", lambda table: table.upsert(given), upserted(rows))
        self.finish(0)


@pytest.mark.thorough
@pytest.mark.shows("C5", "C6", "C9", "X9")
@pytest.mark.parametrize("machine", [RingMachine, RingDuel])
def test_a_table_is_a_dict_while_its_buckets_split_and_merge(machine: type[RingMachine]) -> None:
    TALLY.clear()
    run_state_machine_as_test(
        machine,
        settings=hypothesis.settings(
            max_examples=hypothesis.settings.default.max_examples if IS_SOAK else 60,
            stateful_step_count=40 if IS_SOAK else 24,
            phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if IS_SOAK else [])],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(dict(TALLY))
    assert TALLY["killed"] and TALLY["refused"] and TALLY["resizes"]
