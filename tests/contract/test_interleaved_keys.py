"""Two writers, and keys of which an index says where they live: whoever commits second knows of the first.

Conflict rules of index-family.md 6.6. The second is the one that began later, or earlier: both are tried.
"""

from __future__ import annotations

import itertools
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConflictError, DynamicBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import load_properties
from bucketlake.services import check_table
from bucketlake.storage import Store
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.dynamic_check import buckets_of, check_buckets
from stand_ins.key_list import listing
from stand_ins.record_index_check import check_record_index

pytestmark = pytest.mark.shows("R1", "X2")

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
Row = tuple[str, str, int, str]
Write = tuple[Operation, pa.Table]
_names = itertools.count()


def upsert(*values: Row) -> Write:
    rows = [dict(zip(SCHEMA.names, value, strict=True)) for value in values]
    return Operation.UPSERT, pa.Table.from_pylist(rows, SCHEMA)


def overwrite(*values: Row) -> Write:
    return Operation.INSERT_OVERWRITE, upsert(*values)[1]


def delete(*keys: tuple[str, str]) -> Write:
    return Operation.DELETE, pa.table({"id": [k for k, _ in keys], "dt": [p for _, p in keys]})


def a_table(index: Any, table_type: str = "MERGE_ON_READ") -> Table:
    return create_table(
        f"memory://{__name__}-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        maintenance="off",
    )


class Hooked(ArrowRows):
    """Rows whose files are written, and then something happens, once, before they are committed."""

    def __init__(self, rows: pa.Table, then: Any) -> None:
        super().__init__(rows)
        self.then = [then]
        self.runs = 0

    def run(self, plan: Any) -> Any:
        done = super().run(plan)
        self.runs += 1
        if self.then:
            self.then.pop()()
        return done


def second(store: Store, ours: Write, theirs: Write, *, began_first: bool) -> int:
    """Let them commit while we write; return how often we had to. `began_first`: they began before us, or after."""

    def commit_theirs() -> None:
        run_write(ArrowRows(theirs[1]), store, theirs[0])

    if not began_first:
        rows = Hooked(ours[1], commit_theirs)
        run_write(rows, store, ours[0])
        return rows.runs
    is_written, may_commit = Event(), Event()

    def wait() -> None:
        is_written.set()
        assert may_commit.wait(60)

    def let_them() -> None:
        may_commit.set()
        thread.join(60)

    thread = Thread(target=lambda: run_write(Hooked(theirs[1], wait), store, theirs[0]))
    thread.start()
    assert is_written.wait(60)
    rows = Hooked(ours[1], let_them)
    run_write(rows, store, ours[0])
    return rows.runs


def check(table: Table, expected: set[Row]) -> None:
    found = Table(table.store, load_properties(table.store)).to_arrow(columns=SCHEMA.names).to_pylist()
    assert {(row["id"], row["dt"], row["ts"], row["v"]) for row in found} == expected
    assert check_record_index(table.store) == len(found)
    report = check_table(table.store)
    assert report.damage == (), str(report)


BEFORE = [("a", "p0", 1, "x"), ("b", "p0", 1, "x"), ("c", "p1", 1, "x")]
C = ("c", "p1", 1, "x")
B = ("b", "p0", 1, "x")
CASES: dict[str, tuple[Write, Write, set[Row]]] = {
    "the same new key": (
        upsert(("n", "p0", 5, "ours")),
        upsert(("n", "p1", 4, "theirs")),
        {*BEFORE, ("n", "p0", 5, "ours")},
    ),
    "update beside delete": (
        upsert(("a", "p0", 5, "ours")),
        delete(("a", "p0")),
        {B, C, ("a", "p0", 5, "ours")},
    ),
    "delete beside update": (delete(("a", "p0")), upsert(("a", "p0", 5, "theirs")), {B, C}),
    "update beside move": (
        upsert(("a", "p0", 5, "ours")),
        upsert(("a", "p1", 4, "theirs")),
        {B, C, ("a", "p0", 5, "ours")},
    ),
    "late update beside move": (
        upsert(("a", "p0", 3, "ours")),
        upsert(("a", "p1", 4, "theirs")),
        {B, C, ("a", "p1", 4, "theirs")},
    ),
    "move beside update": (
        upsert(("a", "p1", 5, "ours")),
        upsert(("a", "p0", 4, "theirs")),
        {B, C, ("a", "p1", 5, "ours")},
    ),
    "move beside another move": (
        upsert(("a", "p1", 5, "ours")),
        upsert(("a", "p2", 4, "theirs")),
        {B, C, ("a", "p1", 5, "ours")},
    ),
    "update of another key beside delete": (
        upsert(("b", "p0", 5, "ours")),
        delete(("a", "p0")),
        {("b", "p0", 5, "ours"), C},
    ),
    "delete beside delete": (delete(("a", "p0")), delete(("a", "p0"), ("b", "p0")), {C}),
    "insert beside overwrite": (
        upsert(("n", "p0", 5, "ours")),
        overwrite(("n", "p1", 4, "theirs")),
        {("a", "p0", 1, "x"), B, ("n", "p0", 5, "ours")},
    ),
    "update of a group that is gone": (
        upsert(("a", "p0", 5, "ours")),
        overwrite(("z", "p0", 4, "theirs")),
        {C, ("z", "p0", 4, "theirs"), ("a", "p0", 5, "ours")},
    ),
    "move from a group that is gone": (
        upsert(("a", "p1", 5, "ours")),
        overwrite(("z", "p0", 4, "theirs")),
        {C, ("z", "p0", 4, "theirs"), ("a", "p1", 5, "ours")},
    ),
    "overwrite beside update": (
        overwrite(("z", "p0", 5, "ours")),
        upsert(("a", "p0", 4, "theirs")),
        {C, ("z", "p0", 5, "ours")},
    ),
    "overwrite beside a move out": (
        overwrite(("z", "p0", 5, "ours")),
        upsert(("a", "p1", 4, "theirs")),
        {C, ("a", "p1", 4, "theirs"), ("z", "p0", 5, "ours")},
    ),
}


