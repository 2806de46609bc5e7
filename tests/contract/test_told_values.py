"""An index of values learns of every write which merged rows have another value: by cases, and between writers.

Each case is tried with a stand-in, which is easy to read, and with Hudi's secondary index.
"""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import BucketEngine, load_properties
from bucketlake.errors import SchemaError
from bucketlake.index import record_level
from bucketlake.index.room import fill_groups
from bucketlake.testing.faulty_store import FaultyStore
from bucketlake.write import ArrowRows, Operation, run_write
from contract.test_interleaved_keys import second
from stand_ins.kept_values import BOTH, KeptValues

pytestmark = pytest.mark.shows("R11")

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
INDEXES = [RecordIndex(shards=2), SimpleBuckets(1)]
_names = itertools.count()
Row = tuple[str, str, int, str | None]


def rows(*values: Row, deleted: bool = False) -> pa.Table:
    found = [dict(zip(SCHEMA.names, (*value, deleted), strict=True)) for value in values]
    return pa.Table.from_pylist(found, SCHEMA)


def a_table(
    table_type: str, index: Any, kept: KeptValues | None, *columns: str, ordering: str | None = "ts"
) -> Table:
    made = create_table(
        f"memory://told-values-contract-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=index,
        table_type=table_type,
        maintenance="off",
    )
    return made if kept is None else kept.of(made, *(columns or ("city",)))


@pytest.fixture(params=TYPES)
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=BOTH)
def kept(request: pytest.FixtureRequest) -> KeptValues:
    return BOTH[request.param]


@pytest.fixture(params=INDEXES, ids=["record", "buckets"])
def table(request: pytest.FixtureRequest, table_type: str, kept: KeptValues) -> Table:
    made = a_table(table_type, request.param, kept)
    made.upsert(rows(("a", "p0", 5, "Rome"), ("b", "p0", 5, None), ("c", "p0", 5, "Oslo")))
    return made


def told(kept: KeptValues, table: Table, done: Any) -> tuple[set[str], set[str]]:
    kept.check(table.store, "city")
    return (set(), set()) if done.instant is None else kept.told(table.store, "city", done.instant)


def entry(value: str | None, key: str) -> str:
    return f'["{value}", "{key}"]' if value is not None else f'[null, "{key}"]'


