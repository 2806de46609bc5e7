"""Properties must be read as Java reads them: a key missed here is a table opened with the wrong meaning."""

from __future__ import annotations

import pytest

from bucketlake.config import parse_java_properties, render_java_properties
from bucketlake.errors import CorruptTableError


# Right column: what java.util.Properties.load gives for the text, after its documentation.
@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"", {}),
        (b"a=1\nb=2", {"a": "1", "b": "2"}),
        (b"a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        (b"a:1\nb 2\nc\t=\t3\nd   :   4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        (b"a = b = c", {"a": "b = c"}),
        (b"a==b", {"a": "=b"}),
        (b"a", {"a": ""}),
        (b"a=", {"a": ""}),
        (b"=a", {"": "a"}),
        (b"  # no\n\t! no either\n#a=1\nb=1", {"b": "1"}),
        (b"a=1#2", {"a": "1#2"}),
        (b"a=trailing  ", {"a": "trailing  "}),
        (b"a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        (b"a=x\\\n   y\\\r\n\tz", {"a": "xyz"}),
        (b"a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        (b"a=x\\\n# not a comment", {"a": "x# not a comment"}),
        (b"# a comment does not go on \\\na=1", {"a": "1"}),
        (b"a=x\\\n\nb=1", {"a": "x", "b": "1"}),
        (b"a=x\\", {"a": "x"}),
        (b"a=\\t\\n\\r\\f\\q\\\\", {"a": "\t\n\r\fq\\"}),
        (b"a=\\u00e9\\u4E2D", {"a": "é中"}),
        (b"a=\\uD83C\\uDF0A", {"a": "\N{WATER WAVE}"}),
        (b"a=\xe9", {"a": "é"}),
        (b"a=b\x85c\x1cd", {"a": "b\x85c\x1cd"}),  # line ends to Python, text to Java
        (b"a=1\na=2", {"a": "2"}),
    ],
)
def test_text_is_read_as_java_reads_it(text: bytes, pairs: dict[str, str]) -> None:
    assert parse_java_properties(text, path="p") == pairs


@pytest.mark.parametrize("text", [b"a=\\u12", b"a=\\u12g4", b"\\u=1"])
def test_a_broken_escape_is_an_error_that_names_the_file(text: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"hoodie\.properties.*escape"):
        parse_java_properties(text, path="hoodie.properties")


# Right column: what java.util.Properties.store writes.
@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({"a b": " c d"}, b"a\\ b=\\ c d\n"),
        ({"a": '{"type":"record"}'}, b'a={"type"\\:"record"}\n'),
        ({"a": "#!=\\"}, b"a=\\#\\!\\=\\\\\n"),
        ({"a": "\t\n\r\f\x07é"}, b"a=\\t\\n\\r\\f\\u0007\\u00E9\n"),
    ],
)
def test_pairs_are_written_as_java_writes_them(pairs: dict[str, str], text: bytes) -> None:
    assert render_java_properties(pairs) == text
