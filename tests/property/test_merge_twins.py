"""The fast merge equals the one written record by record: a difference is a row Hudi would not show."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import MergeMode
from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.merge import MergeRules, merge_slice
from bucketlake.merge.ordering import codes_of
from bucketlake.merge.twin import merge_slice_by_record
from bucketlake.merge.winners import KeyTable

KEY = "_hoodie_record_key"

# Few values each, so that ties, and the corners of each type, come up all the time.
ORDERING_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [-1, 0, 1, 2**31 - 1],
    pa.int64(): [-1, 0, 1, 2**63 - 1, -(2**63) + 1],
    pa.float32(): [float("-inf"), -0.0, 0.0, 1.5, float("nan")],
    pa.float64(): [float("-inf"), -0.0, 0.0, 1e-300, float("inf"), float("nan")],
    pa.string(): ["", "a", "ab", "\uff5e", "\U0001f30a"],
    pa.binary(): [b"", b"\x00", b"\x7f", b"\x80"],
    pa.bool_(): [False, True],
    pa.date32(): [datetime.date(1969, 12, 31), datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)],
    pa.timestamp("us", "UTC"): [
        datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC),
        datetime.datetime(2024, 1, 1, microsecond=1, tzinfo=datetime.UTC),
    ],
    pa.decimal128(10, 2): [Decimal("-1.00"), Decimal("0.00"), Decimal("99999999.99")],
    pa.decimal128(30, 2): [Decimal("-1.00"), Decimal("0.00"), Decimal("9" * 28 + ".99")],
}
KEYS = ["", "k", "k1", "key-0001", "key-0002", "a key of more than two words"]


@st.composite
def slices(
    draw: st.DrawFn,
) -> tuple[list[pa.RecordBatch], list[LogRecords | LogDeletes], MergeRules, pa.Schema]:
    """Draw a base, logs over the same few keys, and rules."""
    ordering = {
        name: draw(st.sampled_from(list(ORDERING_VALUES)))
        for name in draw(st.sampled_from([(), ("ts",), ("ts", "seq")]))
    }
    columns: dict[str, pa.DataType] = {KEY: pa.string(), **ordering, "a": pa.int64(), "b": pa.string()}
    markers = {"_hoodie_is_deleted": pa.bool_(), "_hoodie_operation": pa.string()}
    columns |= {name: kind for name, kind in markers.items() if draw(st.booleans())}
    marked = draw(st.booleans())
    rules = MergeRules(
        draw(st.sampled_from(MergeMode)),
        tuple(ordering),
        delete_field="b" if marked else None,
        delete_marker="gone" if marked else None,
    )
    schema = pa.schema(columns)
    may_be_partial = draw(st.booleans())
    keys_in_use = draw(st.integers(1, len(KEYS)))  # one: every entry meets every other
    # Every row gets a value of its own, so that the source of each value shows in the result.
    stamps = iter(range(10_000))

    def value(name: str) -> Any:
        if name == KEY:
            return draw(st.sampled_from(KEYS[:keys_in_use]))
        if name in ordering:
            return draw(st.none() | st.sampled_from(ORDERING_VALUES[ordering[name]]))
        if name == "a":
            return next(stamps)
        if name == "b":
            return draw(st.sampled_from([None, "gone", "x", "y"]))
        if name == "_hoodie_is_deleted":
            return draw(st.sampled_from([None, False, True]))
        return draw(st.sampled_from([None, "I", "U", "-U", "D"]))

    def table(names: Sequence[str]) -> pa.Table:
        count = draw(st.integers(0, 5))
        arrays = [pa.array([value(name) for _ in range(count)], columns[name]) for name in names]
        return pa.table(arrays, schema=pa.schema([schema.field(name) for name in names]))

    def log() -> LogRecords | LogDeletes:
        kind = draw(st.sampled_from(["records", "deletes", "partial" if may_be_partial else "records"]))
        if kind == "records":
            return LogRecords(table(schema.names), is_partial=False, instant="001")
        if kind == "partial":
            names = [name for name in schema.names if name == KEY or draw(st.booleans())]
            return LogRecords(table(names), is_partial=True, instant="001")
        keys = table([KEY, *ordering])
        undated = draw(st.lists(st.booleans(), min_size=len(keys), max_size=len(keys)))
        fields = [keys.column(name).combine_chunks() for name in ordering]
        return LogDeletes(
            keys.column(KEY).combine_chunks(),
            pa.StructArray.from_arrays(fields, list(ordering)) if ordering else None,
            pa.array(undated, pa.bool_()),
            instant="001",
        )

    base = [batch for _ in range(draw(st.integers(0, 3))) for batch in table(schema.names).to_batches()]
    return base, [log() for _ in range(draw(st.integers(0, 6)))], rules, schema


def as_rows(data: pa.Table) -> list[str]:
    """Rows as sorted text: the order of rows is free, and NaN must equal NaN."""
    return sorted(repr(row) for row in data.to_pylist())


@pytest.mark.shows("S5")
@given(slices())
def test_merging_by_columns_equals_merging_by_record(
    drawn: tuple[list[pa.RecordBatch], list[LogRecords | LogDeletes], MergeRules, pa.Schema],
) -> None:
    base, logs, rules, schema = drawn
    batches = list(merge_slice(base, logs, rules, schema))
    assert all(batch.schema.equals(schema) for batch in batches)
    fast = pa.Table.from_batches(batches, schema)
    fast.validate(full=True)
    assert as_rows(fast) == as_rows(merge_slice_by_record(base, logs, rules, schema))


@given(slices(), st.integers(1, 4))
def test_how_the_base_is_cut_into_batches_does_not_matter(
    drawn: tuple[list[pa.RecordBatch], list[LogRecords | LogDeletes], MergeRules, pa.Schema], size: int
) -> None:
    base, logs, rules, schema = drawn
    recut = pa.Table.from_batches(base, schema).combine_chunks().to_batches(max_chunksize=size)
    whole = pa.Table.from_batches(merge_slice(base, logs, rules, schema), schema)
    assert as_rows(pa.Table.from_batches(merge_slice(recut, logs, rules, schema), schema)) == as_rows(whole)


@given(slices(), st.data())
def test_columns_that_are_not_shown_change_no_row(
    drawn: tuple[list[pa.RecordBatch], list[LogRecords | LogDeletes], MergeRules, pa.Schema],
    data: st.DataObject,
) -> None:
    base, logs, rules, schema = drawn
    shown = data.draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    whole = pa.Table.from_batches(merge_slice(base, logs, rules, schema), schema)
    few = pa.schema([schema.field(name) for name in shown])
    batches = merge_slice(base, logs, rules, schema, shown=shown)
    assert as_rows(pa.Table.from_batches(batches, few)) == as_rows(whole.select(shown))


@given(st.lists(st.text(max_size=30)), st.lists(st.text(max_size=30)), st.integers(0, 3))
def test_keys_are_numbered_and_found_as_a_dict_would(ours: list[str], theirs: list[str], skip: int) -> None:
    table = KeyTable.build(pa.array(ours, pa.string())[skip:])
    numbers: dict[str, int] = {}
    for key in ours[skip:]:
        numbers.setdefault(key, len(numbers))
    assert table.numbers.tolist() == [numbers[key] for key in ours[skip:]]

    asked = (theirs + ours)[skip:]
    rows, found = table.match(
        pa.array(theirs + ours, pa.string())[skip:], np.zeros(len(numbers), dtype=np.bool_)
    )
    first_rows = {key: row for row, key in reversed(list(enumerate(asked))) if key in numbers}
    assert dict(zip(found.tolist(), rows.tolist(), strict=True)) == {
        numbers[key]: row for key, row in first_rows.items()
    }


@given(st.lists(st.floats() | st.none()), st.lists(st.text() | st.none()))
def test_codes_order_numbers_and_text_as_java_and_utf8_do(
    numbers: list[float | None], texts: list[str | None]
) -> None:
    by_code = [numbers[at] for at in np.argsort(codes_of(pa.array(numbers, pa.float64())), kind="stable")]
    nulls = [value for value in numbers if value is None]
    nans = [value for value in numbers if value is not None and value != value]
    rest = [value for value in numbers if value is not None and value == value]
    rest.sort(key=lambda value: (value, np.copysign(1, value)))
    assert repr(by_code) == repr([*nulls, *rest, *nans])

    ordered = [texts[at] for at in np.argsort(codes_of(pa.array(texts, pa.string())), kind="stable")]
    assert ordered == sorted(texts, key=lambda text: (text is not None, (text or "").encode()))
