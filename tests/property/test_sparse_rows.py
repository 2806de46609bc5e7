"""Nested columns that are null or empty, all or in part, as Spark sends them: sparse JSON is full of them."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import TableType
from bucketlake.index import SimpleBuckets
from bucketlake.index.fingerprint import writing_index
from bucketlake.logfile import LogFormat
from bucketlake.schema import bytes_of
from bucketlake.spark.pieces import fetching, pack_rows, share_out_pieces, unpack
from bucketlake.state import files_of, load_state
from bucketlake.storage import Handover, MemoryStore
from bucketlake.table import Table
from bucketlake.testing.tables import tables
from bucketlake.write import Operation, TableSpec, WriteState, create, plan_write, sort_by_code
from bucketlake.write.state import NULL_ELEMENTS_ALLOWED
from judges.rows import META_COLUMNS, assert_same_rows
from stand_ins.sent_by_spark import as_spark_sends

WORDS = pa.list_(pa.field("element", pa.string()))
SPARSE = {
    "by_word": (pa.map_(pa.string(), WORDS), [None, [], [("a", None)], [("a", []), ("b", ["x"])]]),
    "lists": (pa.list_(pa.field("element", WORDS)), [None, [], [[]], [[], ["x", ""]]]),
    "inside": (
        pa.struct([("maps", pa.list_(pa.map_(pa.string(), WORDS)))]),
        [None, {"maps": None}, {"maps": []}],
    ),
}
"""Columns as JSON has them, and the little that is in most of their rows."""


@st.composite
def sparse_rows(draw: st.DrawFn) -> pa.Table:
    """Draw rows with an id, columns of every kind, and sparse ones."""
    rows = draw(tables(depth=3, columns_max=3))
    ids = pa.array([f"k{number}" for number in range(rows.num_rows)], pa.string())
    for name, (kind, values) in SPARSE.items():
        chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=2))
        column = [chosen[number % len(chosen)] for number in range(rows.num_rows)]
        rows = rows.append_column(name, pa.array(column, kind))
    return rows.add_column(0, pa.field("id", pa.string(), nullable=False), ids)


@given(sparse_rows())
def test_bytes_are_counted_whatever_offsets_are_missing(rows: pa.Table) -> None:
    counted = bytes_of(as_spark_sends(rows))
    # Arrow counts whole bytes of bits that a slice begins within, and the offsets of what is empty.
    arrays = sum(map(str(rows.schema).count, ":<")) * rows[0].num_chunks
    assert abs(counted - rows.nbytes) <= 16 * arrays
    assert abs(counted - bytes_of(rows)) <= 16 * arrays


def a_table(rows: pa.Table, table_type: TableType) -> Table:
    store = MemoryStore()
    spec = TableSpec(
        name="t",
        schema=rows.schema,
        key=("id",),
        index=SimpleBuckets(2),
        table_type=table_type,
        options={NULL_ELEMENTS_ALLOWED: "true"},
    )
    return Table(store, create(store, spec))


@pytest.mark.shows("S5")
@given(
    rows=sparse_rows(),
    table_type=st.sampled_from(TableType),
    log_format=st.sampled_from(LogFormat),
)
def test_sparse_rows_are_read_as_they_were_written(
    rows: pa.Table, table_type: TableType, log_format: LogFormat
) -> None:
    table = a_table(rows, table_type)
    order = pa.array(np.arange(rows.num_rows)[::-1])
    others = rows.take(order).set_column(0, rows.schema.field(0), rows["id"])
    for batch in (others.slice(0, rows.num_rows // 2), rows):
        table.upsert(pa.Table.from_batches([as_spark_sends(batch)]), log_format=log_format)
    assert_same_rows(table.to_arrow(), rows, without=META_COLUMNS)
    assert_same_rows(table.get(rows["id"].to_pylist()), rows, without=META_COLUMNS)
    if table_type is TableType.MERGE_ON_READ:
        table.compact()
        assert_same_rows(table.to_arrow(), rows, without=META_COLUMNS)


def a_plan(table: Table) -> WriteState:
    state = load_state(table.store)
    return plan_write(
        state,
        writing_index(state),
        files_of(state),
        instant="20240102030405678",
        operation=Operation.UPSERT,
        schema=table.schema,
        cores=2,
        log_format=LogFormat.PARQUET,
    )


@given(rows=sparse_rows(), is_sent=st.booleans())
def test_sparse_rows_travel_in_pieces(rows: pa.Table, is_sent: bool) -> None:
    plan = a_plan(a_table(rows, TableType.COPY_ON_WRITE))
    with TemporaryDirectory() as folder:
        handover = None if is_sent else Handover(Path(folder) / "job")
        with handover.opened() if handover is not None else nullcontext():
            packed = list(
                pack_rows(
                    [as_spark_sends(rows)] * 2, cut=partial(sort_by_code, state=plan), handover=handover
                )
            )
            if handover is not None and packed:
                places = [place for batch in packed for place in batch.column("place").to_pylist()]
                packed = list(share_out_pieces(pa.Table.from_batches(map(fetching(handover), places))))
            arrived = [piece.rows for piece in unpack(packed, handover)]
    assert_same_rows(pa.Table.from_batches(arrived, rows.schema), pa.concat_tables([rows, rows]))
