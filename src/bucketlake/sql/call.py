"""CALL partition_bucket_index_manager(...): the manager of bucket rules, as its users call it.

    call      := CALL name "(" [argument ("," argument)*] ")"
    name      := partition_bucket_index_manager | partitionBucketIndexManager
    argument  := [argument-name ("=>" | "=")] value

Names of arguments have hyphens, as in the design, or underscores, as in Hudi, and may be in quotes; so may numbers
and booleans. Arguments without a name come first, in Hudi's order; those that are not Hudi's have a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bucketlake.sql.tokens import Cursor, Token

_NAMES = frozenset({"PARTITION_BUCKET_INDEX_MANAGER", "PARTITIONBUCKETINDEXMANAGER"})
KEEP_COUNT = -1
"""The bucket number that means: the one of the rules before."""

_INTEGER = re.compile(r"-?[0-9]{1,10}")


class ManagerAction(StrEnum):
    OVERWRITE = "overwrite"
    ADD = "add"
    ROLLBACK = "rollback"
    SHOW_CONFIG = "show_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerCall:
    """One thing for the manager to do with the bucket rules of a table."""

    table: str | None
    """A name, or a path: that has a slash in it. None: the one of the session's last statement."""
    action: ManagerAction
    rules: str | None = None
    """The new rules, or those to be put before the present ones."""
    instant: str | None = None
    """The rescale to roll back."""
    bucket_number: int | None = None
    """The new default; None keeps the last."""
    rule: str = "regex"
    """The type of the rules."""
    with_newer: bool = False
    """Whether rescales that came after the one to roll back are taken back with it."""
    dry_run: bool = True
    options: Mapping[str, str] = field(default_factory=dict)


def is_manager_call(cursor: Cursor) -> bool:
    """Say whether a statement that begins with CALL is the manager's; leaves the cursor where it is."""
    return cursor.ahead(1).text.strip("`").upper() in _NAMES


def parse_call(cursor: Cursor) -> ManagerCall:
    """Read the statement; ConfigError says where it makes no sense."""
    start = cursor.token
    cursor.take("CALL")
    cursor.take_name("the name of a procedure")
    given = _read_arguments(cursor)
    cursor.finish()
    values = {name: _READERS[name](cursor, token, text) for name, (token, text) in given.items()}
    return _call(cursor, start, given, values)


def _call(
    cursor: Cursor, start: Token, given: Mapping[str, tuple[Token, str]], values: Mapping[str, Any]
) -> ManagerCall:
    wanted = [action for action in ManagerAction if values.get(action) not in (None, False)]
    if len(wanted) != 1:
        at = given[wanted[1]][0] if wanted else start
        cursor.fail(f"one of {', '.join(ManagerAction)} in a call", at=at)
    action = wanted[0]
    changes_rules = action in (ManagerAction.OVERWRITE, ManagerAction.ADD)
    for name in ("bucket_number", "rule"):
        if name in given and values[name] not in (None, "regex") and not changes_rules:
            cursor.fail(f"{name} only with overwrite or add", at=given[name][0])
    if values.get("with_newer") and action is not ManagerAction.ROLLBACK:
        cursor.fail("with_newer only with rollback", at=given["with_newer"][0])
    return ManagerCall(
        table=values.get("table"),
        action=action,
        rules=values[action] if changes_rules else None,
        instant=values[action] if action is ManagerAction.ROLLBACK else None,
        bucket_number=values.get("bucket_number"),
        rule=values.get("rule", "regex"),
        with_newer=values.get("with_newer", False),
        dry_run=values.get("dry_run", True),
        options=values.get("options", {}),
    )


def _read_arguments(cursor: Cursor) -> dict[str, tuple[Token, str]]:
    """Return the arguments that are not NULL: by name, where each stands and what it says."""
    cursor.take_sign("(")
    given: dict[str, tuple[Token, str]] = {}
    named = False
    seen: set[str] = set()
    while not cursor.is_sign(")"):
        at = cursor.token
        name = _argument_name(cursor)
        if name is not None:
            named = True
        elif named:
            cursor.fail("a name and '=>': arguments without a name come before those with one")
        elif len(seen) == len(_HUDIS):
            cursor.fail(f"no more than {len(_HUDIS)} arguments without a name")
        else:
            name = _HUDIS[len(seen)]
        if name in seen:
            cursor.fail(f"{name} once", at=at)
        seen.add(name)
        value_at = cursor.token
        if not cursor.may_take("NULL"):
            given[name] = (value_at, cursor.take_value())
        if not cursor.may_take_sign(","):
            break
        if cursor.is_sign(")"):
            cursor.fail("another argument after ','")
    if not cursor.is_sign(")"):
        cursor.fail("',' and another argument, or ')'")
    cursor.step()
    return given


def _argument_name(cursor: Cursor) -> str | None:
    """Step over the name of an argument and its arrow; None, and no step, if there is no name."""
    length = 1
    if cursor.token.kind == "word":
        while cursor.ahead(length).text == "-" and cursor.ahead(length + 1).kind == "word":
            length += 2
    if cursor.ahead(length).kind != "sign" or cursor.ahead(length).text not in ("=>", "="):
        return None
    at = cursor.token
    if cursor.token.kind == "text":
        spelled = cursor.take_text("a name")
    else:
        spelled = "".join(cursor.step().text for _ in range(length)).strip("`")
    name = spelled.lower().replace("-", "_")
    if name not in _READERS:
        cursor.fail(f"an argument's name: {', '.join(_READERS)}", at=at)
    cursor.step()
    return name


def _text(cursor: Cursor, at: Token, value: str) -> str:
    if at.kind != "text" or not value.strip():
        cursor.fail("a text in quotes that is not empty", at=at)
    return value.strip()


def _instant(cursor: Cursor, at: Token, value: str) -> str:
    """An instant is digits, which Hudi's users quote and others may not."""
    if not (value.isascii() and value.isdigit()):
        cursor.fail("an instant of the timeline, such as '20260618093000000'", at=at)
    return value


def _bucket_number(cursor: Cursor, at: Token, value: str) -> int | None:
    number = int(value) if _INTEGER.fullmatch(value.strip()) else 0
    if number < 1 and number != KEEP_COUNT:
        cursor.fail(f"a number of buckets from 1, or {KEEP_COUNT} for the one of the rules before", at=at)
    return None if number == KEEP_COUNT else number


def _flag(cursor: Cursor, at: Token, value: str) -> bool:
    if value.strip().lower() not in ("true", "false"):
        cursor.fail("TRUE or FALSE", at=at)
    return value.strip().lower() == "true"


def _options(cursor: Cursor, at: Token, value: str) -> dict[str, str]:
    """Options are `name=value`, separated by commas."""
    pairs = [part.partition("=") for part in value.split(",") if part.strip()]
    if at.kind != "text" or not all(name.strip() and equals for name, equals, _ in pairs):
        cursor.fail("options such as 'name=value,name=value'", at=at)
    return {name.strip(): text.strip() for name, _, text in pairs}


_READERS = {
    "table": _text,
    "overwrite": _text,
    "bucket_number": _bucket_number,
    "add": _text,
    "dry_run": _flag,
    "rollback": _instant,
    "show_config": _flag,
    "rule": _text,
    "options": _options,
    "with_newer": _flag,
}
_HUDIS = tuple(_READERS)[:9]
"""In the order of Hudi's own procedure, which calls without names depend on."""
