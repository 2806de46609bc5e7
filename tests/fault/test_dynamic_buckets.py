"""What is done to dynamic buckets, cut off at every request: a key has one bucket, and no bucket is too full.

Moments are drawn from all; `make soak` and BUCKETLAKE_MOMENTS=all try every one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bucketlake import DynamicBuckets, Table, set_index_cache
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.errors import BucketlakeError
from bucketlake.services import check_table
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import TableSpec, create, job
from fault.test_every_operation import IS_WIDE
from plugins.soak import shuffled, within
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.dynamic_check import check_buckets
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.record_index_check import check_record_index

pytestmark = [pytest.mark.thorough, pytest.mark.shows("D1", "D9", "X2")]

MOMENTS_MAX = 3
SOAK_SECONDS = 6.0
INDEX = DynamicBuckets(assigners=2, keys_per_bucket=4)
Act = Callable[[Table], object]
ACTS: dict[str, Act] = {
    "upsert that fills buckets and opens others": lambda table: table.upsert(orders(range(8, 24), "more", 3)),
    "delete": lambda table: table.delete([1, 2, 3]),
    "overwrite": lambda table: table.overwrite(orders(range(20, 30), "other", 3)),
    "delete of a partition": lambda table: table.delete_partitions(["p0"]),
    "rollback": lambda table: table.rollback(table.timeline()[-1].requested),
    "rebuild of the index": lambda table: table.metadata.rebuild(),
}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Keep what is kept of indexes, and wait for nobody."""
    monkeypatch.setattr(job, "sleep", lambda seconds: None)
    monkeypatch.setitem(table_lock.__wrapped__.__kwdefaults__, "wait_seconds", 0.05)  # type: ignore[attr-defined]
    set_index_cache("1MB", tmp_path / "kept")
    yield
    set_index_cache(0)


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


def rows_of(store: Store) -> tuple[tuple[Any, ...], ...]:
    rows = table_of(store).to_arrow(columns=SCHEMA.names).to_pylist()
    return tuple(sorted(tuple(row.values()) for row in rows))


def made(table_type: str) -> Bucket:
    store = Bucket()
    create(store, TableSpec(
        name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=INDEX,
        table_type=table_type,
    ))  # fmt: skip
    build_metadata(store)
    for number in range(2):
        table_of(store).upsert(orders(range(6 * number, 6 * number + 8), f"batch {number}", number))
    return store


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("name", ACTS)
def test_cut_off_at_any_request_all_of_it_is_there_or_nothing(
    name: str, table_type: str, crash_points: dict[str, Counter[str]]
) -> None:
    before = made(table_type)
    whole = FaultyStore(copy_of(before))
    ACTS[name](table_of(whole))
    outcomes = rows_of(before), rows_of(whole.inner)
    faults = [
        {"fails_at": number, "is_dead": is_dead, "took_effect": took_effect}
        for number, operation in enumerate(whole.operations, start=1)
        for is_dead in (True, False)
        for took_effect in (False, True)
        if operation.split()[0] not in {"list", "stat", "read"}
    ]
    drawn = shuffled(faults, f"{name} {table_type}")
    tried = 0
    for fault in within(SOAK_SECONDS, drawn) if IS_WIDE else drawn[:MOMENTS_MAX]:
        store = copy_of(before)
        with suppress(InjectedError, BucketlakeError):
            ACTS[name](table_of(FaultyStore(store, **fault)))
        try:
            check_aftermath(store, outcomes)
        except Exception as error:
            error.add_note(f"{fault}: {whole.operations[fault['fails_at'] - 1]}")
            raise
        tried += 1
    crash_points.setdefault("dynamic buckets", Counter())[f"{name}, {table_type}"] += tried


def check_aftermath(store: Bucket, outcomes: tuple[Any, ...]) -> None:
    for _ in range(2):  # the second finds the markers that the first one's rollback left
        age(store)
        recover(store, load_properties(store))
    age(store)
    table_of(store).metadata.build()  # what a rebuild that was cut off has left
    assert rows_of(store) in outcomes
    check_sound(store)
    table_of(store).upsert(orders(range(4, 40), "after", 9))
    assert len(rows_of(store)) >= 36
    check_sound(store)


def check_sound(store: Store) -> None:
    assert check_record_index(store) == sum(check_buckets(store).values())
    report = check_table(store)
    assert report.damage == (), str(report)
