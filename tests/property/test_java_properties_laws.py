"""What is written must be read back, whatever the words are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bucketlake.config import parse_java_properties, render_java_properties
from bucketlake.errors import CorruptTableError

words = st.text(st.characters(exclude_categories=()), max_size=12) | st.text(
    " \t\f\n\r\\=:#!au0", max_size=12
)


def _is_well_formed(text: str) -> bool:
    """Lone halves of surrogate pairs join when they meet: Java's strings have no such thing as a law."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


@given(st.dictionaries(words.filter(_is_well_formed), words.filter(_is_well_formed), max_size=5))
def test_properties_survive_a_round_trip(pairs: dict[str, str]) -> None:
    assert parse_java_properties(render_java_properties(pairs), path="p") == pairs


@given(st.binary(max_size=60) | st.text("\\u0aF =:#!\r\n\t", max_size=60).map(str.encode))
def test_any_bytes_are_properties_or_a_named_fault(data: bytes) -> None:
    try:
        found = parse_java_properties(data, path="p")
    except CorruptTableError as fault:
        assert fault.path == "p"
    else:
        assert all(isinstance(value, str) for value in found.values())
