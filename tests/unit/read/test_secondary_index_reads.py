"""Reads by secondary indexes: they open the file groups of the rows with a value, and never miss a row for it."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError, FilterError
from bucketlake.index import IndexValue, NoIndex, resolve_index, secondary_indexes_of
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.read import make_query, plan_read, read_by_keys
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.sql.frames import table_of
from bucketlake.state import TableState, load_state
from bucketlake.storage import FileStat
from bucketlake.testing.faulty_store import FaultyStore
from stand_ins.made_index import with_secondary_index

pytestmark = pytest.mark.shows("R11")

GOLDEN = Path(__file__).parents[2] / "golden"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("city", pa.string()),
        ("size", pa.int64()),
        ("weight", pa.float64()),
    ]
)
BOTH = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
KINDS = pytest.mark.parametrize("index", [RecordIndex(shards=2), SimpleBuckets(2)], ids=["record", "buckets"])
OSLO = [("city", "=", "Oslo")]
_names = itertools.count()


def rows(keys: Any, partition: str | None = None, ts: int = 1, city: str | None = "") -> pa.Table:
    """Rows of these keys in four partitions, unless one is named; every tenth is in Oslo, or all are in `city`."""
    values = [
        {
            "id": n,
            "dt": partition or f"p{n % 4}",
            "ts": ts,
            "city": ("Oslo" if n % 10 == 0 else None if n == 7 else f"c{n}") if city == "" else city,
            "size": n // 2,
            "weight": n / 2,
        }
        for n in keys
    ]
    return pa.Table.from_pylist(values, SCHEMA)


def made(index: IndexValue | None = None, table_type: str = "MERGE_ON_READ", *, shards: int = 2) -> Table:
    table = create_table(
        f"memory://secondary-reads-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index or RecordIndex(shards=2),
        table_type=table_type,
        maintenance="off",
    )
    if isinstance(index, SimpleBuckets):
        table.metadata.build(record_index=True)
    table.upsert(rows(range(40)))
    table = with_secondary_index(table, "by_city", "city", shards=shards)
    return with_secondary_index(table, "by_size", "size", shards=shards)


def ids(found: pa.Table) -> list[int]:
    return sorted(found["id"].to_pylist())


def partitions_of(table: Table, *filters: Any) -> list[str]:
    return sorted({part.partition for part in table.plan(filters=list(filters)).slices})


@BOTH
@KINDS
def test_a_read_by_a_value_opens_the_file_groups_of_its_rows(index: IndexValue, table_type: str) -> None:
    table = made(index, table_type)
    everything = len(table.plan().slices)
    assert partitions_of(table, *OSLO) == ["p0", "p2"]
    assert partitions_of(table, ("city", "is null")) == ["p3"]
    assert partitions_of(table, ("city", "in", ["c1", "c5", "nowhere", None])) == ["p1"]
    assert partitions_of(table, ("size", "=", 4)) == ["p0", "p1"]
    assert partitions_of(table, ("city", "=", "nowhere")) == partitions_of(table, ("city", "in", [])) == []
    assert partitions_of(table, *OSLO, ("size", "in", [5, 4])) == ["p2"], "10 alone is in both"
    assert partitions_of(table, *OSLO, ("dt", "=", "p0")) == ["p0"]
    assert partitions_of(table, *OSLO, ("dt", "=", "p1")) == []
    assert len(table.plan(filters=[("city", ">", "A")]).slices) == everything
    assert len(table.plan(filters=[("city", "!=", "Oslo")]).slices) == everything
    assert ids(table.to_arrow(filters=OSLO)) == [0, 10, 20, 30]
    assert ids(table.get_by("city", "Oslo")) == [0, 10, 20, 30]
    assert ids(table.get_by("city", ["Oslo", "c1", None])) == [0, 1, 7, 10, 20, 30]
    assert ids(table.get_by("city", None)) == [7]
    assert ids(table.get_by("size", [4])) == [8, 9]
    assert table.get_by("city", []).num_rows == table.get_by("city", "nowhere").num_rows == 0


def test_rows_are_found_by_their_values_of_now() -> None:
    table = made()
    table.upsert(rows([10], "p3", ts=2, city="Rome"))
    table.upsert(rows([20], ts=0, city="Rome"))  # is late
    table.delete([30])
    for _ in range(2):
        assert ids(table.get_by("city", "Oslo")) == [0, 20]
        assert ids(table.to_arrow(filters=[("city", "=", "Rome")])) == [10]
        assert partitions_of(table, *OSLO) == ["p0"]
        assert partitions_of(table, ("city", "=", "Rome")) == ["p3"]
        compact_metadata(table.store)


def test_a_plan_says_which_indexes_chose_its_file_groups() -> None:
    table = made()
    plan = table.plan(filters=[*OSLO, ("size", "in", [5, 10, 99])])
    assert str(plan).splitlines() == [
        "2 of 2 file groups, 2 partitions listed",
        "secondary index by_city: 1 value of city, 4 record keys",
        "secondary index by_size: 3 values of size, 4 record keys",
    ]
    assert [(one.index, one.values, one.keys) for one in plan.asked] == [("by_city", 1, 4), ("by_size", 3, 4)]
    assert plan.record_keys is not None and sorted(plan.record_keys.to_pylist()) == ["10", "20"]
    assert str(table.plan(filters=[("id", ">", 1)])) == "4 of 4 file groups, 4 partitions listed"


def test_other_reads_are_not_by_indexes() -> None:
    """They tell of now. And base files show values that logs have changed."""
    table = made()
    first = load_state(table.store).timeline.writes[-1]
    table.upsert(rows([10], ts=2, city="Rome"))
    for how, found in (
        ({"as_of": first.requested}, [0, 10, 20, 30]),
        ({"read_optimized": True}, [0, 10, 20, 30]),
        ({"begin": first.completed}, []),
    ):
        assert ids(table.to_arrow(filters=OSLO, **how)) == found  # type: ignore[arg-type] # a case of each
        assert not table.plan(filters=OSLO, **how).asked  # type: ignore[arg-type] # as above
    assert ids(table.to_arrow(filters=OSLO)) == [0, 20, 30]


# ------------------------------------------------------------------------------------------------- when it pays


def test_values_that_very_many_rows_have_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    monkeypatch.setattr("bucketlake.read.by_values.KEYS_ALWAYS", 3)
    assert "not used: 4 record keys have these values" in str(table.plan(filters=OSLO))
    assert len(table.plan(filters=OSLO).slices) == 4
    assert ids(table.get_by("city", "Oslo")) == ids(table.to_arrow(filters=OSLO)) == [0, 10, 20, 30]
    assert partitions_of(table, *OSLO, ("size", "=", 5)) == ["p2", "p3"], "the other index is used"
    monkeypatch.setattr("bucketlake.read.by_values.ROWS_PER_KEY", 10)
    assert len(table.plan(filters=OSLO).slices) == 2, "4 of 40 rows are few enough"
    monkeypatch.setattr("bucketlake.read.by_values.KEYS_MAX", 3)
    assert len(table.plan(filters=OSLO).slices) == 4


def test_very_many_values_are_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    monkeypatch.setattr("bucketlake.read.by_values.COMBINATIONS_MAX", 2)
    filters = [("city", "in", ["c1", "c5", "c9"])]
    assert "not used: more than 2 values" in str(table.plan(filters=filters))
    assert ids(table.to_arrow(filters=filters)) == [1, 5, 9]
    assert ids(table.get_by("city", ["c1", "c5", "c9"])) == [1, 5, 9]
    assert table.plan(filters=[("city", "in", ["c1", "c5"])]).asked[0].keys == 2


def test_keys_that_filters_pin_are_used_without_other_indexes_if_they_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = made()
    filters = [("id", "in", [10, 11, 20]), *OSLO]
    assert not table.plan(filters=filters).asked
    monkeypatch.setattr("bucketlake.read.by_values.KEYS_FEW", 2)
    plan = table.plan(filters=filters)
    assert plan.asked[0].keys == 4
    assert plan.record_keys is not None and sorted(plan.record_keys.to_pylist()) == ["10", "20"]
    assert ids(table.to_arrow(filters=filters)) == [10, 20]


def test_what_an_index_tells_before_it_is_read_keeps_it_from_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = create_table(
        f"memory://secondary-reads-{next(_names)}",
        SCHEMA,
        key="id",
        index=RecordIndex(shards=1),
        maintenance="off",
    )
    table.upsert(rows(range(30_000), "p", city="Oslo"))
    table.upsert(rows([30_000], "p", city="Rome"))
    table = with_secondary_index(table, "by_city", "city", shards=1)
    monkeypatch.setattr(
        "bucketlake.index.secondary.entries_of_values",
        lambda *_: pytest.fail("all entries of Oslo were read"),
    )
    plan = table.plan(filters=OSLO)
    assert "record keys or more have these values" in str(plan)
    monkeypatch.undo()
    assert table.plan(filters=[("city", "=", "Rome")]).asked[0].keys == 1
    assert table.to_arrow(filters=OSLO).num_rows == 30_000


# -------------------------------------------------------------------------------------------- what is not certain


def test_a_column_that_writers_spell_differently_is_not_looked_up() -> None:
    table = with_secondary_index(made(), "by_weight", "weight")
    filters = [("weight", "=", 5.0)]
    assert "not used: not all writers spell a double alike" in str(table.plan(filters=filters))
    assert ids(table.to_arrow(filters=filters)) == ids(table.get_by("weight", 5.0)) == [10]


def test_a_partition_column_is_not_looked_up() -> None:
    """Its values come from paths: a row that was left in its partition has another one in its file."""
    table = create_table(
        f"memory://secondary-reads-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(shards=1, update_partition=False),
        maintenance="off",
    )
    table.upsert(rows(range(8)))
    table = with_secondary_index(table, "by_dt", "dt")
    table.upsert(rows([4], "p3", ts=2))
    assert table.get(4)["dt"].to_pylist() == ["p0"]
    for filters in ([("dt", "=", "p0")], [("dt", "in", ["p0", "p1"])]):
        assert 4 in ids(table.to_arrow(filters=filters))
        assert not table.plan(filters=filters).asked
    assert ids(table.get_by("dt", "p3")) == [3, 7]


def test_without_an_index_of_the_whole_table_keys_say_nothing() -> None:
    """Entries of two rows with one key, in two partitions, are one: whoever deletes a row deletes that of the other."""
    table = made(RecordIndex(per_partition=True))
    table.upsert(rows([10], "p3", ts=2, city="Oslo"))
    table.delete(rows([10], "p3").select(["id", "dt"]))
    assert not table.plan(filters=OSLO).asked
    assert ids(table.to_arrow(filters=OSLO)) == ids(table.get_by("city", "Oslo")) == [0, 10, 20, 30]


def files_of_index(
    table: Table, ending: str = "", *, name: str = "secondary_index_by_city"
) -> list[FileStat]:
    return [file for file in table.store.list(folder_of(name)).files if file.path.endswith(ending)]


def damaged_log(table: Table) -> None:
    for file in files_of_index(table):
        if ".log." in file.path:
            table.store.put(file.path, b"no log")


def lost_logs(table: Table) -> None:
    for file in files_of_index(table):
        if ".log." in file.path:
            table.store.delete(file.path)


def lost_base(table: Table) -> None:
    compact_metadata(table.store)
    for file in files_of_index(table, ".hfile"):
        table.store.delete(file.path)


def damaged_base(table: Table) -> None:
    compact_metadata(table.store)
    for file in files_of_index(table, ".hfile"):
        table.store.put(file.path, bytes(file.size_bytes))


def lost_altogether(table: Table) -> None:
    for file in files_of_index(table):
        table.store.delete(file.path)


def lost_first_shard(table: Table) -> None:
    for file in files_of_index(table):
        if "-0000-0" in file.path:
            table.store.delete(file.path)


def lost_last_shard(table: Table) -> None:
    """What is left looks like an index of fewer shards."""
    for file in files_of_index(table):
        if "-0001-0" in file.path:
            table.store.delete(file.path)


def out_of_step(table: Table) -> None:
    newest = load_state(table.store).timeline.writes[-1].requested
    for file in table.store.list(".hoodie/metadata/.hoodie/timeline").files:
        if newest in file.path:
            table.store.delete(file.path)


def without_definition(table: Table) -> None:
    table.store.put(".hoodie/.index_defs/index.json", b"{}")


def lost_record_index(table: Table) -> None:
    for file in files_of_index(table, name=RECORD_INDEX):
        table.store.delete(file.path)


def delisted(table: Table, partition: str) -> None:
    path = ".hoodie/hoodie.properties"
    kept = [line for line in table.store.read(path).decode().splitlines() if "checksum" not in line]
    table.store.put(path, "\n".join(line.replace(f",{partition}", "") for line in kept).encode())


def delisted_record_index(table: Table) -> None:
    delisted(table, RECORD_INDEX)


HARMS = [
    damaged_log,
    lost_logs,
    lost_base,
    damaged_base,
    lost_first_shard,
    lost_last_shard,
    lost_altogether,
    out_of_step,
]


@KINDS
@pytest.mark.parametrize("harm", [*HARMS, without_definition, lost_record_index, delisted_record_index])
def test_an_index_that_is_harmed_hides_no_row(
    index: IndexValue, harm: Callable[[Table], None], caplog: pytest.LogCaptureFixture
) -> None:
    table = made(index)
    table.upsert(rows(range(5, 15), ts=2, city="Rome"))
    table.upsert(rows(range(40, 60)))
    harm(table)
    table = Table(table.store, load_properties(table.store))
    with caplog.at_level(logging.WARNING, "bucketlake.index"):
        for city, found in (("Oslo", [0, 20, 30, 40, 50]), ("Rome", list(range(5, 15))), ("c41", [41])):
            filters = [("city", "=", city)]
            assert ids(table.to_arrow(filters=filters)) == found
            if harm is not without_definition:
                assert ids(table.get_by("city", city)) == found
        is_asked = harm in HARMS
        assert ("read without the secondary index by_city of city" in caplog.text) is is_asked
    assert str(table.explain(40, partition="p0"))
    if harm is lost_record_index:
        assert "not used: the record-level index does not tell" in str(table.plan(filters=OSLO))
    if is_asked:
        assert "secondary index by_city: 1 value of city, not used: " in str(table.plan(filters=OSLO))
        assert "by_city: city = 'Oslo', shard" in str(table.explain(40, partition="p0"))
        assert "not relied on" in str(table.explain(40, partition="p0")) or harm is damaged_base


def test_an_entry_that_names_a_file_group_that_is_gone_hides_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    for group in (("p2", "nobody's"), ("p9", "nobody's")):
        monkeypatch.setattr(
            "bucketlake.index.record_level.RecordLevelIndex.where", lambda *_, group=group: frozenset([group])
        )
        assert ids(table.to_arrow(filters=OSLO)) == ids(table.get_by("city", "Oslo")) == [0, 10, 20, 30]


def untouched(table: Table) -> None:
    pass


def compacted(table: Table) -> None:
    compact_metadata(table.store)


def moved(table: Table) -> None:
    table.upsert(rows(range(20), "p9", ts=2))


def renamed(table: Table) -> None:
    table.upsert(rows(range(20), ts=2, city="Rome"))


def deleted(table: Table) -> None:
    table.delete(list(range(20)))


@pytest.mark.parametrize("do", [moved, renamed, deleted])
@pytest.mark.parametrize("then", [untouched, compacted])
@pytest.mark.parametrize("was_pending", [False, True])
def test_what_others_do_after_the_table_was_looked_at_hides_no_row(
    do: Callable[[Table], None], then: Callable[[Table], None], was_pending: bool
) -> None:
    """Whoever looked at the table before sees what there was, whatever the index has learned since."""
    table = made()
    state = load_state(table.store)
    do(table)
    if was_pending:
        state = as_if_pending(table)
    then(table)
    for n in (0, 1, 7, 30):
        value = "Oslo" if n % 10 == 0 else None if n == 7 else f"c{n}"
        filters = [("city", "is null")] if value is None else [("city", "=", value)]
        query = make_query(state, filters=filters)
        plan = plan_read(state, query, resolve_index(state))
        everything = plan_read(state, query, NoIndex())
        assert ids(read_by_keys(plan)) == ids(read_by_keys(everything)) == ids_at_first(value)


def as_if_pending(table: Table) -> TableState:
    path = load_state(table.store).timeline.writes[-1].path
    data = table.store.read(path)
    table.store.delete(path)
    state = load_state(table.store)
    table.store.put(path, data)
    return state


def ids_at_first(value: str | None) -> list[int]:
    return [n for n, city in enumerate(rows(range(40))["city"].to_pylist()) if city == value]


# --------------------------------------------------------------------------------------------------------- get_by


def test_get_by_takes_what_get_takes() -> None:
    table = made()
    found = table.get_by("city", "Oslo", partition="p2", columns=["id", "size"])
    assert found.column_names == ["id", "size"] and ids(found) == [10, 30]
    assert table.get_by("city", "Oslo", columns="id").column_names == ["id"]
    assert table.get_by("city", "Oslo", partition="p9").num_rows == 0
    assert table.get_by("city", "Oslo").schema == table.get(10).schema
    assert ids(table.get_by("size", pa.array([5, 4]))) == [8, 9, 10, 11]


@pytest.mark.parametrize(
    ("column", "values", "error", "message"),
    [
        (
            "ts",
            1,
            ConfigError,
            "no secondary index of the column 'ts'; it has city, size. Create one: table.create_index",
        ),
        ("ts", 1, ConfigError, "Or read without: table.read"),
        ("town", "Oslo", FilterError, "column 'town'; the table has"),
        ("city", 5, FilterError, "'city'"),
        ("size", ["a"], FilterError, "'size'"),
        (5, "Oslo", ConfigError, "column is 5"),
    ],
)
def test_get_by_says_what_it_cannot_do(
    column: Any, values: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        made().get_by(column, values)


def test_a_table_without_indexes_says_that_it_has_none() -> None:
    table = create_table(f"memory://secondary-reads-{next(_names)}", SCHEMA, key="id", maintenance="off")
    with pytest.raises(ConfigError, match="it has none of any"):
        table.get_by("city", "Oslo")


def test_get_by_opens_the_shards_of_its_values_and_no_others() -> None:
    table = made(shards=8)
    compact_metadata(table.store)
    counting = FaultyStore(table.store)
    found = Table(counting, load_properties(counting)).get_by("city", "Oslo")
    assert ids(found) == [0, 10, 20, 30]
    opened = {what.split(" ")[1] for what in counting.operations if what.startswith("read")}
    index = next(one for one in secondary_indexes_of(load_state(table.store)) if one.columns == ("city",))
    shard = int(index.shard_of(None, pa.array(["Oslo$10"]))[0])
    of_index = {path for path in opened if "secondary" in path and path.endswith(".hfile")}
    assert {path.rpartition("/")[2].split("_")[0] for path in of_index} == {
        index.definition.shard_file_id(shard)
    }
    data = {path.split("/")[0] for path in opened if ".hoodie/" not in path}
    assert data == {"p0", "p2"}


# -------------------------------------------------------------------------------------------------------- explain


def test_explain_shows_where_secondary_indexes_have_a_row() -> None:
    table = made()
    compact_metadata(table.store)
    table.upsert(rows([10], ts=2, city="Rome"))
    table.delete([30])
    renamed, still, null, gone = (table.explain(key) for key in (10, 20, 7, 30))
    assert [(one.index, one.column, one.value, one.state) for one in renamed.entries] == [
        ("by_city", "city", "Rome", "in step"),
        ("by_size", "size", "5", "in step"),
    ]
    assert ".log." in str(renamed.entries[0].file) and str(renamed.entries[1].file).endswith(".hfile")
    assert str(still.entries[0].file).endswith(".hfile")
    assert renamed.entries[0].shard.startswith(("0 of 2 (secondary-index-by-city-0000", "1 of 2 ("))
    assert null.entries[0].value is None and "city is null" in str(null.entries[0])
    assert gone.entries == ()
    lines = table_of(renamed, of="explain")["plan"].to_pylist()
    assert any(line.startswith("secondary    by_city: city = 'Rome', shard ") for line in lines)
    twice = with_secondary_index(table, "by_town", "city").explain(20)
    assert [one.index for one in twice.entries] == ["by_city", "by_size", "by_town"], "as Hudi allows it"
    buckets = made(SimpleBuckets(2)).explain(10, partition="p2")
    assert [one.state for one in buckets.entries] == ["in step", "in step"]


def test_explain_says_that_an_entry_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    table = made()
    monkeypatch.setattr("bucketlake.index.secondary.entry_said_last", lambda *_: (None, False))
    assert {one.state for one in table.explain(10).entries} == {"the entry is missing"}


# ----------------------------------------------------------------------------------------------------------- Hudi


def test_a_table_of_hudis_is_read_by_its_index(golden_table: Callable[[str], Path]) -> None:
    table = Table.open(golden_table("cow_secondary_index"))
    expected = (GOLDEN / "cow_secondary_index.expected.jsonl").read_text().splitlines()
    (index,) = secondary_indexes_of(load_state(table.store))
    column = index.definition.column
    stored = table.to_arrow().to_pylist()
    assert len(stored) == len(expected) == len([json.loads(line) for line in expected])
    for value in {row[column] for row in stored}:
        wanted = sorted(row["_hoodie_record_key"] for row in stored if row[column] == value)
        filters = [(column, "is null") if value is None else (column, "=", value)]
        (asked,) = table.plan(filters=filters).asked
        assert asked.keys == len(wanted)
        assert sorted(table.to_arrow(filters=filters)["_hoodie_record_key"].to_pylist()) == wanted
        assert (
            sorted(table.get_by(column, value, meta_columns=True)["_hoodie_record_key"].to_pylist()) == wanted
        )
    assert any(
        len(table.plan(filters=[(column, "=", row[column])]).slices) == 1 for row in stored if row[column]
    )
    assert {one.state for one in table.explain(stored[0]["id"]).entries} == {"in step"}
