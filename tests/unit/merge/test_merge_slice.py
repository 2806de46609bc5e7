"""Merging by hand-made cases: if one fails, a reader shows rows Hudi does not, or hides rows it shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.config import MergeMode
from bucketlake.errors import ConfigError, CorruptTableError, UnsupportedError
from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.merge import MergeRules, merge_slice

KEY = "_hoodie_record_key"
SCHEMA = pa.schema({KEY: pa.string(), "ts": pa.int64(), "city": pa.string(), "price": pa.int64()})
EVENT_TIME = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts",))
COMMIT_TIME = MergeRules(MergeMode.COMMIT_TIME_ORDERING, ("ts",))

Row = tuple[Any, ...]


def rows(*values: Row, schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)


def base(*values: Row, schema: pa.Schema = SCHEMA) -> list[pa.RecordBatch]:
    return rows(*values, schema=schema).to_batches()


def upsert(*values: Row, schema: pa.Schema = SCHEMA) -> LogRecords:
    return LogRecords(rows(*values, schema=schema), is_partial=False, instant="001")


def partial(columns: Sequence[str], *values: Row) -> LogRecords:
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    return LogRecords(rows(*values, schema=schema), is_partial=True, instant="001")


def delete(key: str, ts: int | None = None) -> LogDeletes:
    """A delete-block entry; without `ts` it is the kind that `operation=delete` writes."""
    ordering = pa.StructArray.from_arrays([pa.array([ts], pa.int64())], names=["ts"])
    return LogDeletes(pa.array([key]), ordering, pa.array([ts is None]), instant="001")


def merged(
    base: Sequence[pa.RecordBatch],
    logs: Sequence[LogRecords | LogDeletes],
    rules: MergeRules = EVENT_TIME,
    schema: pa.Schema = SCHEMA,
) -> list[Row]:
    batches = list(merge_slice(base, logs, rules, schema))
    assert all(batch.schema.equals(schema) for batch in batches)
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


def test_without_logs_the_very_batches_of_the_base_come_out() -> None:
    batches = base(("a", 1, "Oslo", 1))
    assert next(merge_slice(batches, [], EVENT_TIME, SCHEMA)) is batches[0]


def test_a_batch_no_log_touches_is_not_copied() -> None:
    batches = base(("a", 1, "Oslo", 1))
    assert next(merge_slice(batches, [upsert(("b", 1, "Rome", 1))], EVENT_TIME, SCHEMA)) is batches[0]


def test_a_base_row_that_says_it_is_deleted_is_returned() -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    stored = ("a", 1, "Oslo", 1, True)
    assert merged(base(stored, schema=schema), [], schema=schema) == [stored]
    assert merged(base(stored, schema=schema), [delete("b")], schema=schema) == [stored]


def test_base_batches_are_read_one_at_a_time() -> None:
    read = []

    def batches() -> Iterator[pa.RecordBatch]:
        for key in "abc":
            read.append(key)
            yield from base((key, 1, "Oslo", 1))

    result = merge_slice(batches(), [upsert(("a", 0, "Rome", 2))], EVENT_TIME, SCHEMA)
    next(result)
    assert read == ["a"]


@pytest.mark.parametrize(
    ("ts", "event_time", "commit_time"),
    [(9, "Oslo", "Rome"), (10, "Rome", "Rome"), (11, "Rome", "Rome")],
    ids=["older", "equal", "newer"],
)
def test_a_stale_update_loses_by_event_time_and_wins_by_commit_time(
    ts: int, event_time: str, commit_time: str
) -> None:
    stored, logs = base(("a", 10, "Oslo", 1)), [upsert(("a", ts, "Rome", 2))]
    assert [row[2] for row in merged(stored, logs)] == [event_time]
    assert [row[2] for row in merged(stored, logs, COMMIT_TIME)] == [commit_time]


def test_a_log_row_without_a_base_row_is_an_insert() -> None:
    assert merged([], [upsert(("a", 1, "Oslo", 1))]) == [("a", 1, "Oslo", 1)]


def test_a_delete_of_a_missing_key_is_nothing() -> None:
    assert merged(base(("a", 1, "Oslo", 1)), [delete("b"), delete("c", 5)]) == [("a", 1, "Oslo", 1)]


def test_a_delete_without_ordering_value_wins_over_everything_before_it() -> None:
    assert merged(base(("a", 10, "Oslo", 1)), [delete("a")]) == []
    assert merged(base(("a", 10, "Oslo", 1)), [upsert(("a", 99, "Rome", 2)), delete("a")]) == []


@pytest.mark.parametrize(("ts", "survives"), [(9, True), (10, False), (11, False)])
def test_a_delete_with_an_ordering_value_must_not_be_older_than_the_row(ts: int, survives: bool) -> None:
    assert bool(merged(base(("a", 10, "Oslo", 1)), [delete("a", ts)])) is survives
    assert bool(merged([], [upsert(("a", 10, "Oslo", 1)), delete("a", ts)])) is survives


@pytest.mark.shows("S5")
def test_a_deleted_base_row_returns_when_an_older_row_follows_the_delete() -> None:
    """The logs merge first: the upsert replaces the delete, then loses to the base row."""
    logs = [delete("a"), upsert(("a", 10, "Rome", 2))]
    assert merged(base(("a", 100, "Oslo", 1)), logs) == [("a", 100, "Oslo", 1)]
    assert merged(base(("a", 100, "Oslo", 1)), logs, COMMIT_TIME) == [("a", 10, "Rome", 2)]


def test_a_dated_block_delete_does_not_replace_an_undated_one_and_a_deleting_row_does() -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    again = upsert(("a", 10, "Rome", 2, False), schema=schema)
    by_block = [delete("a"), delete("a", 50), again]
    assert merged([], by_block, schema=schema) == [("a", 10, "Rome", 2, False)]
    by_row = [delete("a"), upsert(("a", 50, None, None, True), schema=schema), again]
    assert merged([], by_row, schema=schema) == []


@pytest.mark.parametrize("operation", ["D", "-U"])
def test_a_changelog_row_that_takes_back_is_a_delete(operation: str) -> None:
    schema = SCHEMA.append(pa.field("_hoodie_operation", pa.string()))
    stored = base(("a", 10, "Oslo", 1, "I"), ("b", 10, "Oslo", 1, "I"), schema=schema)
    log = upsert(("a", 10, "Oslo", 1, operation), ("b", 11, "Rome", 2, "U"), schema=schema)
    assert merged(stored, [log], schema=schema) == [("b", 11, "Rome", 2, "U")]


@pytest.mark.parametrize(
    ("column", "kind", "marker", "gone", "kept"),
    [
        ("city", pa.string(), "gone", "gone", "GONE"),
        ("price", pa.int64(), "1", 1, 2),
        ("price", pa.bool_(), "true", True, False),
        ("price", pa.float64(), "1.0", 1.0, 1.5),
        ("price", pa.date32(), "0", 0, 1),
    ],
)
def test_a_row_with_the_custom_marker_is_a_delete(
    column: str, kind: pa.DataType, marker: str, gone: object, kept: object
) -> None:
    schema = pa.schema({KEY: pa.string(), "ts": pa.int64(), column: kind})
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts",), delete_field=column, delete_marker=marker)
    log = LogRecords(
        pa.table(
            [pa.array(["a", "b", "c"]), pa.array([1, 1, 1]), pa.array([gone, kept, None], kind)],
            schema=schema,
        ),
        is_partial=False,
        instant="001",
    )
    assert [row[0] for row in merged([], [log], rules, schema)] == ["b", "c"]


def test_a_deleting_row_without_an_ordering_value_wins_over_everything() -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    log = upsert(("a", None, None, None, True), schema=schema)
    assert merged(base(("a", 10, "Oslo", 1, None), schema=schema), [log], schema=schema) == []


@pytest.mark.parametrize(
    ("kind", "survives"), [(pa.int32(), False), (pa.int64(), True), (pa.date32(), False)], ids=str
)
def test_a_deleting_row_with_ordering_value_zero_is_undated_only_if_java_holds_an_integer(
    kind: pa.DataType, survives: bool
) -> None:
    schema = pa.schema({KEY: pa.string(), "ts": kind, "_hoodie_is_deleted": pa.bool_()})

    def table(ts: int, deleted: bool) -> pa.Table:
        return pa.table([pa.array(["a"]), pa.array([ts], kind), pa.array([deleted])], schema=schema)

    log = LogRecords(table(0, True), is_partial=False, instant="001")
    assert bool(merged(table(10, False).to_batches(), [log], schema=schema)) is survives


def test_of_two_log_rows_with_one_ordering_value_the_later_wins() -> None:
    assert merged([], [upsert(("a", 1, "Oslo", 1)), upsert(("a", 1, "Rome", 2))]) == [("a", 1, "Rome", 2)]
    assert merged([], [upsert(("a", 1, "Oslo", 1), ("a", 1, "Rome", 2))]) == [("a", 1, "Rome", 2)]


def test_a_null_orders_as_zero_among_ints_and_below_everything_elsewhere() -> None:
    """Hudi reads null as the Java Integer 0, and fails if it must compare that with a Long."""
    ints = pa.schema({KEY: pa.string(), "ts": pa.int32()})
    assert merged(base(("a", -1), schema=ints), [upsert(("a", None), schema=ints)], schema=ints) == [
        ("a", None)
    ]
    assert merged(base(("a", 1), schema=ints), [upsert(("a", None), schema=ints)], schema=ints) == [("a", 1)]
    assert merged(base(("a", -1, "", 1)), [upsert(("a", None, "", 2))]) == [("a", -1, "", 1)]
    assert merged(base(("a", None, "", 1)), [upsert(("a", -1, "", 2))]) == [("a", -1, "", 2)]


def test_a_block_delete_wins_over_a_log_row_whose_nulls_stand_elsewhere() -> None:
    """Hudi compares only values of the same classes, field by field; else the delete is taken."""
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts", "price"))
    ordering = pa.StructArray.from_arrays([pa.array([3]), pa.array([7])], names=["ts", "price"])
    older = LogDeletes(pa.array(["a"]), ordering, pa.array([False]), instant="001")
    assert merged([], [upsert(("a", 5, "Oslo", None)), older], rules) == []
    assert merged([], [upsert(("a", 5, "Oslo", 1)), older], rules) == [("a", 5, "Oslo", 1)]


def test_a_deleting_row_with_several_ordering_fields_is_never_undated() -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts", "price"))
    stored, log = ("a", 1, "Oslo", 1, None), upsert(("a", None, "Oslo", None, True), schema=schema)
    assert merged(base(stored, schema=schema), [log], rules, schema) == [stored]


def test_the_log_meets_the_first_of_two_base_rows_with_one_key() -> None:
    twice = base(("a", 10, "Oslo", 1)) + base(("a", 10, "Bern", 2))
    assert merged(twice, [upsert(("a", 11, "Rome", 3))]) == [("a", 10, "Bern", 2), ("a", 11, "Rome", 3)]
    assert merged(twice, [delete("a")]) == [("a", 10, "Bern", 2)]
    in_one_batch = base(("a", 10, "Oslo", 1), ("a", 10, "Bern", 2))
    assert merged(in_one_batch, [delete("a")]) == [("a", 10, "Bern", 2)]


def test_several_ordering_fields_compare_from_the_first() -> None:
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts", "city"))
    stored = base(("a", 10, "M", 1))
    assert merged(stored, [upsert(("a", 10, "L", 2))], rules) == [("a", 10, "M", 1)]
    assert merged(stored, [upsert(("a", 10, "N", 2))], rules) == [("a", 10, "N", 2)]
    assert merged(stored, [upsert(("a", 11, "A", 2))], rules) == [("a", 11, "A", 2)]


def test_a_dotted_ordering_field_leads_into_a_struct() -> None:
    schema = pa.schema({KEY: pa.string(), "source": pa.struct({"ts": pa.int64()})})
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("source.ts",))
    stored = base(("a", {"ts": 10}), schema=schema)
    assert rules.columns(schema) == (KEY, "source")
    assert merged(stored, [upsert(("a", {"ts": 9}), schema=schema)], rules, schema) == [("a", {"ts": 10})]
    assert merged(stored, [upsert(("a", {"ts": 11}), schema=schema)], rules, schema) == [("a", {"ts": 11})]


def test_text_orders_by_its_utf8_bytes_not_by_utf16() -> None:
    """U+1F30A is above U+FF5E in UTF-8 and, as a surrogate pair, below it in UTF-16."""
    schema = pa.schema({KEY: pa.string(), "ts": pa.string()})
    stored = base(("a", "\uff5e"), schema=schema)
    assert merged(stored, [upsert(("a", "\U0001f30a"), schema=schema)], schema=schema) == [
        ("a", "\U0001f30a")
    ]


def test_event_time_without_ordering_fields_is_commit_time() -> None:
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ())
    no_ordering = LogDeletes(pa.array(["b"]), None, pa.array([True]), instant="001")
    stored = base(("a", 10, "Oslo", 1), ("b", 10, "Oslo", 1))
    assert merged(stored, [upsert(("a", 9, "Rome", 2)), no_ordering], rules) == [("a", 9, "Rome", 2)]


class TestPartialUpdates:
    """Spark's MERGE INTO writes blocks that hold the assigned columns only."""

    def test_absent_columns_come_from_the_base(self) -> None:
        log = partial([KEY, "ts", "price"], ("a", 11, 7))
        assert merged(base(("a", 10, "Oslo", 1), ("b", 1, "Bern", 2)), [log]) == [
            ("a", 11, "Oslo", 7),
            ("b", 1, "Bern", 2),
        ]

    def test_a_null_that_was_written_is_not_an_absent_column(self) -> None:
        log = partial([KEY, "ts", "price"], ("a", 11, None))
        assert merged(base(("a", 10, "Oslo", 1)), [log]) == [("a", 11, "Oslo", None)]

    def test_a_stale_one_leaves_the_base_alone(self) -> None:
        log = partial([KEY, "ts", "price"], ("a", 9, 7))
        assert merged(base(("a", 10, "Oslo", 1)), [log]) == [("a", 10, "Oslo", 1)]
        assert merged(base(("a", 10, "Oslo", 1)), [log], COMMIT_TIME) == [("a", 9, "Oslo", 7)]

    def test_two_of_them_join_whichever_is_newer(self) -> None:
        price, city = (
            partial([KEY, "ts", "price"], ("a", 11, 7)),
            partial([KEY, "ts", "city"], ("a", 12, "Rome")),
        )
        assert merged(base(("a", 10, "Oslo", 1)), [price, city]) == [("a", 12, "Rome", 7)]
        assert merged(base(("a", 10, "Oslo", 1)), [city, price]) == [("a", 12, "Rome", 7)]

    def test_the_joined_update_has_the_newest_ordering_value(self) -> None:
        """The stale half joined the newer one, and wins over the base with it."""
        stale, newer = (
            partial([KEY, "ts", "price"], ("a", 5, 7)),
            partial([KEY, "ts", "city"], ("a", 12, "Rome")),
        )
        assert merged(base(("a", 10, "Oslo", 1)), [newer, stale]) == [("a", 12, "Rome", 7)]

    def test_it_fills_from_a_whole_log_row(self) -> None:
        whole, price = upsert(("a", 11, "Rome", 2)), partial([KEY, "ts", "price"], ("a", 12, 7))
        assert merged(base(("a", 10, "Oslo", 1)), [whole, price]) == [("a", 12, "Rome", 7)]
        assert merged([], [whole, price]) == [("a", 12, "Rome", 7)]

    def test_a_whole_row_after_it_replaces_it(self) -> None:
        whole, price = upsert(("a", 12, "Rome", 2)), partial([KEY, "ts", "price"], ("a", 11, 7))
        assert merged(base(("a", 10, "Oslo", 1)), [price, whole]) == [("a", 12, "Rome", 2)]

    def test_a_delete_after_it_deletes(self) -> None:
        price = partial([KEY, "ts", "price"], ("a", 11, 7))
        assert merged(base(("a", 10, "Oslo", 1)), [price, delete("a")]) == []
        assert merged(base(("a", 10, "Oslo", 1)), [price, delete("a", 10)]) == [("a", 11, "Oslo", 7)]

    def test_after_a_delete_it_fills_from_the_base_row_that_was_deleted(self) -> None:
        """Both phases at work: in the log it stands alone, and then it meets the base."""
        price = partial([KEY, "ts", "price"], ("a", 11, 7))
        assert merged(base(("a", 10, "Oslo", 1)), [delete("a"), price]) == [("a", 11, "Oslo", 7)]

    def test_without_any_older_version_absent_columns_are_null(self) -> None:
        assert merged([], [partial([KEY, "ts", "price"], ("a", 11, 7))]) == [("a", 11, None, 7)]

    def test_one_that_has_all_wanted_columns_is_an_ordinary_row(self) -> None:
        log = LogRecords(rows(("a", 11, "Rome", 7)), is_partial=True, instant="001")
        assert merged(base(("a", 10, "Oslo", 1)), [log]) == [("a", 11, "Rome", 7)]


