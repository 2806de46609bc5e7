"""Reads by the record-level index: they open the file groups of the keys, and never miss a row for it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table, create_table
from bucketlake.config import load_properties
from bucketlake.errors import ConfigError
from bucketlake.index import NoIndex, RecordLevelIndex, resolve_index
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_index import Location, Locations
from bucketlake.metadata.record_shard import ShardEntries, encode_entry_log, last_said, look_up_shard
from bucketlake.read import lookup, make_query, plan_lookup
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.sql.frames import table_of
from bucketlake.state import TableState, load_state
from bucketlake.storage import FileStat, MemoryStore, Store

pytestmark = pytest.mark.shows("R4")

GOLDEN = Path(__file__).parents[2] / "golden"
SCHEMA = pa.schema([("id", pa.int64()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
BOTH = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
KINDS = pytest.mark.parametrize(
    "index", [RecordIndex(shards=2), RecordIndex(per_partition=True)], ids=["table", "partitions"]
)
_names = itertools.count()


def rows(keys: Any, partition: str | None = None, ts: int = 1) -> pa.Table:
    """Rows of these keys; in four partitions, unless one is named."""
    values = [{"id": n, "dt": partition or f"p{n % 4}", "ts": ts, "v": f"{n} at {ts}"} for n in keys]
    return pa.Table.from_pylist(values, SCHEMA)


def made(index: RecordIndex | None = None, table_type: str = "MERGE_ON_READ") -> Table:
    table = create_table(
        f"memory://index-reads-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index or RecordIndex(shards=2),
        table_type=table_type,
        maintenance="off",
    )
    table.upsert(rows(range(40)))
    return table


def index_of(table: Table) -> RecordLevelIndex:
    index = resolve_index(load_state(table.store))
    assert isinstance(index, RecordLevelIndex)
    return index


def index_files(table: Table, ending: str = "") -> list[FileStat]:
    files = table.store.list(folder_of(RECORD_INDEX)).files
    return [file for file in files if "record-index-" in file.path and file.path.endswith(ending)]


@BOTH
@KINDS
def test_a_read_by_key_opens_the_file_group_of_the_key(index: RecordIndex, table_type: str) -> None:
    table = made(index, table_type)
    assert len(table.plan().slices) == 4
    for filters in (
        [("id", "=", 10)],
        [("id", "in", [10, 14, 18, None])],
        [("_hoodie_record_key", "=", "10")],
        [("_hoodie_record_key", "in", ["10", "14", "nobody's"])],
        [("id", "=", 10), ("dt", "=", "p2")],
    ):
        plan = table.plan(filters=filters)
        assert [part.partition for part in plan.slices] == ["p2"], filters
        assert plan.partitions_seen == (1 if not index.per_partition or len(filters) > 1 else 4)
    assert table.plan(filters=[("id", "=", 999)]).slices == ()
    assert table.plan(filters=[("id", "=", 10), ("dt", "=", "p3")]).slices == ()
    assert len(table.plan(filters=[("id", ">", 10)]).slices) == 4
    assert len(table.plan(filters=[("id", "!=", 10)]).slices) == 4
    assert table.get(10)["v"].to_pylist() == ["10 at 1"]
    assert table.get([10, 11, 999]).num_rows == 2


@BOTH
def test_a_key_is_found_where_it_moved_to(table_type: str) -> None:
    table = made(table_type=table_type)
    table.upsert(rows([10], "p3", ts=2))
    compact_metadata(table.store)
    table.upsert(rows([11], "p0", ts=2))
    assert [part.partition for part in table.plan(filters=[("id", "=", 10)]).slices] == ["p3"]
    assert table.get([10, 11])["dt"].to_pylist() == ["p0", "p3"]
    assert table.get(10, partition="p2").num_rows == 0


@BOTH
def test_keys_are_deleted_wherever_they_are(table_type: str) -> None:
    """A table whose index is of the whole table is asked for keys alone: where they are it knows."""
    table = made(table_type=table_type)
    table.upsert(rows([10], "p3", ts=2))
    table.delete([10, 11, 999])
    table.delete(pa.table({"id": [12]}))
    assert table.get([10, 11, 12, 13])["id"].to_pylist() == [13]
    assert index_of(table).where(pa.array(["10", "11", "12", "999"])) == frozenset()
    assert table.to_arrow().num_rows == 37


def test_other_reads_are_not_by_the_index() -> None:
    """It tells of now. And base files show keys that are gone, or elsewhere, by what is in logs."""
    table = made()
    first = load_state(table.store).timeline.writes[-1].requested
    table.upsert(rows([10], "p3", ts=2))
    table.delete([11])
    ten, eleven = [("id", "=", 10)], [("id", "=", 11)]
    assert table.to_arrow(filters=ten, as_of=first)["dt"].to_pylist() == ["p2"]
    assert table.to_arrow(filters=eleven, as_of=first).num_rows == 1
    assert "p2" in table.to_arrow(filters=ten, read_optimized=True)["dt"].to_pylist()
    assert table.to_arrow(filters=eleven, read_optimized=True).num_rows == 1
    assert table.to_arrow(filters=ten, begin=first)["dt"].to_pylist() == ["p3"]
    assert table.to_arrow(filters=eleven).num_rows == 0


def damaged_log(table: Table) -> None:
    table.store.put(index_files(table)[-1].path, b"no log")


def lost_logs(table: Table) -> None:
    for file in index_files(table)[-2:]:
        table.store.delete(file.path)


def lost_base(table: Table) -> None:
    compact_metadata(table.store)
    for file in index_files(table, ".hfile"):
        table.store.delete(file.path)


def damaged_base(table: Table) -> None:
    compact_metadata(table.store)
    for file in index_files(table, ".hfile"):
        table.store.put(file.path, bytes(file.size_bytes))


def lost_altogether(table: Table) -> None:
    for file in index_files(table):
        table.store.delete(file.path)


def out_of_step(table: Table) -> None:
    newest = load_state(table.store).timeline.writes[-1].requested
    for file in table.store.list(".hoodie/metadata/.hoodie/timeline").files:
        if newest in file.path:
            table.store.delete(file.path)


def delisted(table: Table) -> None:
    path = ".hoodie/hoodie.properties"
    text = table.store.read(path).decode()
    kept = [line for line in text.splitlines() if "checksum" not in line]
    table.store.put(path, "\n".join(line.replace(",record_index", "") for line in kept).encode())
    assert RECORD_INDEX not in load_properties(table.store).metadata_partitions


@KINDS
@pytest.mark.parametrize(
    "harm", [damaged_log, lost_logs, lost_base, damaged_base, lost_altogether, out_of_step, delisted]
)
def test_an_index_that_is_harmed_hides_no_row(index: RecordIndex, harm: Callable[[Table], None]) -> None:
    table = made(index)
    table.upsert(rows([10, 11], ts=2))
    table.upsert(rows(range(40, 60)))
    harm(table)
    table = Table(table.store, load_properties(table.store))
    for key in (1, 10, 41, 59):
        assert table.get(key).num_rows == 1
        assert table.to_arrow(filters=[("id", "=", key)]).num_rows == 1
    assert table.get(list(range(60))).num_rows == 60
    assert index_of(table).where(pa.array(["1"]), ["p1"]) is None or harm in (damaged_base, damaged_log)
    assert "not relied on" in str(table.describe().index) or harm in (damaged_base, damaged_log)
    assert str(table.explain(10, partition="p2"))


def test_an_entry_that_points_nowhere_hides_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a partition that Hudi dropped and filled again: hudi#19806."""
    table = made()
    for group in (("p2", "nobody's"), ("p9", "nobody's")):
        monkeypatch.setattr(RecordLevelIndex, "where", lambda *_, group=group: frozenset([group]))
        assert table.get(10).num_rows == 1
        assert table.to_arrow(filters=[("id", "=", 10)]).num_rows == 1
        assert table.to_arrow(filters=[("id", "=", 10), ("dt", "=", "p2")]).num_rows == 1


