"""The tables that a query reads, and what it wants of them.

The query is parsed to find them, and left as it was written but for their names: in place of each stands a field for
Python's `format`, which `spark.sql` fills with a frame. No value becomes SQL text here, and what Spark reads is what
the user wrote.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bucketlake.errors import ConfigError
from bucketlake.read import RawFilter
from bucketlake.sql.namesakes import check_query, named_in
from bucketlake.sql.parse import TableName, name_of

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_COMPARISONS: Mapping[type[exp.Expr], tuple[str, str]] = {
    # And what it is with the sides swapped.
    exp.EQ: ("=", "="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}


_AS_OF = re.compile(
    r"\s+(?:FOR\s+)?(?:(?:TIMESTAMP|SYSTEM_TIME)\s+AS\s+OF\s+(?:TIMESTAMP\s+)?'([^'\\]*)'"
    r"|(?:VERSION|SYSTEM_VERSION)\s+AS\s+OF\s+(?:'(\d+)'|(\d+)))",
    re.IGNORECASE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that a query reads, and as of when."""

    table: TableName
    as_of: str | None = None
    """None: as it is."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a query names a table."""

    start: int
    end: int
    wanted: Wanted
    alias: str
    """What the query calls it, where it gives no alias: its columns are known by that."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A condition on one column that every row of the result satisfies."""

    column: str
    """In lower case."""
    operator: str
    values: tuple[Any, ...]
    """Texts and numbers; none for `is null`."""


@dataclass(frozen=True, slots=True)
class Sources:
    """A query, and the tables in it."""

    query: str
    places: tuple[_Place, ...] = ()
    columns: frozenset[str] | None = None
    """The names that the query knows columns by, in lower case; None if it may want all there are."""
    conditions: tuple[Comparison, ...] = ()
    """On the rows of its table, if it reads just one, once."""

    @property
    def tables(self) -> tuple[Wanted, ...]:
        return tuple(dict.fromkeys(place.wanted for place in self.places))

    def template(self) -> str:
        """Return the query with a field `{t0}`, `{t1}`, … for each of its tables.

        >>> find_sources("SELECT '{' FROM orders WHERE orders.id = 1", {"orders"}).template()
        "SELECT '{{' FROM {t0} AS orders WHERE orders.id = 1"
        """
        pieces: list[str] = []
        end = 0
        for place in self.places:
            pieces.append(escaped(self.query[end : place.start]))
            pieces.append(f"{{t{self.tables.index(place.wanted)}}}")
            pieces.append(escaped(f" AS {place.alias}" if place.alias else ""))
            end = place.end
        return "".join(pieces) + escaped(self.query[end:])