CASES: dict[str, tuple[pa.Table, set[str], set[str]]] = {
    "another value": (rows(("a", "p0", 6, "Bonn")), {entry("Rome", "a")}, {entry("Bonn", "a")}),
    "the same value": (rows(("a", "p0", 6, "Rome")), set(), set()),
    "null": (rows(("a", "p0", 6, None)), {entry("Rome", "a")}, {entry(None, "a")}),
    "a value for null": (rows(("b", "p0", 6, "Bonn")), {entry(None, "b")}, {entry("Bonn", "b")}),
    "null for null": (rows(("b", "p0", 6, None)), set(), set()),
    "a late row": (rows(("a", "p0", 4, "Bonn")), set(), set()),
    "a soft delete": (rows(("a", "p0", 6, "Bonn"), deleted=True), {entry("Rome", "a")}, set()),
    "a late soft delete": (rows(("a", "p0", 4, "Bonn"), deleted=True), set(), set()),
    "a new key": (rows(("d", "p0", 1, "Bonn")), set(), {entry("Bonn", "d")}),
    "two versions": (
        rows(("a", "p0", 8, "Bonn"), ("a", "p0", 7, "Kiel")),
        {entry("Rome", "a")},
        {entry("Bonn", "a")},
    ),
    "two versions, one of which changes nothing": (
        rows(("a", "p0", 7, "Kiel"), ("a", "p0", 8, "Rome")),
        set(),
        set(),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_an_upsert_tells_which_values_went_and_came(table: Table, kept: KeptValues, case: str) -> None:
    batch, went, came = CASES[case]
    assert told(kept, table, table.upsert(batch)) == (went, came)


def test_a_delete_and_a_new_insert_tell_values(table: Table, kept: KeptValues) -> None:
    assert told(kept, table, table.delete(pa.table({"id": ["a"], "dt": ["p0"]}))) == (
        {entry("Rome", "a")},
        set(),
    )
    assert told(kept, table, table.delete(pa.table({"id": ["a"], "dt": ["p0"]}))) == (set(), set())
    assert told(kept, table, table.upsert(rows(("a", "p0", 9, "Rome")))) == (set(), {entry("Rome", "a")})


def test_an_overwrite_and_a_dropped_partition_tell_values(table: Table, kept: KeptValues) -> None:
    table.upsert(rows(("d", "p1", 5, "Kiel"), ("c", "p0", 6, "Bonn")))
    done = table.overwrite(rows(("a", "p0", 1, "Rome"), ("b", "p0", 1, "Rome")))
    assert told(kept, table, done) == (
        {entry(None, "b"), entry("Bonn", "c")},
        {entry("Rome", "b")},
    )
    assert told(kept, table, table.delete_partitions(["p1"])) == ({entry("Kiel", "d")}, set())


def test_a_row_that_moves_tells_a_value_that_is_another(table_type: str, kept: KeptValues) -> None:
    table = a_table(table_type, RecordIndex(shards=2), kept)
    table.upsert(rows(("a", "p0", 5, "Rome"), ("b", "p0", 5, "Rome"), ("c", "p0", 5, "Rome")))
    done = table.upsert(rows(("a", "p1", 6, "Rome"), ("b", "p1", 6, "Oslo"), ("c", "p1", 4, "Kiel")))
    assert done.moved == 2
    assert told(kept, table, done) == ({entry("Rome", "b")}, {entry("Oslo", "b")})


def test_services_that_move_rows_tell_nothing(table: Table, kept: KeptValues) -> None:
    table.upsert(rows(("a", "p0", 6, "Bonn")))
    before = kept.files(table.store, "city")
    table.compact(delta_commits=1) if table.properties.table_type == "MERGE_ON_READ" else None
    table.cluster(by="city")
    if table.properties.engine == BucketEngine.SIMPLE:
        assert table.buckets.overwrite("p.,3", bucket_number=3) is not None
    assert kept.files(table.store, "city") == before
    kept.check(table.store, "city")
    assert told(kept, table, table.upsert(rows(("a", "p0", 7, "Rome")))) == (
        {entry("Bonn", "a")},
        {entry("Rome", "a")},
    )


def test_a_column_that_old_files_lack_was_null_in_them(table: Table, kept: KeptValues) -> None:
    wide = rows(("a", "p0", 6, "Rome")).append_column("zone", pa.array(["north"]))
    table.upsert(wide, merge_schema=True)
    table = kept.of(Table(table.store, load_properties(table.store)), "zone")
    both = rows(("b", "p0", 6, None), ("c", "p0", 6, "Oslo"))
    done = table.upsert(both.append_column("zone", pa.array(["south", None], pa.string())))
    assert done.instant is not None
    assert kept.told(table.store, "zone", done.instant) == ({entry(None, "b")}, {entry("south", "b")})
    done = table.overwrite(wide)
    assert done.instant is not None
    assert kept.told(table.store, "zone", done.instant)[0] == {entry("south", "b"), entry(None, "c")}


def test_a_column_with_an_index_widens_only_where_its_values_are_spelled_the_same(
    table_type: str, kept: KeptValues
) -> None:
    schema = pa.schema([("id", pa.string()), ("n", pa.int32()), ("x", pa.float32())])
    made = create_table(
        f"memory://told-values-contract-{next(_names)}",
        schema,
        key="id",
        index=SimpleBuckets(1),
        table_type=table_type,
        maintenance="off",
    )
    table = kept.of(made, "n", "x")
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 2], "x": [1.5, 2.5]}, schema))
    wide = schema.set(1, pa.field("n", pa.int64()))
    table.upsert(pa.table({"id": ["a", "b"], "n": [1, 1 << 40], "x": [1.5, None]}, wide), merge_schema=True)
    kept.check(table.store, "n", "x")
    wider = wide.set(2, pa.field("x", pa.float64()))
    with pytest.raises(SchemaError, match="'x' is float in the table and would become double"):
        table.upsert(pa.table({"id": ["a"], "n": [1], "x": [0.1]}, wider), merge_schema=True)
    kept.check(table.store, "n", "x")


