"""A statement's text as a value: which of ours it is, or that it is Spark's.

Queries are left as text: `sources` finds the tables in them. A statement that changes a table is ours if the table is
in the catalog, or named as bucketlake.`/path`; so what is in the catalog is needed to read one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bucketlake.sql.call import ManagerCall, is_manager_call, parse_call
from bucketlake.sql.changes import MergeParts, UpdateParts, parse_merge, parse_update
from bucketlake.sql.create import CreateTable, is_create, parse_create, read_properties
from bucketlake.sql.procedures import ProcedureCall, is_procedure_call, parse_procedure_call
from bucketlake.sql.tokens import Cursor

SCHEME = "bucketlake"
"""What stands before a table's path, or before a name that is to be the catalog's and nobody else's."""


@dataclass(frozen=True, slots=True)
class TableName:
    """A table as a statement calls it: by its name in the catalog, in lower case, or by its path."""

    text: str
    is_path: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """Rows for a table."""

    table: TableName
    query: str
    columns: tuple[str, ...] = ()
    """The columns that the query gives, if not all, in the table's order."""
    by_name: bool = False
    overwrite: bool = False
    merge_schema: bool | None = None
    """Whether the query may add columns; None: if the table says so."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What OPTIONS (...) says, as a clause or, as Flink has it, as a hint."""
    partition: Mapping[str, str | None] = field(default_factory=dict)
    """Partition columns with their values; None for one that the query gives."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Rows to be deleted: those that a query returns."""

    table: TableName
    query: str


@dataclass(frozen=True, slots=True)
class MergeInto:
    """Rows of a source to be merged into a table."""

    table: TableName
    parts: MergeParts


@dataclass(frozen=True, slots=True)
class Update:
    """Columns of rows to get new values."""

    table: TableName
    parts: UpdateParts


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Columns that a table is to have from now on, as DDL."""

    table: TableName
    columns: str


@dataclass(frozen=True, slots=True)
class DropTable:
    """A name to be forgotten."""

    name: str


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """A table's columns; `extended`, also what else it is."""

    table: TableName
    extended: bool = False


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """A list of a table's partitions."""

    table: TableName


@dataclass(frozen=True, slots=True)
class ShowColumns:
    """A list of a table's columns."""

    table: TableName


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndex:
    """A secondary index to be built."""

    name: str
    table: TableName
    column: str
    if_not_exists: bool = False
    shards: int | None = None
    record_index: bool = False
    """Whether a table without a record-level index gets one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropIndex:
    """A secondary index to be deleted."""

    name: str
    table: TableName
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ShowIndexes:
    """A list of a table's secondary indexes."""

    table: TableName


@dataclass(frozen=True, slots=True)
class ShowTables:
    """A list of the catalog."""


@dataclass(frozen=True, slots=True)
class Select:
    """A query, which may read tables of ours."""

    query: str


@dataclass(frozen=True, slots=True)
class PassThrough:
    """A statement for Spark."""

    text: str
    table: str | None = None
    """The table that it changes, which is not one of ours."""
    query: str = ""
    """The query at its end, which may read tables of ours."""


Statement = (
    CreateTable
    | Insert
    | Delete
    | MergeInto
    | Update
    | AddColumns
    | DropTable
    | DescribeTable
    | ShowPartitions
    | ShowColumns
    | CreateIndex
    | DropIndex
    | ShowIndexes
    | ShowTables
    | Select
    | ManagerCall
    | ProcedureCall
    | PassThrough
)

_HINT = re.compile(r"/\*\+\s*(OPTIONS\s*\(.*?\))\s*\*/", re.IGNORECASE | re.DOTALL)
_QUERIES = frozenset({"SELECT", "WITH", "FROM", "VALUES"})


