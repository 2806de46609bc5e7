"""MERGE INTO and UPDATE, as texts of their parts: Spark reads the expressions, and nobody else.

merge   := MERGE INTO table [[AS] name] USING source [[AS] name] ON condition when+
when    := WHEN MATCHED [AND condition] THEN (UPDATE SET set | DELETE)
         | WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT (* | "(" columns ")" VALUES "(" values ")")
         | WHEN NOT MATCHED BY SOURCE [AND condition] THEN (UPDATE SET set | DELETE)
set     := * | column = expression ("," column = expression)*
update  := UPDATE table [[AS] name] SET set [WHERE condition]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bucketlake.spark.merge import Clause, Deed, Part
from bucketlake.sql.tokens import Cursor, Token

_OPENS, _CLOSES = frozenset("([{"), frozenset(")]}")
_BEFORE_EXPRESSIONS = frozenset(
    [
        "AND",
        "BETWEEN",
        "BY",
        "CASE",
        "DISTINCT",
        "DIV",
        "ELSE",
        "IN",
        "LIKE",
        "NOT",
        "OR",
        "RLIKE",
        "THEN",
        "WHEN",
    ]
)
_QUERIES = frozenset({"SELECT", "EXISTS"})
NEW = "_bucketlake_new_{}"
"""The columns with the new values of an update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeParts:
    """A MERGE without its table."""

    target: str
    """What the statement calls the table; empty if it gives it no name."""
    source_query: str
    source: str
    """What it calls the source; empty if it gives that no name."""
    on: str
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateParts:
    """An UPDATE without its table."""

    query: str
    """Returns the rows to be updated, and the new values beside them."""
    columns: tuple[str, ...]
    """Those that are set, in the order of the new values."""


def take_until(cursor: Cursor, is_end: Callable[[Cursor], bool], expected: str) -> str:
    """Step over an expression, to where it ends outside of parentheses and CASE; return its text."""
    first, last = cursor.token, None
    depth = 0
    while cursor.token.kind and not (depth == 0 and is_end(cursor)):
        token = cursor.token
        opens = token.word == "CASE" or (token.kind == "sign" and token.text in _OPENS)
        closes = _ends_case(token, last) or (token.kind == "sign" and token.text in _CLOSES)
        depth += opens - closes
        if depth < 0:
            break
        if depth == 0 and token.text == ";" and token.kind == "sign":
            break
        last = cursor.step()
    if last is None:
        cursor.fail(expected, at=first)
    return cursor.text[first.start : last.end]


def _ends_case(token: Token, before: Token | None) -> bool:
    """Tell whether a word is the END of a CASE. Where an expression has to begin, it is a column: `end - 1`."""
    if token.word != "END" or before is None:
        return False
    return before.word not in _BEFORE_EXPRESSIONS and (before.kind != "sign" or before.text in _CLOSES)


def parse_merge(cursor: Cursor, name: str) -> MergeParts:
    """Read what comes after the table of a MERGE. `name` is what the table is called if nothing else is said."""
    target = _alias(cursor, ("USING",)) or name
    cursor.take("USING")
    start = cursor.token.start
    source = _take_source(cursor)
    query = f"SELECT * FROM {cursor.text[start : cursor.token.start]}"
    cursor.take("ON")
    on = _expression(cursor, lambda c: c.is_words("WHEN"), "a condition")
    clauses = []
    while cursor.may_take("WHEN"):
        clauses.append(_parse_when(cursor, target))
    cursor.finish("WHEN, or the end of the statement")
    if not clauses:
        cursor.fail("WHEN MATCHED or WHEN NOT MATCHED")
    return MergeParts(target=target, source_query=query, source=source, on=on, clauses=tuple(clauses))


def _alias(cursor: Cursor, ends: tuple[str, ...]) -> str:
    if cursor.may_take("AS"):
        return cursor.take_name("another name for the table")
    if cursor.token.kind in ("word", "name") and cursor.token.word not in ends:
        return cursor.take_name("another name for the table")
    return ""


def _take_source(cursor: Cursor) -> str:
    """Step over the source of a MERGE; return its name: the last one before ON, or of those before its columns."""
    if cursor.is_words("VALUES"):
        cursor.fail("a table, or a query in parentheses: USING (VALUES (1, 'a')) AS s(id, name)")
    tokens: list[Token] = []
    depth = 0
    while cursor.token.kind and not (depth == 0 and cursor.is_words("ON")):
        token = cursor.step()
        if token.kind == "sign":
            depth += (token.text in _OPENS) - (token.text in _CLOSES)
        if depth == 0 or (depth == 1 and token.text in _OPENS):
            tokens.append(token)
    if not tokens:
        cursor.fail("a table, or a query in parentheses")
    if tokens[-1].text == ")" and len(tokens) > 2 and tokens[-3].kind in ("word", "name"):
        del tokens[-2:]  # the names of its columns
    last = tokens[-1]
    return last.text.strip("`").replace("``", "`") if last.kind in ("word", "name") else ""


