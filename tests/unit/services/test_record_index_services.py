"""Whatever replaces file groups keeps the record-level index right: overwrites, dropped partitions, clustering,
rescales, resizes, compaction."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, PartitionBuckets, RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.config import TableType, load_properties
from bucketlake.errors import CommitConflictError, ConflictError, KeyElsewhereError
from bucketlake.index import IndexValue, RecordLevelIndex, record_level
from bucketlake.index.record_level import resolve_record_index
from bucketlake.services import check_table
from bucketlake.services.clustering import (
    plan_clustering,
    rollback_clustering,
    run_clustering,
    schedule_clustering,
)
from bucketlake.services.compaction import plan_compaction, run_compaction, schedule_compaction
from bucketlake.services.fsck import Kind
from bucketlake.services.held import load_held
from bucketlake.services.record_index_build import build_record_index
from bucketlake.services.rescale import new_rules, rescale_table
from bucketlake.services.tasks import here
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import TableSpec, create
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.record_index_check import check_record_index

pytestmark = pytest.mark.shows("R1")

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
KINDS = [RecordIndex(shards=3), RecordIndex(per_partition=True, shards=2)]
IDS = ["global", "per partition"]
Row = tuple[str, str, int, str]
_names = itertools.count()


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def a_table(table_type: str, index: Any, **more: Any) -> Table:
    given = {"ordering": "ts", "partition": "dt"} | more
    return create_table(
        f"memory://record-services-{next(_names)}",
        SCHEMA,
        key="id",
        index=index,
        table_type=table_type,
        maintenance="off",
        **given,
    )


def contents(table: Table) -> set[Row]:
    found = Table(table.store, load_properties(table.store)).to_arrow(columns=SCHEMA.names).to_pylist()
    return {(row["id"], row["dt"], row["ts"], row["v"]) for row in found}


def check(table: Table, expected: set[Row]) -> None:
    """Rows are as expected, and the index is as the rows are."""
    assert contents(table) == expected
    assert check_record_index(table.store) == len(expected)
    report = check_table(table.store)
    assert report.damage == (), str(report)


@pytest.fixture(params=KINDS, ids=IDS)
def index(request: pytest.FixtureRequest) -> RecordIndex:
    found: RecordIndex = request.param
    return found


@pytest.fixture(params=TYPES)
def table_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def filled(table_type: str, index: RecordIndex) -> tuple[Table, set[Row]]:
    """A table with keys in base files and, merge-on-read, changes in logs."""
    table = a_table(table_type, index)
    table.upsert(rows(*((f"k{n}", f"p{n % 3}", 1, "a") for n in range(30))))
    table.upsert(rows(*((f"k{n}", f"p{n % 3}", 2, "b") for n in range(0, 30, 4)), ("new", "p0", 2, "b")))
    table.delete(pa.table({"id": ["k0", "k1"], "dt": ["p0", "p1"]}))
    expected = {
        (f"k{n}", f"p{n % 3}", 2 if n % 4 == 0 else 1, "b" if n % 4 == 0 else "a") for n in range(2, 30)
    }
    expected.add(("new", "p0", 2, "b"))
    check(table, expected)
    return table, expected


def test_overwritten_partitions_forget_their_keys(table_type: str, index: RecordIndex) -> None:
    table, expected = filled(table_type, index)
    brought = {("k3", "p0", 1, "again"), ("n1", "p0", 1, "x"), ("n2", "p3", 1, "x")}
    table.overwrite(rows(*brought))
    expected = {row for row in expected if row[1] != "p0"} | brought
    check(table, expected)
    # What was forgotten comes again as new, wherever it comes.
    table.upsert(rows(("k6", "p0", 1, "back"), ("k9", "p2", 1, "back"), ("k0", "p1", 1, "back")))
    expected |= {("k6", "p0", 1, "back"), ("k9", "p2", 1, "back"), ("k0", "p1", 1, "back")}
    check(table, expected)


def test_a_key_of_an_overwrite_leaves_the_partition_that_it_was_in(table_type: str) -> None:
    table, expected = filled(table_type, KINDS[0])
    # k4 and k7 are in p1, which stays; k4 was changed at 2, so a row of 1 is late. k5 is in p2.
    table.overwrite(rows(("k4", "p0", 1, "late"), ("k7", "p0", 5, "moved"), ("k5", "p0", 5, "moved")))
    expected = {row for row in expected if row[1] != "p0" and row[0] not in ("k7", "k5")}
    expected |= {("k7", "p0", 5, "moved"), ("k5", "p0", 5, "moved")}
    check(table, expected)
    # Where both partitions are replaced, nothing is late.
    table.overwrite(rows(("k7", "p1", 1, "older"), ("k5", "p0", 1, "older")))
    expected = {row for row in expected if row[1] == "p2"} | {
        ("k7", "p1", 1, "older"),
        ("k5", "p0", 1, "older"),
    }
    check(table, expected)


def test_the_whole_table_is_overwritten(table_type: str, index: RecordIndex) -> None:
    table, _ = filled(table_type, index)
    brought = {("k4", "p0", 1, "z"), ("k5", "p9", 1, "z")}
    table.overwrite(rows(*brought), whole_table=True)
    check(table, brought)
    table.overwrite(rows(), whole_table=True)
    check(table, set())
    table.upsert(rows(("k5", "p0", 1, "z")))
    check(table, {("k5", "p0", 1, "z")})


@pytest.mark.parametrize("again", ["p1", "p2"])
def test_a_dropped_partition_is_filled_again(table_type: str, index: RecordIndex, again: str) -> None:
    """apache/hudi#19806: entries that point into a dropped partition lose the rows that come next."""
    table, expected = filled(table_type, index)
    table.delete_partitions(["p1"])
    gone = sorted(row for row in expected if row[1] == "p1")
    expected = {row for row in expected if row[1] != "p1"}
    check(table, expected)
    back = {(key, again, ts, v) for key, _, ts, v in gone}
    table.upsert(rows(*back))
    check(table, expected | back)
    table.delete(pa.table({"id": [row[0] for row in back], "dt": [again] * len(back)}))
    check(table, expected)


