"""Old data under a newer schema: align gives what writing the values anew would give."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.schema import align

Evolved = tuple[pa.DataType, pa.DataType, st.SearchStrategy[Any]]
"""The type in the file, the type in the table, and values that both hold."""

SMALL = st.integers(-(2**24), 2**24)
LEAVES: list[Evolved] = [
    (pa.int32(), pa.int32(), SMALL),
    (pa.int32(), pa.int64(), SMALL),
    (pa.int32(), pa.float64(), SMALL),
    (pa.int64(), pa.float32(), SMALL),
    (pa.bool_(), pa.bool_(), st.booleans()),
    (pa.string(), pa.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    (pa.large_string(), pa.string(), st.text(st.characters(codec="utf-8"), max_size=5)),
    (pa.dictionary(pa.int32(), pa.string()), pa.string(), st.sampled_from(["a", "b"])),
]


@st.composite
def evolved(draw: st.DrawFn, depth: int) -> Evolved:
    match draw(st.sampled_from(["leaf"] + (["list", "map", "struct"] if depth else []))):
        case "list":
            old, new, values = draw(evolved(depth - 1))
            name = draw(st.sampled_from(["array", "item", "element"]))
            return (
                pa.list_(pa.field(name, old)),
                pa.list_(new),
                st.none() | st.lists(st.none() | values, max_size=3),
            )
        case "map":
            old, new, values = draw(evolved(depth - 1))
            entries = st.dictionaries(st.sampled_from("xyz"), st.none() | values, max_size=3)
            return (
                pa.map_(pa.string(), old),
                pa.map_(pa.string(), new),
                entries.map(lambda m: list(m.items())),
            )
        case "struct":
            result: Evolved = draw(structs(depth - 1))
        case _:
            result = draw(st.sampled_from(LEAVES))
    return result


@st.composite
def structs(draw: st.DrawFn, depth: int) -> Evolved:
    fields = {f"f{index}": draw(evolved(depth)) for index in range(draw(st.integers(1, 3)))}
    order = draw(st.permutations(list(fields)))
    old = [pa.field(name, fields[name][0]) for name in fields] + [pa.field("dropped", pa.int8())]
    new = [pa.field(name, fields[name][1]) for name in order] + [pa.field("added", pa.date32())]
    values = st.fixed_dictionaries({name: st.none() | kind[2] for name, kind in fields.items()})
    return pa.struct(old), pa.struct(new), st.none() | values


@given(structs(depth=2), st.data())
def test_aligning_equals_writing_anew(kind: Evolved, data: st.DataObject) -> None:
    old, new, values = kind
    rows = data.draw(st.lists(values.filter(lambda row: row is not None), max_size=6))
    cut = data.draw(st.integers(0, len(rows)))
    target = pa.schema(list(new))
    stored = pa.Table.from_pylist(rows, pa.schema(list(old)))
    expected = pa.Table.from_pylist(rows, target)

    aligned = align(stored, target, path="f")
    aligned.validate(full=True)
    assert aligned.schema == target
    assert aligned.equals(expected)
    rest = align(stored.slice(cut), target, path="f")
    rest.validate(full=True)
    assert rest.equals(expected.slice(cut))