def parse(text: str, tables: Collection[str]) -> Statement:
    """Read one statement, given the names in the catalog; ConfigError says where one of ours makes no sense.

    >>> parse("DROP TABLE Orders", {"orders"}), parse("DESC orders", {"orders"})
    (DropTable(name='orders'), DescribeTable(table=TableName(text='orders', is_path=False), extended=False))
    """
    cursor = Cursor(text)
    first = cursor.token.word
    if first in _QUERIES or cursor.is_sign("("):
        return Select(text)
    if first == "TABLE":
        return Select(_query_of(cursor))
    if first == "EXPLAIN":
        return _ending_in_query(text)
    if cursor.may_take("CREATE", "INDEX"):
        return _parse_create_index(cursor, tables)
    if cursor.may_take("DROP", "INDEX"):
        return _parse_drop_index(cursor, tables)
    if cursor.may_take("SHOW", "INDEXES"):
        return _parse_show_indexes(cursor, tables)
    if first == "CREATE" and is_create(cursor):
        return parse_create(cursor)
    if first == "CALL" and is_manager_call(cursor):
        return parse_call(cursor)
    if first == "CALL" and is_procedure_call(cursor):
        return parse_procedure_call(cursor)
    if first == "SHOW" and cursor.may_take("SHOW", "TABLES"):
        return PassThrough(text) if cursor.token.kind not in ("", "sign") else _show_tables(cursor)
    if cursor.may_take("SHOW", "PARTITIONS"):
        return _parse_of_table(cursor, tables, ShowPartitions)
    if cursor.is_words("SHOW", "COLUMNS") and cursor.ahead(2).word in ("FROM", "IN"):
        for _ in range(3):
            cursor.step()
        return _parse_of_table(cursor, tables, ShowColumns)
    if first in ("DESCRIBE", "DESC"):
        return _parse_describe(cursor, tables)
    if first == "CREATE":
        return (
            _ending_in_query(text)
            if "TABLE" in (cursor.ahead(1).word, cursor.ahead(3).word)
            else PassThrough(text)
        )
    if first == "MERGE":
        return _parse_merge(cursor, tables)
    if first == "UPDATE":
        return _parse_update(cursor, tables)
    if cursor.may_take("ALTER", "TABLE"):
        return _parse_alter(cursor, tables)
    if first == "INSERT":
        return _parse_insert(cursor, tables)
    if cursor.may_take("DELETE", "FROM"):
        return _parse_delete(cursor, tables)
    if cursor.may_take("DROP", "TABLE"):
        return _parse_drop(cursor, tables)
    return PassThrough(text)


def name_of(parts: Collection[str], tables: Collection[str]) -> TableName | None:
    """Say which table of ours a dotted name is; None if it is not ours.

    >>> name_of(["Orders"], {"orders"}), name_of(["bucketlake", "/data/orders"], ())
    (TableName(text='orders', is_path=False), TableName(text='/data/orders', is_path=True))
    """
    *before, last = parts
    if [part.lower() for part in before] == [SCHEME]:
        is_path = "/" in last
        return TableName(last if is_path else last.lower(), is_path)
    return TableName(last.lower()) if not before and last.lower() in tables else None


def _show_tables(cursor: Cursor) -> ShowTables:
    cursor.finish()
    return ShowTables()


def _ending_in_query(text: str, table: str | None = None) -> PassThrough:
    """Find where in a statement for Spark its query begins."""
    cursor = Cursor(text)
    depth = 0
    while cursor.token.kind:
        are_options = cursor.is_words("WITH") and cursor.ahead(1).text == "("
        if depth == 0 and cursor.token.word in _QUERIES and not are_options:
            return PassThrough(text, table, text[cursor.token.start :])
        token = cursor.step()
        if token.kind == "sign":
            depth += (token.text == "(") - (token.text == ")")
    return PassThrough(text, table)


def _parse_of_table(
    cursor: Cursor, tables: Collection[str], statement: type[ShowPartitions] | type[ShowColumns]
) -> Statement:
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text)
    cursor.finish()
    return statement(table)


_DESCRIBED_BY = {"HISTORY": "history", "DETAIL": "describe"}
"""What Delta's users ask for, and the procedures that tell it."""


def _parse_describe(cursor: Cursor, tables: Collection[str]) -> Statement:
    cursor.step()
    if cursor.token.word in ("QUERY", *_QUERIES):
        return _ending_in_query(cursor.text)
    if cursor.token.word in _DESCRIBED_BY and cursor.ahead(1).kind in ("word", "name"):
        procedure = _DESCRIBED_BY[cursor.step().word]
        table = _take_table(cursor, tables)
        if isinstance(table, str):
            return PassThrough(cursor.text)
        limit = {}
        if procedure == "history" and cursor.may_take("LIMIT"):
            at, value = cursor.token, cursor.take_value()
            if not (value.isascii() and value.isdigit()):
                cursor.fail("a whole number", at=at)
            limit = {"limit": int(value)}
        cursor.finish()
        return ProcedureCall(procedure, table.text, limit)
    is_about_more = cursor.ahead(1).kind in ("word", "name") and cursor.ahead(1).text != "."
    if is_about_more:
        cursor.may_take("TABLE")
    extended = cursor.ahead(1).kind in ("word", "name") and (
        cursor.may_take("EXTENDED") or cursor.may_take("FORMATTED")
    )
    if cursor.token.kind not in ("word", "name"):
        return PassThrough(cursor.text)
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text)
    cursor.finish("the end of the statement; DESCRIBE shows all columns")
    return DescribeTable(table, extended)


