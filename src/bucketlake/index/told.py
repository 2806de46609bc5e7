"""What a caller says of a table's index: one value, checked, and compared with what the table says.

    told            the value that was given as `index=` or `buckets=`, checked; None if there was none
    index_of_text   the same, written as a text
    stored          the value that the table's own properties make
    refuse_other    a caller may repeat what the table says, and not contradict it

Where the table says nothing, its files may: `refuse_unlike_files`, and `resolve_index`, which takes the value too.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

import numpy as np

from bucketlake.config import RECORD_LEVEL, BucketEngine, TableProperties
from bucketlake.errors import ConfigError, LayoutMismatchError, shown
from bucketlake.index.consistent import list_rings
from bucketlake.index.dynamic import DynamicBuckets, check_dynamic, has_dynamic_buckets, stored_dynamic
from bucketlake.index.engines import IndexValue, how_to_register, registered_engine
from bucketlake.index.extendible import ExtendibleBuckets
from bucketlake.index.partition import list_versions
from bucketlake.index.record_level import RecordIndex, check_record_index, stored_record_index
from bucketlake.index.rings import VIRTUAL_LOGS, ConsistentBuckets, GrowingBuckets
from bucketlake.index.ruled import RULE_TYPE_KEY, PartitionBuckets
from bucketlake.index.rules import BUCKETS_MAX, RULE_TYPE
from bucketlake.index.simple import SimpleBuckets
from bucketlake.state import TableState

_Ours: TypeAlias = SimpleBuckets | PartitionBuckets | GrowingBuckets | RecordIndex | DynamicBuckets

_EXPECTED = (
    'SimpleBuckets(4), PartitionBuckets("2026-.*,16", default=4), ConsistentBuckets(4), ExtendibleBuckets(4), '
    "RecordIndex(), RecordIndex(per_partition=True) or DynamicBuckets(assigners=8)"
)


def told(index: object = None, buckets: object = None) -> IndexValue | None:
    """Check what a caller says: `buckets=4` is short for `SimpleBuckets(4)`."""
    if index is None:
        return None if buckets is None else _simple(SimpleBuckets(buckets), "buckets")  # type: ignore[arg-type] # checked
    if buckets is not None:
        raise ConfigError(
            f"index is {index} and buckets is {buckets!r}: the latter is short for index=SimpleBuckets({buckets!r}). "
            f"Give one of them."
        )
    check = _CHECKS.get(type(index))
    if check is not None:
        return check(index)
    word = getattr(type(index), "engine", None)
    if isinstance(word, str) and registered_engine(word) is not None:
        return cast("IndexValue", index)  # it checks itself
    if isinstance(word, str):
        raise ConfigError(
            f"index is {shown(index)}, whose engine {word} is not known here. {how_to_register(word)}"
        )
    raise ConfigError(f"index is {shown(index)}; expected {_EXPECTED}.")


def is_kept_in_metadata(index: IndexValue) -> bool:
    """Tell whether an index lives in the metadata table, which the table then has from the start."""
    return index.engine in RECORD_LEVEL


def index_of_text(text: str) -> IndexValue:
    """Read a value as it is written in Python; for commands and statements, which have texts only.

    >>> index_of_text("ConsistentBuckets(4, virtual_logs=True)")
    ConsistentBuckets(count=4, hash_fields=(), virtual_logs=True)
    """
    by_name = {kind.__name__: kind for kind in _CHECKS}
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is no name with arguments in parentheses")
        kind = by_name[call.func.id]
        values = [ast.literal_eval(value) for value in call.args]
        named = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
        value = kind(*values, **named)
    except (SyntaxError, ValueError, KeyError, TypeError) as fault:
        why = f"there is no index {fault}" if isinstance(fault, KeyError) else str(fault).split(" (")[0]
        raise ConfigError(f"index is {text!r}; expected {_EXPECTED}: {why}.") from None
    checked = told(value)
    assert checked is not None
    return checked


def stored(properties: TableProperties) -> _Ours | None:
    """Return what the table says itself; None if it does not, or keeps it elsewhere, as rules are."""
    count, fields = properties.bucket_count, properties.hash_fields or ()
    if has_dynamic_buckets(properties):
        return stored_dynamic(properties)
    if properties.engine in RECORD_LEVEL:
        return stored_record_index(properties)
    if properties.bucket_engine is None or count is None or RULE_TYPE_KEY in properties.raw:
        return None
    if properties.bucket_engine == BucketEngine.SIMPLE:
        return SimpleBuckets(count, fields)
    kind = _GROWING.get(properties.bucket_engine)
    if kind is None:
        return None
    return kind(count, fields, properties.raw.get(VIRTUAL_LOGS, "").strip().lower() == "true")


def refuse_other(index: IndexValue, properties: TableProperties, uri: str) -> None:
    """Raise `LayoutMismatchError` if the table says that it has another index.

    What only its files tell, rules and the buckets of a table of Hudi's, is compared when they are read.
    """
    if not isinstance(index, _Ours):
        _refuse_other_settings(index, properties, uri)
        return
    says = stored(properties)
    if isinstance(index, RecordIndex | DynamicBuckets) or isinstance(says, RecordIndex | DynamicBuckets):
        if says is None and properties.index_type is None:
            return  # a table of Hudi's: its metadata table tells
        is_like = index == says
        if isinstance(index, RecordIndex) and isinstance(says, RecordIndex):
            is_like = _is_like(index, says)
        if not is_like:
            raise differs(uri, says or "no record-level index", index)
        return
    if says is not None:
        wanted = replace(index, hash_fields=index.hash_fields or says.hash_fields)
        if isinstance(wanted, GrowingBuckets) and isinstance(says, GrowingBuckets):
            wanted = replace(wanted, virtual_logs=wanted.virtual_logs or says.virtual_logs)
        # Hash fields have no order: the key's counts.
        if _ordered(wanted) == _ordered(says):
            return
        raise differs(uri, says, index)
    has_rules = RULE_TYPE_KEY in properties.raw
    if has_rules and not isinstance(index, PartitionBuckets):
        raise differs(uri, "partition-level buckets, by rules that table.buckets.show_config() lists", index)
    if has_rules and isinstance(index, PartitionBuckets):
        rule_type = properties.raw[RULE_TYPE_KEY].strip()
        if rule_type.lower() != index.rule_type.lower():
            raise differs(uri, f"rules of the type {rule_type}", f"{index}, of the type {index.rule_type}")


def _is_like(index: RecordIndex, says: RecordIndex) -> bool:
    """How many shards there are is said for new ones only, and need not be repeated."""
    return replace(index, shards=index.shards or says.shards) == says


def _refuse_other_settings(index: IndexValue, properties: TableProperties, uri: str) -> None:
    """Compare a value of a user's engine, word by word, with what the table keeps of it."""
    if properties.bucket_engine != index.engine:
        raise differs(uri, f"the engine {properties.bucket_engine}", index)
    for key, value in index.settings().items():
        if properties.raw.get(key) != value:
            raise differs(uri, f"{key}={properties.raw.get(key)}", f"{key}={value}")


