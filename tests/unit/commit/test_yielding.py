"""A writer that was overtaken again and again goes first, and nobody waits for ever."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table
from bucketlake.commit.yielding import RUNS_BEFORE_ASKING, YIELD_MS_MAX, Turn
from bucketlake.layout.names import YIELD_FOLDER
from bucketlake.storage import MemoryStore, Store
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import orders, orders_table


class Time:
    """A clock that goes on while somebody waits."""

    def __init__(self) -> None:
        self.ms = 1_000_000
        self.waited_s = 0.0

    def wait(self, seconds: float) -> None:
        self.ms += round(seconds * 1000)
        self.waited_s += seconds

    def turn(self, store: Store, name: str) -> Turn:
        return Turn(store, now_ms=lambda: self.ms, wait=self.wait, name=name)

    def overtaken(self, store: Store, name: str, *, took_ms: int) -> Turn:
        """A writer that has been run in vain, and runs again."""
        turn = self.turn(store, name)
        for _ in range(RUNS_BEFORE_ASKING):
            with turn:
                turn.give_way()
                self.ms += took_ms
        turn.__enter__()
        return turn


def test_nobody_waits_where_nobody_has_asked() -> None:
    time = Time()
    time.turn(MemoryStore(), "a").give_way()
    assert time.waited_s == 0


def test_a_writer_that_need_not_ask_waits_for_others_and_asks_for_nothing() -> None:
    store, time = MemoryStore(), Time()
    plain = time.turn(store, "plain")
    for _ in range(RUNS_BEFORE_ASKING + 2):
        with plain:
            plain.give_way(asks=False)
            assert not store.list(YIELD_FOLDER).files
    time.overtaken(store, "long", took_ms=20_000)
    plain.give_way(asks=False)
    assert time.waited_s > 20


def test_others_wait_until_who_was_overtaken_is_done() -> None:
    store, time = MemoryStore(), Time()
    long = time.overtaken(store, "long", took_ms=20_000)
    long.give_way()
    assert time.waited_s == 0, "who has asked does not wait for himself"
    short = time.turn(store, "short")

    def wait(seconds: float) -> None:
        time.wait(seconds)
        if time.waited_s > 3:
            long.__exit__()

    short.wait = wait
    short.give_way()
    assert 3 < time.waited_s < 4
    assert store.list(YIELD_FOLDER).files == ()


def test_a_record_that_was_left_behind_runs_out_and_is_deleted() -> None:
    store, time = MemoryStore(), Time()
    time.overtaken(store, "dead", took_ms=1_000)
    time.turn(store, "a").give_way()
    assert 12 <= time.waited_s <= 14
    assert store.list(YIELD_FOLDER).files == ()


def test_nobody_waits_longer_than_is_allowed_or_for_what_is_no_record() -> None:
    store, time = MemoryStore(), Time()
    store.put(f"{YIELD_FOLDER}/greedy", json.dumps({"until_ms": time.ms + 2 * YIELD_MS_MAX}).encode())
    store.put(f"{YIELD_FOLDER}/broken", b"{")
    time.turn(store, "a").give_way()
    assert time.waited_s == 0
    time.overtaken(store, "long", took_ms=10 * YIELD_MS_MAX)
    time.turn(store, "a").give_way()
    assert time.waited_s * 1000 <= YIELD_MS_MAX + 1000


def test_of_two_who_have_asked_one_goes_first() -> None:
    store, time = MemoryStore(), Time()
    second = time.overtaken(store, "b", took_ms=1_000)
    first = time.turn(store, "a")
    first.is_needed, first.runs, first.started_ms = True, RUNS_BEFORE_ASKING, time.ms - 1_000
    first.__enter__()
    first.give_way()
    assert time.waited_s == 0
    second.give_way()
    assert time.waited_s > 0


@pytest.mark.shows("R1")
def test_a_write_that_is_overtaken_every_time_asks_others_to_wait_and_is_done() -> None:
    """Somebody else commits the same new keys whenever it is about to, unless he is asked not to."""
    store = orders_table("memory://overtaken", index=RecordIndex(shards=1)).store
    asked: list[int] = []

    class Overtaken(ArrowRows):
        def run(self, plan: Any) -> Any:
            done = super().run(plan)
            records = store.list(YIELD_FOLDER).files
            asked.append(len(records))
            if not records:
                Table.open("memory://overtaken").upsert(orders([len(asked)], "other", 5))
            return done

    rows = orders([1, 2, 3], "ours", 9)
    run_write(Overtaken(pa.Table.from_batches(rows.to_batches())), store, Operation.UPSERT)
    assert asked == [0] * RUNS_BEFORE_ASKING + [1]
    assert store.list(YIELD_FOLDER).files == ()
    found = Table.open("memory://overtaken").to_arrow(columns=["id", "name"]).sort_by("id").to_pylist()
    assert [row["name"] for row in found] == ["ours 1", "ours 2", "ours 3"]
