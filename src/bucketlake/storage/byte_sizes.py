"""Numbers of bytes, as people read and write them."""

from __future__ import annotations

import re

_UNITS = ("B", "KiB", "MiB", "GiB")
_SIZE = re.compile(r"\s*([0-9]{1,15})\s*(?:([KMGT])I?)?B?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_bytes(text: str) -> int:
    """Read a number of bytes, with or without a unit; a unit counts in 1024s, as Spark's do. Else ValueError.

    >>> parse_bytes("65536"), parse_bytes("512MB"), parse_bytes("2 GiB"), parse_bytes("64k")
    (65536, 536870912, 2147483648, 65536)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no number of bytes")
    return int(found[1]) << 10 * _POWERS[(found[2] or "").upper()]


def render_bytes(count: float) -> str:
    """Spell a size for a person.

    >>> render_bytes(1536)
    '1.5 KiB'
    """
    for unit in _UNITS:
        if abs(count) < 1024 or unit == _UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