def _parse_merge(cursor: Cursor, tables: Collection[str]) -> Statement:
    cursor.take("MERGE")
    at = cursor.token
    evolves = cursor.may_take("WITH", "SCHEMA", "EVOLUTION")
    cursor.take("INTO")
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text)
    if evolves:
        cursor.fail(
            "INTO: a MERGE adds no columns. ALTER TABLE … ADD COLUMNS first, or INSERT WITH SCHEMA EVOLUTION",
            at=at,
        )
    return MergeInto(table, parse_merge(cursor, "" if table.is_path else table.text))


def _parse_update(cursor: Cursor, tables: Collection[str]) -> Statement:
    cursor.take("UPDATE")
    start = cursor.token.start
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text)
    return Update(table, parse_update(cursor, start, "" if table.is_path else table.text))


def _parse_alter(cursor: Cursor, tables: Collection[str]) -> Statement:
    """Read `ALTER TABLE t ADD COLUMN[S] name type, …`; what else Spark can alter is refused for tables of ours."""
    table = _take_table(cursor, tables)
    if isinstance(table, str) or not cursor.may_take("ADD"):
        return PassThrough(cursor.text)
    if not (cursor.may_take("COLUMNS") or cursor.may_take("COLUMN")):
        return PassThrough(cursor.text)
    start, is_list = cursor.token, cursor.is_sign("(")
    end = len(cursor.text)
    if is_list:
        cursor.skip_parentheses()
        end = cursor.ahead(-1).start
        cursor.finish()
    columns = cursor.text[start.end if is_list else start.start : end].strip().rstrip(";").strip()
    if not columns:
        cursor.fail("columns: ADD COLUMNS (amount DOUBLE, note STRING)")
    return AddColumns(table, columns)


def _take_table(cursor: Cursor, tables: Collection[str]) -> TableName | str:
    """Step over a table's name; return it as text if it is not one of ours."""
    parts = [cursor.take_name("a table's name")]
    while cursor.may_take_sign("."):
        parts.append(cursor.take_name("the rest of the table's name"))
    return name_of(parts, tables) or ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def _parse_insert(cursor: Cursor, tables: Collection[str]) -> Statement:
    cursor.take("INSERT")
    merge_schema = cursor.may_take("WITH", "SCHEMA", "EVOLUTION") or None
    overwrite = cursor.may_take("OVERWRITE")
    if not overwrite and not cursor.may_take("INTO"):
        cursor.fail("INTO or OVERWRITE")
    if cursor.is_words("DIRECTORY") or cursor.is_words("LOCAL", "DIRECTORY"):
        return _ending_in_query(cursor.text)
    cursor.may_take("TABLE")
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return _ending_in_query(cursor.text, table)
    after_name = cursor.ahead(-1).end
    options = _take_options(cursor) if cursor.is_words("OPTIONS") else {}
    partition = _take_partition(cursor) if cursor.may_take("PARTITION") else {}
    columns: tuple[str, ...] = ()
    # A parenthesis opens a list of columns, or a query in parentheses.
    if cursor.is_sign("(") and cursor.ahead(1).word not in _QUERIES and cursor.ahead(1).text != "(":
        columns = cursor.take_names("a column's name")
    by_name = cursor.may_take("BY", "NAME")
    if cursor.token.word not in (*_QUERIES, "TABLE") and not cursor.is_sign("("):
        cursor.fail("VALUES, SELECT or another query")
    hint = _HINT.search(cursor.text, after_name, cursor.token.start)
    if hint is not None:
        options = {**options, **_take_options(Cursor(hint[1]))}
    return Insert(
        table=table,
        options=options,
        query=_query_of(cursor),
        columns=columns,
        by_name=by_name,
        overwrite=overwrite,
        merge_schema=merge_schema,
        partition=partition,
    )


def _query_of(cursor: Cursor) -> str:
    """Return the query that begins here; TABLE t is short for one."""
    if cursor.is_words("TABLE"):
        return f"SELECT * FROM {cursor.text[cursor.token.end :]}"
    return cursor.text[cursor.token.start :]


def _take_options(cursor: Cursor) -> dict[str, str]:
    cursor.take("OPTIONS")
    return {pair.name: pair.value for pair in read_properties(cursor)}


