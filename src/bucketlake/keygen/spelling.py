"""Values that are spelled like others: their rows would be one row.

A record key of several fields reads `k1:a,k2:7`, and nothing in a value is escaped. So a key may be read in more than
one way:

    k1 = "1,k2:2"  k2 = "3"        k1:1,k2:2,k2:3
    k1 = "1"       k2 = "2,k2:3"   k1:1,k2:2,k2:3
    k1 = null      k2 = "3"        k1:__null__,k2:3
    k1 = "__null__" k2 = "3"       k1:__null__,k2:3

Hudi takes such rows for versions of one record, and so must whoever shares a table with it. A comma, or a colon, alone
does no harm: a key has another reading if, and only if, the value of a text field

- is one of the two words that stand for null and for the empty text;
- holds, after its first character, the beginning of the next text field, and of all fields between the two; or
- holds, before its last character, its own beginning, and that of all fields between it and the text field before.

For the separators of another reading all stand somewhere in the key, they cannot overlap (each has one comma, at its
start), and fields of other types hold no comma. The first separator that another reading has further left lies in a
value that ends with it, and the last one that it has further right in the value that begins with it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

NULL_PIECE = "__null__"
EMPTY_PIECE = "__empty__"
"""How a null and an empty text stand in a record key of several fields."""


def find_ambiguous(fields: Sequence[str], texts: Sequence[pa.StringArray | None]) -> int | None:
    """Return the first row whose record key is that of other values too, None if there is none.

    `texts` are the values of the fields, each a `pa.StringArray`; None for a field of a type that is not text.

    >>> find_ambiguous(["k1", "k2"], [pa.array(["a, b", "1,k2:2"]), pa.array(["x:y", "3"])])
    1
    """
    if len(fields) < 2:
        return None  # a null or an empty text cannot be the whole key
    patterns = _patterns(fields, [column is not None for column in texts])
    rows: list[int] = []
    for column, pattern in zip(texts, patterns, strict=True):
        if column is None:
            continue
        rows += (pc.index(column, word).as_py() for word in (NULL_PIECE, EMPTY_PIECE))
        if pattern and _holds_a_comma(column):
            found = pc.fill_null(pc.match_substring_regex(column, pattern), False)
            rows.append(pc.index(found, True).as_py())
    return min((row for row in rows if row >= 0), default=None)


def _patterns(fields: Sequence[str], are_text: Sequence[bool]) -> list[str]:
    """Return, for each text field, what its value holds if the key has another reading; empty if it never has."""
    places = [place for place, is_text in enumerate(are_text) if is_text]
    patterns = [""] * len(fields)
    for number, place in enumerate(places):
        ways = []
        if number + 1 < len(places):
            ways.append("." + _beginnings(fields[place + 1 : places[number + 1] + 1]))
        if number > 0:
            ways.append(_beginnings(fields[places[number - 1] + 1 : place + 1]) + ".")
        patterns[place] = f"(?s){'|'.join(ways)}" if ways else ""
    return patterns


def _beginnings(fields: Sequence[str]) -> str:
    return "[^,]+".join(f",{re.escape(field)}:" for field in fields)


def _holds_a_comma(column: pa.StringArray) -> bool:
    """Look through the bytes of a column at once: to ask its values one by one takes twenty times as long."""
    _, offsets, data = column.buffers()
    if data is None or not len(column):
        return False
    ends = np.frombuffer(offsets, np.int32)
    within = np.frombuffer(data, np.uint8)[ends[column.offset] : ends[column.offset + len(column)]]
    return bool((within == ord(",")).any())