def test_rules_name_the_columns_they_read() -> None:
    names = [KEY, "ts", "seq", "_hoodie_is_deleted", "_hoodie_operation", "op", "city"]
    schema = pa.schema({name: pa.string() for name in names})
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts", "seq"), delete_field="op", delete_marker="D")
    assert rules.columns(schema) == (KEY, "ts", "seq", "_hoodie_is_deleted", "_hoodie_operation", "op")
    assert COMMIT_TIME.columns(SCHEMA) == (KEY,)


def test_half_a_custom_delete_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"hoodie\.payload\.delete\.marker is None"):
        MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts",), delete_field="op")


def test_a_row_without_a_key_is_refused() -> None:
    with pytest.raises(CorruptTableError, match="log block of instant 001: found 1 rows without"):
        merged([], [upsert((None, 1, "Oslo", 1))])
    with pytest.raises(CorruptTableError, match="base file: found 1 rows without"):
        merged(base((None, 1, "Oslo", 1)), [delete("a")])


def test_an_ordering_field_that_is_no_column_is_refused() -> None:
    rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("when",))
    with pytest.raises(ConfigError, match="orders records by 'when'"):
        merged([], [upsert(("a", 1, "Oslo", 1))], rules)


def test_an_ordering_field_without_an_order_is_refused() -> None:
    schema = pa.schema({KEY: pa.string(), "ts": pa.list_(pa.int64())})
    with pytest.raises(UnsupportedError, match="the type of an ordering field is list"):
        merged([], [upsert(("a", [1]), schema=schema)], schema=schema)


def test_a_deleted_flag_that_is_not_boolean_is_refused() -> None:
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.string()))
    with pytest.raises(UnsupportedError, match="_hoodie_is_deleted is string"):
        merged([], [upsert(("a", 1, "Oslo", 1, "true"), schema=schema)], schema=schema)