@pytest.mark.parametrize("began_first", [False, True], ids=["they began later", "they began first"])
@pytest.mark.parametrize("case", CASES)
def test_the_second_knows_of_the_first(case: str, began_first: bool) -> None:
    ours, theirs, expected = CASES[case]
    table = a_table(RecordIndex(shards=2))
    run_write(ArrowRows(upsert(*BEFORE)[1]), table.store, Operation.UPSERT)
    assert second(table.store, ours, theirs, began_first=began_first) == 2
    check(table, expected)


@pytest.mark.parametrize("began_first", [False, True], ids=["they began later", "they began first"])
def test_two_who_only_update_need_not_wait_for_each_other(began_first: bool) -> None:
    table = a_table(RecordIndex(shards=2))
    run_write(ArrowRows(upsert(*BEFORE)[1]), table.store, Operation.UPSERT)
    ours, theirs = upsert(("a", "p0", 5, "ours")), upsert(("a", "p0", 4, "theirs"), ("b", "p0", 4, "theirs"))
    assert second(table.store, ours, theirs, began_first=began_first) == 1
    check(table, {C, ("a", "p0", 5, "ours"), ("b", "p0", 4, "theirs")})


@pytest.mark.parametrize("began_first", [False, True], ids=["they began later", "they began first"])
def test_beside_buckets_too_deletes_and_updates_of_a_group_do_not_pass_each_other(began_first: bool) -> None:
    plain, listed = (a_table(SimpleBuckets(1)) for _ in range(2))
    for table, runs in ((plain, 1 if began_first else 2), (listing(listed), 2)):
        run_write(ArrowRows(upsert(*BEFORE)[1]), table.store, Operation.UPSERT)
        ours, theirs = upsert(("a", "p0", 5, "ours")), delete(("b", "p0"))
        assert second(table.store, ours, theirs, began_first=began_first) == runs


# ------------------------------------------------------------------------------------------------- dynamic buckets

