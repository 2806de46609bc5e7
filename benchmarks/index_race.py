"""An index case: everybody builds a secondary index over the same files, and then finds rows by it.

One contestant loads the orders into a table with a record-level index of the whole table, which secondary indexes need,
and everybody gets a copy. What is metered is the build alone, in turn, and then each query, as a case of its own.

The orders get a voucher. A third of them has one that no other order has, a third has one of which there are a hundred,
and a third one of which there are ten thousand; so one index serves all queries. Orders with one voucher are in all
partitions.

Every answer is compared with the truth. Hudi is asked about the indexes of the others too.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.contestants import HUDI_RECORD, BenchmarkError, Respondent
from benchmarks.data import PLAIN, Orders
from benchmarks.meter import Cost, metered
from benchmarks.race import Case, Entry, Result, Score, Turn, Written, difference, race, rotated
from benchmarks.truth import Truth
from benchmarks.write_race import as_path, files_of, remove, written_between

COLUMN = "voucher"
SIZES = (1, 100, 10_000)
"""How many orders have one voucher."""
VALUES = 5
"""Vouchers that are asked for, of each size."""

Row = list[Any]


@dataclass(frozen=True, slots=True)
class IndexCase:
    name: str
    table_type: str
    contestants: tuple[str, ...]
    loader: str
    """Who makes the table that is copied."""


@dataclass(frozen=True, slots=True)
class _Build:
    """One build of one contestant."""

    cost: Cost
    written: Written


@dataclass(frozen=True, slots=True)
class ByValue:
    """`SELECT order_id, amount … WHERE voucher = …`"""

    rows: Mapping[str, list[Row]]
    """By voucher."""

    def ask(self, turn: Turn) -> Any:
        return turn.respondent.ask("by_value", table=turn.table, column=COLUMN, value=self._value(turn))

    def check(self, turn: Turn, answer: Any) -> str | None:
        return self.fault(self._value(turn), answer)

    def fault(self, value: str, answer: Any) -> str | None:
        """Say what is wrong with the rows of a voucher, or nothing."""
        _, found = answer
        wrong = difference(sorted(found), self.rows[value])
        return f"{value}: {wrong[:1000]}" if wrong else None

    def latencies_ms(self, answer: Any) -> tuple[float, ...]:
        milliseconds, _ = answer
        return (milliseconds,)

    def _value(self, turn: Turn) -> str:
        values = tuple(self.rows)
        return values[turn.number % len(values)]


def index_race(
    case: IndexCase,
    *,
    suite: str,
    orders: Orders,
    warm_up: Orders | None,
    folder: Path,
    respondents: Mapping[str, Respondent],
    truths: Mapping[str, Truth],
    warm_ups: int,
    repeats: int,
    write_repeats: int,
    say: Callable[[str], None],
) -> tuple[Result, ...]:
    """Let everybody who is here build the index `write_repeats` times, and ask each query `repeats` times."""
    here = [name for name in case.contestants if name in respondents]
    if case.loader not in here:
        raise BenchmarkError(f"{case.name} begins with a table that {case.loader} loads: let it take part.")
    tables = {name: folder / as_path(name) for name in here}
    builds: dict[str, list[_Build]] = {name: [] for name in here}
    for number in range(-warm_ups if warm_up is not None else 0, write_repeats):
        source = warm_up if warm_up is not None and number < 0 else orders
        if number in (-warm_ups, 0):
            rows = with_vouchers(source, folder / "rows.parquet")
            _load(case, respondents[case.loader], folder / "loaded", rows)
        for name in rotated(here, number):
            remove([tables[name]])
            shutil.copytree(folder / "loaded", tables[name])
            build = _build(respondents[name], tables[name], rows=source.rows)
            kind = "warm-up" if number < 0 else f"round {number + 1}"
            say(
                f"build of a {case.name}, {kind}: {name} {build.cost.wall_s:.2f} s, CPU {build.cost.cpu_s:.2f} s"
            )
            if number >= 0:
                builds[name].append(build)
    questions = {size: ByValue(rows_by_voucher(folder / "rows.parquet", size)) for size in SIZES}
    _verify(tables, questions.values(), respondents)
    queries = tuple(
        race(
            Case(
                f"{size:,} {'row' if size == 1 else 'rows'} by {case.name}",
                case.name,
                question,
                tuple(Entry(name, PLAIN) for name in here),
            ),
            suite=suite,
            rows=orders.rows,
            tables=tables,
            respondents=respondents,
            truths=truths,
            warm_ups=warm_ups,
            repeats=repeats,
            say=say,
        )
        for size, question in questions.items()
    )
    remove([folder])
    scores = tuple(
        Score(name, tuple(b.cost for b in builds[name]), (), tuple(b.written for b in builds[name]))
        for name in here
    )
    return (Result(suite, f"build of a {case.name}", case.name, orders.rows, scores), *queries)


def _load(case: IndexCase, loader: Respondent, table: Path, rows: Path) -> None:
    remove([table])
    loader.ask("load", table=str(table), rows=str(rows), table_type=case.table_type)


def _build(respondent: Respondent, table: Path, *, rows: int) -> _Build:
    before = files_of(table)
    ask = partial(respondent.ask, "create_index", table=str(table), column=COLUMN)
    cost = metered(respondent.process, ask).cost
    return _Build(cost, written_between(before, files_of(table), rows=rows))


def with_vouchers(orders: Orders, path: Path) -> Path:
    """Write the orders with a voucher each to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = "[" + ", ".join(map(str, SIZES)) + "]"
    _fetch(f"""
        COPY (
            SELECT * EXCLUDE (n, size), size || ' of ' || md5(size || ' of ' || n // {len(SIZES)} // size) AS {COLUMN}
            FROM (SELECT * EXCLUDE file_row_number, file_row_number AS n,
                         {sizes}[1 + file_row_number % {len(SIZES)}] AS size
                  FROM read_parquet('{orders.batch("orders")}', file_row_number = true))
        ) TO '{path}' (FORMAT parquet, COMPRESSION zstd)""")
    return path


def rows_by_voucher(path: Path, size: int) -> dict[str, list[Row]]:
    """Return the rows of some vouchers that `size` orders have; of few orders, the most that have one."""
    rows = f"FROM '{path}' WHERE starts_with({COLUMN}, '{size} of ')"
    chosen = _fetch(f"SELECT {COLUMN} {rows} GROUP BY ALL ORDER BY count(*) DESC, {COLUMN} LIMIT {VALUES}")
    return {
        value: [
            list(row)
            for row in _fetch(f"SELECT order_id, amount {rows} AND {COLUMN} = '{value}' ORDER BY ALL")
        ]
        for (value,) in chosen
    }


def _fetch(query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.execute(query).fetchall()


def _verify(
    tables: Mapping[str, Path], questions: Iterable[ByValue], respondents: Mapping[str, Respondent]
) -> None:
    """Let Hudi, if it is here, query by the indexes that others built."""
    for writer, table in tables.items():
        if HUDI_RECORD.name not in tables or writer == HUDI_RECORD.name:
            continue
        for question in questions:
            value = next(iter(question.rows))
            found = respondents[HUDI_RECORD.name].ask(
                "by_value", table=str(table), column=COLUMN, value=value
            )
            wrong = question.fault(value, found)
            if wrong:
                raise BenchmarkError(f"{writer} built an index by which Hudi finds other rows: {wrong}")