def test_without_an_index_of_values_no_more_is_read_than_before(table_type: str, kept: KeptValues) -> None:
    """Merge-on-read of looked-up keys reads no data file at all; with an index of values it has to."""
    made = {}
    for columns in ((), ("city",)):
        table = a_table(table_type, RecordIndex(shards=1), kept if columns else None)
        table.upsert(rows(("a", "p0", 5, "Rome")))
        counted = FaultyStore(table.store)
        Table(counted, load_properties(table.store)).upsert(rows(("a", "p0", 6, "Oslo")))
        made[columns] = [text for text in counted.operations if " p0/" in text and text.startswith("read")]
    if table_type == "MERGE_ON_READ":
        assert made[()] == []
        assert made[("city",)] != []
    else:
        assert len(made[()]) == len(made[("city",)])


@pytest.mark.parametrize("same_value", [True, False])
def test_a_repair_that_deletes_rows_tells_their_values(
    table_type: str, kept: KeptValues, same_value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(table_type, RecordIndex(shards=2), kept)
    table.upsert(rows(("z", "p0", 5, "Kiel")))
    with monkeypatch.context() as patch:  # the index loses the key, which is then inserted again
        whole = record_level.RecordLevelIndex.entry_files
        patch.setattr(
            record_level.RecordLevelIndex,
            "entry_files",
            lambda self, shard, entries, *, instant: whole(self, shard, entries.slice(0, 0), instant=instant),
        )
        patch.setattr("bucketlake.write.key_changes.compare", lambda *_: None)
        table.upsert(rows(("a", "p0", 7, "Rome")))
    monkeypatch.setattr(record_level, "fill_groups", lambda new, groups, **more: fill_groups(new, {}, **more))
    table.upsert(rows(("a", "p1", 3, "Rome" if same_value else "Oslo")))
    assert len(table.to_arrow()) == 3, "the key is there twice"
    done = table.repair()
    assert done.instant is not None
    kept.check(table.store, "city", is_exact=False)
    table.upsert(rows(("a", "p0", 9, "Bonn")))
    kept.check(table.store, "city", is_exact=False)


# Two writers -----------------------------------------------------------------


def _writes(ours: str | None, theirs: str | None) -> list[tuple[Operation, pa.Table]]:
    return [
        (Operation.UPSERT, rows(("a", "p0", 7, ours))),
        (Operation.UPSERT, rows(("a", "p0", 6, theirs), ("c", "p0", 6, theirs))),
    ]


@pytest.mark.shows("X2")
@pytest.mark.parametrize("began_first", [False, True], ids=["they began later", "they began first"])
@pytest.mark.parametrize("swapped", [False, True], ids=["ours is newer", "theirs is newer"])
@pytest.mark.parametrize("values", [("Bonn", "Kiel"), ("Rome", "Kiel"), (None, "Kiel")])
def test_who_commits_second_tells_what_it_changed_of_what_the_first_left(
    table: Table, kept: KeptValues, began_first: bool, swapped: bool, values: tuple[str | None, str]
) -> None:
    ours, theirs = reversed(_writes(*values)) if swapped else _writes(*values)
    assert second(table.store, ours, theirs, began_first=began_first) == 2
    kept.check(table.store, "city")
    run_write(ArrowRows(rows(("a", "p0", 9, "End"), ("c", "p0", 9, "End"))), table.store, Operation.UPSERT)
    kept.check(table.store, "city")


@pytest.mark.shows("X2")
@pytest.mark.parametrize("began_first", [False, True], ids=["they began later", "they began first"])
def test_without_ordering_values_too(table_type: str, kept: KeptValues, began_first: bool) -> None:
    for index in INDEXES:
        table = a_table(table_type, index, kept, ordering=None)
        table.upsert(rows(("a", "p0", 5, "Rome"), ("c", "p0", 5, "Rome")))
        assert second(table.store, *_writes("Bonn", "Kiel"), began_first=began_first) == 2
        kept.check(table.store, "city")
