r"""Java `.properties` text: pairs of words <-> bytes, as `java.util.Properties` reads and writes them.

    file     := line*              ended by \n, \r or \r\n; ISO-8859-1
    line     := blank | comment | entry
    comment  := white* ("#" | "!") anything
    entry    := white* key separator value
    key      := characters up to the first unescaped "=", ":" or white
    separator:= white* ("=" | ":")? white*
    white    := " " | "\t" | "\f"
    escape   := "\" (t | n | r | f | uXXXX | any character, meaning itself)

A line that ends with an odd number of backslashes goes on in the next one, whose leading white is dropped;
a comment never goes on. A key that comes twice keeps its last value. What stands beyond ISO-8859-1 travels
as `\uXXXX`, one escape per UTF-16 unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bucketlake.errors import CorruptTableError

_WHITE = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY = re.compile(r"(?:[^=: \t\f\\]|\\.?)*", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u(?P<digits>.{0,4})|(?P<other>.?))", re.DOTALL)
_RENDERED = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {c: "\\" + c for c in "=:#!"}


def parse_java_properties(data: bytes, *, path: str) -> dict[str, str]:
    r"""Read `.properties` text; `path` is for the error when it breaks the grammar.

    >>> parse_java_properties(b"# a table\nhoodie.table.name=orders\nkey : a\\=b \\\n   c", path="x")
    {'hoodie.table.name': 'orders', 'key': 'a=b c'}
    """
    found: dict[str, str] = {}
    for line in _logical_lines(data.decode("iso-8859-1")):
        key_end = _end_of_key(line)
        value_start = _skip_white(line, key_end)
        if value_start < len(line) and line[value_start] in "=:":
            value_start = _skip_white(line, value_start + 1)
        key = _unescape(line[:key_end], path=path)
        found[key] = _unescape(line[value_start:], path=path)
    return found


def render_java_properties(properties: Mapping[str, str]) -> bytes:
    r"""Write `properties` so that Java, and `parse_java_properties`, read back the same pairs.

    >>> render_java_properties({"a": "b=c", "name": " é"})
    b'a=b\\=c\nname=\\ \\u00E9\n'
    """
    lines = [f"{_escape(key, all_spaces=True)}={_escape(value)}\n" for key, value in properties.items()]
    return "".join(lines).encode("ascii")


def _logical_lines(text: str) -> Iterator[str]:
    """Join what backslashes join; drop blank lines and comments."""
    pending: str | None = None
    # Not str.splitlines: it also splits at \f, \x1c, \x85 and others, which are text to Java.
    for natural in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        line = natural.lstrip(_WHITE)
        if pending is None and (not line or line[0] in "#!"):
            continue
        trailing = len(line) - len(line.rstrip("\\"))
        goes_on = trailing % 2 == 1
        whole = (pending or "") + (line[:-1] if goes_on else line)
        if goes_on:
            pending = whole
        else:
            yield whole
            pending = None
    if pending:
        yield pending


def _end_of_key(line: str) -> int:
    key = _KEY.match(line)
    assert key is not None, "it may be empty"
    return key.end()


def _skip_white(line: str, position: int) -> int:
    while position < len(line) and line[position] in _WHITE:
        position += 1
    return position


def _unescape(text: str, *, path: str) -> str:
    if "\\" not in text:
        return text

    def meant(escape: re.Match[str]) -> str:
        digits, other = escape["digits"], escape["other"]
        if digits is None:
            return _ESCAPES.get(other, other)
        if len(digits) != 4 or not all(c in "0123456789abcdefABCDEF" for c in digits):
            raise CorruptTableError(
                path=path,
                found=f"the escape \\u{digits}",
                expected="\\u and four hexadecimal digits",
                remedy="Mend the line by hand, or restore the file.",
            )
        return chr(int(digits, 16))

    # Two escapes can be the halves of one character: let UTF-16 join them.
    return _ESCAPE.sub(meant, text).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _escape(text: str, *, all_spaces: bool = False) -> str:
    """Escape a key (every space) or a value (only leading ones, as Java does)."""
    parts: list[str] = []
    for position, character in enumerate(text):
        if character == " ":
            parts.append("\\ " if all_spaces or position == 0 else " ")
        elif character in _RENDERED:
            parts.append(_RENDERED[character])
        elif " " < character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            parts += [f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2)]
    return "".join(parts)
