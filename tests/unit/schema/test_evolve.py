"""A write that changes a table's columns by accident can't be taken back: what is not clearly meant is refused."""

from __future__ import annotations

import decimal

import pyarrow as pa
import pytest

from bucketlake.errors import SchemaError, UnsupportedError
from bucketlake.schema import evolve, find_null_element, fit_rows
from bucketlake.schema.nulls import find_null


def column(kind: pa.DataType) -> pa.Schema:
    return pa.schema([("c", kind)])


def test_an_added_column_is_nullable_and_goes_to_the_end() -> None:
    stored = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.string())])
    incoming = pa.schema(
        [
            pa.field("z", pa.int32(), nullable=False),
            ("a", pa.string()),
            ("y", pa.date32()),
            ("id", pa.int64()),
        ]
    )
    assert evolve(stored, incoming, fixed=["id"], merge=True) == pa.schema(
        [*stored, pa.field("z", pa.int32()), pa.field("y", pa.date32())]
    )


@pytest.mark.parametrize(
    ("stored", "incoming", "evolved"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.int32(), pa.int64()),
        (pa.int32(), pa.int8(), pa.int32()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.float64(), pa.float32(), pa.float64()),
        (pa.float64(), pa.int64(), pa.float64()),
        (pa.float32(), pa.int32(), pa.float32()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3), pa.decimal128(12, 3)),
        (pa.decimal128(12, 3), pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.string(), pa.large_string(), pa.string()),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("ms", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC")),
        (pa.list_(pa.int64()), pa.list_(pa.int32()), pa.list_(pa.int64())),
        (
            pa.map_(pa.string(), pa.float64()),
            pa.map_(pa.string(), pa.float32()),
            pa.map_(pa.string(), pa.float64()),
        ),
        (
            pa.struct([("a", pa.int64()), ("b", pa.string())]),
            pa.struct([pa.field("new", pa.bool_(), nullable=False), ("b", pa.string()), ("a", pa.int32())]),
            pa.struct([("a", pa.int64()), ("b", pa.string()), ("new", pa.bool_())]),
        ),
    ],
    ids=str,
)
def test_the_wider_of_two_types_is_the_table_s(
    stored: pa.DataType, incoming: pa.DataType, evolved: pa.DataType
) -> None:
    assert evolve(column(stored), column(incoming), fixed=[], merge=True) == column(evolved)
    if evolved == stored:
        assert evolve(column(stored), column(incoming), fixed=[]) == column(stored)
    else:
        with pytest.raises(SchemaError, match="merge_schema=True"):
            evolve(column(stored), column(incoming), fixed=[])


@pytest.mark.parametrize(
    ("stored", "incoming"),
    [
        (pa.int32(), pa.string()),
        (pa.string(), pa.int32()),
        (pa.string(), pa.date32()),
        (pa.string(), pa.binary()),
        (pa.int64(), pa.float64()),
        (pa.int64(), pa.decimal128(38, 0)),
        (pa.float64(), pa.decimal128(38, 10)),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("us"), pa.date32()),
        (pa.list_(pa.int32()), pa.int32()),
        (pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_types_that_do_not_widen_are_refused(stored: pa.DataType, incoming: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column 'c.*neither widens") as refused:
        evolve(column(stored), column(incoming), fixed=[], merge=True)
    assert str(stored) in str(refused.value)
    assert str(incoming) in str(refused.value)


@pytest.mark.parametrize(
    ("stored", "incoming", "place"),
    [
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())]), "c.a"),
        (pa.list_(pa.float32()), pa.list_(pa.float64()), "c.element"),
        (pa.map_(pa.string(), pa.decimal128(9, 2)), pa.map_(pa.string(), pa.decimal128(12, 2)), "c.value"),
    ],
    ids=str,
)
def test_what_is_inside_a_column_does_not_widen_because_hudi_could_not_read_it(
    stored: pa.DataType, incoming: pa.DataType, place: str
) -> None:
    with pytest.raises(SchemaError, match=f"'{place}' is .*Hudi on Spark could not read"):
        evolve(column(stored), column(incoming), fixed=[], merge=True)


