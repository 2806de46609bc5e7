"""Columns encoded by the kernel are, byte for byte, rows encoded by fastavro; Hudi reads nothing else."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake.logfile import Deletes, avro_columns, avro_encoder, avro_rows
from bucketlake.logfile.deletes import decode_deletes, encode_deletes
from bucketlake.schema import arrow_to_avro
from bucketlake.testing.tables import TEXT, leaves, tables


@settings(max_examples=200)
@given(tables())
def test_columns_encode_to_the_bytes_of_rows(table: pa.Table) -> None:
    schema = arrow_to_avro(table.schema, table="t")
    encoded = bytes(avro_encoder.encode_records(table, schema))
    assert encoded == avro_rows.encode_records(table, schema)
    decoded = avro_columns.decode_records(memoryview(encoded), schema, None, path="f")
    assert pa.Table.from_batches([decoded]).equals(table)


@st.composite
def deletes(draw: st.DrawFn) -> Deletes:
    keys = draw(st.lists(TEXT, min_size=1, max_size=6))
    drawn = draw(st.lists(leaves(), max_size=3))
    # Hudi's wrapper of decimals holds fifteen digits on either side of the point.
    drawn = [typed for typed in drawn if not pa.types.is_decimal(typed[0])]
    ordering = None
    if drawn:
        columns = [
            pa.array(draw(st.lists(st.none() | values, min_size=len(keys), max_size=len(keys))), kind)
            for kind, values in drawn
        ]
        ordering = pa.StructArray.from_arrays(columns, names=[f"o{index}" for index in range(len(columns))])
    start = draw(st.integers(0, len(keys) - 1))
    return Deletes(pa.array(keys)[start:], draw(TEXT), None if ordering is None else ordering[start:])


@given(deletes())
def test_deletes_encode_to_the_bytes_of_rows(written: Deletes) -> None:
    assert encode_deletes(written) == avro_rows.encode_deletes(written)


@given(deletes())
def test_deletes_are_read_as_they_were_written(written: Deletes) -> None:
    types = {} if written.ordering is None else {field.name: field.type for field in written.ordering.type}
    keys, ordering, is_commit_time = decode_deletes(memoryview(encode_deletes(written)), types, path="f")
    assert keys.equals(written.keys)
    if written.ordering is None:
        assert ordering is None
        assert is_commit_time.to_pylist() == [True] * len(keys)
        return
    assert ordering is not None
    for row, is_default, found in zip(
        written.ordering.to_pylist(), is_commit_time.to_pylist(), ordering.to_pylist(), strict=True
    ):
        values = list(row.values())
        # With one ordering field, null and the int 0 (for a date: 1970-01-01) mean commit time.
        zero = (
            pa.scalar(0, pa.int32()).cast(written.ordering.type[0].type).as_py() if is_int(written) else None
        )
        assert is_default == (
            len(values) == 1 and (values[0] is None or (is_int(written) and values[0] == zero))
        )
        assert found == (None if is_default else row)


def is_int(written: Deletes) -> bool:
    assert written.ordering is not None
    kind = written.ordering.type[0].type
    return bool(pa.types.is_int32(kind) or pa.types.is_date32(kind))
