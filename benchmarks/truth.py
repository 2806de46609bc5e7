"""What every answer must be, by DuckDB from the generated files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb

from benchmarks.data import COLUMNS, LOOKUPS, MERGED, PLAIN, Orders

THREADS = 2


@dataclass(frozen=True, slots=True)
class Truth:
    """The answers about one table."""

    aggregate: list[list[Any]]
    fingerprint: list[int]
    keys: tuple[tuple[str, str], ...]
    """Key and partition of the rows to look up."""
    rows: dict[str, list[list[Any]]]
    """Those rows by key; none for a key the table does not have."""


def truths_about(orders: Orders) -> dict[str, Truth]:
    """Compute the answers for every table, and for those who see its base files only."""
    plain = _truth(orders, PLAIN, keys_of=PLAIN)
    return {
        PLAIN: plain,
        MERGED: _truth(orders, MERGED, keys_of=MERGED),
        base_files_of(PLAIN): plain,
        base_files_of(MERGED): _truth(orders, PLAIN, keys_of=MERGED),
    }


def base_files_of(table: str) -> str:
    """Name the truth about a table's base files."""
    return f"{table}, base files"


def _truth(orders: Orders, table: str, *, keys_of: str) -> Truth:
    rows = f"'{orders.truth(table)}'"
    keys = _some_keys(f"'{orders.truth(keys_of)}'")
    return Truth(aggregate_of(rows), fingerprint_of(rows), keys, _rows_of(rows, keys))


def aggregate_of(rows: str, connection: duckdb.DuckDBPyConnection | None = None) -> list[list[Any]]:
    """Sum and count by status, the sum in cents."""
    query = f"SELECT status, sum(amount), count(*) FROM {rows} GROUP BY status ORDER BY status"
    return [[status, round(total * 100), count] for status, total, count in _fetch(query, connection)]


def fingerprint_of(rows: str, connection: duckdb.DuckDBPyConnection | None = None) -> list[int]:
    """Count rows and add up 32 bits of the md5 of each; Spark computes the same in `workers.spark`."""
    cells = ", ".join("amount::DECIMAL(12, 2)" if name == "amount" else name for name in COLUMNS)
    bits = f"('0x' || left(md5(concat_ws('|', {cells})), 8))::BIGINT"
    [(count, total)] = _fetch(f"SELECT count(*), sum({bits}) FROM {rows}", connection)
    return [count, int(total)]


def _some_keys(rows: str) -> tuple[tuple[str, str], ...]:
    query = f"SELECT order_id, dt FROM {rows} ORDER BY md5('look up ' || order_id) LIMIT {LOOKUPS}"
    return tuple((order_id, dt) for order_id, dt in _fetch(query, None))


def _rows_of(rows: str, keys: tuple[tuple[str, str], ...]) -> dict[str, list[list[Any]]]:
    wanted = ", ".join(f"'{order_id}'" for order_id, _ in keys)
    found = _fetch(f"SELECT {', '.join(COLUMNS)} FROM {rows} WHERE order_id IN ({wanted})", None)
    by_key: dict[str, list[list[Any]]] = {order_id: [] for order_id, _ in keys}
    for row in found:
        by_key[row[0]].append(list(row))
    return by_key


def _fetch(query: str, connection: duckdb.DuckDBPyConnection | None) -> list[tuple[Any, ...]]:
    if connection is not None:
        return connection.execute(query).fetchall()
    with duckdb.connect(config={"threads": THREADS}) as own:
        return own.execute(query).fetchall()
