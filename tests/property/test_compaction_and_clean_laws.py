"""Services change where rows are, and never which.

A failing seed is replayed with BUCKETLAKE_SEEDS=17, and a soak runs with BUCKETLAKE_SEEDS=0-5000.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
import pytest

from bucketlake import Table
from bucketlake.services import (
    CompactionTrigger,
    Retention,
    clean_table,
    compact_table,
    load_held,
    plan_compaction,
    run_compaction,
    schedule_compaction,
)
from bucketlake.state import files_of, load_state
from bucketlake.testing.invariants import check_invariants
from judges.random_writes import UNFORESEEN, describe_writes, play
from judges.rows import assert_same_rows
from plugins.soak import seeds

MOVED = ["_hoodie_file_name"]


def rows(table: Table, as_of: str | None = None) -> pa.Table:
    return table.to_arrow(meta_columns=True, as_of=as_of)


def retention(rng: random.Random) -> Retention:
    return rng.choice([Retention(commits=rng.randrange(1, 4)), Retention(versions=rng.randrange(1, 3))])


@pytest.mark.thorough
@pytest.mark.shows("S5", "X3")
@pytest.mark.parametrize("seed", seeds(default_count=15))
def test_a_table_that_is_compacted_and_cleaned_between_writes_holds_what_a_dict_would(seed: int) -> None:
    rng = random.Random(f"services {seed}")
    history = describe_writes(random.Random(seed), steps_max=9)
    print(f"seed {seed}: {history}")
    snapshots: dict[str, pa.Table] = {}
    earliest = ""
    for played in play(history, f"memory://service-laws-{seed}"):
        table = played.table
        if played.summary is not None and played.summary.instant is not None:
            snapshots[played.summary.instant] = rows(table)
        if history.is_merge_on_read and rng.random() < 0.4:
            before = rows(table)
            for done in compact_table(table.store):
                snapshots[done.instant] = before
            assert_same_rows(rows(table), before, without=MOVED)
            played.model.schedule_compaction()
            played.model.compact()
        if rng.random() < 0.4:
            before = rows(table)
            retain = retention(rng)
            for cleaned in clean_table(table.store, retain=retain):
                # A clean that counts versions promises the present only.
                newest = max(i.requested for i in load_state(table.store).timeline.writes)
                earliest = max(earliest, cleaned.earliest_kept or newest)
            assert_same_rows(rows(table), before)
            played.model.partitions &= set(files_of(load_state(table.store)))  # an empty one is none any more
        assert_same_rows(rows(table), played.model.rows(), without=UNFORESEEN)
        check_invariants(table)
    for instant, expected in snapshots.items():
        if instant >= earliest:
            assert_same_rows(rows(played.table, as_of=instant), expected, without=MOVED)


@pytest.mark.thorough
@pytest.mark.shows("S5")
@pytest.mark.parametrize("seed", seeds(default_count=8))
def test_a_compaction_that_is_pending_while_others_write_and_clean_loses_nothing(seed: int) -> None:
    """Only where the later write wins: else, as for Hudi, late rows and deletes may meet in another order."""
    rng = random.Random(f"pending {seed}")
    history = replace(
        describe_writes(random.Random(seed), steps_max=9), table_type="MERGE_ON_READ", ordering=()
    )
    print(f"seed {seed}: {history}")
    pending: list[str] = []
    for played in play(history, f"memory://pending-laws-{seed}"):
        store = played.table.store
        expected = played.model.rows()
        match rng.choice(["schedule", "run", "clean", "nothing"]):
            case "schedule":
                state = load_state(store)
                trigger = rng.choice(
                    [None, CompactionTrigger(delta_commits=2), CompactionTrigger(log_ratio=1)]
                )
                plan = plan_compaction(state, files_of(state), load_held(state), trigger=trigger, now="")
                instant = schedule_compaction(store, plan)
                pending += [instant] if instant is not None else []
            case "run" if pending:
                run_compaction(store, pending.pop(rng.randrange(len(pending))))
            case "clean":
                clean_table(store, retain=retention(rng))
                played.model.partitions &= set(files_of(load_state(store)))
        assert_same_rows(rows(played.table), expected, without=UNFORESEEN)
        check_invariants(played.table)
    for instant in pending:
        run_compaction(store, instant)
    assert_same_rows(rows(played.table), expected, without=UNFORESEEN)
    check_invariants(played.table)
