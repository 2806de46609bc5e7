"""A stream gives each change once, whatever happens to the query and to the table on the way."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConfigError, RecordIndex, SimpleBuckets, Table, UnsupportedError, create_table
from bucketlake.datasource.offsets import (
    INITIAL,
    NOTHING,
    Batch,
    Chosen,
    Mark,
    Offset,
    Written,
    batch_between,
    choose_end,
    cut,
    parse_offset,
)
from bucketlake.datasource.options import SourceOptions
from bucketlake.errors import SchemaError
from bucketlake.index.told import IndexValue
from bucketlake.services import archive_table
from bucketlake.streaming.stream import Stream
from stand_ins.micro_batches import Checkpoint, Query, Rows
from stand_ins.replacements import KINDS, SCHEMA, TYPES, replace_while, rows_of, table_for

Live = dict[tuple[str, int], int]


def live(table: Table) -> Live:
    return {
        (row["dt"], row["id"]): row["ts"] for row in table.to_arrow(columns=["dt", "id", "ts"]).to_pylist()
    }


def given(rows: Rows | None) -> dict[int, int]:
    assert rows is not None
    return {row["id"]: row["ts"] for row in rows}


def follow(copy: Live, rows: Rows) -> None:
    """Do to a copy of the table what a batch says; it must be possible."""
    before = dict(copy)
    for row in rows:
        key = (row["dt"], row["id"])
        assert (key in before) == (row["op"] != "insert"), row
        if row["op"] == "delete":
            assert copy.pop(key) == row["ts"], "a deleted row comes as it was"
        else:
            copy[key] = row["ts"]
    assert len(rows) == len({(row["dt"], row["id"]) for row in rows}), "a key comes twice in a batch"


class RandomWrites:
    """Writes to a table of partitions d0 and d1, with the truth beside."""

    def __init__(self, draw: random.Random, kind: str, table_type: str) -> None:
        self.draw, self.kind = draw, kind
        self.table, self.truth, self.ts = table_for(kind, table_type), Live(), 0
        self.upsert(range(12))

    def step(self) -> None:
        what = self.draw.choice(
            ["upsert"] * 4 + ["delete"] * 2 + ["overwrite", "drop", "compact", "replace", "archive"]
        )
        table = self.table = Table.open(self.table.store.uri)
        match what:
            case "upsert":
                self.upsert(self.draw.sample(range(40), self.draw.randint(1, 12)))
            case "delete":
                self.delete(self.draw.sample(range(40), 5))
            case "overwrite":
                self.ts += 1
                ids = [2 * n for n in self.draw.sample(range(20), 4)]
                table.overwrite(rows_of(ids, self.ts))
                self.truth = {key: ts for key, ts in self.truth.items() if key[0] != "d0"}
                self.truth |= {("d0", n): self.ts for n in ids}
            case "drop":
                if any(key[0] == "d1" for key in self.truth) and self.draw.random() < 0.5:
                    table.delete_partitions(["d1"])
                    self.truth = {key: ts for key, ts in self.truth.items() if key[0] != "d1"}
            case "compact":
                if table.properties.table_type == "MERGE_ON_READ":
                    table.compact(delta_commits=1)
            case "archive":
                archive_table(table.store, keep_min=2, keep_max=3)
            case "replace":
                ids = [n for n in self.draw.sample(range(40), 6) if self.kind != "clustering" or n % 2]
                replace_while(table, self.kind, lambda: self.upsert(ids))

    def upsert(self, ids: Iterable[int]) -> None:
        self.ts += 1
        self.table.upsert(rows_of(ids, self.ts))
        self.truth |= {(f"d{n % 2}", n): self.ts for n in ids}

    def delete(self, ids: Iterable[int]) -> None:
        self.ts += 1
        self.table.delete(rows_of(ids, self.ts))
        for n in ids:
            self.truth.pop((f"d{n % 2}", n), None)


@pytest.mark.shows("H3")
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_made_of_a_stream_is_the_table(kind: str, table_type: str) -> None:
    """Random writes and caps; queries are stopped anywhere, and batches lost and given again."""
    draw = random.Random(f"{kind} {table_type}")
    writes = RandomWrites(draw, kind, table_type)
    seen, caps = Live(), [{}, {"max_instants": 1}, {"max_instants": 2}, {"max_rows": 3}, {"max_rows": 3}]
    checkpoint, plain, at_once = Checkpoint(), Checkpoint(), Checkpoint()
    first: dict[int, Rows] = {}
    rows: Live = {}
    for _ in range(18):
        for _ in range(draw.randint(0, 2)):
            writes.step()
        assert live(writes.table) == writes.truth
        query = Query(writes.table, checkpoint, op="op", **draw.choice(caps))
        for _ in range(draw.randint(0, 3)):
            lost = draw.random() < 0.3
            batch = query.batch(commits=not lost)
            if batch is None:
                break
            number = len(checkpoint.offsets) - 1
            if number not in first:
                first[number] = batch
                follow(seen, batch)
            assert sorted(map(str, batch)) == sorted(map(str, first[number])), "given again, it is the same"
            if lost:
                query = Query(writes.table, checkpoint, op="op", **draw.choice(caps))
        for mode, how in ((plain, draw.choice(caps)), (at_once, {})):
            for batch in Query(writes.table, mode, **how).batches() if draw.random() < 0.4 else ():
                rows |= {(row["dt"], row["id"]): row["ts"] for row in batch} if mode is plain else {}
    query = Query(writes.table, checkpoint, op="op", max_rows=3)
    last = query.batch()
    if last is not None and len(checkpoint.offsets) - 1 not in first:
        follow(seen, last)
    for batch in query.batches():
        follow(seen, batch)
    assert seen == writes.truth
    for batch in Query(writes.table, plain, max_rows=5).batches():
        rows |= {(row["dt"], row["id"]): row["ts"] for row in batch}
    assert {key: rows[key] for key in writes.truth} == writes.truth
    for number, batch in first.items():
        assert sorted(map(str, query.replay(number))) == sorted(map(str, batch))


@pytest.mark.shows("H3")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_stream_begins_where_it_is_told(table_type: str) -> None:
    table = table_for("clustering", table_type)
    assert Query(table).batches() == [[]], "of an empty table; the first batch says where the stream began"
    moments = [table.upsert(rows_of([n, n + 2], ts=n)).completed for n in range(4)]
    whole = [given(batch) for batch in Query(table).batches()]
    assert whole == [{0: 0, 1: 1, 2: 2, 3: 3, 4: 2, 5: 3}], "all that is there, and nothing twice"
    assert [given(batch) for batch in Query(table, start="OLDEST", max_instants=1).batches()] == [
        {n: n, n + 2: n} for n in range(4)
    ]
    since = [given(batch) for batch in Query(table, start=moments[1], max_instants=1).batches()]
    assert since == [{2: 2, 4: 2}, {3: 3, 5: 3}]
    query = Query(table, start="now")
    assert query.batches() == [[]]
    table.upsert(rows_of([7], ts=9))
    assert [given(batch) for batch in query.batches()] == [{7: 9}]


@pytest.mark.shows("H3")
def test_now_stays_where_it_was_when_its_first_batch_was_lost() -> None:
    table, checkpoint = table_for("clustering", "MERGE_ON_READ"), Checkpoint()
    table.upsert(rows_of(range(4), ts=1))
    assert Query(table, checkpoint, start="now").batch(commits=False) == []
    table.upsert(rows_of([2], ts=2))
    again = Query(table, checkpoint, start="now")
    assert [given(batch) for batch in again.batches()] == [{}, {2: 2}]


@pytest.mark.shows("H3")
@pytest.mark.parametrize("op", [{}, {"op": "op"}])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_batch_is_capped_by_rows_and_instants(table_type: str, op: dict[str, str]) -> None:
    table = table_for("clustering", table_type)
    table.upsert(rows_of(range(40), ts=1))  # four file groups of ten rows or so
    for n in range(4):
        table.upsert(rows_of([n], ts=2))
    sizes = [len(batch) for batch in Query(table, start="oldest", max_instants=3, **op).batches()]
    assert sizes == [40, 2], "the first three are one batch, in which a key comes once"
    sizes = [len(batch) for batch in Query(table, start="oldest", max_rows=25, **op).batches()]
    assert sum(sizes) == 44 and max(sizes) <= 25 and len(sizes) > 2, "the first write is given in parts"
    sizes = [len(batch) for batch in Query(table, max_rows=1, **op).batches()]
    assert sum(sizes) == 40 and len(sizes) == 4, "a file slice is never cut"


@pytest.mark.shows("H3")
def test_who_stops_amid_an_instant_goes_on_there_also_with_other_caps() -> None:
    table, checkpoint = table_for("clustering", "MERGE_ON_READ"), Checkpoint()
    table.upsert(rows_of(range(40), ts=1))
    first = given(Query(table, checkpoint, max_rows=1).batch())
    table.upsert(rows_of(range(0, 40, 3), ts=2))
    table.compact(delta_commits=1)
    rest = [given(batch) for batch in Query(table, checkpoint).batches()]
    assert first.keys() & rest[0].keys() == set() and first | rest[0] == dict.fromkeys(range(40), 1)
    assert rest[1:] == [dict.fromkeys(range(0, 40, 3), 2)]
    other = Checkpoint()
    Query(table, other, start="oldest", max_rows=1).batch()
    with pytest.raises(ConfigError, match="the option op was left out then"):
        Query(table, other, start="oldest", max_rows=1, op="op").batch()


@pytest.mark.shows("H3")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_write_that_took_long_is_not_passed_over(table_type: str) -> None:
    """It began before one that was given already."""
    table = table_for("rescale", table_type)
    table.upsert(rows_of(range(4), ts=1))
    query = Query(table, op="op", max_instants=1)
    assert len(query.batches()) == 1
    found: list[list[Rows]] = []

    def meanwhile() -> None:
        table.upsert(rows_of([1], ts=2))
        found.append(query.batches())

    replace_while(table, "rescale", meanwhile)
    assert [[given(batch) for batch in batches] for batches in found] == [[{1: 2}]]
    assert [given(batch) for batch in query.batches()] == [{}], (
        "a rescale looks like an overwrite, and changes no row"
    )


def old_table(table_type: str) -> tuple[Table, list[str]]:
    """A table with ten writes, of which the last three are kept."""
    table = table_for("clustering", table_type)
    moments = [table.upsert(rows_of(range(4), ts=n)).completed or "" for n in range(10)]
    table.compact(delta_commits=1) if table_type == "MERGE_ON_READ" else None
    moments += [table.upsert(rows_of(range(4), ts=n)).completed or "" for n in range(10, 13)]
    table.clean(retain_commits=3)
    return table, moments


@pytest.mark.shows("H3")
@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_start_that_was_cleaned_is_refused_and_the_oldest_one_is_read(
    table_type: str, archived: bool
) -> None:
    table, moments = old_table(table_type)
    if archived:
        archive_table(table.store, keep_min=3, keep_max=4)
    for start in (moments[0], "0"):
        with pytest.raises(ConfigError, match=r"what is older was cleaned\. start='oldest'"):
            Query(table, start=start).batch()
    for op in ({}, {"op": "op"}):
        found = [given(batch) for batch in Query(table, start="oldest", max_instants=1, **op).batches()]
        assert found == [dict.fromkeys(range(4), n) for n in range(10, 13)]
        assert [given(batch) for batch in Query(table, **op).batches()] == [dict.fromkeys(range(4), 12)]


@pytest.mark.shows("H3")
@pytest.mark.parametrize("op", [{}, {"op": "op"}])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_batch_whose_files_were_cleaned_says_what_to_do(table_type: str, op: dict[str, str]) -> None:
    table, checkpoint = table_for("clustering", table_type), Checkpoint()
    for n in range(3):
        table.upsert(rows_of(range(4), ts=n))
    query = Query(table, checkpoint, start="oldest", max_instants=1, **op)
    assert query.batch() is not None
    query.batch(commits=False)
    for n in range(3, 6):
        table.upsert(rows_of(range(4), ts=n))
    if table_type == "MERGE_ON_READ":
        table.compact(delta_commits=1)
    table.upsert(rows_of(range(4), ts=9))
    table.clean(retain_commits=1)
    with pytest.raises(ConfigError, match=r"new checkpoint, and start='oldest'.*keep_commits"):
        Query(table, checkpoint, start="oldest", **op).batch()


@pytest.mark.shows("H3")
@pytest.mark.parametrize("caps", [{}, {"max_rows": 1}], ids=["whole", "in parts"])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_stream_that_has_given_all_lags_behind_no_service(table_type: str, caps: dict[str, int]) -> None:
    """The files that it saw last are cleaned, and what services made of them has the same rows."""
    table, checkpoint = table_for("clustering", table_type), Checkpoint()
    table.upsert(rows_of(range(8), ts=1))
    table.upsert(rows_of(range(8), ts=2))
    Query(table, checkpoint, op="op").batches()
    for _ in range(2):
        table.compact(delta_commits=1) if table_type == "MERGE_ON_READ" else None
        replace_while(table, "clustering", lambda: None)
    table.clean(retain_commits=1)
    table.upsert(rows_of([0, 1, 9], ts=3))
    table.delete(rows_of([2], ts=4))
    batches = Query(table, checkpoint, op="op", **caps).batches()
    found = sorted((row["id"], row["op"]) for batch in batches for row in batch)
    assert found == [(0, "update"), (1, "update"), (2, "delete"), (9, "insert")]
    assert len(batches) == (3 if caps else 1)


@pytest.mark.shows("H2")
def test_a_write_that_was_given_and_taken_back_stops_the_stream() -> None:
    table, checkpoint = table_for("clustering", "MERGE_ON_READ"), Checkpoint()
    table.upsert(rows_of(range(4), ts=1))
    query = Query(table, checkpoint)
    assert len(query.batches()) == 1
    gone = table.upsert(rows_of([1], ts=2)).instant
    assert gone is not None and [given(batch) for batch in query.batches()] == [{1: 2}]
    table.rollback(gone)
    for one in (query, Query(table, checkpoint)):
        with pytest.raises(ConfigError, match=f"given the rows of the write {gone}.*rolled back"):
            one.batch()
    table.upsert(rows_of([2], ts=3))
    with pytest.raises(ConfigError, match="new checkpoint"):
        query.batch()


@pytest.mark.shows("H2")
def test_a_batch_that_was_lost_is_not_given_again_without_a_write_that_was_taken_back() -> None:
    table, checkpoint = table_for("clustering", "MERGE_ON_READ"), Checkpoint()
    table.upsert(rows_of(range(4), ts=1))
    Query(table, checkpoint).batches()
    gone = table.upsert(rows_of([1], ts=2)).instant
    assert gone is not None and given(Query(table, checkpoint).batch(commits=False)) == {1: 2}
    table.rollback(gone)
    with pytest.raises(ConfigError, match=f"given the rows of the write {gone}"):
        Query(table, checkpoint).batch()


@pytest.mark.shows("H2")
def test_a_restore_to_before_what_was_given_stops_the_stream_and_one_after_does_not() -> None:
    table, kept = table_for("clustering", "COPY_ON_WRITE"), Checkpoint()
    table.upsert(rows_of(range(4), ts=1))
    saved = table.savepoint()
    query, early = Query(table), Query(table, kept)
    early.batches()
    table.upsert(rows_of([1], ts=2))
    query.batches()
    table.restore(saved.instant)
    with pytest.raises(ConfigError, match="the table was restored"):
        query.batch()
    assert early.batches() == []
    table.upsert(rows_of([3], ts=3))
    assert [given(batch) for batch in early.batches()] == [{3: 3}]


@pytest.mark.shows("H3")
def test_a_stream_that_lags_behind_the_archive_goes_on() -> None:
    table, checkpoint = table_for("clustering", "MERGE_ON_READ"), Checkpoint()
    for n in range(4):
        table.upsert(rows_of([n], ts=n))
    assert given(Query(table, checkpoint, start="oldest", max_instants=1).batch()) == {0: 0}
    for n in range(4, 10):
        table.upsert(rows_of([n], ts=n))
    archive_table(table.store, keep_min=2, keep_max=3)
    found = [given(batch) for batch in Query(table, checkpoint, max_instants=4).batches()]
    assert found == [{n: n for n in range(1, 5)}, {n: n for n in range(5, 9)}, {9: 9}]


@pytest.mark.shows("H3", "R1")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_row_that_moves_is_deleted_in_one_partition_and_inserted_in_the_other(table_type: str) -> None:
    table = create_table(
        f"memory://moving-{table_type}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(),
        table_type=table_type,
    )
    table.upsert(rows_of([1, 2], ts=1))
    query = Query(table, op="op", columns="dt,id,ts")
    query.batches()
    table.upsert(pa.Table.from_pylist([{"id": 1, "dt": "elsewhere", "ts": 2}], SCHEMA))
    assert [sorted(tuple(row.values()) for row in batch) for batch in query.batches()] == [
        [("d1", 1, 1, "delete"), ("elsewhere", 1, 2, "insert")]
    ]


def tables_of(name: str, index: IndexValue, table_type: str, **copy: Any) -> tuple[Table, Table]:
    """Make two empty tables: one to be followed, and one for its copy."""
    made = [
        create_table(
            f"memory://{name}-{which}-{table_type}",
            SCHEMA,
            key="id",
            partition="dt",
            index=index,
            table_type=table_type,
            **{"ordering": "ts", **how},
        )
        for which, how in (("source", {}), ("copy", copy))
    ]
    return made[0], made[1]


class Copying:
    """A stream of ours that makes a copy of a table."""

    def __init__(self, source: Table, copy: Table) -> None:
        self.source, self.copy, self.checkpoint = source, copy, Checkpoint()
        self.stream = Stream(store=copy.store, id="copying", options={"op": "op"})

    def go_on(self, **caps: int) -> int:
        """Return in how many batches the copy came to be as the table is."""
        first = len(self.checkpoint.offsets)
        query = Query(self.source, self.checkpoint, op="op", columns="id,dt,ts", **caps)
        while (rows := query.batch()) is not None:
            said = pa.Table.from_pylist(rows, SCHEMA.append(pa.field("op", pa.string())))
            self.stream.upsert(said, len(self.checkpoint.offsets) - 1)
        assert live(self.copy) == live(self.source)
        return len(self.checkpoint.offsets) - first


@pytest.mark.shows("H3", "R9")
@pytest.mark.parametrize("ordering", ["ts", None])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_row_that_moves_and_is_no_newer_is_in_a_copy_that_goes_by_keys_alone(
    table_type: str, ordering: str | None
) -> None:
    """Whichever file group is the larger, and is read first; also where they are in batches of their own."""
    source, copy = tables_of(f"moved-{ordering}", RecordIndex(), table_type, ordering=ordering)
    copying = Copying(source, copy)
    rows = [{"id": n, "dt": "large", "ts": 1} for n in range(3, 200)]
    source.upsert(pa.Table.from_pylist([{"id": 1, "dt": "small", "ts": 1}, *rows], SCHEMA))
    copying.go_on()
    source.upsert(pa.Table.from_pylist([{"id": 1, "dt": "large", "ts": 1}], SCHEMA))
    assert copying.go_on() == 1
    source.upsert(pa.Table.from_pylist([{"id": 1, "dt": "small", "ts": 1}], SCHEMA))
    assert copying.go_on(max_rows=1) > 1


@pytest.mark.shows("H3", "R9")
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("index", [SimpleBuckets(1), RecordIndex()], ids=["simple", "record"])
def test_a_copy_without_ordering_columns_takes_rows_that_went_back_in_time(
    index: IndexValue, table_type: str
) -> None:
    """By an overwrite with older rows, or a delete and an older row."""
    source, copy = tables_of(f"older-{type(index).__name__}", index, table_type, ordering=None)
    copying = Copying(source, copy)
    source.upsert(rows_of(range(1, 9, 2), ts=5))
    copying.go_on()
    source.overwrite(rows_of([1, 3, 5], ts=3))
    copying.go_on()
    source.delete(rows_of([3], ts=9))
    source.upsert(rows_of([3], ts=1))
    copying.go_on()


@pytest.mark.shows("H3")
def test_a_row_that_comes_to_light_again_is_an_insert() -> None:
    """Hudi reads logs first: of a delete and a late row, only the late row is left, and loses to the base file."""
    source, copy = tables_of("to-light", SimpleBuckets(1), "MERGE_ON_READ")
    copying = Copying(source, copy)
    source.upsert(rows_of([1, 3], ts=5))
    source.delete(rows_of([1], ts=5))
    copying.go_on()
    assert live(copy) == {("d1", 3): 5}
    source.upsert(rows_of([1], ts=3))
    copying.go_on()
    assert live(copy) == {("d1", 1): 5, ("d1", 3): 5}


HUDI_TABLES = [
    "cow_complex_single_key",
    "cow_global_rli",
    "cow_savepoint_restore",
    "mor_all_types",
    "mor_consistent_4_after_merge",
    "mor_partition_bucket",
    "mor_simple_bucket_avro",
    "mor_v8",
]


@pytest.mark.shows("H3")
@pytest.mark.parametrize("name", HUDI_TABLES)
def test_a_copy_made_of_what_hudi_wrote_is_the_table(name: str, golden_table: Callable[[str], Path]) -> None:
    table = Table.open(golden_table(name))

    def named(row: dict[str, Any]) -> tuple[tuple[str, str], str]:
        row.pop("_hoodie_file_name")  # of a row that did not change, too, when its base file is written anew
        return (row["_hoodie_partition_path"], row["_hoodie_record_key"]), str(row)

    copy: dict[tuple[str, str], str] = {}
    batches = Query(table, start="oldest", max_instants=1, op="op").batches()
    for batch in batches:
        for row in batch:
            op = row.pop("op")
            key, values = named(row)
            assert (key in copy) == (op != "insert")
            copy[key] = values
            if op == "delete":
                del copy[key]
    assert copy == dict(named(row) for row in table.to_arrow().to_pylist())


WIDER = pa.schema([*SCHEMA, pa.field("more", pa.string())])


def widen(table: Table) -> None:
    rows = pa.Table.from_pylist([{"id": 1, "dt": "d1", "ts": 5, "more": "x"}], WIDER)
    table.upsert(rows, merge_schema=True)


def test_a_new_column_stops_a_stream_of_all_columns_and_no_other() -> None:
    table, checkpoint = table_for("clustering", "MERGE_ON_READ"), Checkpoint()
    table.upsert(rows_of(range(4), ts=1))
    query, named = Query(table, checkpoint), Query(table, columns="dt,id,ts")
    query.batches(), named.batches()
    widen(table)
    with pytest.raises(SchemaError, match=r"new column 'more'.*Restart the query"):
        query.batch()
    assert named.batches() == [[{"dt": "d1", "id": 1, "ts": 5}]]
    again = Query(table, checkpoint).batches()
    assert [(row["id"], row["more"]) for row in again[0]] == [(1, "x")]


def test_what_cannot_be_streamed_is_refused(golden_table: Callable[[str], Path]) -> None:
    table = table_for("clustering", "MERGE_ON_READ")
    table.upsert(rows_of(range(4), ts=1))
    refused = {
        "unknown option 'begin'": {"begin": "0"},
        "option max_rows is 0; expected at least 1": {"max_rows": 0},
        "op is 'ts'; expected the name of a column that the table does not have": {"op": "ts"},
        "op is 'TS'; expected the name of a column that the table does not have": {"op": "TS"},
        "start is none of beginning, now, oldest": {"start": "tomorrow"},
        "has no offset": {"start": "2026-06-18 12:00:00"},
    }
    for message, options in refused.items():
        with pytest.raises(ConfigError, match=message):
            Query(table, **options).batch()
    for name, message in {
        "mor_v6": "when writes completed",
        "mor_virtual_keys": "which commit wrote them",
    }.items():
        with pytest.raises(UnsupportedError, match=message):
            Query(Table.open(golden_table(name))).batch()
    with pytest.raises(ConfigError, match="as a stream also with max_instants, max_rows, op, start"):
        SourceOptions.parse({"path": "orders", "maxRows": "5"})  # what Spark asks first, of streams too
    with pytest.raises(ConfigError, match="checkpoint of another query"):
        Query(table).reader.partitions({"x": 1}, {"x": 2})


def test_an_offset_survives_json() -> None:
    offsets = [
        Offset(Mark("1", "a"), origin=NOTHING),
        Offset(Mark("1", "a"), Mark("2", "b"), 3, True),
        Offset(NOTHING, Mark("2", "b")),
    ]
    assert [parse_offset(offset.as_json()) for offset in offsets] == offsets
    assert parse_offset(INITIAL) is None


A, B, C = Mark("1", "a"), Mark("2", "b"), Mark("3", "c")


def test_a_batch_is_what_lies_between_two_offsets() -> None:
    first = Offset(A, B, 2, origin=A)
    assert batch_between(None, first) == Batch(A, B, 0, 2)
    assert batch_between(first, Offset(A, B, 5)) == Batch(A, B, 2, 5)
    assert batch_between(first, Offset(B)) == Batch(A, B, 2)
    assert batch_between(Offset(A), first) == Batch(A, B, 0, 2)
    assert batch_between(None, Offset(C, origin=NOTHING)) == Batch(NOTHING, C)
    for start, end in (
        (Offset(B), Offset(A)),
        (first, Offset(C)),
        (Offset(B), first),
        (Offset(A, B, 5), first),
    ):
        with pytest.raises(ConfigError, match="triggerAvailableNowWrapper"):
            batch_between(start, end)


def test_a_batch_ends_before_the_write_that_would_be_too_much() -> None:
    writes = [Written(A, 5, False), Written(B, 0, True), Written(C, 6, False)]
    assert choose_end(writes, max_instants=None, max_rows=11) == Chosen(C, 11)
    assert choose_end(writes, max_instants=None, max_rows=10) == Chosen(B, 5)
    assert choose_end(writes, max_instants=1, max_rows=None) == Chosen(B, 5)
    assert choose_end(writes, max_instants=None, max_rows=1) == Chosen(B, 5), "at least one"
    assert choose_end(writes[1:], max_instants=1, max_rows=None) == Chosen(C, 6)
    assert choose_end(writes[1:2], max_instants=1, max_rows=None) is None
    at_once = [Written(A, 5, False), Written(Mark("1", "b"), 6, False)]
    assert choose_end(at_once, max_instants=1, max_rows=None) == Chosen(Mark("1", "b"), 11), (
        "in one millisecond"
    )
    assert cut([3, 3, 3], 1, 3) == 2
