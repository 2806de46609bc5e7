"""Clicks that arrive in files, one for each batch of a query; and what a table holds once it has had some of them.

Versions of a key come in any order, in one file and across files. Of the keys that are deleted now and then the newest
version comes last: where a base file has lost a row, nobody knows how new its deletion was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from stand_ins.clicks import SCHEMA

DDL = "id BIGINT, dt STRING, ts BIGINT, batch BIGINT, _hoodie_is_deleted BOOLEAN"
"""The same for Spark."""
KEYS = 120
_DELETED_ONES = 4
"""Every fourth key is deleted now and then."""
_BY_BATCH = 1_000_000


def put_files(folder: Path, seed: int, *, batches: int, rows: int, moves: bool) -> None:
    """Write the files, in the order of their times, which Spark follows. `moves`: keys change their partition."""
    folder.mkdir(parents=True)
    chance = Random(seed)
    for number in range(batches):
        put_file(folder, number, pa.Table.from_pylist(_rows(chance, number, batches, rows, moves), SCHEMA))


def put_file(folder: Path, number: int, rows: pa.Table) -> None:
    part = folder / f".{number}.part"
    pq.write_table(rows, part)
    os.utime(part, (1_700_000_000 + number, 1_700_000_000 + number))
    part.rename(folder / f"{number:04d}.parquet")


def _rows(chance: Random, number: int, batches: int, count: int, moves: bool) -> list[dict[str, Any]]:
    found = []
    times = chance.sample(range(_BY_BATCH), count)
    for key, time in zip(chance.choices(range(KEYS), k=count), times, strict=True):
        can_go = key % _DELETED_ONES == 0
        partition = chance.randrange(3) if moves else key % 3
        found.append(
            {
                "id": key,
                "dt": f"p{partition}",
                "ts": time + _BY_BATCH * (number if can_go else chance.randrange(batches)) * 2,
                "batch": number,
                "_hoodie_is_deleted": can_go and chance.random() < 0.4,
            }
        )
    # A row of no other batch: it tells that the batch is there.
    found.append(
        {"id": 1000 + number, "dt": "p0", "ts": number, "batch": number, "_hoodie_is_deleted": False}
    )
    return found


def newest_rows(files: Sequence[Path]) -> list[tuple[Any, ...]]:
    """What a table holds that has had these files, as DuckDB finds it: of each key the newest row, if it is there."""
    if not files:
        return []
    found = duckdb.sql(
        "SELECT id, dt, ts, batch FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY ts DESC) AS n"
        f" FROM read_parquet({list(map(str, files))!r})) WHERE n = 1 AND NOT _hoodie_is_deleted ORDER BY id"
    )
    return found.fetchall()


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


def rows_in(files: Sequence[Path]) -> list[int]:
    return [pq.read_metadata(path).num_rows for path in files]
