"""What users of record-level indexes suffered from elsewhere does not happen here: a test for each report.

The number in a test's name is that of the report: an issue or pull request of apache/hudi, unless it says otherwise.
What only shows with Hudi at work is in tests/interop/test_record_index_judged.py, what needs crashes in tests/fault.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import (
    CommitConflictError,
    ConflictError,
    ConsistentBuckets,
    DynamicBuckets,
    LayoutMismatchError,
    ProofError,
    RecordIndex,
    Table,
    UnsupportedError,
    create_table,
    set_index_cache,
)
from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.metadata_table import LISTED
from bucketlake.commit.transaction import Heartbeat, abort, begin
from bucketlake.config import TableType, load_properties, update_properties
from bucketlake.index import bucket_room, shard_of
from bucketlake.index.bucket_room import Assigner, Room
from bucketlake.index.fingerprint import KEY_ENCODING
from bucketlake.layout.names import parse_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata import record_shard
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services import (
    Maintenance,
    Retention,
    check_table,
    index_kind,
    load_held,
    plan_clustering,
    run_clustering,
    run_maintenance,
    schedule_clustering,
)
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.services.record_index_build import build_record_index
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write import ArrowRows, Operation, TableSpec, WriteOptions, create, job, run_write
from bucketlake.write.finish import finish
from stand_ins.aging import Bucket, age, copy_of
from stand_ins.built_index import CountedTasks, check_built, filled, is_index_listed
from stand_ins.dynamic_check import check_buckets
from stand_ins.made_index import check_secondary
from stand_ins.record_index_check import check_record_index

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("v", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)
TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
KINDS = pytest.mark.parametrize("per_partition", [False, True], ids=["table", "partitions"])
pytestmark = pytest.mark.shows("R1", "R2", "R3")
_names = itertools.count()


def rows(*values: tuple[Any, ...]) -> pa.Table:
    """Rows of id, partition, ordering value and text; a fifth value says whether the row deletes."""
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, (*value, False)[:5], strict=True)) for value in values], SCHEMA
    )


def a_table(table_type: str = "MERGE_ON_READ", *, per_partition: bool = False, **more: Any) -> Table:
    return create_table(
        f"memory://pains-{next(_names)}",
        SCHEMA,
        key=more.pop("key", "id"),
        partition="dt",
        ordering="ts",
        index=RecordIndex(per_partition=per_partition, shards=2),
        table_type=table_type,
        maintenance="off",
        **more,
    )


def contents(table: Table) -> dict[tuple[str, str], str]:
    found = Table(table.store, load_properties(table.store)).to_arrow(columns=["id", "dt", "v"]).to_pylist()
    assert len({(row["id"], row["dt"]) for row in found}) == len(found), found
    return {(row["id"], row["dt"]): row["v"] for row in found}


def check(table: Table, expected: dict[tuple[str, str], str]) -> None:
    assert contents(table) == expected
    check_record_index(table.store)
    report = check_table(table.store)
    assert report.damage == (), str(report)


@pytest.mark.shows("X3")
def test_19225_an_entry_that_is_lost_on_its_way_to_disk_aborts_the_commit() -> None:
    table = a_table()
    table.upsert(rows(("a", "p0", 1, "x")))
    encode = record_shard.hfile.encode

    def losing(keys: pa.Array, values: pa.Array, **how: Any) -> bytes:
        return encode(keys[:-1], values[:-1], **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_shard.hfile, "encode", losing)
        with pytest.raises(ProofError, match="keys were to be recorded"):
            table.upsert(rows(*((f"k{n}", "p0", 1, "x") for n in range(9))))
    check(table, {("a", "p0"): "x"})


@TYPES
@KINDS
def test_13996_services_with_their_defaults_keep_the_index(table_type: str, per_partition: bool) -> None:
    table = a_table(table_type, per_partition=per_partition)
    for n in range(6):
        table.upsert(rows(*((f"k{i}", f"p{i % 2}", n, f"v{n}") for i in range(10))))
    before = load_properties(table.store).metadata_partitions
    if table_type == "MERGE_ON_READ":
        table.compact()
    table.cluster(by="v")
    table.clean(retain_commits=1)
    table.archive(keep_min=2, keep_max=3)
    run_maintenance(table.store, Maintenance(clean=Retention(commits=1), archive=(2, 3)))
    assert load_properties(table.store).metadata_partitions == before
    check(table, {(f"k{i}", f"p{i % 2}"): "v5" for i in range(10)})


def test_11567_a_writer_that_is_told_less_keeps_the_index_and_one_that_is_told_otherwise_is_refused() -> None:
    table = a_table()
    table.upsert(rows(("a", "p0", 1, "x")))
    Table.open(table.store.uri).upsert(rows(("b", "p0", 1, "x")))
    with pytest.raises(LayoutMismatchError):
        Table.open(table.store.uri, index=ConsistentBuckets(2))
    check(table, {("a", "p0"): "x", ("b", "p0"): "x"})


def test_11567_an_index_that_somebody_dropped_is_noticed_before_anything_is_written() -> None:
    table = a_table()
    table.upsert(rows(("a", "p0", 1, "x")))
    update_properties(table.store, {LISTED: "files"})
    with pytest.raises(UnsupportedError, match=r"without record_index.*metadata rebuild"):
        table.upsert(rows(("a", "p1", 2, "y")))
    assert contents(table) == {("a", "p0"): "x"}
    table.metadata.rebuild()
    table.upsert(rows(("a", "p1", 2, "y")))
    check(table, {("a", "p1"): "y"})


def test_8567_6056_11535_and_11273_a_write_that_never_ends_keeps_nobody_from_compacting_the_index() -> None:
    table = create_table(
        f"memory://pains-{next(_names)}", SCHEMA, key="id", partition="dt", ordering="ts",
        index=RecordIndex(shards=1), table_type="MERGE_ON_READ",
    )  # fmt: skip
    options, most = WriteOptions(), 0
    slow, state = begin(table.store, operation=Operation.UPSERT, index_of=options.index_of)
    with Heartbeat(slow):
        prepared = job.prepare(
            ArrowRows(rows(("slow", "p1", 1, "x"))), slow, state, options, job._Stopwatch()
        )
        for n in range(50):
            table.upsert(rows((f"k{n}", "p0", n, "x"), ("k0", "p0", n, f"v{n}")))
            if n % 5 == 0:
                most = max(most, table.metadata.status().log_files)
        assert slow.instant in {i.requested for i in load_state(table.store).timeline.pending()}
        with pytest.raises(CommitConflictError):  # it could not know what was compacted
            finish(prepared)
        abort(slow)
    assert most <= 30
    assert len(contents(table)) == 50
    check_record_index(table.store)


def test_10891_and_11652_writes_at_any_moment_of_a_compaction_of_the_index_and_one_that_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "sleep", lambda seconds: None)
    monkeypatch.setitem(table_lock.__wrapped__.__kwdefaults__, "wait_seconds", 0.05)  # type: ignore[attr-defined]
    made = Bucket()
    create(made, TableSpec(
        name="t", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), index=RecordIndex(shards=2),
        table_type=TableType.MERGE_ON_READ,
    ))  # fmt: skip
    build_metadata(made)
    Table(made, load_properties(made)).upsert(rows(*((f"k{n}", "p0", 1, "x") for n in range(6))))
    counting = FaultyStore(copy_of(made))
    assert compact_metadata(counting)
    new = rows(("k1", "p1", 2, "moved"), ("n", "p0", 2, "new"), ("k2", "p0", 2, "", True))
    for number in range(1, len(counting.operations) + 1, 7):
        for is_killed in (False, True):
            store = copy_of(made)
            fault = {"is_dead": True} if is_killed else {"meanwhile": lambda inner: _upsert(inner, new)}
            with suppress(ConflictError, InjectedError):  # a writer gives up while the other has the lock
                compact_metadata(FaultyStore(store, fails_at=number, **fault))  # type: ignore[arg-type]
            age(store)
            _upsert(store, new)
            compact_metadata(store)
            assert check_record_index(store) == 6, (number, is_killed)
            assert not load_metadata_timeline(store, load_properties(store)).pending()


def _upsert(store: Store, batch: pa.Table) -> None:
    run_write(ArrowRows(batch), store, Operation.UPSERT)


def test_19670_and_18825_a_build_that_is_killed_at_any_shard_goes_on_with_the_rest() -> None:
    class KilledError(Exception):
        pass

    for shard in range(3):
        store = filled(RecordIndex(shards=3))

        def kill(function: str, item: Any, shard: int = shard) -> None:
            if function == "put_base" and item.shard == shard:
                raise KilledError

        first, second = CountedTasks(kill), CountedTasks()
        build_metadata(store)
        with pytest.raises(KilledError):
            build_record_index(store, tasks=first)
        assert build_record_index(store, tasks=second) is not None
        assert len(first.names("put_base")) == shard
        assert not set(first.done) & set(second.done), "something was done twice"
        assert check_built(store) == 28


def test_14077_a_build_of_a_secondary_index_takes_memory_for_a_part_of_the_table() -> None:
    """One task at a time has one file slice, or one shard; and of these only keys and the column."""
    table = a_table("COPY_ON_WRITE")
    parts, of_each, size = 8, 1_000, 400
    table.upsert(
        rows(*((f"{p}-{n}", f"p{p:02}", 1, f"{p}-{n}".ljust(size)) for p in range(parts) for n in range(of_each)))
    )  # fmt: skip
    used = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(used)
    try:
        table.create_index("by_v", on="v", shards=parts)
    finally:
        pa.set_memory_pool(before)
    assert 0 < (used.max_memory() or 0) < parts * of_each * size / 2
    assert table.get_by("v", "3-7".ljust(size), columns="id").to_pylist() == [{"id": "3-7"}]


@pytest.mark.parametrize("what", ["key", "place"])
def test_18028_a_build_that_lost_something_is_found_out_and_not_listed(what: str) -> None:
    store = filled(RecordIndex(shards=1))
    build_metadata(store)
    encode = index_kind.encode_base

    def losing(entries: Any) -> bytes:
        codes, places = entries.locations.codes.copy(), entries.locations.distinct
        if what == "key":
            return encode(index_kind.ShardEntries(entries.keys[1:], index_kind.Locations(codes[1:], places)))
        codes[0] = (codes[0] + 1) % len(places)
        return encode(index_kind.ShardEntries(entries.keys, index_kind.Locations(codes, places)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_kind, "encode_base", losing)
        with pytest.raises(ProofError, match="Nothing was listed"):
            build_record_index(store)
    assert not is_index_listed(store)
    assert build_record_index(store) is not None
    assert check_built(store) == 28


@TYPES
def test_14090_12447_13605_and_12525_a_secondary_index_goes_by_what_rows_are_and_not_by_what_came(
    table_type: str,
) -> None:
    table = a_table(table_type)
    table.create_index("by_v", on="v", shards=2)
    table.upsert(
        rows(("a", "p0", 5, "red"), ("b", "p0", 5, None), ("c", "p0", 5, "red"), ("d", "p0", 5, "blue"))
    )
    steps = [
        lambda: table.upsert(rows(("a", "p0", 4, "late"), ("c", "p1", 4, "late"))),
        lambda: table.upsert(rows(("a", "p0", 6, None), ("b", "p0", 6, "red"))),
        lambda: table.upsert(rows(("c", "p1", 7, "red"), ("d", "p1", 7, "green"))),
        lambda: table.upsert(rows(("c", "p1", 6, "", True), ("d", "p1", 8, "", True))),
        lambda: table.delete(["c"]),
        lambda: table.upsert(rows(("c", "p0", 1, "again"), ("d", "p0", 1, None))),
        lambda: table.compact() if table_type == "MERGE_ON_READ" else table.cluster(by="v"),
        lambda: table.upsert(rows(("a", "p0", 9, "red"), ("a", "p0", 8, "blue"))),
    ]
    for step in steps:
        step()
        table = Table.open(table.store.uri)
        there = {(row["id"], row["v"]) for row in table.to_arrow(columns=["id", "v"]).to_pylist()}
        for value in ("red", "blue", "green", "late", "again", "", None):
            found = {row["id"] for row in table.get_by("v", [value], columns="id").to_pylist()}
            assert found == {key for key, v in there if v == value}, value
        check_secondary(table)
    assert there == {("a", "red"), ("b", "red"), ("c", "again"), ("d", None)}


@KINDS
def test_19907_a_restored_table_does_not_use_a_file_id_twice(per_partition: bool) -> None:
    table = a_table(per_partition=per_partition)
    done = table.upsert(rows(("a", "p0", 1, "x")))
    assert done.instant is not None
    table.savepoint()
    table.upsert(rows(("b", "p1", 1, "x"), ("a", "p0", 2, "y")))
    gone = _file_ids(table)
    table.restore(done.instant)
    kept = _file_ids(table)
    check(table, {("a", "p0"): "x"})
    table.upsert(rows(("b", "p1", 1, "x"), ("a", "p0", 2, "y")))
    assert (gone - kept).isdisjoint(_file_ids(table)), "an id that was restored away is there again"
    check(table, {("a", "p0"): "y", ("b", "p1"): "x"})


def _file_ids(table: Table) -> set[str]:
    names = (
        split_path(file.path)[1] for files in files_of(load_state(table.store)).values() for file in files
    )
    parsed = (parse_base_file_name(name) or parse_log_file_name(name) for name in names)
    return {name.file_id for name in parsed if name is not None}


@TYPES
@KINDS
def test_19806_a_partition_that_was_dropped_can_be_filled_again(table_type: str, per_partition: bool) -> None:
    table = a_table(table_type, per_partition=per_partition)
    table.upsert(rows(("a", "p0", 1, "x"), ("b", "p1", 1, "x")))
    table.upsert(rows(("a", "p0", 2, "in a log")))
    table.delete_partitions(["p0"])
    check(table, {("b", "p1"): "x"})
    table.upsert(rows(("a", "p0", 1, "again"), ("c", "p0", 1, "new")))
    assert table.get("a").num_rows == 1
    check(table, {("a", "p0"): "again", ("b", "p1"): "x", ("c", "p0"): "new"})


@KINDS
def test_18830_an_overwrite_beside_a_planned_clustering_and_the_index_agree(per_partition: bool) -> None:
    table = a_table("COPY_ON_WRITE", per_partition=per_partition)
    table.upsert(rows(*((f"k{n}", f"p{n % 2}", 1, "x") for n in range(8))))
    state = load_state(table.store)
    planned = schedule_clustering(
        table.store, plan_clustering(state, files_of(state), load_held(state), by=("v",), now="")
    )
    table.overwrite(rows(("k0", "p0", 2, "y")))
    expected = {("k0", "p0"): "y"} | {(f"k{n}", "p1"): "x" for n in (1, 3, 5, 7)}
    check(table, expected)
    assert planned is not None
    with pytest.raises(CommitConflictError, match="its plan is rolled back"):
        run_clustering(table.store, planned)
    check(table, expected)


@TYPES
def test_12234_parts_of_composite_keys_are_looked_up_as_they_are_stored(table_type: str) -> None:
    schema = "a STRING, n BIGINT, day DATE, dt STRING, v STRING"
    table = create_table(
        f"memory://pains-{next(_names)}", schema, key=["a", "n", "day"], partition="dt", index=RecordIndex(),
        table_type=table_type, maintenance="off",
    )  # fmt: skip
    keys = [{"a": a, "n": n, "day": date(2026, 6, d)} for a in ("x", "é") for n in (1, 10) for d in (1, 18)]
    table.upsert([{**key, "dt": "p0", "v": "1"} for key in keys])
    table.upsert([{**key, "dt": "p1", "v": "2"} for key in keys])
    for key in keys:
        assert table.get(key, columns=["v", "dt"]).to_pylist() == [{"v": "2", "dt": "p1"}]
    assert check_record_index(table.store) == len(keys)


@TYPES
def test_8203_a_late_row_of_another_partition_moves_nothing(table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(rows(("a", "p0", 5, "new")))
    done = table.upsert(rows(("a", "p1", 4, "late")))
    assert done.inserted == 0
    check(table, {("a", "p0"): "new"})
    table.upsert(rows(("a", "p1", 5, "equal times: the later write")))
    check(table, {("a", "p1"): "equal times: the later write"})


@TYPES
@KINDS
def test_13830_a_late_delete_deletes_nothing(table_type: str, per_partition: bool) -> None:
    table = a_table(table_type, per_partition=per_partition)
    table.upsert(rows(("a", "p0", 5, "new"), ("b", "p0", 5, "new")))
    table.upsert(rows(("a", "p0", 4, "", True), ("b", "p0", 6, "", True)))
    check(table, {("a", "p0"): "new"})


@TYPES
@KINDS
def test_19027_keys_that_begin_alike_are_not_mixed_up(table_type: str, per_partition: bool) -> None:
    table = a_table(table_type, per_partition=per_partition)
    keys = ["1", "10", "100", "1000", "a", "a$", "ab", "a\\", "a\x00"]
    table.upsert(rows(*((key, "p0", 1, key) for key in keys)))
    compact_metadata(table.store)
    table.delete(["1", "a"])
    table.upsert(rows(("100", "p0", 2, "changed")))
    expected = {(key, "p0"): key for key in keys if key not in ("1", "a")} | {("100", "p0"): "changed"}
    check(table, expected)
    for key in keys:
        assert table.get(key).num_rows == (key not in ("1", "a")), key


def test_19304_another_encoding_of_keys_is_refused() -> None:
    table = a_table()
    table.upsert(rows(("a", "p0", 1, "x")))
    update_properties(table.store, {KEY_ENCODING: "field:value"})
    with pytest.raises(LayoutMismatchError, match="field:value"):
        table.upsert(rows(("a", "p0", 2, "y")))
    assert contents(table) == {("a", "p0"): "x"}


def test_2995_a_write_that_was_under_way_when_the_index_was_built_doubles_no_row() -> None:
    table = a_table()
    table.upsert(rows(("a", "p0", 1, "x")))

    class Slow(ArrowRows):
        def run(self, plan: Any) -> Any:
            done = super().run(plan)
            if not built:
                built.append(table.metadata.rebuild())
            return done

    built: list[Any] = []
    run_write(Slow(rows(("a", "p1", 2, "y"), ("b", "p0", 2, "y"))), table.store, Operation.UPSERT)
    check(table, {("a", "p1"): "y", ("b", "p0"): "y"})


@TYPES
def test_a_batch_with_one_key_in_two_partitions_leaves_two_rows_or_one(table_type: str) -> None:
    """Found by us: Hudi gives both rows the values of one."""
    each = a_table(table_type, per_partition=True)
    each.upsert(rows(("a", "p0", 1, "0"), ("a", "p1", 2, "1")))
    each.upsert(rows(("a", "p1", 4, "3"), ("a", "p0", 3, "2")))
    check(each, {("a", "p0"): "2", ("a", "p1"): "3"})
    whole = a_table(table_type)
    whole.upsert(rows(("a", "p0", 1, "0"), ("a", "p1", 2, "1")))
    check(whole, {("a", "p1"): "1"})


@TYPES
def test_a_partition_whose_first_commit_was_taken_back_leaves_no_shards(table_type: str) -> None:
    """Found by us: Hudi's rollback leaves one, and every later write of its to the partition fails."""
    table = a_table(table_type, per_partition=True)
    table.upsert(rows(("a", "p0", 1, "x")))
    done = table.upsert(rows(("b", "p1", 1, "x")))
    assert done.instant is not None
    table.rollback(done.instant)
    names = [split_path(file.path)[1] for file in table.store.list(folder_of(RECORD_INDEX)).files]
    assert not [name for name in names if "record-index-p1" in name]
    table.upsert(rows(("b", "p1", 2, "y")))
    check(table, {("a", "p0"): "x", ("b", "p1"): "y"})