def test_a_replace_that_is_taken_back_gives_the_index_back(table_type: str, index: RecordIndex) -> None:
    table, expected = filled(table_type, index)
    for act in (
        lambda: table.overwrite(rows(("k3", "p0", 9, "x"), ("k4", "p0", 9, "x"))),
        lambda: table.delete_partitions(["p0", "p2"]),
    ):
        done = act()
        assert done.instant is not None
        table.rollback(done.instant)
        check(table, expected)


def groups(table: Table) -> dict[str, int]:
    """How many file groups each partition has."""
    found = table.to_arrow(meta_columns=True)
    pairs = {
        (row["_hoodie_partition_path"], row["_hoodie_file_name"].partition("_")[0])
        for row in found.to_pylist()
    }
    return {partition: sum(p == partition for p, _ in pairs) for partition, _ in pairs}


def test_clustering_records_every_key_anew_and_joins_small_groups(
    table_type: str, index: RecordIndex
) -> None:
    """apache/hudi#13996: a clustering with default options keeps the index."""
    table, expected = filled(table_type, index)
    listed = load_properties(table.store).metadata_partitions
    table.cluster(by=["v"])
    check(table, expected)
    assert load_properties(table.store).metadata_partitions == listed
    assert groups(table) == {"p0": 1, "p1": 1, "p2": 1}
    table.upsert(rows(("k4", "p1", 8, "c"), ("k5", "p2", 8, "c"), ("n9", "p0", 8, "c")))
    table.delete(pa.table({"id": ["k6"], "dt": ["p0"]}))
    expected = {row for row in expected if row[0] not in ("k4", "k5", "k6")}
    expected |= {("k4", "p1", 8, "c"), ("k5", "p2", 8, "c"), ("n9", "p0", 8, "c")}
    check(table, expected)
    table.cluster(by=["id"])
    check(table, expected)
    table.overwrite(rows(("k4", "p0", 9, "d")))
    if not index.per_partition:
        expected.discard(("k4", "p1", 8, "c"))
    check(table, {row for row in expected if row[1] != "p0"} | {("k4", "p0", 9, "d")})


def scheduled(store: Store) -> str:
    state = load_state(store)
    plan = plan_clustering(state, files_of(state), load_held(state), by=["id"], now="")
    instant = schedule_clustering(store, plan)
    assert instant is not None
    return instant


def test_a_clustering_that_is_taken_back_leaves_no_entries(table_type: str, index: RecordIndex) -> None:
    table, expected = filled(table_type, index)
    instant = scheduled(table.store)
    done = table.cluster(by=["id"]).runs
    assert [run.instant for run in done][:1] == [instant]
    check(table, expected)
    table.rollback(instant)
    check(table, expected)
    instant = scheduled(table.store)
    rollback_clustering(table.store, instant)
    check(table, expected)


