"""The same merge, one record after the other: slow, and meant to be read.

This is Hudi's reader retold with dicts. `Version` is its BufferedRecord; the
two merges of a mode are the deltaMerge and finalMerge of the mergers made by
BufferedRecordMergerFactory; partial updates are joined as the Spark mergers
and SparkRecordMergingUtils do it. Property tests hold `merge_slice` to it.

Where Hudi fails (it compares a null ordering value with one of another class,
or joins a partial update to a deleted one) this says what we do instead.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.merge.ordering import is_java_integer
from bucketlake.merge.rules import (
    DELETE_OPERATIONS,
    IS_DELETED_COLUMN,
    OPERATION_COLUMN,
    MergeRules,
    top_level,
)
from bucketlake.schema import RECORD_KEY_COLUMN

Row = Mapping[str, Any]
JavaValue = tuple[str, Any]
"""The name of a class, and a Python value that compares as Java's does."""

DEFAULT: JavaValue = ("Integer", 0)
"""What Hudi puts where a record has no ordering value."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a record: what a write said about a key."""

    ordering: tuple[JavaValue, ...]
    """A value per ordering field; the default alone if there is no such field."""

    values: Row
    """Absent columns were not touched by this write. Empty for a delete."""

    is_delete: bool = False
    is_undated_delete: bool = False
    """Hudi: isCommitTimeOrderingDelete."""


def merge_slice_by_record(
    base: Iterable[pa.RecordBatch],
    logs: Sequence[LogRecords | LogDeletes],
    rules: MergeRules,
    schema: pa.Schema,
) -> pa.Table:
    """Return what `merge_slice` yields, in some order."""
    newest: dict[str, Version] = {}
    for log in logs:
        match log:
            case LogRecords():
                for row in log.records.to_pylist():
                    _add_record(newest, row[RECORD_KEY_COLUMN], _version_of(row, rules, schema), rules)
            case LogDeletes():
                for key, version in _deletes(log, rules, schema):
                    _add_block_delete(newest, key, version, rules)

    rows: list[Row] = []
    for batch in base:
        for row in batch.to_pylist():
            newer = newest.pop(row[RECORD_KEY_COLUMN], None)
            if newer is None:
                rows.append(row)
                continue
            # A base row is never a delete, whatever its columns say.
            older = Version(_ordering_of(row, rules, schema), row)
            merged = _join(older, newer, rules)
            if not merged.is_delete:
                rows.append(merged.values)
    rows += [version.values for version in newest.values() if not version.is_delete]
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)


def _add_record(newest: dict[str, Version], key: str, newer: Version, rules: MergeRules) -> None:
    older = newest.get(key)
    newest[key] = newer if older is None else _join(older, newer, rules)


def _add_block_delete(newest: dict[str, Version], key: str, newer: Version, rules: MergeRules) -> None:
    older = newest.get(key)
    if older is None or rules.by_commit_time:
        newest[key] = newer
    elif older.is_undated_delete:
        pass
    elif newer.is_undated_delete or not _same_classes(older, newer) or _compare(older, newer) <= 0:
        newest[key] = newer


def _join(older: Version, newer: Version, rules: MergeRules) -> Version:
    """Merge two versions, the second of which was written later."""
    if not rules.by_commit_time:
        if newer.is_undated_delete or older.is_undated_delete:
            return newer
        if _compare(older, newer) > 0:
            older, newer = newer, older
    if older.is_delete or newer.is_delete:
        return newer
    # The winner's columns, and what it lacks from the other one. For whole rows: the winner.
    return replace(newer, values={**older.values, **newer.values})


def _version_of(row: Row, rules: MergeRules, schema: pa.Schema) -> Version:
    is_delete = (
        row.get(IS_DELETED_COLUMN) is True
        or row.get(OPERATION_COLUMN) in DELETE_OPERATIONS
        or _carries_marker(row, rules)
    )
    ordering = _ordering_of(row, rules, schema)
    if is_delete:
        return Version(ordering, {}, is_delete=True, is_undated_delete=ordering == (DEFAULT,))
    return Version(ordering, row)


def _carries_marker(row: Row, rules: MergeRules) -> bool:
    if not rules.delete_field:
        return False
    match _nested(row, rules.delete_field):
        case None:
            return False
        case bool() as flag:
            return str(flag).lower() == rules.delete_marker
        case value:
            return str(value) == rules.delete_marker


def _deletes(log: LogDeletes, rules: MergeRules, schema: pa.Schema) -> Iterable[tuple[str, Version]]:
    orderings = [None] * len(log.keys) if log.ordering is None else log.ordering.to_pylist()
    for key, undated, fields in zip(
        log.keys.to_pylist(), log.is_commit_time.to_pylist(), orderings, strict=True
    ):
        fields = fields or {}
        undated |= len(rules.ordering_fields) == 1 and fields.get(rules.ordering_fields[0]) is None
        ordering = _ordering_of(fields, rules, schema, flat=True)
        yield key, Version(ordering, {}, is_delete=True, is_undated_delete=undated)


def _ordering_of(
    row: Row, rules: MergeRules, schema: pa.Schema, *, flat: bool = False
) -> tuple[JavaValue, ...]:
    if rules.by_commit_time:
        return (DEFAULT,)
    return tuple(
        _java_value(row.get(name) if flat else _nested(row, name), _type_of(name, schema))
        for name in rules.ordering_fields
    )


def _nested(row: Row, name: str) -> Any:
    value: Any = row
    for step in [name] if name in row else name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _type_of(name: str, schema: pa.Schema) -> pa.DataType:
    top = top_level(name, schema)
    kind = schema.field(top).type
    for step in [] if top == name else name.split(".")[1:]:
        kind = kind.field(step).type
    return kind


def _java_value(value: Any, kind: pa.DataType) -> JavaValue:
    if value is None:
        return DEFAULT
    if is_java_integer(kind):
        days = value - datetime.date(1970, 1, 1) if isinstance(value, datetime.date) else None
        return ("Integer", value if days is None else days.days)
    match value:
        case float():
            return (
                "Double",
                (math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1, value)),
            )
        case str():
            return ("Text", value.encode())
        case _:
            return (str(kind), value)


def _same_classes(older: Version, newer: Version) -> bool:
    return [name for name, _ in older.ordering] == [name for name, _ in newer.ordering]


def _compare(left: Version, right: Version) -> int:
    for (left_class, one), (right_class, other) in zip(left.ordering, right.ordering, strict=True):
        if left_class != right_class:  # a null and a value, and a null is older
            return -1 if left_class == "Integer" else 1
        if one != other:
            return 1 if one > other else -1
    return 0
