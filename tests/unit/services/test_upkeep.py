"""A table that nobody looks after must stay quick, and keep the history that its users were promised."""

from __future__ import annotations

import itertools
import logging
import subprocess
import sys
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from shutil import copytree
from threading import Barrier, Thread
from typing import Any

import pytest

from bucketlake import CompactionTrigger, Maintenance, Retention, Table, create_table
from bucketlake.commit.locks import lease
from bucketlake.config import (
    KEEP_COMMITS,
    MAINTENANCE,
    MaintenanceMode,
    load_properties,
    maintenance_mode,
    update_properties,
)
from bucketlake.datasource.options import SinkOptions
from bucketlake.errors import ConfigError
from bucketlake.layout import BaseFile, FileSlice, LogFile
from bucketlake.layout.names import MAINTENANCE_LEASE
from bucketlake.services import maintenance, run_maintenance, upkeep
from bucketlake.services.upkeep import DEFAULT, EVERY
from bucketlake.state import load_state, touched_lately
from bucketlake.storage import MemoryStore
from bucketlake.testing.faulty_store import FaultyStore
from stand_ins.orders_table import orders, orders_table, rows_of, written_table

_numbers = itertools.count()
TABLE_TYPES = ["MERGE_ON_READ", "COPY_ON_WRITE"]


def memory() -> str:
    return f"memory://upkeep-{next(_numbers)}"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> Maintenance:
    """Let a round come after every second write, and find something to do."""
    eager = Maintenance(
        compact=CompactionTrigger(delta_commits=1), clean=Retention(commits=2), archive=(2, 3)
    )
    monkeypatch.setattr(upkeep, "EVERY", 2)
    monkeypatch.setattr(upkeep, "DEFAULT", eager)
    return eager


def neglected_table(uri: str | PathLike[str]) -> Table:
    table = orders_table(uri)
    write(table, 5, maintenance="off")
    return table


def write(table: Table, count: int, **options: Any) -> list[str]:
    """Write so many times, and return which services ran."""
    lines = [
        line for n in range(count) for line in table.upsert(orders([n % 4], f"v{n}", n), **options).services
    ]
    return [line.partition(":")[0] for line in lines]


@pytest.mark.shows("H1")
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_new_table_is_compacted_cleaned_and_archived_by_default_and_loses_nothing(table_type: str) -> None:
    kept = orders_table(memory(), table_type=table_type)
    plain = orders_table(memory(), table_type=table_type)
    done: list[tuple[int, str]] = []
    for n in range(1, 4 * EVERY + 1):
        rows = orders([n % 6, (n + 1) % 6], f"v{n}", n)
        summary = kept.upsert(rows)
        plain.upsert(rows, maintenance="off")
        done += [(n, line.partition(":")[0]) for line in summary.services]
        first = {service: n for n, service in reversed(done)}
    expected = {"clean": 3 * EVERY, "archive": 4 * EVERY}
    assert first == (expected | {"compaction": EVERY} if table_type == "MERGE_ON_READ" else expected)
    assert DEFAULT.archive is not None
    assert len(load_state(kept.store).timeline.writes) <= DEFAULT.archive[1] + 1
    assert len(load_state(plain.store).timeline.writes) == 4 * EVERY
    columns = ["id", "name", "ts", "dt"]
    assert kept.to_arrow(columns=columns).sort_by("id") == plain.to_arrow(columns=columns).sort_by("id")
    assert kept.fsck().is_sound


@pytest.mark.shows("H1")
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_the_last_thirty_writes_can_be_read_as_they_were(table_type: str) -> None:
    table = orders_table(memory(), table_type=table_type, buckets=1)
    said: list[tuple[str, str]] = []
    for n in range(4 * EVERY):
        summary = table.upsert(orders([0], f"v{n}", n))
        assert summary.instant is not None
        assert summary.completed is not None
        said.append((summary.instant, summary.completed))
    assert DEFAULT.clean is not None
    assert DEFAULT.clean.commits == 30
    # Compactions are writes on the timeline too, one for every round.
    kept = said[-30 + (2 if table_type == "MERGE_ON_READ" else 0) :]
    for n, (instant, _) in enumerate(kept, 4 * EVERY - len(kept)):
        assert table.to_arrow(as_of=instant)["name"].to_pylist() == [f"v{n} 0"]
    changes = table.to_arrow(begin=kept[0][1])
    assert changes["name"].to_pylist() == [f"v{4 * EVERY - 1} 0"]


