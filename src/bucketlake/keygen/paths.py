"""Values in partition paths: the characters that are escaped, and the word for nothing.

A path is text, made of the texts of values:

    path    := value ("/" value)*         one value per partition field; the empty path has none
    value   := (field "=")? text          the field's name with hive-style partitioning
    text    := the value's text, "%XX" for each character of `ESCAPED` with url encoding,
               or `NO_VALUE` for null and for the empty text
"""

from __future__ import annotations

import re

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"

ESCAPED = frozenset(map(chr, range(0x20))) | frozenset("\"#%'*/:=?\\{[]^\x7f")
"""What Hive, and so Hudi's PartitionPathEncodeUtils, escapes; blanks and other alphabets stay as they are."""

_ESCAPE = re.compile("[" + re.escape("".join(sorted(ESCAPED))) + "]")
_UNESCAPE = re.compile("%([0-9A-Fa-f]{2})")


def escape(text: str) -> str:
    """Escape a value for a path.

    >>> escape("a/b c%")
    'a%2Fb c%25'
    """
    return _ESCAPE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def unescape(text: str) -> str:
    """Undo `escape`.

    >>> unescape("a%2Fb c%25")
    'a/b c%'
    """
    return _UNESCAPE.sub(lambda match: chr(int(match[1], 16)), text)