def compacted(table: Table) -> None:
    compact_metadata(table.store)


def rebuilt(table: Table) -> None:
    table.metadata.rebuild()


def untouched(table: Table) -> None:
    pass


def moved(table: Table) -> None:
    """Have keys in a file group that who has looked at the table before does not see."""
    table.upsert(rows(range(20), "p9", ts=2))


def deleted(table: Table) -> None:
    table.delete(list(range(20)))


DONE = pytest.mark.parametrize("do", [moved, deleted])


@DONE
@pytest.mark.parametrize("then", [untouched, compacted, rebuilt])
def test_what_others_do_after_the_table_was_looked_at_hides_no_row(
    do: Callable[[Table], None], then: Callable[[Table], None]
) -> None:
    table = made()
    state = load_state(table.store)
    do(table)
    then(table)
    assert all_found(state) == sorted(f"{n} at 1" for n in range(40))


@DONE
@pytest.mark.parametrize("then", [untouched, compacted, rebuilt])
def test_a_commit_that_was_pending_and_is_completed_meanwhile_hides_no_row(
    do: Callable[[Table], None], then: Callable[[Table], None]
) -> None:
    table = made()
    do(table)
    last = load_state(table.store).timeline.writes[-1]
    state = as_if_pending(table.store, last.path)
    assert last.requested in {i.requested for i in state.timeline.pending()}
    then(table)
    assert all_found(state) == sorted(f"{n} at 1" for n in range(40))


