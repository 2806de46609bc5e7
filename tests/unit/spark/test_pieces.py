"""Rows on their way to the writing tasks: a piece that is cut wrongly loses rows, or mixes file groups."""

from __future__ import annotations

import itertools
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.index import SimpleBuckets
from bucketlake.index.fingerprint import writing_index
from bucketlake.logfile import LogFormat
from bucketlake.schema import key_hashes
from bucketlake.spark.pieces import (
    FILES_OPEN_MAX,
    Left,
    Sent,
    fetching,
    leave,
    pack,
    pack_rows,
    share_out_pieces,
    unpack,
)
from bucketlake.state import load_state
from bucketlake.storage import Handover, MemoryStore
from bucketlake.write import GROUP_BITS, Operation, TableSpec, WriteState, create, plan_write, sort_by_code
from bucketlake.write.tag import tag

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("note", pa.string())])


def a_plan(buckets: int) -> WriteState:
    store = MemoryStore()
    create(
        store,
        TableSpec(name="t", schema=SCHEMA, key=("id",), partition=("dt",), index=SimpleBuckets(buckets)),
    )
    state = load_state(store)
    index = writing_index(state)
    return plan_write(
        state,
        index,
        {},
        instant="20240102030405678",
        operation=Operation.UPSERT,
        schema=SCHEMA,
        cores=2,
        log_format=LogFormat.PARQUET,
    )


@given(
    count=st.integers(1, 200),
    days=st.integers(1, 4),
    buckets=st.integers(1, 5),
    width=st.sampled_from([0, 10, 5_000]),
    piece_bytes=st.sampled_from([1, 4_000, 1 << 20]),
    is_sent=st.booleans(),
)
def test_pieces_hold_every_row_once_with_its_code_in_one_run(
    count: int, days: int, buckets: int, width: int, piece_bytes: int, is_sent: bool
) -> None:
    rows = pa.table(
        {
            "id": [f"k{n}" for n in range(count)],
            "dt": [f"d{n % days}" for n in range(count)],
            "note": ["x" * (n % (width + 1)) for n in range(count)],
        },
        SCHEMA,
    )
    plan = a_plan(buckets)
    with TemporaryDirectory() as folder:
        handover = None if is_sent else Handover(Path(folder) / "job")
        with handover.opened() if handover is not None else nullcontext():
            if handover is None:
                packed = pack(sort_by_code(rows, plan), Sent(piece_bytes), itertools.count())
            else:
                with Left(handover, SCHEMA) as left:
                    packed = pack(sort_by_code(rows, plan), left, itertools.count())
            back = list(unpack([packed], handover))
    assert [piece.rows.num_rows for piece in back] == packed["rows"].to_pylist()
    whole = pa.Table.from_batches([piece.rows for piece in back])
    assert sorted(whole.to_pylist(), key=str) == sorted(rows.to_pylist(), key=str)
    assert [piece.code for piece in back] == sorted(piece.code for piece in back)
    for piece in back:
        tags = tag(piece.rows, plan)
        assert set(tags.codes.tolist()) == {piece.code}
        assert tags.groups == {piece.code: piece.group}
    assert sum(packed["rows"].to_pylist()) == count
    total = (sum(packed["high"].to_pylist()) << 32) + sum(packed["low"].to_pylist())
    assert total % (1 << 64) == int(key_hashes(rows["id"].combine_chunks()).sum(dtype="uint64"))
    if is_sent and piece_bytes == 1:
        assert packed.num_rows == count


def test_rows_that_arrive_in_many_batches_are_packed_in_chunks_into_one_file(tmp_path: Path) -> None:
    plan = a_plan(2)
    rows = pa.table(
        {"id": [f"k{n}" for n in range(60_000)], "dt": ["d"] * 60_000, "note": ["x" * 1_000] * 60_000}, SCHEMA
    )
    handover = Handover(tmp_path / "job")
    with handover.opened():
        (line,) = pack_rows(rows.to_batches(500), cut=partial(sort_by_code, state=plan), handover=handover)
        assert len(list((tmp_path / "job").iterdir())) == 2, "one file for the pieces, one for their list"
        (place,) = line["place"].to_pylist()
        packed = fetching(handover)(place)
        assert packed.num_rows == 8, "two file groups in each of four chunks"
        back = pa.Table.from_batches([piece.rows for piece in unpack([packed], handover)])
    assert back.sort_by("id") == rows.sort_by("id")
    assert line["rows"].to_pylist() == [60_000]
    for half in ("high", "low"):
        assert line[half].to_pylist() == [sum(packed[half].to_pylist())]


def test_a_task_without_rows_leaves_no_file(tmp_path: Path) -> None:
    handover = Handover(tmp_path / "job")
    with handover.opened():
        assert list(pack_rows([], cut=partial(sort_by_code, state=a_plan(2)), handover=handover)) == []
        assert list((tmp_path / "job").iterdir()) == []


def test_a_task_whose_rows_are_passed_over_has_no_list(tmp_path: Path) -> None:
    handover = Handover(tmp_path / "job")
    rows = pa.table({"id": ["k"], "dt": ["d"], "note": [None]}, SCHEMA)
    plan = replace(a_plan(2), only=frozenset({("another day", "00000000")}))
    with handover.opened():
        assert (
            list(pack_rows(rows.to_batches(), cut=partial(sort_by_code, state=plan), handover=handover)) == []
        )


def test_batches_are_fetched_from_where_they_were_left(tmp_path: Path) -> None:
    handover = Handover(tmp_path / "job")
    batches = [pa.record_batch({"n": [number] * number}) for number in range(1, 4)]
    with handover.opened():
        places = leave(batches, handover).to_pylist()
        assert [fetching(handover)(place) for place in reversed(places)] == batches[::-1]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_task_that_writes_holds_few_files_open(tmp_path: Path) -> None:
    plan = a_plan(1)
    handover = Handover(tmp_path / "job")
    count = 3 * FILES_OPEN_MAX
    with handover.opened():
        packed = []
        for n in range(count):
            rows = pa.table({"id": [f"k{n}"], "dt": ["d"], "note": [None]}, SCHEMA)
            with Left(handover, SCHEMA) as left:
                packed.append(pack(sort_by_code(rows, plan), left, itertools.count()))
        before = open_files()
        unpacked = unpack([*packed, *packed], handover)
        most = 0
        for number, piece in enumerate(unpacked):
            assert piece.rows["id"].to_pylist() == [f"k{number % count}"]
            most = max(most, open_files() - before)
    assert most <= FILES_OPEN_MAX + 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=20))
def test_every_piece_is_shared_out_once_to_the_task_in_its_code(places: list[tuple[int, int]]) -> None:
    codes = [task << GROUP_BITS | group for task, group in places]
    pieces = pa.table(
        {
            "code": pa.array(codes, pa.int64()),
            "partition": pa.array(["d"] * len(codes), pa.string()),
            "file_id": pa.array([str(group) for _, group in places], pa.string()),
            "rows": pa.array([1] * len(codes), pa.int64()),
            "data": pa.array([b"%d" % n for n in range(len(codes))], pa.binary()),
        }
    )
    shares = share_out_pieces(pieces)
    of_tasks = [{code >> GROUP_BITS for code in share["code"].to_pylist()} for share in shares]
    assert of_tasks == [{task} for task in sorted({task for task, _ in places})]
    found = [
        (code, int(data))
        for share in shares
        for code, data in zip(share["code"].to_pylist(), share["data"].to_pylist(), strict=True)
    ]
    assert found == sorted((code, n) for n, code in enumerate(codes))