def test_a_clustering_gives_way_to_a_write_and_takes_its_entries_along(
    table_type: str, index: RecordIndex
) -> None:
    """apache/hudi#18830: an overwrite beside a pending clustering."""
    table, expected = filled(table_type, index)
    instant = scheduled(table.store)
    table.overwrite(rows(("k3", "p0", 9, "x"), ("k4", "p0", 9, "x")))
    expected = {row for row in expected if row[1] != "p0"} | {("k3", "p0", 9, "x"), ("k4", "p0", 9, "x")}
    if not index.per_partition:
        expected = {row for row in expected if row[:2] != ("k4", "p1")}
    check(table, expected)
    with pytest.raises(CommitConflictError):
        run_clustering(table.store, instant)
    check(table, expected)
    assert not [f.path for f in table.store.list(".hoodie/metadata/record_index").files if instant in f.path]


def test_a_clustering_that_is_cut_off_anywhere_is_whole_or_nothing(table_type: str) -> None:
    origin = create_in(Bucket(), table_type, RecordIndex(shards=2))
    origin.upsert(rows(("a", "p0", 1, "x"), ("b", "p0", 1, "x")))
    origin.upsert(rows(("a", "p0", 2, "y"), ("c", "p0", 1, "x")))
    expected = {("a", "p0", 2, "y"), ("b", "p0", 1, "x"), ("c", "p0", 1, "x")}
    instant = scheduled(origin.store)
    trial = FaultyStore(copy_of(origin.store))
    run_clustering(trial, instant)
    first = next(n for n, text in enumerate(trial.operations) if "put_new p0/" in text)
    for number in range(first, len(trial.operations) + 1, 2):
        store = copy_of(origin.store)
        with suppress(InjectedError, ConflictError):
            run_clustering(FaultyStore(store, fails_at=number, is_dead=True), instant)
        age(store)
        if number % 4 < 2:
            run_clustering(store, instant)
        table = Table(store, load_properties(store))
        table.upsert(rows(("z", "p1", 1, "after"), ("a", "p0", 1, "late")))
        check(table, expected | {("z", "p1", 1, "after")})


def create_in(store: Store, table_type: str, index: Any) -> Table:
    spec = TableSpec(
        name="t",
        schema=SCHEMA,
        key=("id",),
        partition=("dt",),
        ordering=("ts",),
        table_type=TableType(table_type),
        index=index,
    )
    table = Table(store, create(store, spec))
    table.metadata.build()
    return Table(store, load_properties(store))


# ---------------------------------------------------------------------------------- beside buckets, where it is listed


def listed_on(table_type: str, engine: IndexValue, index: RecordIndex, **more: Any) -> Table:
    """A table of buckets whose metadata table lists a record-level index, as Hudi's default users have it."""
    table = a_table(table_type, engine, metadata=True, **more)
    table.upsert(rows(*((f"k{n}", f"p{n % 3}", 1, "a") for n in range(30))))
    build_record_index(table.store, index)
    return Table(table.store, load_properties(table.store))


def entries(store: Store) -> dict[tuple[str, str], str]:
    index = resolve_record_index(load_state(store))
    assert isinstance(index, RecordLevelIndex)
    found = [entry for shard in range(index.shards_there) for entry in index.entries(shard).to_pylist()]
    return {(entry["key"], entry["partition"]): entry["file_id"] for entry in found}


def check_listed(table: Table, expected: set[Row]) -> None:
    table = Table(table.store, load_properties(table.store))
    assert contents(table) == expected
    found = table.to_arrow(meta_columns=True).to_pylist()
    places = {(row["id"], row["dt"]): row["_hoodie_file_name"].partition("_")[0] for row in found}
    assert entries(table.store) == places
    report = check_table(table.store)
    assert report.damage == (), str(report)