def as_if_pending(store: Store, completed: str) -> TableState:
    data = store.read(completed)
    store.delete(completed)
    state = load_state(store)
    store.put(completed, data)
    return state


def all_found(state: TableState) -> list[str]:
    """Look all keys up, one by one, in the table as it was when it was looked at, with the index as it is now."""
    found: list[str] = []
    query = make_query(state)
    for key in range(40):
        wanted = pa.array([str(key)])
        plan = plan_lookup(state, query, resolve_index(state), wanted, partition=None)
        plain = plan_lookup(state, query, NoIndex(), wanted, partition=None)
        found += lookup(plan, wanted)["v"].to_pylist()
        assert set(plan.slices) <= set(plain.slices)
    return sorted(found)


def test_many_keys_are_not_looked_up_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketlake.read.plan.KEYS_LOOKED_UP_MAX", 3)
    monkeypatch.setattr("bucketlake.read.prune.COMBINATIONS_MAX", 3)
    table = made()
    assert len(table.plan(filters=[("id", "in", [1, 5, 9])]).slices) == 1
    assert len(table.plan(filters=[("id", "in", [1, 5, 9, 13])]).slices) == 4
    assert table.get([1, 5, 9, 13]).num_rows == 4


def test_keys_of_several_columns_are_spelled_as_the_table_does() -> None:
    """hudi#12234: the key text of the index is not the user's text."""
    schema = pa.schema([("name", pa.string()), ("day", pa.date32()), ("v", pa.int64())])
    table = create_table(
        "memory://several-columns",
        schema,
        key=["name", "day"],
        index=RecordIndex(shards=1),
        maintenance="off",
    )
    values = [
        {"name": name, "day": day, "v": n}
        for n, (name, day) in enumerate(itertools.product(["1", "10", "", None, "a\0b", "$"], DAYS))
    ]
    table.upsert(pa.Table.from_pylist(values, schema))
    table.upsert(pa.Table.from_pylist([{"name": "far", "day": DAYS[0], "v": 99}], schema))
    for row in values:
        key = {name: row[name] for name in ("name", "day")}
        assert table.get(key)["v"].to_pylist() == [row["v"]]
        if row["name"] is not None:
            filters = [("name", "=", row["name"]), ("day", "in", [row["day"]])]
            assert table.to_arrow(filters=filters)["v"].to_pylist() == [row["v"]]
    both = [("name", "in", ["1", "$"]), ("day", "in", list(DAYS))]
    assert table.to_arrow(filters=both).num_rows == 2 * len(DAYS)
    assert table.to_arrow(filters=[("name", "=", "1")]).num_rows == len(DAYS), "not all of the key is said"


DAYS = tuple(value.as_py() for value in pa.array([0, 19_000, -1], pa.date32()))


@pytest.mark.parametrize("name", ["cow_global_rli", "mor_partitioned_rli", "cow_secondary_index"])
def test_tables_of_hudis_are_read_by_their_index(name: str, golden_table: Callable[[str], Path]) -> None:
    table = Table.open(golden_table(name))
    expected = [json.loads(line) for line in (GOLDEN / f"{name}.expected.jsonl").read_text().splitlines()]
    stored = table.to_arrow().to_pylist()
    assert len(stored) == len(expected)
    assert index_of(table).is_in_step
    for row in stored:
        for filters in ([("id", "=", row["id"])], [("_hoodie_record_key", "=", row["_hoodie_record_key"])]):
            assert table.to_arrow(filters=filters).to_pylist() == [row]
            assert len(table.plan(filters=filters).slices) == 1 < len(table.plan().slices)
        assert table.get(row["id"], meta_columns=True).to_pylist() == [row]
        found = table.explain(row["id"], partition=row["_hoodie_partition_path"])
        assert found.file_groups == (row["_hoodie_file_name"].partition("_")[0],)
        assert found.more["live"] == "yes"
    assert table.get(stored[0]["id"].__class__(987654)).num_rows == 0
    assert "in step" in table.describe().index == table.layout().index


