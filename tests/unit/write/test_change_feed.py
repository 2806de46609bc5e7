"""A column says what became of a row: which words it may have, and what is refused before anything is written."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConfigError, SchemaError, Table, create_table
from bucketlake.write import ChangeFeed
from bucketlake.write.change_feed import RowChange
from judges.files import unchanged

pytestmark = pytest.mark.shows("R9")

SCHEMA = pa.schema(
    [("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), pa.field("n", pa.int32(), nullable=False)]
)


def a_table(schema: pa.Schema = SCHEMA, **definition: Any) -> Table:
    whole = {"key": "id", "partition": "dt", "ordering": "ts", "buckets": 2} | definition
    return create_table(f"memory://{uuid.uuid4()}", schema, **whole)


def row(op: str | None, key: str = "a", **change: Any) -> dict[str, Any]:
    return {"id": key, "dt": "p", "ts": 1, "n": 1, "op": op} | change


def found(table: Table) -> dict[str, int]:
    rows = table.to_arrow(columns=["id", "n"])
    return dict(zip(rows["id"].to_pylist(), rows["n"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("words", "meaning"),
    [
        ("c r C insert INSERT Insert +I +i", RowChange.INSERT),
        ("u U update UPDATE update_after UPDATE_AFTER update_postimage +U", RowChange.UPDATE_AFTER),
        ("update_before UPDATE_BEFORE update_preimage -U -u", RowChange.UPDATE_BEFORE),
        ("d D delete DELETE -D -d", RowChange.DELETE),
    ],
)
def test_the_words_of_debezium_flink_and_delta_are_known(words: str, meaning: RowChange) -> None:
    feed = ChangeFeed.of("op")
    texts = words.split()
    assert [feed.meaning(word) for word in texts] == [meaning] * len(texts)
    assert feed.numbers(pa.array(texts)).tolist() == [meaning] * len(texts)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_words_may_be_texts_of_any_kind(kind: pa.DataType) -> None:
    table = a_table()
    rows = pa.Table.from_pylist([row("c"), row("c", "b"), row("d", ts=2)])
    rows = rows.set_column(4, "op", rows["op"].cast(kind)).set_column(3, "n", rows["n"].cast(pa.int32()))
    table.upsert(rows, op="op")
    assert found(table) == {"b": 1}


def test_words_of_a_dictionary_that_no_row_has_need_no_meaning() -> None:
    values = pa.DictionaryArray.from_arrays(pa.array([1, 1], pa.int8()), pa.array(["strange", "c"]))
    assert ChangeFeed.of("op").numbers(values).tolist() == [0, 0]


def test_a_caller_says_what_other_words_mean_or_that_known_ones_mean_another_thing() -> None:
    table = a_table()
    table.upsert([row("I"), row("I", "b")], op="op", op_words={"i": "insert"})
    table.upsert(
        [row("X", ts=2), row("d", "b", ts=2, n=7)], op="op", op_words={"x": "delete", "D": "update_after"}
    )
    assert found(table) == {"b": 7}


@pytest.mark.parametrize("op", ["t", ""])
def test_a_word_that_nobody_has_explained_is_refused_by_its_name(op: str) -> None:
    table = a_table()
    table.upsert([row("c")], op="op")
    words = rf"in at least 1 row, has words that nobody has explained, such as '{op}'.*op_words={{'{op}': 'delete'}}"
    with unchanged(table.store), pytest.raises(ConfigError, match=words):
        table.upsert([row("c", "b"), row(op, "c"), row(op, "d")], op="op")


def test_a_row_that_says_nothing_is_refused() -> None:
    table = a_table()
    with unchanged(table.store), pytest.raises(ConfigError, match=r"'op', in at least 1 row, is null"):
        table.upsert([row("c", "b"), row(None, "c")], op="op")


def test_rows_with_unknown_words_are_counted() -> None:
    with pytest.raises(ConfigError, match=r"in at least 3 rows.*such as 'x'"):
        ChangeFeed.of("op").numbers(pa.chunked_array([["c", "x"], ["y", "c", "x"]]))
    with pytest.raises(ConfigError, match=r"in at least 2 rows, is null"):
        ChangeFeed.of("op").numbers(pa.array(["c", None, None]))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"op": "what"}, "op is 'what', and the rows to write have no column of that name; they have id, dt"),
        ({"op": "OP"}, "Did you mean 'op'"),
        ({"op": "ts"}, "column 'ts', which is to say what became of rows, is int64; expected text"),
        ({"op": 3}, "op is 3, an int; expected a text"),
        ({"op_words": {"x": "delete"}}, "and op does not name the column"),
        (
            {"op": "op", "op_words": {"x": "remove"}},
            "'x' means 'remove', a str; expected one of insert, update_",
        ),
        ({"op": "op", "op_words": {"x": 3}}, "'x' means 3, an int; expected one of insert"),
        ({"op": "op", "op_words": ["x"]}, "expected a mapping of texts"),
        ({"op": "op", "op_words": {3: "delete"}}, "expected a mapping of texts"),
    ],
)
def test_options_that_say_nothing_sensible_are_refused(options: dict[str, Any], words: str) -> None:
    table = a_table()
    with unchanged(table.store), pytest.raises((ConfigError, SchemaError), match=words):
        table.upsert([row("c")], **options)


@pytest.mark.parametrize("write", ["bulk_insert", "overwrite", "delete"])
def test_only_an_upsert_takes_a_feed(write: str) -> None:
    table = a_table()
    table.upsert([row("c")], op="op")
    rows = pa.Table.from_pylist([row("d")])
    with unchanged(table.store), pytest.raises(ConfigError, match="op and op_words are for upsert only"):
        getattr(table, write)(rows, op="op")


def test_the_column_is_stored_only_if_the_table_has_it() -> None:
    table = a_table(SCHEMA.append(pa.field("op", pa.string())))
    table.upsert([row("c"), row("C", "b"), row("-U", ts=2), row("+U", ts=2)], op="op")
    rows = table.to_arrow(columns=["id", "op"]).sort_by("id")
    assert rows.to_pylist() == [{"id": "a", "op": "+U"}, {"id": "b", "op": "C"}]
    other = a_table()
    other.upsert([row("c")], op="op", merge_schema=True)
    assert other.schema == SCHEMA


def test_rows_that_go_may_have_nulls_and_others_may_not() -> None:
    table = a_table()
    table.upsert([row("c"), row("c", "b")], op="op")
    table.upsert([row("d", n=None, ts=2), row("-U", "b", n=None, ts=2), row("+U", "c")], op="op")
    assert found(table) == {"c": 1}
    assert table.schema == SCHEMA
    for change in ({"n": None}, {"ts": None}):
        with unchanged(table.store), pytest.raises(ConfigError, match="is null in some rows"):
            table.upsert([row("u", "c", **change), row("d", "x", n=None, ts=3)], op="op")
    with unchanged(table.store), pytest.raises(ConfigError, match="'ts' is null in some rows"):
        table.upsert([row("c", "x"), row("d", "c", ts=None)], op="op")
    with unchanged(table.store), pytest.raises(ConfigError, match="'id' is null or empty"):
        table.upsert([row("c", "x"), row("d", None)], op="op")  # type: ignore[arg-type] # for the sake of the test


def test_columns_change_with_a_feed_as_they_do_without_and_nulls_of_deletes_relax_none() -> None:
    table = a_table()
    table.upsert([row("c", note="x"), row("d", "b", n=None, note=None)], op="op", merge_schema=True)
    assert table.schema == SCHEMA.append(pa.field("note", pa.string()))
    assert found(table) == {"a": 1}


def test_a_feed_that_only_deletes_brings_the_columns_that_place_and_order_rows() -> None:
    table = a_table()
    table.upsert([row("c"), row("c", "b")], op="op")
    table.upsert([{"id": "a", "dt": "p", "ts": 2, "op": "d"}], op="op")
    assert found(table) == {"b": 1}
    with unchanged(table.store), pytest.raises(SchemaError, match="no column 'ts'"):
        table.upsert([{"id": "b", "dt": "p", "op": "d"}], op="op")
    by_time = a_table(ordering=None)
    by_time.upsert([row("c"), row("c", "b")], op="op")
    by_time.upsert([{"id": "a", "dt": "p", "op": "d"}], op="op")
    assert found(by_time) == {"b": 1}


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_row_of_a_feed_may_also_be_deleted_by_its_own_column(table_type: str) -> None:
    table = a_table(SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())), table_type=table_type)
    flag = "_hoodie_is_deleted"
    table.upsert([row("c", key, **{flag: None}) for key in "abc"], op="op")
    table.upsert(
        [row("u", "a", ts=2, **{flag: True}), row("d", "b", ts=2, **{flag: False}), row("u", "c", ts=2, n=2)],
        op="op",
    )
    assert found(table) == {"c": 2}
    assert table.to_arrow(columns=[flag])[flag].to_pylist() == [None]


def test_deletes_of_keys_in_a_bucket_that_has_none_write_nothing() -> None:
    table = a_table()
    summary = table.upsert([row("d"), row("-U", "b")], op="op")
    assert (summary.instant, summary.rows) == (None, 2)


def test_what_was_changed_is_counted() -> None:
    table = a_table(buckets=1)
    summary = table.upsert([row("c"), row("c", "b"), row("d", "b", ts=2), row("c", "c")], op="op")
    assert (summary.rows, summary.inserted, summary.updated, summary.deleted) == (4, 2, 0, 0)
    events = [row("-U", ts=2), row("+U", ts=2), row("d", "c", ts=2), row("d", "x"), row("u", "a", ts=0)]
    summary = table.upsert(events, op="op")
    assert (summary.rows, summary.inserted, summary.updated, summary.deleted) == (5, 0, 1, 1)
    assert table.upsert([row("d", ts=0)], op="op").outdated == 1