ENGINES = {
    "simple": SimpleBuckets(2),
    "partition": PartitionBuckets("p0,3", 1),
    "consistent": ConsistentBuckets(2),
}
FIRST = {(f"k{n}", f"p{n % 3}", 1, "a") for n in range(30)}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_listed_index_follows_every_write_to_buckets(
    table_type: str, index: RecordIndex, engine: str
) -> None:
    table = listed_on(table_type, ENGINES[engine], index)
    check_listed(table, FIRST)
    expected = {row for row in FIRST if row[0] not in ("k0", "k1", "k2")} | {
        ("k2", "p2", 2, "b"),
        ("n", "p0", 2, "b"),
    }
    table.upsert(rows(("k2", "p2", 2, "b"), ("n", "p0", 2, "b")))
    table.delete(pa.table({"id": ["k0", "k1", "unknown"], "dt": ["p0", "p1", "p1"]}))
    check_listed(table, expected)
    table.overwrite(rows(("k3", "p0", 5, "c"), ("n3", "p3", 5, "c")))
    expected = {row for row in expected if row[1] != "p0"} | {("k3", "p0", 5, "c"), ("n3", "p3", 5, "c")}
    check_listed(table, expected)
    table.delete_partitions(["p1"])
    expected = {row for row in expected if row[1] != "p1"}
    check_listed(table, expected)
    table.upsert(rows(("k4", "p1", 6, "d")))
    expected.add(("k4", "p1", 6, "d"))
    check_listed(table, expected)
    if table_type == "MERGE_ON_READ":
        table.compact(delta_commits=1)
        check_listed(table, expected)
    if engine != "consistent":
        table.cluster(by=["v"])
        check_listed(table, expected)
    done = table.upsert(rows(("k4", "p1", 7, "e"), ("n7", "p1", 7, "e")))
    assert done.instant is not None
    table.rollback(done.instant)
    check_listed(table, expected)
    table.overwrite(rows(("only", "p5", 1, "z")), whole_table=True)
    check_listed(table, {("only", "p5", 1, "z")})


def test_a_listed_index_follows_a_rescale(table_type: str, index: RecordIndex) -> None:
    table = listed_on(table_type, PartitionBuckets("p0,3", 1), index)
    table.delete(pa.table({"id": ["k0", "k1"], "dt": ["p0", "p1"]}))
    expected = {row for row in FIRST if row[0] not in ("k0", "k1")}
    done = table.buckets.overwrite("p1,4", bucket_number=2)
    check_listed(table, expected)
    table.upsert(rows(("k4", "p1", 2, "b"), ("n", "p1", 2, "b")))
    table.delete(pa.table({"id": ["n"], "dt": ["p1"]}))
    check_listed(table, {row for row in expected if row[0] != "k4"} | {("k4", "p1", 2, "b")})
    assert done is not None


def test_a_listed_index_follows_a_resize(table_type: str, index: RecordIndex) -> None:
    table = listed_on(table_type, ConsistentBuckets(2), index)
    table.delete(pa.table({"id": ["k0", "k1"], "dt": ["p0", "p1"]}))
    expected = {row for row in FIRST if row[0] not in ("k0", "k1")}
    assert table.buckets.resize(file_bytes=1000, split_threshold=1.0, merge_threshold=0.1, max_buckets=4).runs
    check_listed(table, expected)
    table.upsert(rows(("k4", "p1", 2, "b"), ("n", "p1", 2, "b")))
    check_listed(
        table, {row for row in expected if row[0] != "k4"} | {("k4", "p1", 2, "b"), ("n", "p1", 2, "b")}
    )


def test_a_rescale_gives_way_to_keys_that_came_meanwhile(table_type: str, index: RecordIndex) -> None:
    """Of two entries of a key the one of the later instant counts, and the rescale is the earlier one."""
    table = listed_on(table_type, PartitionBuckets("p0,3", 1), index)
    store = table.store

    class Beside:
        def __init__(self, *values: Row) -> None:
            self.values = [rows(*values)]

        def __call__(self, function: Any, items: Any, /) -> list[Any]:
            done = here(function, items)
            if self.values:
                table.upsert(self.values.pop())
            return done

    def rescale(expressions: str, *values: Row) -> None:
        made, version = new_rules(
            load_state(store), expressions, default_count=2, rule_type="regex", adds=False
        )
        rescale_table(store, made, version_before=version, tasks=Beside(*values))

    with pytest.raises(CommitConflictError, match="has brought keys"):
        rescale("p1,4", ("n", "p1", 2, "b"))
    expected = FIRST | {("n", "p1", 2, "b")}
    check_listed(table, expected)
    rescale("p1,4", ("k4", "p1", 5, "c"))
    check_listed(table, {row for row in expected if row[0] != "k4"} | {("k4", "p1", 5, "c")})


