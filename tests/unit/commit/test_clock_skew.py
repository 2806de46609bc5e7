"""A clock that is minutes off makes the living look dead: its owner may not write."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.commit import clock_skew
from bucketlake.commit.clock_skew import SKEW_MAX_MS, check_clock
from bucketlake.errors import ClockSkewError
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline.clock import system_ms

ROWS = pa.table({"id": ["a"], "v": [1]})


@pytest.fixture(autouse=True)
def nobody_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock_skew, "_trusted", {})


@pytest.mark.parametrize(("off_by_ms", "word"), [(3 * SKEW_MAX_MS, "ahead of"), (-3 * SKEW_MAX_MS, "behind")])
def test_a_clock_far_from_the_stores_is_refused(tmp_path: Path, off_by_ms: int, word: str) -> None:
    with pytest.raises(ClockSkewError, match=f"180 s {word} that of"):
        check_clock(LocalStore(tmp_path), now_ms=lambda: system_ms() + off_by_ms)


@pytest.mark.parametrize("off_by_ms", [0, SKEW_MAX_MS // 2, -SKEW_MAX_MS // 2])
def test_a_clock_near_the_stores_will_do_and_is_not_asked_again(tmp_path: Path, off_by_ms: int) -> None:
    check_clock(LocalStore(tmp_path), now_ms=lambda: system_ms() + off_by_ms)
    check_clock(LocalStore(tmp_path), now_ms=lambda: system_ms() + 9 * SKEW_MAX_MS)


def test_a_writer_with_a_wrong_clock_leaves_the_table_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(tmp_path / "t", ROWS.schema, key="id", buckets=1)
    table.upsert(ROWS)
    before = table.timeline()
    monkeypatch.setattr(clock_skew, "_trusted", {})
    monkeypatch.setattr(clock_skew.check_clock, "__kwdefaults__", {"now_ms": lambda: system_ms() + 3_600_000})
    with pytest.raises(ClockSkewError, match="Set the clock"):
        Table.open(tmp_path / "t").upsert(ROWS)
    assert table.timeline() == before
    assert table.to_arrow(columns=["id", "v"]).to_pylist() == ROWS.to_pylist()


def test_memory_has_a_clock_too() -> None:
    check_clock(MemoryStore())
