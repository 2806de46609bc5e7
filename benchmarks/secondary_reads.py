"""`python -m benchmarks.secondary_reads`: what reads by a secondary index cost, in one process.

CPU milliseconds of a query for one value, with nothing remembered and then, by `Table.get_by`, by
`Table.to_arrow(filters=…)`, and the same filter over all file groups. Columns differ in how many rows have one value,
and in whether these are in one partition or everywhere. Every answer is counted.

How an index is built and kept, and what others do, is the business of `python -m benchmarks.secondary_index`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table as Shown

from bucketlake import RecordIndex, Table, create_table, set_memory_budget
from bucketlake.index import NoIndex
from bucketlake.read import make_query, plan_read, read_all
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state

DAYS = 20
ROUNDS = 5
SPREAD = {"one": 1, "hundred": 100, "ten_thousand": 10_000}
"""Columns, and how many rows have one value, spread over all partitions."""
TOGETHER = "visit"
"""A column of which a hundred rows have one value, all of one day."""
SHOWN = ["id", "amount"]


def rows(count: int) -> pa.Table:
    rng = np.random.default_rng(count)
    numbers = np.arange(count)
    keys = _texts("o", rng.integers(0, 1 << 62, count))
    days = pa.array([f"2026-06-{day + 1:02d}" for day in range(DAYS)])
    spread = {
        name: _texts("v", rng.permutation(numbers) // min(size, count)) for name, size in SPREAD.items()
    }
    return pa.table(
        {
            "id": keys,
            "dt": days.take(pa.array(numbers * DAYS // count)),
            "ts": pa.array(np.ones(count, np.int64)),
            "amount": pa.array(rng.random(count)),
            "note": pc.binary_join_element_wise(keys, keys, keys, "/"),
            **spread,
            TOGETHER: _texts("v", numbers // 100),
        }
    )


def _texts(letter: str, numbers: Any) -> pa.Array:
    return pc.binary_join_element_wise(letter, pa.array(numbers).cast(pa.string()), "-")


def a_table(folder: Path, count: int) -> Table:
    load = rows(count)
    table = create_table(
        folder / f"orders {count}",
        load.schema,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(),
        table_type="MERGE_ON_READ",
        maintenance="off",
    )
    table.bulk_insert(load)
    for column in (*SPREAD, TOGETHER):
        table.create_index(f"by_{column}", on=column)
    compact_metadata(table.store)
    return table


def by_value(table: Table, column: str, value: str) -> pa.Table:
    return table.get_by(column, value, columns=SHOWN)


def by_filter(table: Table, column: str, value: str) -> pa.Table:
    return table.to_arrow(filters=[(column, "=", value)], columns=SHOWN)


def unpruned(table: Table, column: str, value: str) -> pa.Table:
    state = load_state(table.store)
    query = make_query(state, filters=[(column, "=", value)], columns=SHOWN)
    return pa.Table.from_batches(read_all(plan_read(state, query, NoIndex())), query.schema)


WAYS: dict[str, Callable[[Table, str, str], pa.Table]] = {
    "get_by": by_value,
    "to_arrow, filters": by_filter,
    "all file groups": unpruned,
}


def look_ups(tables: dict[int, Table]) -> Shown:
    shown = Shown(title="CPU milliseconds, with nothing remembered and then", title_justify="left")
    for name in ("rows", "found", "file groups opened", *WAYS):
        shown.add_column(name, justify="right")
    for count, table in tables.items():
        for column, size in {**SPREAD, TOGETHER: 100}.items():
            size = min(size, count)
            values = [f"v-{number}" for number in np.random.default_rng(1).integers(0, count // size, ROUNDS)]
            plan = table.plan(filters=[(column, "=", values[0])])
            groups = (
                f"{len(plan.slices)} of {DAYS}{'' if plan.asked[0].keys is not None else ', not by index'}"
            )
            found = f"{size:,}{' of one day' if column == TOGETHER else ''}"
            shown.add_row(
                f"{count:,}", found, groups, *(metered(table, column, values, way) for way in WAYS.values())
            )
    return shown


def metered(table: Table, column: str, values: list[str], way: Callable[[Table, str, str], pa.Table]) -> str:
    expected = len(unpruned(table, column, values[0]))
    set_memory_budget(0)
    set_memory_budget("256MiB")
    times = []
    for value in values:
        start = time.process_time()
        found = way(table, column, value)
        times.append(1000 * (time.process_time() - start))
        assert found.num_rows == expected, f"{column} = {value}: {found.num_rows} rows and not {expected}"
    return f"{times[0]:,.0f}, {np.median(times[1:]):,.0f}"


def main(arguments: list[str] | None = None, show: Callable[[Any], None] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000])
    parser.add_argument("--place", type=Path, help="where to make tables, if not in a temporary folder")
    chosen = parser.parse_args(arguments)
    show = show or Console(width=140).print
    folder = chosen.place or Path(tempfile.mkdtemp(prefix="secondary-reads-"))
    try:
        show(look_ups({count: a_table(folder, count) for count in chosen.rows}))
    finally:
        if chosen.place is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
