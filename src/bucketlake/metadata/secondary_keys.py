r"""The keys of a secondary index: a value and a record key in one text.

    city = "Rome", key "o-1"     Rome$o-1
    city = null                  \0$o-1         the character NUL stands for null, and nothing else does
    city = "a$b"                 a\$b$o-1       a backslash goes before `$`, `\` and NUL

All entries of a value begin alike, up to the first `$` without a backslash before it, so they lie side by side.
`entry_key` is the one to be read, the others do the same to columns.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import CorruptTableError

NULL = "\0"
SEPARATOR = "$"
_SPECIAL = ("\\", SEPARATOR, NULL)
_ENTRY = r"(?s)^(?P<value>(?:[^\\$]|\\.)*\$)(?P<key>.*)$"


def entry_key(value: str | None, record_key: str) -> str:
    """Return the key of the entry of a record, by a value as it is spelled.

    >>> entry_key("a$b", "o-1"), entry_key(None, "o-1"), entry_key("", "o-1")
    ('a\\\\$b$o-1', '\\x00$o-1', '$o-1')
    """
    first = NULL if value is None else _escaped_text(value)
    return f"{first}{SEPARATOR}{_escaped_text(record_key)}"


def _escaped_text(text: str) -> str:
    return "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in text)


def value_of_prefix(prefix: str) -> str | None:
    """Return the value that entries with this beginning have, as it is spelled.

    >>> value_of_prefix("a\\\\$b$"), value_of_prefix("$"), value_of_prefix("\\x00$")
    ('a$b', '', None)
    """
    value = prefix.removesuffix(SEPARATOR)
    return None if value == NULL else re.sub(r"(?s)\\(.)", r"\1", value)


def entry_keys(values: Any, record_keys: Any) -> pa.Array:
    """Return the keys of entries, of a column of values as they are spelled and one of record keys."""
    return pc.binary_join_element_wise(_first_parts(values), _escaped(record_keys), SEPARATOR)


def prefixes_of_values(values: Any) -> pa.Array:
    """Return what the entries of values begin with.

    >>> prefixes_of_values(pa.array(["Rome", None])).to_pylist()
    ['Rome$', '\\x00$']
    """
    return pc.binary_join_element_wise(_first_parts(values), "", SEPARATOR)


def prefixes_of_entries(keys: Any, *, path: str = "a secondary index") -> pa.Array:
    """Return what the keys of entries begin with; `path` names their file in errors.

    >>> prefixes_of_entries(pa.array(["Rome$o-1"])).to_pylist()
    ['Rome$']
    """
    return _parts(keys, "value", path)


def record_keys_of_entries(keys: Any, *, path: str = "a secondary index") -> pa.Array:
    """Return the record keys in the keys of entries.

    >>> record_keys_of_entries(pa.array(["Rome$o-1"])).to_pylist()
    ['o-1']
    """
    found = _parts(keys, "key", path)
    if not pc.any(pc.match_substring(found, "\\"), min_count=0).as_py():
        return found
    return pc.replace_substring_regex(found, r"(?s)\\(.)", r"\1")


def _parts(keys: Any, name: str, path: str) -> pa.Array:
    found = pc.extract_regex(keys, _ENTRY)
    if found.null_count > keys.null_count:
        key = keys.filter(pc.is_null(found))[0].as_py()
        raise CorruptTableError(
            path=path,
            found=f"the key {key!r}",
            expected="a value and a record key, with $ between them",
            remedy="Drop the secondary index, and create it again.",
        )
    return pc.struct_field(found, name)


def _first_parts(values: Any) -> pa.Array:
    return pc.fill_null(_escaped(values), NULL)


def _escaped(texts: Any) -> Any:
    for sign in _SPECIAL:
        if pc.any(pc.match_substring(texts, sign), min_count=0).as_py():
            texts = pc.replace_substring(texts, sign, f"\\{sign}")
    return texts
