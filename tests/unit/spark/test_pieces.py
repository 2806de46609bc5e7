"""Rows on their way to the writing tasks: a piece that is cut wrongly loses rows, or mixes file groups."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.logfile import LogFormat
from bucketlake.schema import key_hashes
from bucketlake.spark import write as on_spark
from bucketlake.state import load_state
from bucketlake.storage import MemoryStore
from bucketlake.write import CODE_COLUMN, Operation, TableSpec, WriteState, create, plan_write
from bucketlake.write.fingerprint import writing_index
from bucketlake.write.tag import tag

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("note", pa.string())])


def a_plan(buckets: int) -> WriteState:
    store = MemoryStore()
    create(store, TableSpec(name="t", schema=SCHEMA, key=("id",), partition=("dt",), buckets=buckets))
    state = load_state(store)
    index = writing_index(state, buckets=None, hash_fields=None)
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
)
def test_pieces_hold_every_row_once_with_its_code_in_one_run(
    count: int, days: int, buckets: int, width: int, piece_bytes: int
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
    packed = on_spark.pack(rows, plan, piece_bytes=piece_bytes)
    back = pa.Table.from_batches(on_spark.unpack([packed]))
    assert sorted(back.drop_columns([CODE_COLUMN]).to_pylist(), key=str) == sorted(rows.to_pylist(), key=str)
    codes, _, _ = tag(back.drop_columns([CODE_COLUMN]).combine_chunks().to_batches()[0], plan)
    assert back[CODE_COLUMN].to_pylist() == codes.tolist() == sorted(codes.tolist())
    assert sum(packed["rows"].to_pylist()) == count
    total = (sum(packed["high"].to_pylist()) << 32) + sum(packed["low"].to_pylist())
    assert total % (1 << 64) == int(key_hashes(rows["id"].combine_chunks()).sum(dtype="uint64"))
    if piece_bytes == 1:
        assert packed.num_rows == count