def test_what_a_savepoint_protects_stays(often: Maintenance) -> None:
    table = orders_table(memory(), table_type="COPY_ON_WRITE")
    table.upsert(orders(range(4), "kept", 0))
    saved = table.savepoint(comment="the first")
    before = rows_of(table)
    assert often.clean is not None
    done = write(table, 9)
    assert "clean" in done
    assert "archive" not in done, "the timeline is kept from there on"
    table.restore(saved.instant)
    assert rows_of(table) == before
    assert table.fsck().is_sound


@pytest.mark.shows("H1")
def test_new_tables_are_maintained_inline_and_others_not_at_all(golden_table: Callable[[str], Path]) -> None:
    assert maintenance_mode(load_properties(orders_table(memory()).store)) is MaintenanceMode.INLINE
    for name in ("cow_simple_bucket", "mor_simple_bucket_avro"):
        golden = Table.open(golden_table(name))
        assert MAINTENANCE not in golden.properties.raw
        assert maintenance_mode(golden.properties) is MaintenanceMode.OFF


@pytest.mark.shows("H1")
def test_a_table_that_hudi_made_is_left_alone_until_it_is_told(
    golden_table: Callable[[str], Path], tmp_path: Path, often: Maintenance
) -> None:
    assert often.compact is not None
    copytree(golden_table("mor_simple_bucket_parquet_log"), tmp_path / "hudis")
    table = Table.adopt(tmp_path / "hudis", buckets=4)
    rows = table.to_arrow()
    for _ in range(4):
        assert table.upsert(rows).services == ()
    table.alter(maintenance="inline")
    lines = [line for _ in range(2) for line in table.upsert(rows).services]
    assert any(line.startswith("compaction: ") for line in lines)
    assert table.to_arrow().num_rows == rows.num_rows


def without_the_property(table: Table) -> Table:
    """As a table is that was made before there was one."""
    path = ".hoodie/hoodie.properties"
    lines = table.store.read(path).decode().splitlines(keepends=True)
    left = [line for line in lines if not line.startswith((MAINTENANCE, "#"))]
    table.store.put(path, "".join(left).encode())
    table.store.delete(".hoodie/.bucketlake/hoodie.properties")
    return Table(table.store, load_properties(table.store))


@pytest.mark.shows("H1")
def test_a_table_from_before_is_left_alone_until_it_is_told(often: Maintenance) -> None:
    assert often.compact is not None
    table = without_the_property(orders_table(memory()))
    assert maintenance_mode(table.properties) is MaintenanceMode.OFF
    assert write(table, 6) == []
    table.alter(maintenance="inline")
    assert "compaction" in write(table, 2)


@pytest.mark.shows("H1")
@pytest.mark.parametrize("mode", ["service", "off"])
def test_writers_leave_a_table_alone_that_says_so(mode: str, often: Maintenance) -> None:
    assert often.compact is not None
    table = create_table(
        memory(), orders([], "", 0).schema, key="id", partition="dt", ordering="ts", maintenance=mode
    )
    assert table.properties.raw[MAINTENANCE] == mode
    assert write(table, 6) == []
    assert len(load_state(table.store).timeline.instants) == 6


@pytest.mark.shows("H1")
def test_a_write_may_say_otherwise_than_the_table(often: Maintenance) -> None:
    assert often.compact is not None
    table = orders_table(memory())
    assert write(table, 4, maintenance="off") == []
    assert write(table, 4, maintenance="service") == []
    table.alter(maintenance="off")
    assert "compaction" in write(table, 4, maintenance="inline")
    assert write(table, 4) == []
    table.alter(maintenance="inline")
    emptied = table.delete_partitions("p1", maintenance="off")
    assert emptied.services == ()