def differs(uri: str, says: object, index: object) -> LayoutMismatchError:
    return LayoutMismatchError(
        f"{uri} has {says}, and index= says {index}. A table's index is chosen when it is made: reading by another "
        f"would miss rows, and writing by it would put keys that the table has into new file groups, as duplicates. "
        f"Leave index= and buckets= out to go by what the table has."
    )


def refuse_unlike_files(index: IndexValue, state: TableState) -> None:
    """Raise `LayoutMismatchError` if a table that is to be adopted cannot have this index, by its files."""
    uri = state.store.uri
    refuse_other(index, state.properties, uri)
    if isinstance(index, ExtendibleBuckets):
        raise differs(uri, "buckets of an engine that Hudi has, and this is none", index)
    has_rings = list_rings(state.store, state.timeline) is not None
    if has_rings != isinstance(index, ConsistentBuckets):
        raise differs(uri, "rings of consistent hashing" if has_rings else "no rings among its files", index)
    if isinstance(index, SimpleBuckets) and list_versions(state.store, with_archived=False):
        raise differs(uri, "bucket rules of its own, which table.buckets.show_config() lists", index)
    if isinstance(index, ConsistentBuckets) and index.virtual_logs:
        raise ConfigError(
            f"index is {index}, and {uri} was not made with virtual logs; expected virtual_logs=False. They are chosen "
            f"when a table is made."
        )
    if isinstance(index, PartitionBuckets) and index.rule_type.lower() != RULE_TYPE:
        raise ConfigError(
            f"rule_type is {index.rule_type!r}; expected {RULE_TYPE!r}: Hudi has no other rules that a "
            f"table could be adopted with."
        )


def _simple(index: SimpleBuckets, what: str = "count") -> SimpleBuckets:
    return replace(index, count=_count(index.count, what), hash_fields=_names(index.hash_fields))


def _ruled(index: PartitionBuckets) -> PartitionBuckets:
    for what, value in (("rules", index.rules), ("rule_type", index.rule_type)):
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{what} is {shown(value)}; expected a text, such as '2026-.*,16'.")
    return replace(index, default=_count(index.default, "default"), hash_fields=_names(index.hash_fields))


def _growing(index: GrowingBuckets) -> GrowingBuckets:
    if not isinstance(index.virtual_logs, bool):
        raise ConfigError(f"virtual_logs is {shown(index.virtual_logs)}; expected True or False.")
    return replace(index, count=_count(index.count, "count"), hash_fields=_names(index.hash_fields))


def _record(index: RecordIndex) -> RecordIndex:
    check_record_index(index)
    return index if index.shards is None else replace(index, shards=int(index.shards))


_CHECKS: Mapping[type, Callable[[Any], _Ours]] = {
    RecordIndex: _record,
    DynamicBuckets: check_dynamic,
    SimpleBuckets: _simple,
    PartitionBuckets: _ruled,
    ConsistentBuckets: _growing,
    ExtendibleBuckets: _growing,
}
"""By the class of the value."""

_GROWING: Mapping[str, type[GrowingBuckets]] = {
    kind.engine: kind for kind in (ConsistentBuckets, ExtendibleBuckets)
}


def _count(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{what} is {shown(value)}; expected a whole number, such as 4.")
    if not 1 <= value <= BUCKETS_MAX:
        raise ConfigError(
            f"{what} is {value}; expected 1 to {BUCKETS_MAX} buckets per partition. A bucket should hold "
            f"some hundred MB of rows."
        )
    return int(value)


def _names(value: object) -> tuple[str, ...]:
    found = (value,) if isinstance(value, str) else value
    if isinstance(found, bytes | Mapping) or not isinstance(found, Iterable):
        found = (None,)
    names = tuple(found)
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"hash_fields is {shown(value)}; expected names of key columns.")
    return names


def _ordered(index: _Ours) -> _Ours:
    assert not isinstance(index, RecordIndex | DynamicBuckets)
    return replace(index, hash_fields=tuple(sorted(index.hash_fields)))
