"""A row is refused if, and only if, its record key is that of other values too: then two rows would be one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given

from bucketlake.errors import ConfigError
from bucketlake.keygen import EMPTY_PIECE, NULL_PIECE, KeyGenerator

pytestmark = pytest.mark.shows("X3")

FIELDS = ("a", "b", "c.d")
texts = st.lists(
    st.sampled_from(["1", ",", ":", "a", ",a:", ",b:", ",c.d:", ",cxd:", NULL_PIECE, EMPTY_PIECE, "é\n"]),
    max_size=5,
).map("".join)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.none() | texts,
    pa.int64(): st.none() | st.integers(-3, 12),
}


@st.composite
def keyed_rows(draw: st.DrawFn) -> tuple[tuple[str, ...], pa.Table]:
    fields = tuple(draw(st.permutations(FIELDS))[: draw(st.integers(1, 3))])
    kinds = [draw(st.sampled_from([pa.string(), pa.string(), pa.int64()])) for _ in fields]
    rows = draw(st.lists(st.tuples(*(VALUES[kind] for kind in kinds)), max_size=4))
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    named = {name.partition(".")[0]: column for name, column in zip(fields, columns, strict=True)}
    if "c" in named:
        named["c"] = pa.StructArray.from_arrays([named["c"]], names=["d"])
    return fields, pa.table(named)


@given(keyed_rows(), st.integers(0, 2))
def test_a_key_is_refused_if_and_only_if_other_values_spell_it(
    drawn: tuple[tuple[str, ...], pa.Table], start: int
) -> None:
    fields, table = drawn
    table = table.slice(start)
    generator = KeyGenerator(record_key_fields=fields, encodes_field_names=len(fields) > 1)
    columns = [_leaf(table, field) for field in fields]
    are_text = [pa.types.is_string(column.type) for column in columns]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    if any(not any(value not in (None, "") for value in row) for row in rows):
        return  # a row without a key, which is refused for that
    alike = [row for row in rows if _has_a_double(row, fields, are_text)]
    if not alike:
        generator.check_spelling(table)
        return
    with pytest.raises(ConfigError, match="is that of several rows of values") as refused:
        generator.check_spelling(table)
    assert all(repr(value) in str(refused.value) for value in alike[0])


def _has_a_double(row: Sequence[Any], fields: Sequence[str], are_text: Sequence[bool]) -> bool:
    if len(fields) == 1:
        return False
    if any(value in (NULL_PIECE, EMPTY_PIECE) for value in row):
        return True
    pieces = [NULL_PIECE if value is None else str(value) or EMPTY_PIECE for value in row]
    key = ",".join(f"{field}:{piece}" for field, piece in zip(fields, pieces, strict=True))
    readings = set(_readings(key.removeprefix(f"{fields[0]}:"), fields[1:], are_text))
    assert tuple(pieces) in readings
    return len(readings) > 1


def _readings(rest: str, fields: Sequence[str], are_text: Sequence[bool]) -> Iterator[tuple[str, ...]]:
    """Cut a key into values in every way."""
    if not fields:
        if _can_be(rest, are_text[0]):
            yield (rest,)
        return
    separator = f",{fields[0]}:"
    place = rest.find(separator)
    while place >= 0:
        if _can_be(rest[:place], are_text[0]):
            for others in _readings(rest[place + len(separator) :], fields[1:], are_text[1:]):
                yield (rest[:place], *others)
        place = rest.find(separator, place + 1)


def _can_be(piece: str, is_text: bool) -> bool:
    return piece != "" and (is_text or "," not in piece)


def _leaf(table: pa.Table, field: str) -> pa.ChunkedArray:
    first, _, inner = field.partition(".")
    return table.flatten().column(field) if inner else table.column(first)