def _parse_when(cursor: Cursor, table: str) -> Clause:
    at = cursor.token
    if cursor.may_take("MATCHED"):
        part = Part.MATCHED
    else:
        cursor.take("NOT")
        cursor.take("MATCHED")
        part = Part.NOT_MATCHED
        if cursor.may_take("BY", "SOURCE"):
            part = Part.NOT_MATCHED_BY_SOURCE
        else:
            cursor.may_take("BY", "TARGET")
    condition = None
    if cursor.may_take("AND"):
        condition = _expression(cursor, lambda c: c.is_words("THEN"), "a condition")
    cursor.take("THEN")
    if part is Part.NOT_MATCHED:
        if not cursor.may_take("INSERT"):
            cursor.fail("INSERT: there is no row of the table to change")
        return Clause(part=part, deed=Deed.INSERT, condition=condition, values=_take_inserted(cursor))
    if cursor.may_take("DELETE"):
        return Clause(part=part, deed=Deed.DELETE, condition=condition)
    if not cursor.may_take("UPDATE"):
        cursor.fail("UPDATE SET or DELETE")
    cursor.take("SET")
    if part is Part.MATCHED and cursor.may_take_sign("*"):
        return Clause(part=part, deed=Deed.UPDATE, condition=condition)
    if cursor.is_sign("*"):
        cursor.fail("columns and their values: there is no row of the source to take all from", at=at)
    values = _take_set(cursor, table, lambda c: c.is_words("WHEN"))
    return Clause(part=part, deed=Deed.UPDATE, condition=condition, values=values)


def _take_inserted(cursor: Cursor) -> tuple[tuple[str, str], ...] | None:
    if cursor.may_take_sign("*"):
        return None
    at = cursor.token
    if not cursor.is_sign("("):
        cursor.fail("* or columns in parentheses")
    columns = cursor.take_names("a column's name")
    cursor.take("VALUES")
    cursor.take_sign("(")
    values = [_expression(cursor, _is_comma, "a value")]
    while cursor.may_take_sign(","):
        values.append(_expression(cursor, _is_comma, "a value"))
    cursor.take_sign(")")
    if len(values) != len(columns):
        cursor.fail(f"as many values as columns; there are {len(values)} and {len(columns)}", at=at)
    return tuple(zip(columns, values, strict=True))


def _is_comma(cursor: Cursor) -> bool:
    return cursor.is_sign(",")


def _take_set(cursor: Cursor, table: str, is_end: Callable[[Cursor], bool]) -> tuple[tuple[str, str], ...]:
    """Read columns and their values; a column may be called by the table's name and its own."""
    values = [_take_one_set(cursor, table, is_end)]
    while cursor.may_take_sign(","):
        values.append(_take_one_set(cursor, table, is_end))
    return tuple(values)


def _take_one_set(cursor: Cursor, table: str, is_end: Callable[[Cursor], bool]) -> tuple[str, str]:
    name = _take_set_column(cursor, table)
    return name, _expression(cursor, lambda c: _is_comma(c) or is_end(c), "a value")


def _take_set_column(cursor: Cursor, table: str) -> str:
    """Read `column =` or `table.column =`."""
    at = cursor.token
    parts = [cursor.take_name("a column's name")]
    while cursor.may_take_sign("."):
        parts.append(cursor.take_name("the rest of the column's name"))
    if len(parts) > 2 or (len(parts) == 2 and parts[0].lower() != table.lower()):
        called = f", which is called {table} here" if table else ""
        cursor.fail(
            f"a column of the table{called}; a field within a column cannot be set alone: set the whole column, "
            f"with named_struct(…)",
            at=at,
        )
    cursor.take_sign("=")
    return parts[-1]


def _expression(cursor: Cursor, is_end: Callable[[Cursor], bool], expected: str) -> str:
    """Step over an expression of a MERGE, which has no queries in it, as in Delta."""
    at = cursor.token
    text = take_until(cursor, is_end, expected)
    inner = Cursor(text)
    while inner.token.kind:
        if inner.token.word in _QUERIES:
            cursor.fail("an expression without a query: put the query into USING", at=at)
        inner.step()
    return text


def parse_update(cursor: Cursor, start: int, name: str) -> UpdateParts:
    """Read what comes after the table of an UPDATE, which began at `start`. `name` is what it is called without AS."""
    called = _alias(cursor, ("SET",)) or name
    table = cursor.text[start : cursor.token.start]
    cursor.take("SET")
    columns: list[str] = []
    values: list[str] = []
    while True:
        columns.append(_take_set_column(cursor, called))
        values.append(take_until(cursor, lambda c: _is_comma(c) or c.is_words("WHERE"), "a value"))
        if not cursor.may_take_sign(","):
            break
    where = cursor.text[cursor.token.start :] if cursor.is_words("WHERE") else ""
    if not where:
        cursor.finish("WHERE, or the end of the statement")
    # A line of its own for what follows a value: it may end in a comment.
    news = "\n, ".join(f"({value}\n) AS {NEW.format(number)}" for number, value in enumerate(values))
    query = f"SELECT *\n, {news}\nFROM {table}\n{where.rstrip().rstrip(';')}".rstrip()
    return UpdateParts(query=query, columns=tuple(columns))
