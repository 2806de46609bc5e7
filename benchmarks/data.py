"""Deterministic orders, five batches of changes to them, and the truth.

Order number n has one key, customer, article and day for life; status, amount, quantity, note and time belong
to one version of it. All are digits of md5, so the same row count gives the same rows on any machine.

    orders      n in 0 .. rows, version 0
    u1 .. u5    5 % of the rows each: half changes, half new orders
                half of the changes hit the same orders in every batch, the others are new to change
                2 % of the changes are late: older than what they would replace, so a reader must ignore them

    arriving    batches of a stream: half changes of any orders, half new orders; 2 % of the changes are late

    <folder>/orders.parquet  u1.parquet .. u5.parquet
    <folder>/arriving/000.parquet ..  for a stream, instead of u1 to u5
    <folder>/truth/plain.parquet      the orders alone
    <folder>/truth/merged.parquet     with all batches applied
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import duckdb

COLUMNS = ("order_id", "customer_id", "status", "amount", "quantity", "sku", "note", "updated_at", "dt")
BATCHES = ("u1", "u2", "u3", "u4", "u5")
LOOKUPS = 20

PLAIN = "plain"
MERGED = "merged"

RECIPE = "orders 1"
"""Changes with the data, so that a cache of older data is not used."""

_MACROS = """
CREATE MACRO draw(digest, first, choices) AS ('0x' || substr(digest, first, 7))::BIGINT % choices;
CREATE MACRO june(day) AS '2026-06-' || lpad(day::VARCHAR, 2, '0');
CREATE MACRO quiet_day(choice) AS june(CASE WHEN choice < 17 THEN choice + 1 ELSE choice + 2 END);
CREATE MACRO day_of(digest) AS
  CASE WHEN draw(digest, 1, 100) < 40 THEN june(18) ELSE quiet_day(draw(digest, 8, getvariable('quiet_days'))) END;
"""

QUIET_DAYS = 19
"""Beside the one that holds 40 % of the orders."""

_DAY_MS = 86_400_000
_FIRST_MS = 1_780_272_000_000


@dataclass(frozen=True, slots=True)
class Orders:
    """Generated data in a folder."""

    rows: int
    folder: Path
    quiet_days: int = QUIET_DAYS

    @property
    def stamp(self) -> str:
        """What tells this data from other data."""
        return json.dumps({"recipe": RECIPE, "rows": self.rows, "quiet days": self.quiet_days})

    def batch(self, name: str) -> Path:
        return self.folder / f"{name}.parquet"

    def truth(self, table: str) -> Path:
        return self.folder / "truth" / f"{table}.parquet"


def make_orders(rows: int, folder: Path, *, quiet_days: int = QUIET_DAYS) -> Orders:
    """Return the data for `rows` orders, generating it unless it is there."""
    orders = Orders(rows, folder, quiet_days)
    ready = folder / "ready.json"
    if ready.exists() and ready.read_text() == orders.stamp:
        return orders
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "truth").mkdir(parents=True)
    with duckdb.connect() as connection:
        connection.execute(f"SET VARIABLE quiet_days = {quiet_days}")
        connection.execute(_MACROS)
        _copy(connection, _versions(f"SELECT range AS n FROM range({rows})", 0), orders.batch("orders"))
        half = rows // 40
        for number, name in enumerate(BATCHES, start=1):
            changed = f"SELECT range AS n FROM range({rows}) WHERE range % 80 IN (0, {number})"
            added = f"SELECT range AS n FROM range({rows + (number - 1) * half}, {rows + number * half})"
            both = f"{_versions(changed, number, some_late=True)} UNION ALL {_versions(added, number)}"
            _copy(connection, f"SELECT * FROM ({both}) ORDER BY order_id", orders.batch(name))
        _copy(connection, f"FROM '{orders.batch('orders')}'", orders.truth("plain"))
        batches = [orders.batch(name) for name in ("orders", *BATCHES)]
        _copy(connection, _merged(batches), orders.truth("merged"))
    ready.write_text(orders.stamp)
    return orders


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Orders, and a stream of changes to them."""

    orders: Orders
    batches: int
    batch_rows: int

    @property
    def stamp(self) -> str:
        return json.dumps({"orders": self.orders.stamp, "batches": self.batches, "rows": self.batch_rows})

    @property
    def folder(self) -> Path:
        """Has a file for each batch, and nothing else."""
        return self.orders.folder / "arriving"


