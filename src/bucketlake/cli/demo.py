"""`bucketlake demo`: a table is made, written, read and taken back, in a temporary folder or one that is named."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from bucketlake.cli.app import app
from bucketlake.cli.screen import say
from bucketlake.errors import ConfigError, ProofError
from bucketlake.index import SimpleBuckets
from bucketlake.table import Table, create_table

ORDERS = 10_000
DAYS = [f"2026-06-{day}" for day in range(16, 19)]


@app.command(epilog="Example: bucketlake demo --keep /tmp/orders; bucketlake layout /tmp/orders")
def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="FOLDER", help="Make the table here, and leave it there.")
    ] = None,
) -> None:
    """Make a table of orders, upsert, delete, roll back, and check every row. Needs no Java."""
    if keep is not None:
        if keep.exists():
            raise ConfigError(f"{keep} is there already. Name a folder that is not.")
        _show(keep)
        say(f"The table is in {keep}. Look at it: bucketlake describe {keep}")
        return
    with tempfile.TemporaryDirectory() as folder:
        _show(Path(folder) / "orders")


def _show(path: Path) -> None:
    chance = random.Random(18)
    orders = create_table(
        path,
        "id STRING, day STRING, ts BIGINT, amount DOUBLE",
        key="id",
        partition="day",
        ordering="ts",
        index=SimpleBuckets(2),
    )
    truth: dict[str, dict[str, object]] = {}
    rows = [_order(number, 1, chance) for number in range(ORDERS)]
    say(f"$ load {ORDERS:,} orders")
    say(str(orders.bulk_insert(rows)))
    truth |= {str(row["id"]): row for row in rows}
    changes = [
        {**truth[f"o-{number}"], "ts": 2, "amount": 1.0} for number in chance.sample(range(ORDERS), 500)
    ]
    new = [_order(ORDERS + number, 1, chance) for number in range(500)]
    say("\n$ upsert 500 changes and 500 new orders")
    say(str(orders.upsert(changes + new)))
    truth |= {str(row["id"]): row for row in changes + new}
    say("\n$ delete 100 orders, then take that back")
    deleted = orders.delete([f"o-{number}" for number in range(100)])
    say(str(deleted))
    assert deleted.instant is not None
    orders.rollback(deleted.instant)
    _check(orders, truth)
    say(f"\nEvery one of {len(truth):,} rows is as it should be, and fsck finds nothing wrong.")


def _order(number: int, ts: int, chance: random.Random) -> dict[str, object]:
    return {
        "id": f"o-{number}",
        "day": chance.choice(DAYS),
        "ts": ts,
        "amount": round(chance.random() * 100, 2),
    }


def _check(orders: Table, truth: dict[str, dict[str, object]]) -> None:
    found = orders.to_arrow(meta_columns=False).to_pylist()
    if {row["id"]: row for row in found} != truth or len(found) != len(truth):
        raise ProofError("the rows of the demo's table are not those that were written. Please report this.")
    report = orders.fsck()
    if report.findings:
        raise ProofError(f"fsck finds faults in the demo's table: {report}. Please report this.")