def test_who_has_a_table_open_follows_what_others_make_of_it(often: Maintenance) -> None:
    assert often.compact is not None
    table = orders_table(memory())
    Table(table.store, table.properties).alter(maintenance="off")
    assert write(table, 4) == []


@pytest.mark.parametrize(
    "call",
    [
        lambda table: table.alter(maintenance="always"),
        lambda table: table.upsert(orders([1], "x", 1), maintenance="always"),
        lambda table: table.delete_partitions("p1", maintenance="always"),
        lambda table: create_table(memory(), table.schema, key="id", maintenance="always"),
    ],
)
def test_a_word_that_means_nothing_is_refused_before_anything_is_done(call: Callable[[Table], Any]) -> None:
    table = written_table(memory())
    before = table.timeline()
    with pytest.raises(ConfigError, match=r"maintenance is 'always'; expected one of inline, service, off"):
        call(table)
    assert table.timeline() == before


@pytest.mark.shows("H1")
def test_a_table_keeps_as_much_history_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "EVERY", 5)
    table = orders_table(memory(), table_type="COPY_ON_WRITE", buckets=1)
    table.alter(keep_commits=3)
    said = [table.upsert(orders([0], f"v{n}", n)).instant for n in range(40)]
    assert len(load_state(table.store).timeline.writes) < 40
    for n in range(37, 40):
        assert table.to_arrow(as_of=said[n])["name"].to_pylist() == [f"v{n} 0"]
    with pytest.raises(ConfigError, match="kept files from"):
        table.to_arrow(as_of=said[30])
    with pytest.raises(ConfigError, match="keep_commits is 0; expected a number of writes, 1 or more"):
        table.alter(keep_commits=0)
    update_properties(table.store, {KEEP_COMMITS: "many"})
    lines = [line for n in range(5) for line in table.upsert(orders([0], "w", 50 + n)).services]
    assert ["bucketlake.maintenance.keep.commits is 'many'" in line for line in lines] == [True]


def test_a_table_that_says_nonsense_is_written_all_the_same(
    often: Maintenance, caplog: pytest.LogCaptureFixture
) -> None:
    assert often.compact is not None
    table = orders_table(memory())
    update_properties(table.store, {MAINTENANCE: "sometimes"})
    table.upsert(orders([1], "x", 1))
    with caplog.at_level(logging.WARNING, "bucketlake.services"):
        (line,) = table.upsert(orders([2], "y", 2)).services
    assert "bucketlake.maintenance is 'sometimes'; expected one of inline" in line
    assert "sometimes" in caplog.text
    assert table.to_arrow().num_rows == 2


