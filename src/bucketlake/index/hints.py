"""Options of a write in Hudi's words: they may repeat what the table has, and not change it.

Hudi's users give the bucket count with every write, and its writer believes them. Here the table knows it; an option
that says otherwise would put keys that are there into other file groups, as duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.config import parse_engine
from bucketlake.errors import ConfigError, LayoutMismatchError
from bucketlake.index.bucket_numbers import BUCKET_COUNT, BUCKET_ENGINE
from bucketlake.index.fingerprint import EXPRESSIONS, HASH_FIELDS, INDEX_TYPE, writing_index
from bucketlake.index.resolve import says_the_same, simple_count
from bucketlake.index.rings import VIRTUAL_LOGS
from bucketlake.index.ruled import RULE_TYPE_KEY, RuledIndex
from bucketlake.state import TableState


def refuse_hints(options: Mapping[str, str], state: TableState) -> None:
    """Compare options of a write, in Hudi's words, with what the table has.

    `LayoutMismatchError` names both values of the first that differs, `ConfigError` one that is not of the index.
    """
    index = writing_index(state)
    raw = state.properties.raw
    rules = index.rules if isinstance(index, RuledIndex) else None
    own = {
        INDEX_TYPE: raw.get(INDEX_TYPE, ""),
        BUCKET_ENGINE: str(state.properties.bucket_engine or ""),
        BUCKET_COUNT: str(rules.default_count if rules is not None else simple_count(state.properties) or ""),
        HASH_FIELDS: ",".join(state.properties.hash_fields or ()),
        EXPRESSIONS: rules.expressions if rules is not None else "",
        RULE_TYPE_KEY: rules.rule_type if rules is not None else "",
        VIRTUAL_LOGS: raw.get(VIRTUAL_LOGS, "false"),
    }
    for name, value in options.items():
        key = _HINTS.get(name.lower(), name.lower())
        if key not in own:
            raise ConfigError(f"unknown option {name!r} of a write; expected one of {', '.join(own)}.")
        is_same = own[key].lower() == value.strip().lower()
        if key == BUCKET_ENGINE and value.strip():
            is_same = parse_engine(value) == own[key]
        elif key == EXPRESSIONS and rules is not None:
            is_same = is_same or says_the_same(value, rules)
        elif key == HASH_FIELDS:
            is_same = set(_split(own[key])) == set(_split(value))
        if not is_same:
            raise LayoutMismatchError(
                f"{name}: {state.store.uri} has {own[key]!r} ({index}), and this write says {value!r}. An option of a "
                f"write cannot change where keys live: they would be written a second time. Drop it; bucket counts are "
                f"changed by table.buckets."
            )


_HINTS = {
    "hoodie.bucket.index.engine": BUCKET_ENGINE,
    "hoodie.bucket.index.partition.rule": RULE_TYPE_KEY,
    "index.type": INDEX_TYPE,
}


def is_hint(name: str) -> bool:
    """Tell whether an option is one of Hudi's words for an index."""
    word = name.lower()
    return (
        word in _HINTS or word.startswith(("hoodie.bucket.index.", "hoodie.index.")) or word == VIRTUAL_LOGS
    )


def _split(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]