def make_arrivals(
    rows: int, batches: int, batch_rows: int, folder: Path, *, quiet_days: int = QUIET_DAYS
) -> Arrivals:
    """Return `rows` orders and a stream, generating them unless they are there."""
    arrivals = Arrivals(Orders(rows, folder, quiet_days), batches, batch_rows)
    ready = folder / "ready.json"
    if ready.exists() and ready.read_text() == arrivals.stamp:
        return arrivals
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "truth").mkdir(parents=True)
    arrivals.folder.mkdir()
    every = [arrivals.orders.batch("orders")]
    with duckdb.connect() as connection:
        connection.execute(f"SET VARIABLE quiet_days = {quiet_days}")
        connection.execute(_MACROS)
        _copy(connection, _versions(f"SELECT range AS n FROM range({rows})", 0), every[0])
        half = batch_rows // 2
        for number in range(batches):
            known = rows + number * half
            changed = _drawn(f"change {number}", known, batch_rows - half)
            added = f"SELECT range AS n FROM range({known}, {known + half})"
            both = (
                f"{_versions(changed, number + 1, some_late=True)} UNION ALL {_versions(added, number + 1)}"
            )
            every.append(arrivals.folder / f"{number:03d}.parquet")
            _copy(connection, f"SELECT * FROM ({both}) ORDER BY order_id", every[-1])
            os.utime(every[-1], (number, number))  # Spark takes files by their times
        _copy(connection, _merged(every), arrivals.orders.truth("merged"))
    ready.write_text(arrivals.stamp)
    return arrivals


def _drawn(seed: str, known: int, count: int) -> str:
    """Select `count` different numbers below `known`, which is to be the greater by far."""
    drawn = f"SELECT ('0x' || left(md5('{seed} ' || range), 12))::BIGINT % {known} AS n, range FROM range({4 * count})"
    return f"SELECT n FROM ({drawn}) GROUP BY n ORDER BY min(range) LIMIT {count}"


def _versions(numbers: str, version: int, *, some_late: bool = False) -> str:
    """Select one version of each order whose number the query `numbers` gives."""
    days_back = (
        f"CASE WHEN draw(md5('late ' || now), 1, 50) = 0 THEN {2 * version} ELSE 0 END" if some_late else "0"
    )
    return f"""
        SELECT 'o-' || left(md5('key ' || n), 16) AS order_id,
               draw(always, 15, 200000) AS customer_id,
               ['new', 'paid', 'packed', 'shipped', 'delivered', 'returned'][1 + draw(now, 1, 6)] AS status,
               draw(now, 8, 1000000)::DOUBLE / 100 AS amount,
               (1 + draw(now, 15, 20))::INTEGER AS quantity,
               'sku-' || lpad(draw(always, 22, 20000)::VARCHAR, 8, '0') AS sku,
               left(md5('note ' || now) || md5('more ' || now), 60) AS note,
               {_FIRST_MS} + {_DAY_MS} * ({version} - {days_back}) + draw(now, 22, {_DAY_MS}) AS updated_at,
               day_of(always) AS dt
        FROM (SELECT n, md5('order ' || n) AS always, md5('version {version} of ' || n) AS now
              FROM ({numbers}))"""


def _merged(batches: list[Path]) -> str:
    """Select the newest version of each order; of equal times the later batch counts."""
    every = " UNION ALL ".join(
        f"SELECT *, {number} AS batch FROM '{batch}'" for number, batch in enumerate(batches)
    )
    columns = ", ".join(COLUMNS)
    newest = "row_number() OVER (PARTITION BY order_id ORDER BY updated_at DESC, batch DESC) = 1"
    return f"SELECT {columns} FROM ({every}) QUALIFY {newest}"


def _copy(connection: duckdb.DuckDBPyConnection, query: str, target: Path) -> None:
    connection.execute(f"COPY ({query}) TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