# -------------------------------------------------------------------------------------------------- dynamic buckets


def dynamic(**how: Any) -> Table:
    return create_table(
        f"memory://pains-{next(_names)}", SCHEMA, key="id", partition="dt", ordering="ts",
        index=DynamicBuckets(**how), table_type="MERGE_ON_READ", maintenance="off",
    )  # fmt: skip


@pytest.mark.shows("D2")
def test_paimon_3776_more_keys_than_32_bits_count_are_shared_out() -> None:
    keys = 3 * (1 << 32)
    rooms = [Room(0, 1 << 33)]
    shares = Assigner(0, 4).share_out(keys, rooms, capacity=1 << 31, taken={0})
    assert shares == [(0, 1 << 33), (4, 1 << 31), (8, 1 << 31)]
    with pytest.raises(UnsupportedError, match=r"of 100,000 keys each.*buckets take more keys"):
        Assigner(0, 4).share_out(keys, [], capacity=100_000, taken=())


@pytest.mark.thorough
@pytest.mark.shows("D5")
def test_paimon_3038_of_a_thousand_partitions_only_the_one_that_is_written_to_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bytes_read(partitions: int) -> list[int]:
        table = dynamic(assigners=1)
        table.upsert(rows(*((f"k{n}", f"p{p}", 1, "x") for p in range(partitions) for n in range(3))))
        reading, read = type(table.store).read, list[int]()

        def noted(store: Any, path: str, *args: Any, **how: Any) -> Any:
            data = reading(store, path, *args, **how)
            if path.startswith(folder_of(RECORD_INDEX)):
                read.append(len(data))
            return data

        with monkeypatch.context() as patch:
            patch.setattr(type(table.store), "read", noted)
            table.upsert(rows(*((f"k{n}", "p7", 2, "y") for n in range(5))))
        return read

    set_index_cache("16MB", tmp_path / "kept")
    try:
        few, many = bytes_read(10), bytes_read(1_000)
    finally:
        set_index_cache(0)
    assert len(few) == len(many) == 1, "one shard"
    # Ids and times in it are packed, and differ by some bytes.
    assert many[0] < 1.05 * few[0]