@pytest.mark.parametrize(
    ("stored", "incoming"),
    [(pa.int32(), pa.int64()), (pa.float32(), pa.float64()), (pa.float64(), pa.int32())],
    ids=str,
)
def test_a_column_that_places_records_keeps_its_text(stored: pa.DataType, incoming: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"column 'c' is .* placed or ordered. Cast it to"):
        evolve(column(stored), column(incoming), fixed=["c"], merge=True)


def test_an_int_is_the_same_text_as_a_long() -> None:
    assert evolve(column(pa.int64()), column(pa.int32()), fixed=["c"]) == column(pa.int64())


def test_a_field_inside_a_struct_can_place_records_too() -> None:
    stored, incoming = (column(pa.struct([("a", kind)])) for kind in (pa.int32(), pa.int64()))
    with pytest.raises(SchemaError, match=r"'c\.a'"):
        evolve(stored, incoming, fixed=["c.a"], merge=True)


def test_columns_more_are_named_and_refused_unless_they_are_meant() -> None:
    stored = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])
    more = pa.schema([*stored, ("note", pa.string()), ("more", pa.string())])
    with pytest.raises(
        SchemaError, match=r"have 'note', 'more', and the table has not: it has id, s\..*merge_schema"
    ):
        evolve(stored, more, fixed=["id"])
    inside = pa.schema([stored.field("id"), ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())]))])
    with pytest.raises(SchemaError, match=r"have 's\.y', and the table has not: it has s\.x\."):
        evolve(stored, inside, fixed=["id"])


def test_a_column_that_may_not_be_null_is_relaxed_by_a_nullable_one_if_that_is_meant() -> None:
    def of(*, nullable: bool) -> pa.Schema:
        def field(name: str, kind: pa.DataType) -> pa.Field:
            return pa.field(name, kind, nullable=nullable)

        return pa.schema(
            [
                field("id", pa.int64()),
                field("n", pa.int32()),
                field("s", pa.struct([field("x", pa.list_(field("element", pa.int32())))])),
                field("m", pa.map_(pa.string(), field("value", pa.int32()))),
            ]
        )

    strict, loose = of(nullable=False), of(nullable=True)
    assert evolve(strict, loose, fixed=["id"]) == strict
    assert evolve(strict, loose, fixed=["id"], merge=True) == loose.set(0, strict.field("id"))
    assert evolve(loose, strict, fixed=["id"], merge=True) == loose


def test_a_column_less_is_filled_in_where_the_table_says_so_and_it_may_be_null() -> None:
    stored = pa.schema(
        [
            ("id", pa.int64()),
            ("note", pa.string()),
            ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])),
            pa.field("must", pa.int32(), nullable=False),
        ]
    )
    some = pa.schema([("s", pa.struct([("x", pa.int32())])), ("id", pa.int64()), ("must", pa.int32())])
    assert evolve(stored, some, fixed=["id"], fill=True) == stored
    with pytest.raises(SchemaError, match=r"no column 'note'.*allow_missing_columns=True"):
        evolve(stored, some, fixed=["id"], merge=True)
    without = [pa.schema([field for field in some if field.name != name]) for name in ("must", "id", "s")]
    with pytest.raises(SchemaError, match=r"no column 'must'.*may not be null"):
        evolve(stored, without[0], fixed=["id"], fill=True)
    with pytest.raises(SchemaError, match=r"no column 'id'.*placed or ordered"):
        evolve(stored, without[1], fixed=["id"], fill=True)
    with pytest.raises(SchemaError, match=r"no column 's'.*placed or ordered"):
        evolve(stored, without[2], fixed=["s.x"], fill=True)


def test_a_column_less_is_refused_and_says_how_to_add_it() -> None:
    stored = pa.schema([("id", pa.int64()), ("note", pa.string())])
    with pytest.raises(SchemaError, match=r"no column 'note'.*of type string.*lit\(None\)"):
        evolve(stored, pa.schema([("id", pa.int64())]), fixed=["id"])


def test_a_field_less_inside_a_struct_is_refused() -> None:
    stored = column(pa.struct([("a", pa.int32()), ("b", pa.int32())]))
    with pytest.raises(SchemaError, match=r"no column 'c\.b'"):
        evolve(stored, column(pa.struct([("a", pa.int32())])), fixed=[])


