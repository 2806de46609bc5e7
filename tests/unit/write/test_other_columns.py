"""Rows whose columns are not the table's: they change it only when asked, and lack some only where it says so."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import SchemaError, Table, create_table
from judges.files import unchanged

SCHEMA = pa.schema(
    [("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), pa.field("n", pa.int32(), nullable=False)]
)
WIDER = SCHEMA.append(pa.field("note", pa.string(), nullable=False))
WRITES = ["upsert", "bulk_insert", "overwrite"]
Make = Callable[..., Table]


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def make(request: pytest.FixtureRequest) -> Make:
    def made(**definition: Any) -> Table:
        return create_table(
            f"memory://{uuid.uuid4()}",
            SCHEMA,
            key="id",
            partition="dt",
            ordering="ts",
            buckets=2,
            table_type=request.param,
            name="orders",
            **definition,
        )

    return made


def rows(*keys: str, schema: pa.Schema = SCHEMA, **change: Any) -> pa.Table:
    whole = {"dt": "p", "ts": 1, "n": 1, "note": "x"} | change
    return pa.Table.from_pylist([{"id": key} | whole for key in keys], schema)


def column(table: Table, name: str) -> dict[str, Any]:
    found = table.to_arrow(columns=["id", name])
    return dict(zip(found.column("id").to_pylist(), found.column(name).to_pylist(), strict=True))


@pytest.mark.parametrize("write", WRITES)
def test_a_column_more_changes_the_table_only_when_asked(make: Make, write: str) -> None:
    table = make()
    table.upsert(rows("a"))
    with (
        unchanged(table.store),
        pytest.raises(SchemaError, match=r"have 'note', and the table has not: it has"),
    ):
        getattr(table, write)(rows("b", schema=WIDER))
    getattr(table, write)(rows("b"))
    getattr(table, write)(rows("c", schema=WIDER, dt="q"), merge_schema=True)
    assert table.schema == SCHEMA.append(pa.field("note", pa.string())), "what is added may be null"
    assert column(table, "note")["c"] == "x"


def test_a_table_may_say_that_every_write_changes_it_and_a_write_that_it_does_not(make: Make) -> None:
    table = make(merge_schema=True)
    with unchanged(table.store), pytest.raises(SchemaError, match="note"):
        table.upsert(rows("a", schema=WIDER), merge_schema=False)
    table.upsert(rows("a", schema=WIDER))
    assert "note" in table.schema.names
    table.alter(merge_schema=False)
    with unchanged(table.store), pytest.raises(SchemaError, match="'more'"):
        Table.open(table.store.uri).upsert(rows("a", schema=WIDER.append(pa.field("more", pa.string()))))


@pytest.mark.parametrize("write", WRITES)
def test_rows_may_lack_columns_where_the_table_says_so(make: Make, write: str) -> None:
    table = make()
    table.upsert(rows("a", "b", schema=WIDER), merge_schema=True)
    with unchanged(table.store), pytest.raises(SchemaError, match=r"no column 'note'.*allow_missing_columns"):
        getattr(table, write)(rows("a"))
    table.alter(allow_missing_columns=True)
    getattr(table, write)(rows("a", ts=2))
    others = {} if write == "overwrite" else {"b": "x"}
    assert column(table, "note") == {"a": None} | others, "a row replaces the stored one whole"
    assert "note" in table.schema.names


@pytest.mark.parametrize("missing", ["id", "dt", "ts", "n"])
def test_rows_never_lack_what_places_or_orders_them_or_may_not_be_null(make: Make, missing: str) -> None:
    table = make(allow_missing_columns=True)
    with unchanged(table.store), pytest.raises(SchemaError, match=f"no column '{missing}'"):
        table.upsert(rows("a").drop_columns([missing]), merge_schema=True)


def test_a_column_that_may_not_be_null_is_relaxed_when_asked(make: Make) -> None:
    table = make(allow_missing_columns=True)
    loose = SCHEMA.set(3, pa.field("n", pa.int32()))
    table.upsert(rows("a"))
    table.upsert(rows("b", schema=loose))
    assert table.schema == SCHEMA, "nullable rows without a null fit, and change nothing"
    table.upsert(rows("c", schema=loose, n=None), merge_schema=True)
    assert table.schema == loose
    table.upsert(rows("d").drop_columns(["n"]))
    assert column(table, "n") == {"a": 1, "b": 1, "c": None, "d": None}
    assert table.fsck().is_sound


def test_rows_that_a_table_is_made_after_do_not_say_that_its_columns_may_not_be_null() -> None:
    strict = pa.schema(
        [pa.field("s", pa.struct([pa.field("x", pa.int32(), nullable=False)]), nullable=False)]
    )
    made = create_table(f"memory://{uuid.uuid4()}", rows("a", schema=WIDER), key="id")  # type: ignore[arg-type] # rows, as a frame is
    assert all(field.nullable for field in made.schema)
    declared = create_table(f"memory://{uuid.uuid4()}", pa.schema([*SCHEMA, *strict]), key="id")
    assert declared.schema == pa.schema([*SCHEMA, *strict])