@pytest.mark.shows("H1")
def test_a_compaction_that_fails_by_itself_does_not_fail_the_write(
    often: Maintenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert often.compact is not None
    table = orders_table(memory())

    def broken(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(maintenance, "compact_table", broken)
    write(table, 3)
    summary = table.upsert(orders(range(9), "new", 99))
    assert "compaction failed: no space left" in summary.services
    assert "compaction failed" in str(summary)
    assert table.to_arrow().num_rows == 9


@pytest.mark.shows("H1")
def test_while_one_maintains_a_table_others_go_on(often: Maintenance) -> None:
    table = neglected_table(memory())
    instants = load_state(table.store).timeline.instants
    with lease(table.store, MAINTENANCE_LEASE) as is_ours:
        assert is_ours
        done = run_maintenance(table.store, often)
    assert str(done).startswith("maintenance was left to another: ")
    assert not done.failures
    assert load_state(table.store).timeline.instants == instants
    assert "compaction" in str(run_maintenance(table.store, often))


def test_of_two_at_once_one_gets_the_lease() -> None:
    store, both, got = MemoryStore(memory()), Barrier(2), []

    def work() -> None:
        both.wait()
        with lease(store, MAINTENANCE_LEASE) as is_ours:
            got.append(is_ours)
            both.wait()

    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == [False, True]
    assert store.list("", recursive=True).files == ()


_TAKES_AND_DIES = """
import os, sys
from bucketlake.commit.locks import lease
from bucketlake.storage import open_store
with lease(open_store(sys.argv[1]), sys.argv[2]) as is_ours:
    assert is_ours
    os._exit(9)
"""


@pytest.mark.shows("H1")
def test_the_lease_of_a_process_that_died_is_taken_over(tmp_path: Path, often: Maintenance) -> None:
    table = neglected_table(tmp_path)
    died = subprocess.run([sys.executable, "-c", _TAKES_AND_DIES, tmp_path, MAINTENANCE_LEASE], check=False)
    assert died.returncode == 9
    assert (tmp_path / MAINTENANCE_LEASE).exists()
    assert str(run_maintenance(table.store, often)).startswith("compaction: ")
    assert not (tmp_path / MAINTENANCE_LEASE).exists()


def test_a_round_lists_no_partition_that_nobody_has_touched_lately(monkeypatch: pytest.MonkeyPatch) -> None:
    table = orders_table(memory())
    table.upsert(orders(range(4), "both", 1))
    for n in range(40):
        table.upsert(orders([0], f"v{n}", n + 2), maintenance="off")
    table.archive(keep_min=30, keep_max=31)
    assert touched_lately(load_state(table.store)) == {"p0"}
    monkeypatch.setattr(upkeep, "EVERY", 1)
    counting = FaultyStore(table.store)
    summary = Table(counting, table.properties).upsert(orders([0], "new", 99))
    assert summary.services[0].startswith("compaction: 1 file groups")
    assert {what for what in counting.operations if what.startswith("list p")} == {"list p0"}
    assert "list " not in counting.operations, "nor the folder of partitions"


def test_between_rounds_a_write_asks_for_nothing_more() -> None:
    asked = []
    for mode in ("inline", "off"):
        table = orders_table(memory())
        table.alter(maintenance=mode)
        table.upsert(orders(range(4), "x", 1))
        counting = FaultyStore(table.store)
        Table(counting, table.properties).upsert(orders([1], "y", 2))
        asked.append([what.partition(" ")[0] for what in counting.operations])
    assert asked[0] == asked[1]


def test_writes_are_numbered_without_gaps_until_an_archive_counts_anew() -> None:
    table = orders_table(memory())
    assert [table.upsert(orders([n], "x", n)).number for n in range(4)] == [1, 2, 3, 4]
    table.compact()
    assert table.upsert(orders([1], "y", 9)).number == 5
    assert table.overwrite(orders([1], "z", 10)).number == 1, "of its kind"
    assert table.delete([999]).number == 0, "nothing was committed"


@pytest.mark.parametrize(
    ("base_mib", "writes", "log_mib", "holds"),
    [(0, 9, 0, False), (0, 10, 0, True), (30, 29, 0, False), (30, 30, 0, True), (30, 10, 2, True)],
)
def test_a_large_base_file_is_rewritten_once_its_logs_make_up_for_it(
    base_mib: int, writes: int, log_mib: int, holds: bool
) -> None:
    mib = 1 << 20
    instants = [f"202401010000{n:05d}" for n in range(writes + 1)]
    base = BaseFile("p/a.parquet", "a", "", instants[0], base_mib * mib)
    logs = tuple(LogFile(f"p/.a.{at}", "a", at, 1, "", log_mib * mib) for at in instants[1:])
    assert DEFAULT.compact is not None
    assert DEFAULT.compact.holds(FileSlice("p", "a", instants[0], base, logs), now=instants[-1]) is holds


def test_an_append_by_name_may_say_that_nothing_is_to_be_done_after_it() -> None:
    assert SinkOptions.parse({"path": "/t"}).maintenance is None
    assert SinkOptions.parse({"path": "/t", "maintenance": "off"}).maintenance is MaintenanceMode.OFF
    with pytest.raises(ConfigError, match="maintenance is 'always'"):
        SinkOptions.parse({"path": "/t", "maintenance": "always"})
