"""Schemas survive the way to Avro and back, and a table only ever grows."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.schema import (
    align,
    arrow_to_avro,
    avro_to_arrow,
    evolve,
    find_null_element,
    fit_rows,
    storable,
)
from bucketlake.testing.tables import schemas, tables


@given(schemas(depth=3))
def test_a_schema_comes_back_from_avro_as_it_went(schema: pa.Schema) -> None:
    assert avro_to_arrow(arrow_to_avro(schema, table="t"), path="f") == schema
    assert storable(schema) == schema


@given(schemas())
def test_a_table_written_with_its_own_schema_stays_as_it_is(schema: pa.Schema) -> None:
    assert evolve(schema, schema, fixed=schema.names) == schema


@given(tables(), tables(), st.data())
def test_an_evolved_table_takes_the_new_rows_and_reads_the_old_ones(
    old: pa.Table, new: pa.Table, data: st.DataObject
) -> None:
    added = new.rename_columns([f"added_{name}" for name in new.column_names])
    columns = [*old.schema, *added.schema]
    order = data.draw(st.permutations(range(len(columns))))
    incoming = pa.schema([columns[index] for index in order])

    evolved = evolve(old.schema, incoming, fixed=[], merge=True)

    assert evolved.names[: len(old.schema)] == old.schema.names
    assert all(field.nullable for field in list(evolved)[len(old.schema) :])
    again = align(old, evolved, path="f")
    assert again.select(old.column_names).equals(old)
    rows = pa.table([pa.nulls(0, field.type) for field in incoming], schema=incoming)
    assert fit_rows(rows, evolved).schema == evolved


def has_null_element(value: object, kind: pa.DataType) -> bool:
    if value is None:
        return False
    if pa.types.is_list(kind):
        assert isinstance(value, list)
        return None in value or any(has_null_element(element, kind.value_type) for element in value)
    if pa.types.is_map(kind):
        assert isinstance(value, list)
        return any(has_null_element(item, kind.item_type) for _, item in value)
    if pa.types.is_struct(kind):
        assert isinstance(value, dict)
        return any(has_null_element(value[field.name], field.type) for field in kind)
    return False


@given(tables(depth=3))
def test_a_null_in_an_array_is_found_at_any_depth(table: pa.Table) -> None:
    holders = [
        field.name
        for field, column in zip(table.schema, table.columns, strict=True)
        if any(has_null_element(value, field.type) for value in column.to_pylist())
    ]
    found = find_null_element(table)
    assert (found is None) == (not holders)
    if found is not None:
        assert found.split(".")[0] == holders[0]
