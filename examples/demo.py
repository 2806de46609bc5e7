"""Make a table of orders, load it, upsert five batches, delete; show what happened; verify every row with DuckDB.

make demo
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from hudi import HudiTableBuilder
from pyspark.sql import SparkSession
from rich.console import Console

from bucketlake import Table, create_table
from bucketlake.cli import main as bucketlake
from bucketlake.cli.screen import Screen, grid
from bucketlake.spark.local import local_session
from bucketlake.write import CommitSummary

GOLDEN = Path(__file__).parent.parent / "tests/golden"
HUDIS_TABLE = "mor_simple_bucket_avro"

ORDERS = 40_000
BATCHES = 5
BATCH_ROWS = 2_000
CANCELLED = 500
DAYS = [f"2026-06-{day:02d}" for day in range(10, 20)]
BUSY_DAY, BUSY_SHARE = "2026-06-18", 0.4
SCHEMA = pa.schema(
    [
        ("order_id", pa.string()),
        ("day", pa.string()),
        ("version", pa.int64()),
        ("status", pa.string()),
        ("amount", pa.decimal128(10, 2)),
    ]
)

console = Console()


def say(text: str) -> None:
    console.print(f"\n[bold cyan]{text}[/]")


def command(*words: str) -> None:
    """Run `bucketlake …` as a user would type it."""
    console.print(f"[dim]$ bucketlake {' '.join(words)}[/]", highlight=False)
    try:
        bucketlake(words)
    except SystemExit as stop:
        if stop.code:
            raise


class Orders:
    """Orders as they come in: most of them on one day, some of them late. The same in every run."""

    def __init__(self) -> None:
        self._chance = np.random.default_rng(20260618)
        days = self._chance.choice(DAYS, ORDERS + (BATCHES + 1) * BATCH_ROWS)
        busy = self._chance.random(len(days)) < BUSY_SHARE
        self._days = np.where(busy, BUSY_DAY, days)
        self._known = ORDERS

    def load(self) -> pa.Table:
        return self._rows(np.arange(ORDERS), np.full(ORDERS, 1), "placed")

    def batch(self, number: int) -> pa.Table:
        """Updates of known orders, a tenth of them late, and one new order for every three updates."""
        new = np.arange(self._known, self._known + BATCH_ROWS // 4)
        self._known += len(new)
        updated = self._chance.choice(new[0], BATCH_ROWS - len(new), replace=False)
        versions = np.full(len(updated), number + 1)
        versions[self._chance.random(len(updated)) < 0.1] = 0  # older than what the table has
        numbers = np.concatenate([updated, new])
        return self._rows(numbers, np.concatenate([versions, np.full(len(new), 1)]), f"batch {number}")

    def cancelled(self) -> pa.Table:
        numbers = self._chance.choice(ORDERS, CANCELLED, replace=False)
        return self._rows(numbers, np.full(len(numbers), 0), "cancelled").select(["order_id", "day"])

    def _rows(self, numbers: np.ndarray, versions: np.ndarray, status: str) -> pa.Table:
        cents = self._chance.integers(100, 50_000, len(numbers))
        columns = {
            "order_id": [f"o-{number:06d}" for number in numbers],
            "day": self._days[numbers],
            "version": versions,
            "status": [status] * len(numbers),
            "amount": [Decimal(int(amount)).scaleb(-2) for amount in cents],
        }
        return pa.table(columns).cast(SCHEMA)


class Truth:
    """What the table must hold, said in SQL: of an order the greatest version, of equal ones the later."""

    def __init__(self) -> None:
        self._database = duckdb.connect()
        self._writes = 0

    def upsert(self, rows: pa.Table) -> None:
        self._writes += 1
        self._database.register("rows", rows)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS history AS SELECT *, 0 AS write FROM rows LIMIT 0;"
            f"INSERT INTO history SELECT *, {self._writes} FROM rows"
        )

    def delete(self, rows: pa.Table) -> None:
        self._database.register("rows", rows)
        self._database.execute("DELETE FROM history WHERE order_id IN (SELECT order_id FROM rows)")

    def differences(self, found: pa.Table) -> int:
        """Count the rows that only one side has, or has more often."""
        self._database.register("found", found)
        truth = """
            SELECT * EXCLUDE write FROM history
            QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY version DESC, write DESC) = 1
        """
        only_one_side = f"(({truth}) EXCEPT ALL FROM found) UNION ALL (FROM found EXCEPT ALL ({truth}))"
        ((count,),) = self._database.sql(f"SELECT count(*) FROM ({only_one_side})").fetchall()
        return int(count)


def show(summaries: list[CommitSummary]) -> None:
    numbers = ("rows", "inserted", "in logs", "deleted", "files", "KiB", "seconds")
    drawn = grid("summaries", "write", *numbers, numbers=numbers)
    for done in summaries:
        counts = (done.rows, done.inserted, done.logged, done.deleted, done.files, done.bytes // 1024)
        seconds = f"{sum(done.seconds.values()):.1f}"
        drawn.add_row(done.operation.lower().replace("_", " "), *(f"{n:,}" for n in counts), seconds)
    Screen(as_json=False).show(None, drawn)


def check(who: str, differences: int, rows: int) -> None:
    if differences:
        console.print(f"[bold red]{who}: {differences} rows differ[/]")
        sys.exit(1)
    console.print(f"[bold green]✓[/] {who}: {rows:,} rows, all equal")


def orders_table(spark: SparkSession, path: str) -> None:
    say(f"A merge-on-read table of {ORDERS:,} orders, {BUSY_SHARE:.0%} of them on one day")
    table = create_table(
        path,
        SCHEMA,
        key="order_id",
        partition="day",
        ordering="version",
        buckets=2,
        table_type="MERGE_ON_READ",
        spark=spark,
    )
    orders, truth = Orders(), Truth()
    loaded = orders.load()
    summaries = [table.bulk_insert(spark.createDataFrame(loaded))]
    truth.upsert(loaded)
    console.print(str(summaries[0]))

    say(f"{BATCHES} batches of updates, late updates and new orders; then {CANCELLED} orders go")
    for number in range(1, BATCHES + 1):
        batch = orders.batch(number)
        summaries.append(table.upsert(spark.createDataFrame(batch)))
        truth.upsert(batch)
    gone = orders.cancelled()
    summaries.append(table.delete(spark.createDataFrame(gone)))
    truth.delete(gone)
    show(summaries)
    command("layout", path)

    say("A small write needs no Spark: an Arrow table is written by this process")
    few = orders.batch(BATCHES + 1).slice(BATCH_ROWS - 20)
    console.print(str(table.upsert(few)))
    truth.upsert(few)

    say("As it was, what changed, one key")
    console.print(f"as of the load: {table.to_arrow(as_of=summaries[0].instant).num_rows:,} rows")
    changed = table.read(spark, begin=summaries[-2].completed).count()
    console.print(f"changed since the last batch: {changed:,} rows")
    newest = few.to_pylist()[-1]
    command(
        "get", path, newest["order_id"], "--partition", newest["day"], "--columns", ",".join(SCHEMA.names)
    )

    say("Every row, against DuckDB")
    by_spark = table.read(spark, columns=SCHEMA.names).toArrow()
    check("Table.read on Spark", truth.differences(by_spark), by_spark.num_rows)
    by_rust = pa.Table.from_batches(map(pa.record_batch, HudiTableBuilder.from_base_uri(path).build().read()))
    check(
        "hudi-rs, which shares no code with us",
        truth.differences(by_rust.select(SCHEMA.names)),
        by_rust.num_rows,
    )


def hudis_table(folder: str) -> None:
    say("A table that Hudi 1.2.0 wrote: updates, late rows and deletes in its logs")
    with tarfile.open(GOLDEN / f"{HUDIS_TABLE}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    path = str(Path(folder) / HUDIS_TABLE)
    command("read", path, "--buckets", "4", "--columns", "id,name,ts,dt")
    expected = [
        json.loads(line) for line in (GOLDEN / f"{HUDIS_TABLE}.expected.jsonl").read_text().splitlines()
    ]
    found = Table.open(path).to_arrow().to_pylist()
    present = [{name: value for name, value in row.items() if value is not None} for row in found]
    differences = sum(row not in expected for row in present) + sum(row not in present for row in expected)
    check("beside Hudi's own reader", differences, len(found))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        spark = local_session()
        orders_table(spark, f"{folder}/orders")
        hudis_table(folder)
        spark.stop()


if __name__ == "__main__":
    main()
