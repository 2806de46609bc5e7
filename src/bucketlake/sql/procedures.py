"""CALL: what a table can do beside reading and writing rows, by the names that Python has for it.

    call      := CALL ["bucketlake" "."] name "(" [argument ("," argument)*] ")"
    name      := compact | plan_compaction | ... | buckets.overwrite | buckets.plan_overwrite | ...
    argument  := [argument-name ("=>" | "=")] value
    value     := text | number | TRUE | FALSE | NULL | ARRAY "(" value ("," value)* ")"

A procedure is a method of `Table`, or of `table.buckets`, with the method's arguments; `table` comes first, and may be
left out after a statement that named one table. A value that is several names is an array, or a text with commas.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bucketlake.index.told import index_of_text
from bucketlake.sql.tokens import Cursor, Token

Value = str | int | float | bool | tuple[str, ...]
Reader = Callable[[Cursor, Token, Value], Any]


@dataclass(frozen=True, slots=True)
class ProcedureCall:
    """One thing for a table to do."""

    name: str
    table: str | None
    """A name, or a path: that has a slash in it. None: the one of the session's last statement."""
    arguments: Mapping[str, Any]


def is_procedure_call(cursor: Cursor) -> bool:
    """Say whether a statement that begins with CALL names a procedure of ours; leaves the cursor where it is."""
    return _name_ahead(cursor)[0] in PROCEDURES


def parse_procedure_call(cursor: Cursor) -> ProcedureCall:
    """Read the statement; ConfigError says where it makes no sense."""
    name, length = _name_ahead(cursor)
    cursor.take("CALL")
    for _ in range(length):
        cursor.step()
    readers = {"table": _text, **PROCEDURES[name]}
    values: dict[str, Any] = {}
    cursor.take_sign("(")
    is_named = False
    while not cursor.is_sign(")"):
        at = cursor.token
        argument = _argument_name(cursor, readers)
        if argument is not None:
            is_named = True
        elif is_named:
            cursor.fail("a name and '=>': arguments without a name come before those with one")
        elif len(values) == len(readers):
            cursor.fail(f"no more than {len(readers)} arguments")
        else:
            argument = list(readers)[len(values)]
        if argument in values:
            cursor.fail(f"{argument} once", at=at)
        at = cursor.token
        values[argument] = (
            None if cursor.may_take("NULL") else readers[argument](cursor, at, _take_value(cursor))
        )
        if not cursor.may_take_sign(","):
            break
    if not cursor.is_sign(")"):
        cursor.fail("',' and another argument, or ')'")
    cursor.step()
    cursor.finish()
    table = values.pop("table", None)
    return ProcedureCall(name, table, {key: value for key, value in values.items() if value is not None})


def _name_ahead(cursor: Cursor) -> tuple[str, int]:
    """Return the procedure's name after CALL, and how many tokens it is."""
    words, length = [cursor.ahead(1).text.strip("`").lower()], 1
    while cursor.ahead(length + 1).text == ".":
        words.append(cursor.ahead(length + 2).text.strip("`").lower())
        length += 2
    return ".".join(words[1:] if words[0] == "bucketlake" else words), length


def _argument_name(cursor: Cursor, known: Mapping[str, Reader]) -> str | None:
    """Step over the name of an argument and its arrow; None, and no step, if there is no name."""
    if cursor.ahead(1).kind != "sign" or cursor.ahead(1).text not in ("=>", "="):
        return None
    at = cursor.token
    name = cursor.step().text.strip("`'\"").lower()
    if name not in known:
        cursor.fail(f"an argument's name: {', '.join(known)}", at=at)
    cursor.step()
    return name


def _take_value(cursor: Cursor) -> Value:
    if cursor.token.word == "ARRAY" and cursor.ahead(1).text == "(":
        cursor.step()
        cursor.take_sign("(")
        items: list[str] = []
        while not cursor.is_sign(")"):
            items.append(cursor.take_value())
            if not cursor.may_take_sign(","):
                break
        cursor.take_sign(")")
        return tuple(items)
    kind = cursor.token.kind
    text = cursor.take_value()
    if kind == "text":
        return text
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if "." in text else int(text)


def _text(cursor: Cursor, at: Token, value: Value) -> str:
    if not isinstance(value, str) or not value.strip():
        cursor.fail("a text in quotes that is not empty", at=at)
    return value.strip()


def _comment(cursor: Cursor, at: Token, value: Value) -> str:
    if not isinstance(value, str):
        cursor.fail("a text in quotes", at=at)
    return value


def _instant(cursor: Cursor, at: Token, value: Value) -> str:
    digits = str(value)
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit()):
        cursor.fail("an instant of the timeline, such as '20260618093000000'", at=at)
    return digits


def _integer(cursor: Cursor, at: Token, value: Value) -> int:
    number = _number(cursor, at, value)
    if number != int(number):
        cursor.fail("a whole number", at=at)
    return int(number)


def _number(cursor: Cursor, at: Token, value: Value) -> float:
    try:
        if isinstance(value, bool | tuple):
            raise ValueError
        return float(value) if isinstance(value, str) else value
    except ValueError:
        cursor.fail("a number", at=at)


def _flag(cursor: Cursor, at: Token, value: Value) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if not isinstance(value, bool):
        cursor.fail("TRUE or FALSE", at=at)
    return value


def _names(cursor: Cursor, at: Token, value: Value) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not names or not all(name.strip() for name in names):
        cursor.fail("names: 'a,b', or ARRAY('a', 'b')", at=at)
    return tuple(name.strip() for name in names)


