"""A table is a dict: whatever is written, in whatever order, it holds what a dict would.

A failing seed is replayed with BUCKETLAKE_SEEDS=17, and a soak runs with BUCKETLAKE_SEEDS=0-5000.
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError
from bucketlake.testing.invariants import check_invariants
from bucketlake.write import job
from judges.random_writes import UNFORESEEN, Played, WriteStep, describe_writes, play
from judges.rows import assert_same_rows
from plugins.soak import seeds


@pytest.mark.thorough
@pytest.mark.shows("S1", "S2", "S5", "X3")
@pytest.mark.parametrize("seed", seeds(default_count=20))
def test_a_history_of_writes_leaves_what_a_dict_would_hold(seed: int) -> None:
    history = describe_writes(random.Random(seed))
    print(f"seed {seed}: {history}")
    snapshots: dict[str, pa.Table] = {}
    live = 0
    for played in play(history, f"memory://write-model-{seed}"):
        expected = played.model.rows()
        assert_same_rows(played.table.to_arrow(meta_columns=True), expected, without=UNFORESEEN)
        check_invariants(played.table)
        check_summary(played, before=live, after=expected.num_rows)
        live = expected.num_rows
        if played.summary is not None and played.summary.instant is not None:
            snapshots[played.summary.instant] = expected
    for instant, expected in snapshots.items():
        travelled = played.table.to_arrow(meta_columns=True, as_of=instant)
        assert_same_rows(travelled, expected, without=UNFORESEEN)


def check_summary(played: Played, *, before: int, after: int) -> None:
    """Where a write counts its rows, the counts add up."""
    summary = played.summary
    is_replacing = played.step in {
        WriteStep.OVERWRITE,
        WriteStep.OVERWRITE_TABLE,
        WriteStep.DELETE_PARTITIONS,
    }
    if summary is None or is_replacing or summary.logged:
        return
    if played.model.is_merge_on_read and summary.deleted:
        return  # a log holds deletes of keys that are not there
    assert before + summary.inserted - summary.deleted == after, str(summary)


@pytest.mark.shows("S5", "X2")
@pytest.mark.parametrize("seed", seeds(default_count=3))
def test_a_history_is_written_to_a_disk_as_to_memory(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    history = describe_writes(random.Random(seed))
    folder = tmp_path_factory.mktemp("disk") / "table"
    on_disk = list(play(history, str(folder)))[-1]
    check_invariants(on_disk.table)
    assert_same_rows(on_disk.table.to_arrow(meta_columns=True), on_disk.model.rows(), without=UNFORESEEN)


@pytest.mark.shows("S5")
@pytest.mark.parametrize("seed", seeds(default_count=3))
def test_a_write_that_looks_into_its_own_partitions_only_does_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "PARTITIONS_LISTED_WHOLE", 0)
    for played in play(describe_writes(random.Random(seed)), f"memory://many-partitions-{seed}"):
        rows = played.table.to_arrow(meta_columns=True)
        assert_same_rows(rows, played.model.rows(), without=UNFORESEEN)
    check_invariants(played.table)


@pytest.mark.shows("X1")
@pytest.mark.parametrize("seed", seeds(default_count=3))
def test_a_table_with_a_history_refuses_a_writer_with_another_idea_of_it(seed: int) -> None:
    history = describe_writes(random.Random(seed))
    played = list(play(history, f"memory://other-idea-{seed}"))[-1]
    other = history.bucket_count + 1
    with pytest.raises(ConfigError, match=f"index= says simple buckets: {other} per partition"):
        type(played.table)(played.table.store, played.table.properties, buckets=other)
    assert_same_rows(played.table.to_arrow(meta_columns=True), played.model.rows(), without=UNFORESEEN)