DYNAMIC_CASES: dict[str, tuple[Write, Write, set[Row], dict[str, int]]] = {
    "the same new key": (
        upsert(("n", "p0", 5, "ours")),
        upsert(("n", "p0", 4, "theirs")),
        {*BEFORE, ("n", "p0", 5, "ours")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
    "the same new key in a new partition": (
        upsert(("n", "p9", 4, "ours")),
        upsert(("n", "p9", 5, "theirs")),
        {*BEFORE, ("n", "p9", 5, "theirs")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
    "the same bucket opened for other keys": (
        upsert(("m", "p9", 4, "ours")),
        upsert(("n", "p9", 5, "theirs")),
        {*BEFORE, ("m", "p9", 4, "ours"), ("n", "p9", 5, "theirs")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
    "the next bucket opened for other keys": (
        upsert(("m", "p1", 4, "ours"), ("o", "p1", 4, "ours"), ("q", "p1", 4, "ours")),
        upsert(("n", "p1", 5, "theirs"), ("r", "p1", 5, "theirs"), ("s", "p1", 5, "theirs")),
        {
            *BEFORE,
            *((key, "p1", 4, "ours") for key in "moq"),
            *((key, "p1", 5, "theirs") for key in "nrs"),
        },
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
    "a bucket that is there, and other keys": (
        upsert(("m", "p1", 4, "ours")),
        upsert(("n", "p1", 5, "theirs")),
        {*BEFORE, ("m", "p1", 4, "ours"), ("n", "p1", 5, "theirs")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 1},
    ),
    "a bucket that takes the keys of both": (
        upsert(("m", "p1", 4, "ours"), ("c", "p1", 4, "ours")),
        upsert(("n", "p1", 5, "theirs"), ("c", "p1", 5, "theirs")),
        {("a", "p0", 1, "x"), B, ("m", "p1", 4, "ours"), ("n", "p1", 5, "theirs"), ("c", "p1", 5, "theirs")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 1},
    ),
    "a bucket that takes the keys of one": (
        upsert(("m", "p1", 4, "ours"), ("o", "p1", 4, "ours")),
        upsert(("n", "p1", 5, "theirs")),
        {*BEFORE, *((key, "p1", 4, "ours") for key in "mo"), ("n", "p1", 5, "theirs")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
    "a full bucket, of which both have keys": (
        upsert(("a", "p0", 4, "ours"), ("m", "p0", 4, "ours")),
        upsert(("a", "p0", 5, "theirs"), ("b", "p0", 5, "theirs")),
        {C, ("a", "p0", 5, "theirs"), ("b", "p0", 5, "theirs"), ("m", "p0", 4, "ours")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 1},
    ),
    "a new key beside one that goes": (
        upsert(("m", "p1", 4, "ours")),
        delete(("c", "p1")),
        {("a", "p0", 1, "x"), B, ("m", "p1", 4, "ours")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
    "a partition that is replaced": (
        upsert(("a", "p0", 4, "ours"), ("m", "p0", 4, "ours")),
        overwrite(("z", "p0", 5, "theirs")),
        {C, ("z", "p0", 5, "theirs"), ("a", "p0", 4, "ours"), ("m", "p0", 4, "ours")},
        {"COPY_ON_WRITE": 2, "MERGE_ON_READ": 2},
    ),
}


@pytest.mark.shows("D9")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("began_first", [False, True], ids=["they began later", "they began first"])
@pytest.mark.parametrize("case", DYNAMIC_CASES)
def test_a_key_has_one_bucket_and_a_bucket_one_file_group_whoever_opens_it(
    case: str, began_first: bool, table_type: str
) -> None:
    ours, theirs, expected, runs = DYNAMIC_CASES[case]
    table = a_table(DynamicBuckets(assigners=1, keys_per_bucket=3), table_type)
    run_write(ArrowRows(upsert(*BEFORE)[1]), table.store, Operation.UPSERT)
    assert second(table.store, ours, theirs, began_first=began_first) == runs[table_type]
    check(table, expected)
    check_buckets(table.store)
    assert {bucket for partition, bucket in buckets_of(table.store) if partition == "p1"} <= {0, 1, 2}


@pytest.mark.shows("D2", "D9")
def test_a_bucket_takes_no_more_keys_of_several_writers_than_of_one() -> None:
    table = a_table(DynamicBuckets(assigners=1, keys_per_bucket=4))
    run_write(ArrowRows(upsert(*BEFORE)[1]), table.store, Operation.UPSERT)

    def others() -> None:
        for key in "no":
            run_write(ArrowRows(upsert((key, "p1", 5, "theirs"))[1]), table.store, Operation.UPSERT)

    rows = Hooked(upsert(("m", "p1", 4, "ours"), ("c", "p1", 4, "ours"))[1], others)
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 1, "with all of them it is just full"
    rows = Hooked(upsert(("q", "p0", 4, "ours"))[1], lambda: [*map(one_more, "rs")])
    table_of_p0 = {"q", "r", "s", "a", "b"}

    def one_more(key: str) -> None:
        run_write(ArrowRows(upsert((key, "p0", 5, "theirs"))[1]), table.store, Operation.UPSERT)

    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 2, "each of them would fit"
    assert check_buckets(table.store) == {("p0", 0): 4, ("p0", 1): 1, ("p1", 0): 4}
    assert {
        key for keys in map(buckets_of(table.store).get, [("p0", 0), ("p0", 1)]) for key in keys or ()
    } == (table_of_p0)
    assert check_record_index(table.store) == 9


@pytest.mark.shows("D9")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_four_writers_of_the_same_new_keys_leave_each_in_one_bucket(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=5), table_type)
    faults: list[BaseException] = []

    def write(writer: int) -> None:
        for batch in range(3):
            rows = [
                (f"k{n}", "p0", 10 * batch + writer, f"{writer} {n}") for n in range(4 * batch, 4 * batch + 8)
            ]
            try:
                run_write(ArrowRows(upsert(*rows)[1]), table.store, Operation.UPSERT)
            except BaseException as fault:  # raised below, by whoever waits
                faults.append(fault)

    threads = [Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert all(isinstance(fault, ConflictError) for fault in faults), faults
    expected = {(f"k{n}", "p0", 10 * min(2, n // 4) + 3, f"3 {n}") for n in range(16)}
    if not faults:  # who was too late six times has given up, and says so
        check(table, expected)
    assert check_record_index(table.store) == sum(check_buckets(table.store).values())
    assert check_table(table.store).damage == ()