def _take_partition(cursor: Cursor) -> dict[str, str | None]:
    cursor.take_sign("(")
    values: dict[str, str | None] = {}
    while True:
        at = cursor.token
        name = cursor.take_name("a partition column")
        if name.lower() in {known.lower() for known in values}:
            cursor.fail("every partition column once", at=at)
        values[name] = None
        if cursor.may_take_sign("="):
            # DATE '2026-06-18' is the text, which is made a date for a column of dates.
            if cursor.token.word in ("DATE", "TIMESTAMP"):
                cursor.step()
            values[name] = cursor.take_value()
        if not cursor.may_take_sign(","):
            break
    if not cursor.is_sign(")"):
        cursor.fail("',' and another partition column, or ')'")
    cursor.step()
    return values


def _parse_delete(cursor: Cursor, tables: Collection[str]) -> Statement:
    start = cursor.token.start
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text, table)
    cursor.may_take("AS")
    if not cursor.is_words("WHERE") and cursor.token.kind in ("word", "name"):
        cursor.step()
    if not cursor.is_words("WHERE"):
        cursor.fail("WHERE and a condition; WHERE true deletes every row")
    return Delete(table, f"SELECT * FROM {cursor.text[start:]}")


def _parse_drop(cursor: Cursor, tables: Collection[str]) -> Statement:
    if_exists = cursor.may_take("IF", "EXISTS")
    at = cursor.token
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text, None if if_exists else table)
    if table.is_path:
        cursor.fail("a name of the catalog: DROP TABLE forgets a name, and deletes no data", at=at)
    if cursor.is_words("PURGE"):
        cursor.fail("no PURGE: DROP TABLE forgets a name, and deletes no data. Delete the folder yourself")
    cursor.finish()
    return DropTable(table.text)


_SECONDARY = "SECONDARY_INDEX"


def _parse_create_index(cursor: Cursor, tables: Collection[str]) -> Statement:
    """Read `[IF NOT EXISTS] name ON [TABLE] t [USING secondary_index] (column) [OPTIONS (...)]`, as Hudi has it."""
    if_not_exists = cursor.may_take("IF", "NOT", "EXISTS")
    name = cursor.take_name("the name of an index")
    table = _take_indexed(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text, table)
    if cursor.may_take("USING") and cursor.token.text.strip("`").upper() != _SECONDARY:
        cursor.fail(
            f"{_SECONDARY.lower()}: the record-level index is built by CALL metadata.build(record_index => TRUE), and "
            f"statistics of columns by Hudi"
        )
    if cursor.token.text.strip("`").upper() == _SECONDARY:
        cursor.step()
    cursor.take_sign("(")
    parts = [cursor.take_name("a column's name")]
    while cursor.may_take_sign("."):
        parts.append(cursor.take_name("the rest of the column's name"))
    if cursor.is_sign(","):
        cursor.fail("')': an index is of one column")
    cursor.take_sign(")")
    at = cursor.token
    options = _take_options(cursor) if cursor.is_words("OPTIONS") else {}
    strange = [option for option in options if option not in ("shards", "record_index")]
    shards, record_index = options.get("shards"), options.get("record_index", "false").lower()
    is_number = shards is None or (shards.isascii() and shards.isdigit())
    if strange or not is_number or record_index not in ("true", "false"):
        cursor.fail("no options but shards = a number, and record_index = TRUE or FALSE", at=at)
    cursor.finish()
    return CreateIndex(
        name=name,
        table=table,
        column=".".join(parts),
        if_not_exists=if_not_exists,
        shards=None if shards is None else int(shards),
        record_index=record_index == "true",
    )


def _parse_drop_index(cursor: Cursor, tables: Collection[str]) -> Statement:
    if_exists = cursor.may_take("IF", "EXISTS")
    name = cursor.take_name("the name of an index")
    table = _take_indexed(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text, table)
    cursor.finish()
    return DropIndex(name=name, table=table, if_exists=if_exists)


def _parse_show_indexes(cursor: Cursor, tables: Collection[str]) -> Statement:
    if not (cursor.may_take("FROM") or cursor.may_take("IN") or cursor.may_take("ON")):
        cursor.fail("FROM, IN or ON, and a table")
    table = _take_table(cursor, tables)
    if isinstance(table, str):
        return PassThrough(cursor.text, table)
    cursor.finish()
    return ShowIndexes(table)


def _take_indexed(cursor: Cursor, tables: Collection[str]) -> TableName | str:
    cursor.take("ON")
    cursor.may_take("TABLE")
    return _take_table(cursor, tables)
