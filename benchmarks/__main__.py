"""`python -m benchmarks`: make the data and the tables, run the suites, show the results."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks.contestants import CONTESTANTS, ROOT, BenchmarkError, another, started
from benchmarks.data import MERGED, Orders, make_orders
from benchmarks.index_race import IndexCase, index_race
from benchmarks.race import Case, Result, race
from benchmarks.report import Setting, print_results, write_page
from benchmarks.stages import print_stages
from benchmarks.suites import SUITES, AnyCase
from benchmarks.tables import make_tables
from benchmarks.truth import truths_about
from benchmarks.write_race import WriteCase, write_race

FOLDER = ROOT / "build" / "bench"
ROWS_DEFAULT = (1_000_000, 4_000_000)
WARM_UP_ROWS = 20_000
"""Of the tables that are written to warm up."""

WIDTH_MIN = 130
"""A line that wraps is better than a number that is cut off."""

console = Console(width=max(Console().width, WIDTH_MIN))


def main(arguments: Sequence[str]) -> None:
    options = _parse(arguments)
    results: list[Result] = []
    versions: dict[str, dict[str, str]] = {}
    try:
        for rows in options.rows or ROWS_DEFAULT:
            _say(f"{rows:,} orders")
            folder = FOLDER / str(rows)
            orders = make_orders(rows, folder / "data")
            chosen = _chosen(options)
            tables: dict[str, Path] = {}
            if options.profile or any(isinstance(case, Case) for _, case in chosen):
                tables = make_tables(orders, folder, driver_memory=options.driver_memory, say=_say)
            if options.profile:
                print_stages(tables[MERGED], console)
                continue
            measured, ran = _measure(chosen, orders, tables, folder, options)
            print_results(measured, console)
            (folder / "results.json").write_text(
                json.dumps([dataclasses.asdict(r) for r in measured], indent=1)
            )
            results += measured
            versions |= ran
    except BenchmarkError as error:
        sys.exit(f"no result: {error}")
    if options.write and results:
        write_page(options.write, results, _setting(options, arguments, versions))
        _say(f"written: {options.write}")


def _chosen(options: argparse.Namespace) -> list[tuple[str, AnyCase]]:
    return [
        (suite, _without_upserts(case) if options.loads and isinstance(case, WriteCase) else case)
        for suite in options.suite or SUITES
        for case in SUITES[suite]()
        if not options.case or any(words in case.name for words in options.case)
    ]


def _without_upserts(case: WriteCase) -> WriteCase:
    return dataclasses.replace(case, batches=(), services=(), servants=())


def _measure(
    chosen: list[tuple[str, AnyCase]],
    orders: Orders,
    tables: dict[str, Path],
    folder: Path,
    options: argparse.Namespace,
) -> tuple[list[Result], dict[str, dict[str, str]]]:
    truths = truths_about(orders)
    warm_up = make_orders(WARM_UP_ROWS, FOLDER / str(WARM_UP_ROWS) / "data")
    names = {name for _, case in chosen for name in case.contestants}
    wanted = [c for c in CONTESTANTS.values() if c.name in names and c.name in (options.only or names)]
    results: list[Result] = []
    with started(wanted, driver_memory=options.driver_memory) as running:
        for suite, case in chosen:
            if isinstance(case, Case):
                results.append(
                    race(
                        case,
                        suite=suite,
                        rows=orders.rows,
                        tables=dict.fromkeys(case.contestants, tables[case.table]),
                        respondents=running.respondents,
                        truths=truths,
                        warm_ups=options.warm_ups,
                        repeats=options.repeats,
                        say=_say,
                    )
                )
            elif isinstance(case, IndexCase):
                results += index_race(
                    case,
                    suite=suite,
                    orders=orders,
                    warm_up=warm_up,
                    folder=folder / "indexed",
                    respondents=running.respondents,
                    truths=truths,
                    warm_ups=options.warm_ups,
                    repeats=options.repeats,
                    write_repeats=options.write_repeats,
                    say=_say,
                )
            else:
                results += write_race(
                    case,
                    suite=suite,
                    orders=orders,
                    warm_up=warm_up,
                    folder=folder / "written",
                    respondents=running.respondents,
                    readers=partial(another, driver_memory=options.driver_memory),
                    truths=truths,
                    warm_ups=options.warm_ups,
                    repeats=options.write_repeats,
                    say=_say,
                )
        return results, {name: dict(found) for name, found in running.versions.items()}


def _setting(
    options: argparse.Namespace, arguments: Sequence[str], versions: dict[str, dict[str, str]]
) -> Setting:
    return Setting(
        command=f'make bench BENCH_ARGS="{shlex.join(arguments)}"',
        warm_ups=options.warm_ups,
        repeats=options.repeats,
        write_repeats=options.write_repeats,
        driver_memory=options.driver_memory,
        versions=versions,
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure against Hudi and the floor."
    )
    parser.add_argument(
        "--rows", type=int, action="append", help="orders in the tables; may be given several times"
    )
    parser.add_argument("--suite", action="append", choices=sorted(SUITES), help="only this suite")
    parser.add_argument("--case", action="append", help="only cases with these words in their name")
    parser.add_argument("--only", action="append", choices=sorted(CONTESTANTS), help="only this contestant")
    parser.add_argument("--warm-ups", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write-repeats", type=int, default=1, help="tables written: a load, five upserts")
    parser.add_argument("--loads", action="store_true", help="only load the tables that are written")
    parser.add_argument("--driver-memory", default="4g", help="of every Spark driver")
    parser.add_argument("--write", type=Path, help="fill the tables of a page, such as docs/benchmarks.md")
    parser.add_argument(
        "--profile", action="store_true", help="show where our own merged scan spends its time"
    )
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    console.print(text, highlight=False, markup=False)


if __name__ == "__main__":
    main(sys.argv[1:])
