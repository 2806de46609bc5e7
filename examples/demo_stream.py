"""Upsert a stream of orders, kill its driver in the middle of a batch, start it again; verify every row with DuckDB.

make demo-stream

This process is the shop: it puts a file of changes into a folder every second, and looks on. A process of its own runs
the query, which upserts every file into the table as one batch. It is killed as a machine dies, and started again on
the same checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hudi import HudiTableBuilder
from rich.console import Console

from bucketlake import RecordIndex, Table, create_table
from bucketlake.spark.local import local_session

BATCHES = 24
BATCH_ROWS = 2_000
KILLED_AT = 8
"""So many batches are in the table when the driver is killed, in the middle of the next."""
SECONDS_BETWEEN = 1.0
SECONDS_MAX = 300
LOG_LINES_SHOWN = 20

DAYS = [f"2026-06-{day:02d}" for day in range(15, 19)]
SCHEMA = pa.schema(
    [
        ("order_id", pa.string()),
        ("day", pa.string()),
        ("version", pa.int64()),
        ("status", pa.string()),
        ("amount", pa.decimal128(10, 2)),
    ]
)
DDL = "op STRING, order_id STRING, day STRING, version BIGINT, status STRING, amount DECIMAL(10, 2)"
"""Of the changes: an order as it is now, or that it is gone."""

COLUMNS = ("batch", "rows", "inserted", "updated", "deleted", "outdated", "moved", "seconds")

console = Console()


def say(text: str) -> None:
    console.print(f"\n[bold cyan]{text}[/]")


class Shop:
    """Orders as they change, the same in every run.

    Half of each batch are new orders, of which some change in the same batch. One change in ten comes late, one to
    three batches after its order has changed again, and must change nothing. One in ten moves an order to another day,
    and one in ten deletes it. Of a deleted order nothing comes any more: the table has forgotten its version.
    """

    def __init__(self) -> None:
        self._chance = np.random.default_rng(20260618)
        self._versions: list[int] = []
        self._days: list[str] = []
        self._gone: set[int] = set()
        self._late: dict[int, list[dict[str, Any]]] = {}
        self._awaited: set[int] = set()
        """Orders of which a late change is still to come."""

    def batch(self, number: int) -> pa.Table:
        late = self._late.pop(number, [])
        changes = [self._placed() for _ in range(BATCH_ROWS // 2)]
        while len(changes) + len(late) < BATCH_ROWS:
            order = int(self._chance.integers(len(self._versions)))
            if order not in self._gone:
                changes.append(self._changed(order, number))
        self._awaited -= {int(row["order_id"][2:]) for row in late}
        rows = [*changes, *late]
        in_some_order = self._chance.permutation(len(rows))
        schema = SCHEMA.insert(0, pa.field("op", pa.string()))
        return pa.Table.from_pylist([rows[at] for at in in_some_order], schema)

    def _placed(self) -> dict[str, Any]:
        self._versions.append(1)
        self._days.append(str(self._chance.choice(DAYS)))
        return self._row(len(self._versions) - 1, "c", "placed")

    def _changed(self, order: int, batch: int) -> dict[str, Any]:
        draw = self._chance.random()
        self._versions[order] += 1
        if order in self._awaited:
            return self._row(order, "u", f"batch {batch}")
        if draw < 0.1:
            self._gone.add(order)
            return {**self._row(order, "d", None), "amount": None}
        if draw < 0.2:
            self._awaited.add(order)
            comes_at = batch + int(self._chance.integers(1, 4))
            self._late.setdefault(comes_at, []).append(self._row(order, "u", "late"))
            self._versions[order] += 1
        elif draw < 0.3:
            self._days[order] = str(self._chance.choice(DAYS))
        return self._row(order, "u", f"batch {batch}")

    def _row(self, order: int, op: str, status: str | None) -> dict[str, Any]:
        return {
            "op": op,
            "order_id": f"o-{order:06d}",
            "day": self._days[order],
            "version": self._versions[order],
            "status": status,
            "amount": Decimal(int(self._chance.integers(100, 50_000))).scaleb(-2),
        }


class Driver:
    """The process that runs the query, with its JVM."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "driver.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve()), str(folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that the JVM and its workers die with it
            )

    def check(self) -> None:
        """End the demo if the query has failed."""
        if self._process.poll():
            self._tell_log()
            sys.exit(f"the driver ended with {self._process.returncode}")

    def hold(self, *, is_held: bool) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP if is_held else signal.SIGCONT)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def finish(self) -> None:
        """Let the query take what has arrived, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SECONDS_MAX)
        self.check()

    def _tell_log(self) -> None:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        console.print("\n".join(lines), markup=False, highlight=False)


@contextmanager
def driving(folder: Path) -> Iterator[Driver]:
    driver = Driver(folder)
    try:
        yield driver
    finally:
        driver.kill()


def run_query(folder: Path) -> None:
    """What the driver does, until its standard input is closed."""
    spark = local_session()
    arriving = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(folder / "arriving"))
    orders = Table.open(folder / "orders")
    query = orders.upsert_stream(arriving, checkpoint=folder / "checkpoint", name="orders", op="op")
    sys.stdin.read()
    query.processAllAvailable()
    query.stop()
    spark.stop()


class Watch:
    """Puts files where the query looks, when it is time, and shows each batch that is committed."""

    def __init__(self, folder: Path, table: Table) -> None:
        self._folder = folder
        self._table = table
        self._shop = Shop()
        self._next = monotonic()
        self.sent = 0
        self.shown: set[int] = set()

    def until(self, batches: int, driver: Driver) -> None:
        deadline = monotonic() + SECONDS_MAX
        while len(self.shown) < batches:
            self.look(driver)
            if monotonic() > deadline:
                sys.exit(f"only {len(self.shown)} batches in {SECONDS_MAX} s")
            sleep(0.1)

    def look(self, driver: Driver | None = None) -> None:
        if self.sent < BATCHES and monotonic() >= self._next:
            self._send()
        for done in self._table.query_progress().to_pylist():
            if done["batch"] not in self.shown:
                self.shown.add(done["batch"])
                show({name: done[name] for name in COLUMNS})
        if driver is not None:
            driver.check()

    def _send(self) -> None:
        name = f"{self.sent:03d}.parquet"
        hidden = self._folder / f".{name}"
        pq.write_table(self._shop.batch(self.sent), hidden)
        hidden.rename(self._folder / "arriving" / name)
        self.sent += 1
        self._next = monotonic() + SECONDS_BETWEEN


def show(values: dict[str, Any]) -> None:
    cells = [
        f"{v:.2f}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else v for v in values.values()
    ]
    console.print("".join(f"{cell:>10}" for cell in cells), highlight=False)


def kill_in_a_batch(driver: Driver, watch: Watch, table: Table) -> None:
    """Wait for a batch that is under way, hold the driver there to be sure that it is, and kill it."""
    deadline = monotonic() + SECONDS_MAX
    while monotonic() < deadline:
        if writes := under_way(table):
            driver.hold(is_held=True)
            if writes == under_way(table):
                break
            driver.hold(is_held=False)
        watch.look(driver)
    else:
        sys.exit("no batch was found under way")
    driver.kill()
    watch.look()
    console.print(
        f"[bold red]SIGKILL[/] to the driver, its JVM and its workers, in the middle of batch {len(watch.shown)}: the "
        f"commit {writes[0]} was begun, and readers see nothing of it",
        highlight=False,
    )


def under_way(table: Table) -> list[str]:
    return [
        entry.requested
        for entry in table.timeline()
        if entry.state == "inflight" and entry.operation is None and entry.action == "deltacommit"
    ]


def differences(found: pa.Table, files: str) -> int:
    """Count the rows that only one side has. There must be, of each order, its greatest version, unless it is gone."""
    columns = ", ".join(SCHEMA.names)
    database = duckdb.connect()
    database.register("found", found)
    sent = f"""
        SELECT {columns} FROM (
            FROM read_parquet('{files}') QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY version DESC) = 1
        ) WHERE op <> 'd'
    """
    one_side = f"(({sent}) EXCEPT ALL FROM found) UNION ALL (FROM found EXCEPT ALL ({sent}))"
    ((count,),) = database.sql(f"SELECT count(*) FROM ({one_side})").fetchall()
    return int(count)


def check(who: str, found: pa.Table, files: str) -> None:
    wrong = differences(found.select(SCHEMA.names), files)
    if wrong:
        console.print(f"[bold red]{who}: {wrong} rows differ[/]")
        sys.exit(1)
    console.print(f"[bold green]✓[/] {who}: {found.num_rows:,} rows, all equal")


def stream_orders(folder: Path) -> None:
    (folder / "arriving").mkdir()
    say(f"A table with a record-level index, and {BATCHES} files of {BATCH_ROWS:,} changes, one every second")
    table = create_table(
        folder / "orders",
        SCHEMA,
        key="order_id",
        partition="day",
        ordering="version",
        index=RecordIndex(),
        table_type="MERGE_ON_READ",
    )
    watch = Watch(folder, table)
    console.print(
        "Half of the changes are new orders; others come late, move to another day, or are deleted."
    )
    say("The query begins, in a process of its own; it upserts every file as one batch")
    show({name: name for name in COLUMNS})
    with driving(folder) as driver:
        watch.until(KILLED_AT, driver)
        kill_in_a_batch(driver, watch, table)

    say("The query begins again, on the same checkpoint; files have gone on arriving")
    show({name: name for name in COLUMNS})
    with driving(folder) as driver:
        watch.until(BATCHES, driver)
        driver.finish()

    say("Every row, against what was sent, by DuckDB")
    done = table.query_progress()
    numbers = done["batch"].to_pylist()
    if sorted(numbers) != list(range(BATCHES)):
        sys.exit(f"the batches in the table are {sorted(numbers)}")
    console.print(f"[bold green]✓[/] batches 0 to {BATCHES - 1}: each is in the table once")
    files = f"{folder}/arriving/*.parquet"
    check("Table.to_arrow", table.to_arrow(columns=SCHEMA.names), files)
    by_rust = HudiTableBuilder.from_base_uri(str(folder / "orders")).build().read()
    check(
        "hudi-rs, which shares no code with us", pa.Table.from_batches(map(pa.record_batch, by_rust)), files
    )
    report = table.fsck(progress=False)
    if report.findings:
        sys.exit(str(report))
    console.print("[bold green]✓[/] fsck: the index and the rows say the same, in both directions")


def main() -> None:
    if len(sys.argv) > 1:
        run_query(Path(sys.argv[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        stream_orders(Path(folder))


if __name__ == "__main__":
    main()