@pytest.mark.shows("D2")
def test_paimon_9193_and_10103_a_partition_has_its_own_buckets_and_cores_make_no_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bucket_room, "BUCKETS_LIMIT", 6)
    table = dynamic(assigners=3, keys_per_bucket=2)
    for partition in ("p0", "p1", "p2"):
        keys = [f"k{n}" for number in range(3) for n in range(99) if shard_of(f"k{n}", 3) == number]
        fitting = [key for number in range(3) for key in [k for k in keys if shard_of(k, 3) == number][:4]]
        written = ArrowRows(rows(*((key, partition, 1, "x") for key in fitting)))
        assert written.cores < 3
        run_write(written, table.store, Operation.UPSERT)
    filled = check_buckets(table.store)
    assert filled == {(partition, bucket): 2 for partition in ("p0", "p1", "p2") for bucket in range(6)}
    with pytest.raises(UnsupportedError, match="'p1'"):
        table.upsert(rows(("one more", "p1", 1, "x")))


class OfTasks(ArrowRows):
    cores = 1


@pytest.mark.shows("D2", "D9")
def test_paimon_8071_and_seatunnel_9595_another_parallelism_doubles_no_key() -> None:
    table = dynamic(assigners=4, keys_per_bucket=6)
    for ts, cores in enumerate((4, 7, 2)):
        written = OfTasks(rows(*((f"k{n}", f"p{n % 2}", ts, str(ts)) for n in range(50))))
        written.cores = cores
        run_write(written, table.store, Operation.UPSERT)
        check(table, {(f"k{n}", f"p{n % 2}"): str(ts) for n in range(50)})
        check_buckets(table.store)


@pytest.mark.shows("D6")
def test_paimon_1975_2152_and_3246_keys_that_are_not_kept_any_more_are_found_again(tmp_path: Path) -> None:
    table = dynamic(assigners=2, keys_per_bucket=6)
    (tmp_path / "kept").mkdir(mode=0o700)
    try:
        for ts, budget in enumerate((1 << 20, 1 << 20, 0, 1_000, 1 << 20, 0)):
            set_index_cache(budget, tmp_path / "kept")
            table.upsert(rows(*((f"k{n}", "p0", ts, str(ts)) for n in range(5 * ts, 5 * ts + 20))))
            for file in list((tmp_path / "kept").iterdir())[ts % 2 :: 2]:
                file.unlink()
    finally:
        set_index_cache(0)
    check(table, {(f"k{n}", "p0"): str(min(5, n // 5)) for n in range(45)})
    check_buckets(table.store)
