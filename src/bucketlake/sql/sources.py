"""The tables that a query reads, and what it wants of them.

The query is parsed to find them, and left as it was written but for their names: in place of each stands a field for
Python's `format`, which `spark.sql` fills with a frame. No value becomes SQL text here, and what Spark reads is what
the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bucketlake.errors import ConfigError
from bucketlake.spark.conditions import Comparison, comparisons_in
from bucketlake.sql.namesakes import check_query, named_in
from bucketlake.sql.parse import TableName, name_of

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


def find_sources(query: str, tables: Collection[str], args: Mapping[str, Any] | None = None) -> Sources:
    """Find the tables of ours in a query. `args` are the values that it calls `:name`.

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
    _put_values(tree, args or {})
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


def _put_values(tree: exp.Expr, args: Mapping[str, Any]) -> None:
    """Put values where the query names them, for what is found out about it; its text stays."""
    for mark in list(tree.find_all(exp.Placeholder)):
        value = args.get(mark.name)
        if isinstance(value, str) and value.isprintable() and not {"'", "\\"} & set(value):
            mark.replace(exp.Literal.string(value))
        elif isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            mark.replace(exp.Literal.number(value))


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
    return tuple(comparisons_in(where.this, qualifiers))