def test_explain_shows_shard_entry_file_and_group() -> None:
    table = made()
    compact_metadata(table.store)
    table.upsert(rows([10], "p3", ts=2))
    table.delete([11])
    moved, still, gone, unknown = (table.explain(key) for key in (10, 12, 11, 999))
    assert moved.partition == "p3" and moved.more["live"] == "yes"
    assert moved.more["entry"] == f"p3/{moved.file_groups[0]}"
    assert moved.more["shard"].endswith("-0)") and " of 2 " in moved.more["shard"]
    assert [commit.operation for commit in moved.commits] == ["DELETE", "UPSERT", "UPSERT"]
    assert still.more["index file"].endswith(".hfile") and still.partition == "p0"
    assert gone.more["entry"] == "none, it is gone" and ".log." in gone.more["index file"]
    assert (gone.partition, gone.file_groups, gone.commits) == (None, (), ())
    assert (unknown.more["entry"], unknown.more["index file"]) == ("none", "none")
    assert "key          '999' in no partition" in str(unknown)
    lines = table_of(moved, of="explain")["plan"].to_pylist()
    assert any(line.startswith("index file") for line in lines)
    with pytest.raises(ConfigError, match="name it by its path"):
        made(RecordIndex(per_partition=True)).explain(10)
    assert made(RecordIndex(per_partition=True)).explain(10, partition="p2").more["live"] == "yes"
    nowhere = made(RecordIndex(per_partition=True)).explain(10, partition="p9")
    assert nowhere.more["shard"].startswith("none: no key of the partition 'p9'")


def test_describe_tells_of_shards_and_entries() -> None:
    table = made()
    assert table.describe().index == (
        "record-level index of the table: 2 shards, 0 entries in base files, 40 in logs over them; in step"
    )
    compact_metadata(table.store)
    table.upsert(rows([40, 41, 42]))
    compact_metadata(table.store)
    assert "2 shards, 43 entries in base files (21 to 22 in a shard), 0 in logs" in table.describe().index


# ------------------------------------------------------------------------------------------------------ one shard


def a_log(store: Store, number: int, keys: list[str], gone: list[str]) -> FileStat:
    codes = pa.array([0] * len(keys), pa.int32()).to_numpy()
    came = ShardEntries(pa.array(keys, pa.string()), Locations(codes, (Location("p", f"{number}", 0),)))
    path = f"{number}.log"
    store.put(path, encode_entry_log(f"2026010100000{number:04d}", came, pa.array(gone, pa.string())))
    return store.stat(path)


@pytest.mark.parametrize("count", [0, 5_000])
def test_few_keys_are_searched_for_in_large_logs_and_many_are_not(count: int) -> None:
    """hudi#19027: a prefix is not the key."""
    store = MemoryStore()
    many = [f"k{n}" for n in range(count)]
    odd = ["1", "100", "a$", "a\\", "a\0", "é", "日本"]
    logs = (
        a_log(store, 1, [*odd, *many], []),
        a_log(store, 2, ["100"], ["a$", "never there"]),
        a_log(store, 3, [f"{key}-" for key in odd], []),
    )
    shard = ShardSlice(None, logs)
    asked = ["1", "10", "100", "a", "a$", "a\\", "a\0", "a\0b", "é", "日", "日本", "1", "never there", "1-"]
    expected = ["1", None, "2", None, None, "1", "1", None, "1", None, "1", "1", None, "3"]
    found = look_up_shard(store, shard, pa.array(asked))
    assert [None if code < 0 else found.distinct[code].file_id for code in found.codes] == expected
    for key, file_id in zip(asked, expected, strict=True):
        alone = look_up_shard(store, shard, pa.array([key]))
        assert (alone.distinct[alone.codes[0]].file_id if alone.codes[0] >= 0 else None) == file_id
        file, place = last_said(store, shard, key)
        assert (None if place is None else place.file_id) == file_id
        assert file is None or file.path == f"{file_id or 2}.log"
    assert replace(shard, logs=()).base is None