def find_sources(query: str, tables: Collection[str]) -> Sources:
    """Find the tables of ours in a query.

    One that sqlglot cannot read is left to Spark, which is to say what it is; but not one that may name a table of
    ours, since Spark may have another of the name.
    """
    check_query(query, tables)
    try:
        tree = sqlglot.parse_one(query, dialect="spark")
    except SqlglotError as error:
        refuse_names(
            query, tables, str(error).partition("\n")[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
        )
        return Sources(query)
    if isinstance(tree, exp.DML | exp.DDL | exp.Command) and not isinstance(tree, exp.Query):
        refuse_names(query, tables, "it is no query: put WITH … after INSERT INTO …")
        return Sources(query)
    found: dict[int, _Place] = {}
    nodes: list[exp.Table] = []
    for node in tree.find_all(exp.Table):
        place = _place_of(node, query, tables)
        if place is not None and place.start not in found:
            found[place.start] = place
            nodes.append(node)
    places = tuple(found[start] for start in sorted(found))
    conditions = _conditions(nodes[0]) if len(nodes) == 1 and "|>" not in query else ()
    return Sources(query, places, _columns(tree) if "|>" not in query else None, conditions)


def refuse_names(query: str, tables: Collection[str], why: str) -> None:
    """Raise if there is what looks like the name of a table of ours."""
    for name in named_in(query, tables):
        raise ConfigError(
            f"cannot find out where the query reads the table {name!r}: {why}. Nothing was run. "
            f"A table of Spark's with this name has its schema before it: default.{name}."
        )


def check_condition(query: str, statement: str = "DELETE FROM") -> None:
    """Refuse a condition that does not end where the statement does: LIMIT, UNION and the like would be obeyed."""
    try:
        tree: Any = sqlglot.parse_one(query, dialect="spark")
    except SqlglotError as error:
        message = str(error).partition("\n")[0].replace("\x1b[4m", "").replace("\x1b[0m", "")
        raise ConfigError(f"cannot read the condition of {statement.split()[0]}: {message}") from error
    said = {name for name, value in tree.args.items() if value} if isinstance(tree, exp.Select) else set()
    if {name.strip("_") for name in said} not in ({"expressions", "from", "where"}, {"expressions", "from"}):
        raise ConfigError(f"{statement} has a WHERE with one condition, and nothing after it.")


def filters_for(conditions: Collection[Comparison], schema: pa.Schema) -> list[RawFilter]:
    """Return those conditions that mean to `Table.read` just what they mean to Spark.

    A text is compared with texts and a whole number with whole numbers; a date with a text that spells one. All else,
    such as a number with a text, is up to Spark's casts, and left to Spark.
    """
    by_name = {name.lower(): name for name in schema.names}
    filters: list[RawFilter] = []
    if len(by_name) < len(schema.names):
        return filters
    for condition in conditions:
        column = by_name.get(condition.column)
        if column is None:
            continue
        if condition.operator == "is null":
            filters.append((column, condition.operator))
            continue
        values = [_as_stored(value, schema.field(column).type) for value in condition.values]
        if None in values:
            continue
        is_list = condition.operator == "in"
        filters.append((column, condition.operator, values if is_list else values[0]))
    return filters


def columns_for(names: frozenset[str] | None, schema: pa.Schema) -> list[str] | None:
    """Return the columns that a query may want; None for all."""
    if names is None:
        return None
    wanted = [name for name in schema.names if name.lower() in names]
    return wanted or schema.names[:1]


def escaped(text: str) -> str:
    """Spell a text for Python's `format`, so that braces in it mean nothing."""
    return text.replace("{", "{{").replace("}", "}}")


def _place_of(node: exp.Table, query: str, tables: Collection[str]) -> _Place | None:
    parts = node.parts
    if not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
        return None  # a function, or something the parser made up
    table = name_of([part.name for part in parts], tables)
    if table is None or (len(parts) == 1 and _is_common_table(node)):
        return None
    start, end = parts[0].meta["start"], parts[-1].meta["end"] + 1
    last = query[parts[-1].meta["start"] : end]
    if last.strip("`").replace("``", "`").lower() != parts[-1].name.lower():
        return None  # a hint that names an alias: its place is not its own
    as_of = None
    if version := node.args.get("version"):
        as_of, end = _time_of(version, query, end)
    # Spark wants a sample before an alias, and knows no way to write the alias here then.
    needs_alias = not node.alias and not table.is_path and not node.args.get("sample")
    return _Place(start, end, Wanted(table, as_of), last if needs_alias else "")


def _time_of(version: exp.Expr, query: str, start: int) -> tuple[str, int]:
    """Return the time that a table is asked for, and where the words that say so end."""
    found = _AS_OF.match(query, start)
    said = version.expression
    said = said.this if isinstance(said, exp.Cast) else said
    time = next((text for text in found.groups() if text is not None), None) if found else None
    if found is None or time is None or not isinstance(said, exp.Literal) or str(said.this) != time:
        raise ConfigError(
            f"cannot read the time in {query[start : start + 60].strip()!r}; expected TIMESTAMP AS OF "
            f"'2026-06-18 12:00:00', with an offset or in the session's zone, or VERSION AS OF and an instant. "
            f"Table.read(spark, as_of=...) takes a datetime, too."
        )
    return time, found.end()


def _is_common_table(node: exp.Table) -> bool:
    """Whether the name is one that a WITH around it defines."""
    name = node.name.lower()
    below: exp.Expr = node
    above = node.parent
    while above is not None:
        if isinstance(above, exp.With):
            # Within a WITH what was defined before is known, and, if it is recursive, what is being defined.
            names = [cte.alias.lower() for cte in above.expressions]
            known = next(i for i, cte in enumerate(above.expressions) if cte is below)
            if name in names[: known + bool(above.args.get("recursive"))]:
                return True
        elif not isinstance(below, exp.With):
            clause = next((value for value in above.args.values() if isinstance(value, exp.With)), None)
            if clause is not None and name in {cte.alias.lower() for cte in clause.expressions}:
                return True
        below, above = above, above.parent
    return False


def _columns(tree: exp.Expr) -> frozenset[str] | None:
    """Return every name in the query, of which some are columns; None where it may mean columns without a name."""
    for node in tree.walk():
        is_star = isinstance(node, exp.Star) and not isinstance(node.parent, exp.Count)
        is_natural = isinstance(node, exp.Join) and node.args.get("method")
        renames = isinstance(node, exp.TableAlias) and node.args.get("columns")
        if is_star or is_natural or renames or isinstance(node, exp.Pivot):
            return None
    return frozenset(node.name.lower() for node in tree.find_all(exp.Identifier))


def _conditions(node: exp.Table) -> tuple[Comparison, ...]:
    """Return what the WHERE of a query over just this table says of single columns, as far as it is plain."""
    select = node.parent.parent if isinstance(node.parent, exp.From) else None
    if not isinstance(select, exp.Select) or node.args.get("sample") or node.args.get("pivots"):
        return ()
    if select.args.get("joins") or select.args.get("laterals"):
        return ()
    where = select.args.get("where")
    if where is None or (node.args.get("alias") is not None and node.args["alias"].columns):
        return ()
    qualifiers = {"", (node.alias or node.name).lower()}
    return tuple(_comparisons(where.this, qualifiers))


def _comparisons(condition: exp.Expr, qualifiers: Collection[str]) -> Iterator[Comparison]:
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _comparisons(condition.left, qualifiers)
        yield from _comparisons(condition.right, qualifiers)
    elif isinstance(condition, exp.In) and not condition.args.get("query"):
        column = _column(condition.this, qualifiers)
        values = tuple(_literal(value) for value in condition.expressions)
        if column is not None and values and None not in values:
            yield Comparison(column, "in", values)
    elif isinstance(condition, exp.Is) and isinstance(condition.expression, exp.Null):
        column = _column(condition.this, qualifiers)
        if column is not None:
            yield Comparison(column, "is null", ())
    elif type(condition) in _COMPARISONS and isinstance(condition, exp.Binary):
        as_is, swapped = _COMPARISONS[type(condition)]
        for operator, side, other in (
            (as_is, condition.left, condition.right),
            (swapped, condition.right, condition.left),
        ):
            column, value = _column(side, qualifiers), _literal(other)
            if column is not None and value is not None:
                yield Comparison(column, operator, (value,))


def _column(node: exp.Expr, qualifiers: Collection[str]) -> str | None:
    if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier) or node.args.get("db"):
        return None
    return node.name.lower() if node.table.lower() in qualifiers else None


def _literal(node: exp.Expr) -> str | int | None:
    """Return a plain text or whole number; None for what Spark could read in another way than we do."""
    sign = 1
    if isinstance(node, exp.Neg):
        sign, node = -1, node.this
    if not isinstance(node, exp.Literal):
        return None
    text = str(node.this)
    if node.is_string:
        return None if sign < 0 or "\\" in text or "'" in text or not text.isprintable() else text
    return sign * int(text) if text.isascii() and text.isdigit() else None


def _as_stored(value: str | int, kind: pa.DataType) -> Any:
    """Return the value as a column of this type has it; None if that takes a cast."""
    if pa.types.is_string(kind) and isinstance(value, str):
        return value
    if pa.types.is_integer(kind) and isinstance(value, int):
        bound = 2 ** (kind.bit_width - 1)
        return value if -bound <= value < bound else None
    if pa.types.is_date(kind) and isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return datetime.date.fromisoformat(value)
        except ValueError:
            return None
    return None