def test_a_key_that_would_be_in_two_partitions_is_refused_or_the_index_delisted(table_type: str) -> None:
    table = listed_on(table_type, SimpleBuckets(2), RecordIndex(shards=2))
    before = table.timeline()
    with pytest.raises(
        KeyElsewhereError, match=r"'k1' is in the partition 'p1' and in 'p0'.*--on-unmaintained delist"
    ):
        table.upsert(rows(("k1", "p0", 2, "b"), ("k3", "p0", 2, "b")))
    with pytest.raises(KeyElsewhereError, match="'n' is in the partition 'p1' and in 'p0'"):
        table.upsert(rows(("n", "p0", 2, "b"), ("n", "p1", 2, "b")))
    assert [i.requested for i in table.timeline()] == [i.requested for i in before]
    check_listed(table, FIRST)
    # Where it goes from the one in the same commit, it may come to the other.
    table.overwrite(rows(("k1", "p0", 2, "b"), ("z", "p1", 2, "b")))
    expected = {row for row in FIRST if row[1] == "p2"} | {("k1", "p0", 2, "b"), ("z", "p1", 2, "b")}
    check_listed(table, expected)
    table.alter(on_unmaintained="delist")
    table = Table(table.store, load_properties(table.store))
    table.upsert(rows(("k1", "p1", 2, "b")))
    assert load_properties(table.store).metadata_partitions == ("files",)
    assert contents(table) == expected | {("k1", "p1", 2, "b")}
    assert check_table(table.store).damage == ()


def test_an_index_for_each_partition_has_a_key_in_several(table_type: str) -> None:
    table = listed_on(table_type, SimpleBuckets(2), RecordIndex(per_partition=True))
    table.upsert(rows(("k1", "p0", 2, "b")))
    check_listed(table, FIRST | {("k1", "p0", 2, "b")})
    table.delete(pa.table({"id": ["k1"], "dt": ["p1"]}))
    check_listed(table, {row for row in FIRST if row[0] != "k1"} | {("k1", "p0", 2, "b")})


def test_a_compaction_puts_keys_back_that_the_index_lacks(
    index: RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, expected = filled("MERGE_ON_READ", index)
    # What a commit should say of keys is lost on its way to the file, as in apache/hudi#19225.
    whole = record_level.encode_entry_log

    def lossy(instant: str, came: Any, gone: Any) -> bytes:
        if came is None:
            return whole(instant, came, gone)
        kept = np.array([not key.startswith("m") for key in came.keys.to_pylist()], np.bool_)
        locations = replace(came.locations, codes=came.locations.codes[kept])
        return whole(instant, replace(came, keys=came.keys.filter(pa.array(kept)), locations=locations), gone)

    with monkeypatch.context() as patch:
        patch.setattr(record_level, "encode_entry_log", lossy)
        patch.setattr(record_level, "prove_log", lambda held, keys: None)
        table.upsert(rows(*((f"m{n}", "p0", 1, "x") for n in range(8)), ("other", "p0", 1, "x")))
    assert any(finding.kind is Kind.MISPLACED_KEY for finding in check_table(table.store).damage)
    table.upsert(rows(("other", "p0", 2, "y"), ("k4", "p1", 3, "z")))
    expected = {row for row in expected if row[0] != "k4"} | {("k4", "p1", 3, "z"), ("other", "p0", 2, "y")}
    expected |= {(f"m{n}", "p0", 1, "x") for n in range(8)}
    (run,) = table.compact(delta_commits=1).runs
    assert run.healed == 8
    assert "8 keys that the index lacked were recorded" in str(run)
    check(table, expected)
    table.upsert(rows(("m1", "p0", 5, "z")))
    check(table, {row for row in expected if row[0] != "m1"} | {("m1", "p0", 5, "z")})


def test_a_compaction_does_not_put_back_what_was_deleted_meanwhile(index: RecordIndex) -> None:
    table, expected = filled("MERGE_ON_READ", index)
    table.upsert(rows(("k4", "p1", 3, "z"), ("k7", "p1", 3, "z")))
    state = load_state(table.store)
    plan = plan_compaction(state, files_of(state), load_held(state), now="")
    instant = schedule_compaction(table.store, plan)
    assert instant is not None
    table.delete(pa.table({"id": ["k4"], "dt": ["p1"]}))
    run = run_compaction(table.store, instant)
    assert run.healed == 0
    check(table, {row for row in expected if row[0] not in ("k4", "k7")} | {("k7", "p1", 3, "z")})