def test_a_column_in_another_case_is_named_in_both() -> None:
    with pytest.raises(SchemaError, match=r"no column 'id'.*case only: 'ID'"):
        evolve(pa.schema([("id", pa.int64())]), pa.schema([("ID", pa.int64())]), fixed=[])
    with pytest.raises(SchemaError, match="column 'ID' differs from 'id' in case only"):
        evolve(pa.schema([("id", pa.int64())]), pa.schema([("id", pa.int64()), ("ID", pa.int64())]), fixed=[])


def test_a_type_no_table_has_is_refused_first() -> None:
    with pytest.raises(UnsupportedError, match="'c'"):
        evolve(column(pa.int32()), column(pa.uint8()), fixed=[])


def test_rows_are_widened_to_the_table() -> None:
    rows = pa.table({"n": pa.array([1, None], pa.int8()), "d": pa.array([0.1, 1], pa.float32())})
    schema = pa.schema([("d", pa.float64()), ("n", pa.int64()), ("later", pa.string())])
    assert fit_rows(rows, schema).to_pylist() == [
        {"d": 0.1, "n": 1, "later": None},
        {"d": 1.0, "n": None, "later": None},
    ]
    narrow = pa.table({"p": pa.array([decimal.Decimal("1.20")])})
    assert fit_rows(narrow, pa.schema([("p", pa.decimal128(12, 4))])).column("p").to_pylist() == [
        decimal.Decimal("1.2000")
    ]


def test_a_null_in_a_required_column_is_the_caller_s_to_fill() -> None:
    required = pa.field("n", pa.int32(), nullable=False)
    with pytest.raises(SchemaError, match=r"a null in column 'n'.*Fill"):
        fit_rows(pa.table({"n": pa.array([1, None], pa.int32())}), pa.schema([required]))
    with pytest.raises(SchemaError, match=r"a null in column 's\.n'.*Fill"):
        fit_rows(
            pa.table({"s": pa.array([None, {"n": None}], pa.struct([("n", pa.int32())]))}),
            pa.schema([("s", pa.struct([required]))]),
        )


def test_what_is_under_a_null_or_outside_a_slice_is_no_null() -> None:
    hidden = pa.StructArray.from_arrays(
        [pa.array([[None], ["a"]])], names=["words"], mask=pa.array([True, False])
    )
    sliced = pa.array([[("k", None)], [("k", [1])]], pa.map_(pa.string(), pa.list_(pa.int32())))[1:]
    assert find_null_element(pa.table({"hidden": hidden})) is None
    assert find_null_element(pa.table({"sliced": sliced})) is None
    assert (
        find_null_element(
            pa.table(
                {"m": [[("k", [1, None])]]}, pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.int32())))])
            )
        )
        == "m.value"
    )
    assert find_null(pa.table({"hidden": hidden})) is None


@pytest.mark.parametrize(
    ("new", "refused"),
    [
        (pa.field("N", pa.int32()), "'N' differs from 'n'"),
        (
            pa.field("_HOODIE_commit_time", pa.string()),
            "'_HOODIE_commit_time' differs from '_hoodie_commit_time'",
        ),
        (
            pa.field("m", pa.map_(pa.string(), pa.struct([("a", pa.int32()), ("A", pa.int32())]))),
            "'m.value.A'",
        ),
        (pa.field("s", pa.struct([("a", pa.int32()), ("A", pa.int32())])), "'s.A' differs from 's.a'"),
    ],
    ids=["column", "meta", "inside a new column", "inside a known column"],
)
def test_a_new_name_that_differs_in_case_only_is_refused(new: pa.Field, refused: str) -> None:
    stored = pa.schema([("n", pa.int32()), ("s", pa.struct([("a", pa.int32())]))])
    incoming = pa.schema([*(field for field in stored if field.name != new.name), new])
    with pytest.raises(SchemaError, match=refused):
        evolve(stored, incoming, fixed=[])


def test_a_table_that_has_two_such_columns_is_written_on() -> None:
    """A session that minds the case may have made it."""
    stored = pa.schema([("n", pa.int32()), ("N", pa.int32())])
    assert evolve(stored, stored, fixed=[]) == stored
