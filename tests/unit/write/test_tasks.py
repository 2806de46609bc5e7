"""What an executor does with the rows of a file group: a wrong file here is a wrong row for every reader."""

from __future__ import annotations

import pickle
from dataclasses import replace
from unittest import mock

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.errors import ConfigError, CorruptTableError, ProofError
from bucketlake.index.fingerprint import writing_index
from bucketlake.layout.names import marker_path, new_file_id
from bucketlake.logfile import LogFormat
from bucketlake.schema import key_hash_sum
from bucketlake.state import files_of, load_state, table_schema
from bucketlake.storage import MemoryStore, Store
from bucketlake.write import (
    GroupWritten,
    KeySum,
    Operation,
    Piece,
    WriteState,
    check_proof,
    plan_write,
    sort_by_code,
    tag,
    write_groups,
)
from bucketlake.write.create import TableSpec, create
from bucketlake.write.state import place_groups

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
INSTANT = "20240102030405678"


@pytest.fixture(params=[1 << 20, 0], ids=["pieces copied", "pieces kept"])
def together(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bucketlake.write.task._LARGE_BYTES", request.param)


def a_store(table_type: str = "COPY_ON_WRITE") -> Store:
    store = MemoryStore()
    create(
        store,
        TableSpec(
            name="t", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",), table_type=table_type
        ),
    )
    return store


def a_plan(store: Store, operation: Operation = Operation.UPSERT, instant: str = INSTANT) -> WriteState:
    state = load_state(store)
    return plan_write(
        state,
        writing_index(state),
        files_of(state),
        instant=instant,
        operation=operation,
        schema=table_schema(state),
        cores=1,
        log_format=LogFormat.PARQUET,
    )


def rows_of(*rows: tuple[str, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def sorted_pieces(rows: pa.Table, plan: WriteState, size: int = 3) -> list[Piece]:
    tagged = sort_by_code(rows, plan)
    return list(tagged.pieces(tagged.starts(size)))


def many(count: int, *, ts: int = 1, v: int = 0) -> pa.Table:
    return rows_of(*((f"k{n}", f"d{n % 3}", ts, v) for n in range(count)))


@pytest.mark.usefixtures("together")
@pytest.mark.shows("S2", "X2")
def test_every_bucket_gets_one_file_however_its_rows_are_batched() -> None:
    found: set[tuple[GroupWritten, ...]] = set()
    for size in (1, 2, 7, 1000):
        store = a_store()
        plan = a_plan(store)
        written = tuple(write_groups(sorted_pieces(many(40), plan, size), plan))
        assert len({(group.partition, group.file_id) for group in written}) == len(written)
        assert sum(group.rows for group in written) == 40
        found.add(tuple(replace(group, size_bytes=0) for group in written))
    assert len(found) == 1


def test_empty_batches_and_no_batches_write_nothing() -> None:
    plan = a_plan(a_store())
    (piece,) = sorted_pieces(many(1), plan)
    empty = replace(piece, rows=piece.rows.slice(0, 0))
    assert list(write_groups([], plan)) == list(write_groups([empty, empty], plan)) == []


@pytest.mark.usefixtures("together")
@pytest.mark.shows("X2")
def test_a_second_attempt_finds_the_file_and_reports_it() -> None:
    store = a_store()
    plan = a_plan(store)
    first = list(write_groups(sorted_pieces(many(40), plan), plan))
    files = [store.list(day).files for day in ("d0", "d1", "d2")]
    again = list(write_groups(sorted_pieces(many(40), plan, 7), plan))
    assert again == first
    assert [store.list(day).files for day in ("d0", "d1", "d2")] == files


@pytest.mark.shows("X2", "X3")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_attempt_with_other_rows_is_refused(table_type: str) -> None:
    """A frame whose rows change from one evaluation to the next."""
    path = "memory://changing-" + table_type
    table = create_table(path, SCHEMA, key="id", partition="dt", ordering="ts", table_type=table_type)
    table.upsert(many(3))
    plan = a_plan(table.store, instant="20991231235959999")
    list(write_groups(sorted_pieces(rows_of(("k0", "d0", 2, 1)), plan), plan))
    home = plan.index.locate("d0", pa.array(["k0"]))
    other = next(f"k{n}" for n in range(1, 100) if plan.index.locate("d0", pa.array([f"k{n}"])) == home)
    with pytest.raises(ConfigError, match="change from one evaluation to the next"):
        list(write_groups(sorted_pieces(rows_of((other, "d0", 2, 1)), plan), plan))


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_no_two_rows_share_a_sequence_number(table_type: str) -> None:
    """Neither in one commit, whose buckets have the same numbers in every partition, nor in two."""
    path = "memory://numbered-" + table_type
    table = create_table(path, SCHEMA, key="id", partition="dt", ordering="ts", table_type=table_type)
    table.upsert(many(200))
    table.upsert(many(100, ts=2))
    numbers = table.to_arrow(columns=["_hoodie_commit_seqno"])["_hoodie_commit_seqno"].to_pylist()
    assert len(set(numbers)) == 200


def test_a_marker_is_there_for_every_file() -> None:
    store = a_store()
    plan = a_plan(store)
    for group in write_groups(sorted_pieces(many(10), plan), plan):
        assert group.path is not None
        assert store.stat(marker_path(INSTANT, group.path, "CREATE")).size_bytes == 0


@pytest.mark.shows("X2")
def test_the_id_of_a_new_file_group_depends_on_instant_partition_and_bucket_only() -> None:
    ids = {
        new_file_id(f"{bucket:08d}", partition=partition, instant=instant)
        for bucket in range(3)
        for partition in ("", "a", "b")
        for instant in ("20240102030405678", "20240102030405679")
    }
    assert len(ids) == 18
    assert all(len(file_id) == len("00000003-159a-4953-a3c4-b777b847ae7f-0") for file_id in ids)


@pytest.mark.usefixtures("together")
def test_groups_whose_hashes_agree_are_told_apart() -> None:
    store = a_store()
    plan = a_plan(store)
    rows = many(40)
    expected = sorted((g.partition, g.file_id) for g in write_groups(sorted_pieces(rows, plan), plan))
    in_one_piece = [Piece(0, None, batch) for batch in rows.to_batches()]
    side_by_side = [replace(piece, code=0) for piece in sorted_pieces(rows, plan)]
    for collided in (in_one_piece, side_by_side):
        written = list(write_groups(collided, plan))
        assert sorted((g.partition, g.file_id) for g in written) == expected


def test_rows_of_groups_whose_hashes_agree_come_without_a_group() -> None:
    plan = a_plan(a_store())
    with mock.patch.object(tag, "code_of", return_value=7):
        (piece,) = sorted_pieces(many(40), plan, 40)
    assert (piece.code, piece.group, piece.rows.num_rows) == (7, None, 40)


@pytest.mark.shows("X3")
def test_reports_carry_sums_that_prove_what_arrived() -> None:
    plan = a_plan(a_store())
    rows = many(40)
    written = list(write_groups(sorted_pieces(rows, plan), plan))
    sent = KeySum(40, key_hash_sum(rows.column("id")))
    check_proof(sent, written)
    for wrong in (KeySum(41, sent.key_hash_sum), KeySum(40, sent.key_hash_sum ^ 1)):
        with pytest.raises(ProofError, match="Nothing was committed"):
            check_proof(wrong, written)
    with pytest.raises(ProofError):
        check_proof(sent, written[1:])


def test_two_file_groups_of_one_bucket_are_refused_before_anything_is_written() -> None:
    path = "memory://split-bucket"
    table = create_table(path, SCHEMA, key="id", partition="dt", ordering="ts")
    table.upsert(many(3))
    file = next(f for f in table.store.list("d0").files if f.path.endswith(".parquet"))
    bucket = file.path.removeprefix("d0/")[:8]
    twin = file.path.replace(file.path.removeprefix("d0/")[8:36], "-dead-beef-dead-beefdeadbeef")
    table.store.put(twin, table.store.read(file.path))
    with pytest.raises(CorruptTableError, match=f"both of bucket {bucket}"):
        table.upsert(many(3))


def test_large_groups_are_shared_out_first_and_every_task_has_work() -> None:
    path = "memory://placing"
    table = create_table(path, SCHEMA, key="id", partition="dt", ordering="ts")
    table.upsert(many(300))
    plan = a_plan(table.store)
    tasks, places = place_groups(plan.groups, cores=2)
    assert tasks == 4
    assert set(places.values()) == {0, 1, 2, 3}
    assert len(places) == sum(len(groups) for groups in plan.groups.values()) == 12


def test_the_plan_travels_to_executors() -> None:
    plan = a_plan(a_store("MERGE_ON_READ"))
    assert pickle.loads(pickle.dumps(replace(plan, store=None))) == replace(plan, store=None)


def test_arrays_with_null_elements_are_refused_unless_the_table_allows_them() -> None:
    schema = SCHEMA.append(pa.field("tags", pa.list_(pa.string())))
    rows = many(2).append_column("tags", pa.array([["a", None], []], pa.list_(pa.string())))
    strict = create_table("memory://null-elements", schema, key="id", partition="dt", ordering="ts")
    with pytest.raises(ConfigError, match="'tags' has an array with a null"):
        strict.upsert(rows)
    assert strict.to_arrow().num_rows == 0
    lenient = create_table(
        "memory://null-elements-allowed",
        schema,
        key="id",
        partition="dt",
        ordering="ts",
        allow_null_elements=True,
    )
    lenient.upsert(rows)
    assert lenient.to_arrow(filters=[("id", "=", "k0")])["tags"].to_pylist() == [["a", None]]


def test_a_later_version_in_the_batch_wins_by_ordering_whatever_its_place() -> None:
    for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        table = create_table(
            f"memory://dups-{table_type}",
            SCHEMA,
            key="id",
            partition="dt",
            ordering="ts",
            table_type=table_type,
        )
        for _ in range(2):
            summary = table.upsert(rows_of(("a", "d0", 5, 1), ("a", "d0", 9, 2), ("a", "d0", 7, 3)))
            assert summary.rows == 3
            assert rows_in(table) == [("a", "d0", 9, 2)]


def rows_in(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(meta_columns=False).to_pylist())
