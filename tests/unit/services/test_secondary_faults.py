"""What a secondary index has wrong: found in both directions, named by index, value and key, and mended by one commit.

An entry that is missing is a row that a query by the index does not show.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import load_properties
from bucketlake.errors import (
    CommitConflictError,
    ConflictError,
    CorruptTableError,
    SchemaError,
    UnsupportedError,
)
from bucketlake.index import record_level, secondary
from bucketlake.index.room import fill_groups
from bucketlake.metadata.index_definitions import define
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition
from bucketlake.services import check_table, repair
from bucketlake.services.fsck import Kind
from bucketlake.services.value_faults import ValueFaultKind
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import ArrowRows, Operation, run_write
from contract.test_interleaved_keys import Hooked
from stand_ins.aging import age, copy_of
from stand_ins.kept_values import SecondaryIndexes

pytestmark = pytest.mark.shows("R11", "X7")

SCHEMA = pa.schema(
    [("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("city", pa.string()), ("n", pa.int32())]
)
Row = tuple[str, str, int, str | None, int | None]
KEPT = SecondaryIndexes()
_names = itertools.count()


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


FIRST = rows(
    ("a", "p0", 5, "Rome", 1), ("b", "p1", 5, None, 2), ("c", "p0", 5, "a$b\\", None), ("d", "p1", 5, "", 1)
)


def table_of(store: Store) -> Table:
    return Table(store, load_properties(store))


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[RecordIndex(shards=2), SimpleBuckets(1)], ids=["record", "buckets"])
def table(request: pytest.FixtureRequest, table_type: str) -> Table:
    return a_table(request.param, table_type)


def a_table(index: Any, table_type: str) -> Table:
    made = create_table(
        f"memory://secondary-faults-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        maintenance="off",
    )
    made.upsert(FIRST)
    return KEPT.of(made, "city", "n")


@contextmanager
def losing(which: Callable[[str], bool], *, column: str = "city") -> Iterator[None]:
    """Let what is recorded of some entries be lost."""
    whole = secondary.encode_secondary_log

    def lossy(instant: str, partition: str, came: pa.Array, gone: pa.Array) -> bytes:
        if partition.endswith(f"_{column}"):
            came, gone = (
                keys.filter(pa.array([not which(key) for key in keys.to_pylist()], pa.bool_()))
                for keys in (came, gone)
            )
        return whole(instant, partition, came, gone)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(secondary, "encode_secondary_log", lossy)
        patch.setattr(secondary, "prove_log", lambda held, keys: None)
        yield


def faults(table: Table) -> list[tuple[str, bool]]:
    return [(fault.entry, fault.is_there) for fault in table.plan_repair().work.values]


def kinds(table: Table) -> set[Kind]:
    return {finding.kind for finding in check_table(table.store).damage}


def check(table: Table) -> None:
    KEPT.check(table.store, "city", "n")
    report = check_table(table.store)
    assert report.damage == (), str(report)
    assert table.plan_repair().is_empty


def test_a_sound_table_has_no_findings(table: Table) -> None:
    check(table)
    assert "nothing to repair" in str(table.repair())


MISSING = rows(("e", "p0", 6, "Bonn", 3), ("b", "p1", 6, "Kiel", 2), ("f", "p1", 6, None, None))


def test_rows_without_entries_are_found_named_and_mended(table: Table) -> None:
    with losing(lambda entry: entry.endswith(("$e", "$f", "Kiel$b"))):
        table.upsert(MISSING)
    assert sorted(faults(table)) == [("\0$f", False), ("Bonn$e", False), ("Kiel$b", False)]
    (found,) = (one for one in check_table(table.store).damage if one.kind is Kind.MISSING_ENTRY)
    assert found.place == "secondary_index_by_city"
    assert found.text.startswith("3 entries. by_city lacks city = null of the key 'f' in p1/")
    plan = table.plan_repair()
    assert "3 values of a secondary index without its entry: record it" in str(plan)
    assert "by_city lacks city = 'Kiel' of the key 'b' in p1/" in str(plan)
    done = table.repair()
    assert done.value_counts == {ValueFaultKind.MISSING: 3, ValueFaultKind.SURPLUS: 0}
    assert done.mends == () and done.instant is not None
    check(table)
    table.rollback(done.instant)
    assert len(faults(table)) == 3, "a repair is taken back as any commit is"
    assert kinds(table) == {Kind.MISSING_ENTRY}
    table.repair()
    check(table)


def test_entries_without_rows_are_found_named_and_mended(table: Table) -> None:
    with losing(lambda entry: entry in ("Rome$a", "a\\$b\\\\$c", "\0$b")):
        table.upsert(rows(("a", "p0", 6, "Oslo", 1), ("b", "p1", 6, "Kiel", 2)))
        table.delete(["c"])
    assert sorted(faults(table)) == [("\0$b", True), ("Rome$a", True), ("a\\$b\\\\$c", True)]
    (found,) = (one for one in check_table(table.store).damage if one.kind is Kind.STALE_ENTRY)
    assert found.text.startswith("3 entries. by_city has city = null for the key 'b' in p1/")
    plan = str(table.plan_repair())
    assert "3 values of a secondary index with an entry and no such row: remove it" in plan
    assert "by_city has city = 'a$b\\\\' for the key 'c', which has no such row" in plan
    table.repair()
    check(table)
    table.upsert(rows(("c", "p0", 9, "a$b\\", None)))
    check(table)


def test_each_index_is_looked_at(table: Table) -> None:
    with losing(lambda _: True), losing(lambda _: True, column="n"):
        table.upsert(rows(("a", "p0", 6, "Oslo", 7)))
    found = {(fault.index, fault.entry, fault.is_there) for fault in table.plan_repair().work.values}
    assert found == {
        ("by_city", "Rome$a", True),
        ("by_city", "Oslo$a", False),
        ("by_n", "1$a", True),
        ("by_n", "7$a", False),
    }
    table.repair()
    check(table)


def test_an_entry_in_a_shard_that_is_not_its_own_is_found(table: Table) -> None:
    with pytest.MonkeyPatch.context() as patch:
        whole = secondary.SecondaryIndex.shard_of
        patch.setattr(
            secondary.SecondaryIndex,
            "shard_of",
            lambda self, partitions, keys: 1 - whole(self, partitions, keys),
        )
        table.upsert(rows(("e", "p0", 6, "Bonn", 3)))
    texts = [finding.text for finding in check_table(table.store).damage]
    assert any("1 entries are in shards that are not their own. Drop it" in text for text in texts)
    assert kinds(table) == {Kind.MISSING_ENTRY, Kind.STALE_ENTRY}
    table.repair()
    assert kinds(table) == {Kind.STALE_ENTRY}, "nobody looks there, so it harms nobody"


@pytest.mark.parametrize("same_value", [True, False])
def test_keys_with_several_rows_are_mended_together_with_their_values(
    table_type: str, same_value: bool
) -> None:
    table = a_table(RecordIndex(shards=2), table_type)
    with pytest.MonkeyPatch.context() as patch:  # the index loses the key, which is then inserted again
        whole = record_level.RecordLevelIndex.entry_files
        patch.setattr(
            record_level.RecordLevelIndex,
            "entry_files",
            lambda self, shard, entries, *, instant: whole(self, shard, entries.slice(0, 0), instant=instant),
        )
        patch.setattr("bucketlake.write.key_changes.compare", lambda *_: None)
        table.upsert(rows(("z", "p0", 7, "Bonn", 5)))
    with pytest.MonkeyPatch.context() as patch, losing(lambda entry: entry.endswith("$z")):
        patch.setattr(record_level, "fill_groups", lambda new, groups, **more: fill_groups(new, {}, **more))
        table.upsert(rows(("z", "p1", 3, "Bonn" if same_value else "Oslo", 5)))
    assert len(table.to_arrow()) == 6, "the key is there twice"
    table.repair()
    check(table)


def test_what_others_have_mended_is_passed_over(table: Table) -> None:
    with losing(lambda entry: entry in ("Bonn$e", "\0$f")):
        table.upsert(MISSING)
    plan = table.plan_repair()
    table.upsert(rows(("e", "p0", 7, "Oslo", 3)))  # Bonn is gone, which was not there
    done = table.run(plan)
    assert [fault.entry for fault in done.values] == ["\0$f"]
    assert done.passed_over == 1
    check(table)
    with pytest.raises(CommitConflictError, match="has moved on since this was planned"):
        table.run(plan)


@pytest.mark.shows("X2")
@pytest.mark.parametrize("case", ["a row that is changed", "a key that comes"])
def test_a_writer_whom_a_repair_overtakes_writes_again(table: Table, case: str) -> None:
    if case == "a row that is changed":
        with losing(lambda entry: entry == "Bonn$e"):
            table.upsert(MISSING)
        batch = rows(("e", "p0", 8, "Oslo", 3))
    else:
        with losing(lambda entry: entry == "Rome$a"):
            table.delete(["a"])
        batch = rows(("a", "p0", 8, "Rome", 1))
    overtaken = Hooked(batch, lambda: table_of(table.store).repair())
    run_write(overtaken, table.store, Operation.UPSERT)
    assert overtaken.runs == 2
    check(table)


@pytest.mark.shows("X2")
@pytest.mark.parametrize("case", ["a row that is changed", "a key that comes"])
def test_a_repair_that_a_writer_overtakes_looks_again(
    table: Table, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "a row that is changed":
        with losing(lambda entry: entry == "Bonn$e"):
            table.upsert(MISSING)
        batch = rows(("e", "p0", 8, "Oslo", 3))
    else:
        with losing(lambda entry: entry == "Rome$a"):
            table.delete(["a"])
        batch = rows(("a", "p0", 8, "Rome", 1))
    then = [lambda: run_write(ArrowRows(batch), table.store, Operation.UPSERT)]
    whole = repair.commit_metadata

    def late(*given: Any, **how: Any) -> Any:
        if then:
            then.pop()()
        return whole(*given, **how)

    monkeypatch.setattr(repair, "commit_metadata", late)
    with pytest.raises(CommitConflictError, match="has moved on"):
        table.repair()
    assert not then
    check(table)


@pytest.mark.parametrize("what", ["repair", "upsert"])
def test_what_is_cut_off_anywhere_is_whole_or_nothing(table: Table, what: str) -> None:
    if what == "repair":
        with losing(lambda entry: entry.endswith(("$e", "$f", "Kiel$b"))):
            table.upsert(MISSING)
    origin = copy_of(table.store)
    acts: dict[str, Callable[[Store], object]] = {
        "repair": lambda store: table_of(store).repair(),
        "upsert": lambda store: table_of(store).upsert(MISSING),
    }
    trial = FaultyStore(copy_of(origin))
    acts[what](trial)
    first = next(n for n, text in enumerate(trial.operations) if "put_new" in text)
    ends = set()
    for number in range(first, len(trial.operations) + 1, 17):
        store = copy_of(origin)
        with suppress(InjectedError, ConflictError):
            acts[what](FaultyStore(store, fails_at=number, is_dead=True))
        age(store)
        after = table_of(store)
        after.upsert(rows(("other", "p0", 1, "Ulm", 0)))
        is_done = not after.plan_repair().work.values if what == "repair" else after.to_arrow().num_rows == 7
        ends.add(is_done)
        if what == "repair":
            after.repair()
        check(after)
    assert ends == {True, False}


def redefined(table: Table, column: str) -> None:
    """Let an index be of another column: so it looks when somebody has renamed its own."""
    define(table.store, "secondary_index_by_city", SecondaryIndexDefinition("by_city", column).as_json())


def test_an_index_of_a_column_that_is_no_more_is_found_and_keeps_writers_out(table: Table) -> None:
    redefined(table, "town")
    before = table.to_arrow().num_rows
    with pytest.raises(SchemaError, match="the values of column 'town', which the table does not have"):
        table.upsert(MISSING)
    assert table.to_arrow().num_rows == before
    (found,) = check_table(table.store).damage
    assert (found.kind, found.place) == (Kind.OUT_OF_STEP, "secondary_index_by_city")
    with pytest.raises(CorruptTableError, match=r"no column 'town'.*beyond repair"):
        table.plan_repair()
    redefined(table, "city")
    table.upsert(MISSING)
    check(table)


def test_an_index_of_a_nested_column_is_none_that_we_keep(table: Table) -> None:
    redefined(table, "city.name")
    with pytest.raises(UnsupportedError, match="secondary_index_by_city"):
        table.upsert(MISSING)
