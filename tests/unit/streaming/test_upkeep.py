"""Services beside a stream: no batch waits for them, unless they are far behind."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bucketlake import RecordIndex, Table
from bucketlake.services.backlog import backlog
from bucketlake.streaming import upkeep
from bucketlake.streaming.stream import Stream
from bucketlake.streaming.upkeep import Upkeep
from bucketlake.write import CommitSummary
from stand_ins.orders_table import orders, orders_table

pytestmark = pytest.mark.shows("R10")

NO_SESSION = cast("Any", object())
"""One that has no scheduler to ask, as a client of Spark Connect has none."""


def many_writes(uri: str, count: int) -> Table:
    table = orders_table(uri)
    for number in range(count):
        table.upsert(orders(range(8), f"turn {number}", number), maintenance="off")
    return table


def test_the_backlog_says_how_much_there_is_to_compact_and_where() -> None:
    table = orders_table("memory://backlog-none")
    assert backlog(table.store).times == 0
    table = many_writes("memory://backlog", 25)
    behind = backlog(table.store)
    assert behind.times == pytest.approx(2.4), "24 writes in the logs over a base file; ten make one due"
    assert "the file group p" in str(behind)
    table.compact()
    assert backlog(table.store).times == 0


def test_the_metadata_table_counts_too() -> None:
    table = orders_table("memory://backlog-metadata", table_type="COPY_ON_WRITE", index=RecordIndex())
    for number in range(12):
        table.upsert(orders(range(4), f"turn {number}", number), maintenance="off")
    behind = backlog(table.store)
    assert behind.where == "the metadata table"
    assert behind.times >= 1.2


def test_a_round_is_run_after_every_fifteenth_commit_beside_the_stream() -> None:
    table = many_writes("memory://upkeep", 15)
    beside = Upkeep(table.store, runs_rounds=True)
    beside.after_commit(14, NO_SESSION)
    beside.join()
    assert backlog(table.store).times > 1, "nothing is due after the fourteenth"
    beside.after_commit(15, NO_SESSION)
    beside.join()
    assert backlog(table.store).times == 0


def test_a_table_that_is_looked_after_elsewhere_is_left_alone() -> None:
    table = many_writes("memory://upkeep-elsewhere", 15)
    table.alter(maintenance="service")
    beside = Upkeep(table.store, runs_rounds=True)
    beside.after_commit(15, NO_SESSION)
    beside.join()
    assert backlog(table.store).times > 1


def test_a_stream_that_is_too_quick_is_warned_and_then_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = many_writes("memory://upkeep-behind", 12)
    beside = Upkeep(table.store, runs_rounds=False)
    waited: list[float] = []

    def compacted_meanwhile(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            table.compact()

    monkeypatch.setattr(upkeep, "sleep", compacted_meanwhile)
    monkeypatch.setattr(upkeep, "WARNED_TIMES", 1.0)
    with caplog.at_level(logging.WARNING, "bucketlake.stream"):
        beside.after_commit(30, NO_SESSION)
    assert "services are behind" in caplog.text and not waited
    monkeypatch.setattr(upkeep, "WAITED_TIMES", 1.0)
    beside.after_commit(45, NO_SESSION)
    assert len(waited) == 2, "until the service was done"


def test_nothing_fails_a_batch_that_is_committed(caplog: pytest.LogCaptureFixture) -> None:
    table = orders_table("memory://upkeep-gone")
    table.store.delete(".hoodie/hoodie.properties")
    table.store.delete(".hoodie/hoodie.properties.backup")
    with caplog.at_level(logging.WARNING, "bucketlake.stream"):
        Upkeep(table.store, runs_rounds=True).after_commit(15, NO_SESSION)
    assert "what is due was not looked for" in caplog.text


def test_how_far_services_are_behind_is_said_by_the_next_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = many_writes("memory://upkeep-said", 12)
    (tmp_path / "metadata").write_text('{"id": "s"}')
    writer = table.batch_writer(checkpoint=tmp_path, maintenance="off")
    said: list[float | None] = []

    def upsert(self: Stream, frame: object, number: int) -> CommitSummary:
        said.append(self.behind)
        return CommitSummary(operation="UPSERT", instant="1", number=15)

    monkeypatch.setattr(Stream, "upsert", upsert)
    for number in range(2):
        writer(SimpleNamespace(sparkSession=None), number)  # type: ignore[arg-type] # no frame is looked at
    assert said == [None, backlog(table.store).times]