def _key(cursor: Cursor, at: Token, value: Value) -> Any:
    """A key of one column is its value, of several a JSON object."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            cursor.fail('a key of several columns as JSON, such as \'{"a": 1, "b": "x"}\'', at=at)
    return value


def _index(cursor: Cursor, at: Token, value: Value) -> Any:
    return index_of_text(_text(cursor, at, value))


_COMPACTION: Mapping[str, Reader] = {
    "delta_commits": _integer,
    "log_bytes": _integer,
    "log_ratio": _number,
    "hours": _number,
}
_CLUSTERING: Mapping[str, Reader] = {
    "by": _names,
    "min_bytes": _integer,
    "max_bytes": _integer,
    "hours": _number,
    "partitions": _names,
}
_RETENTION: Mapping[str, Reader] = {
    "retain_commits": _integer,
    "retain_hours": _number,
    "retain_versions": _integer,
}
_ARCHIVE: Mapping[str, Reader] = {"keep_min": _integer, "keep_max": _integer}
_RULES: Mapping[str, Reader] = {
    "rules": _text,
    "bucket_number": _integer,
    "rule_type": _text,
    "budget_bytes": _integer,
}
_RESIZE: Mapping[str, Reader] = {
    "file_bytes": _integer,
    "split_threshold": _number,
    "merge_threshold": _number,
    "min_buckets": _integer,
    "max_buckets": _integer,
    "partitions": _names,
    "partitions_at_once": _integer,
    "bytes_at_once": _integer,
    "policy": _text,
}
_MAINTENANCE: Mapping[str, Reader] = {
    "compact_delta_commits": _integer,
    "compact_log_bytes": _integer,
    "compact_log_ratio": _number,
    "compact_hours": _number,
    "resize_file_bytes": _integer,
    "clean_commits": _integer,
    "clean_hours": _number,
    "clean_versions": _integer,
    "archive_min": _integer,
    "archive_max": _integer,
}
_ADOPTION: Mapping[str, Reader] = {"index": _index, "buckets": _integer}
_INDEX_BUILD: Mapping[str, Reader] = {"record_index": _flag, "per_partition": _flag, "shards": _integer}
_INDEX_CREATION: Mapping[str, Reader] = {
    "name": _text,
    "on": _text,
    "shards": _integer,
    "record_index": _flag,
}
_INSTANT: Mapping[str, Reader] = {"instant": _instant}

PROCEDURES: Mapping[str, Mapping[str, Reader]] = {
    "adopt": _ADOPTION,
    "plan_adopt": _ADOPTION,
    "alter": {
        "merge_schema": _flag,
        "allow_missing_columns": _flag,
        "maintenance": _text,
        "keep_commits": _integer,
        "on_unmaintained": _text,
        "hudi_writes": _flag,
    },
    "compact": _COMPACTION,
    "plan_compaction": _COMPACTION,
    "cluster": _CLUSTERING,
    "plan_clustering": _CLUSTERING,
    "clean": _RETENTION,
    "plan_clean": _RETENTION,
    "archive": _ARCHIVE,
    "plan_archive": _ARCHIVE,
    "rollback": _INSTANT,
    "plan_rollback": _INSTANT,
    "savepoint": {"instant": _instant, "comment": _comment},
    "savepoints": {},
    "delete_savepoint": _INSTANT,
    "plan_delete_savepoint": _INSTANT,
    "restore": _INSTANT,
    "plan_restore": _INSTANT,
    "maintain": _MAINTENANCE,
    "plan_maintenance": _MAINTENANCE,
    "fsck": {},
    "repair": {},
    "plan_repair": {},
    "create_index": _INDEX_CREATION,
    "plan_create_index": _INDEX_CREATION,
    "drop_index": {"name": _text},
    "plan_drop_index": {"name": _text},
    "indexes": {},
    "query_progress": {},
    "stream_status": {},
    "stream_metrics": {},
    "delete_partitions": {"partitions": _names},
    "changes_until": {},
    "describe": {},
    "timeline": {},
    "history": {"limit": _integer},
    "layout": {},
    "locations": {"partition": _text},
    "explain": {"key": _key, "partition": _text},
    "metadata.status": {},
    "metadata.build": _INDEX_BUILD,
    "metadata.plan_build": _INDEX_BUILD,
    "metadata.rebuild": {},
    "metadata.plan_rebuild": {},
    "metadata.grow_record_index": {"shards": _integer},
    "metadata.plan_grow_record_index": {"shards": _integer},
    "metadata.drop": {"record_index": _flag},
    "metadata.plan_drop": {"record_index": _flag},
    "metadata.delist": {},
    "metadata.plan_delist": {},
    "buckets.show_config": {},
    "buckets.overwrite": _RULES,
    "buckets.plan_overwrite": _RULES,
    "buckets.add": _RULES,
    "buckets.plan_add": _RULES,
    "buckets.resume": {},
    "buckets.rollback": {"instant": _instant, "with_newer": _flag},
    "buckets.plan_rollback": {"instant": _instant, "with_newer": _flag},
    "buckets.resize": {**_RESIZE, "rounds": _integer},
    "buckets.plan_resize": _RESIZE,
    "buckets.double": {"rounds": _integer},
    "buckets.plan_double": {},
    "buckets.undo_double": {},
    "buckets.abort": _INSTANT,
    "buckets.plan_abort": _INSTANT,
}
"""The procedures, each with what it takes beside `table`, in order."""
