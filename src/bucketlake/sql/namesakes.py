"""Tables of ours in statements that are Spark's: such a statement is refused.

Spark may have a table of the same name, and would empty it, drop it or read it. So whatever looks like one of our names
counts: a word, alone or after `bucketlake.`, wherever it stands. What is Spark's own has its schema before its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import pairwise

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.sql.tokens import Cursor, Token, tokenize, unquoted

_SCHEME = "bucketlake"
_OF_NO_TABLE = frozenset({"SET", "RESET", "USE", "ADD", "LIST"})
"""Statements that name no table, but may have a word in them that looks like one."""
_ABOUT_MORE = frozenset({"CREATE", "DROP", "SHOW", "DESCRIBE", "DESC", "ALTER", "COMMENT"})
_NO_TABLES = frozenset(
    {"DATABASE", "DATABASES", "SCHEMA", "SCHEMAS", "NAMESPACE", "NAMESPACES", "CATALOG", "CATALOGS", "FUNCTIONS",
     "TABLES", "VIEWS"}
)  # fmt: skip
"""What such a statement may be about that is no table."""
_WITH_QUERIES = frozenset({"VAR", "VARIABLE"})
"""What may be set to what a query returns."""

REMEDIES = {
    "TRUNCATE": "DELETE FROM {name} WHERE true deletes every row.",
    "ALTER": "ALTER TABLE {name} ADD COLUMNS (c INT) adds columns, and CALL alter(table => '{name}', …) changes "
    "settings. Hudi could not read a table whose columns were renamed or dropped.",
    "CREATE TABLE": "CREATE TABLE … USING bucketlake makes a table of ours; its name must be free: DROP TABLE {name}.",
    "CREATE VIEW": "Spark keeps the text of a view, and would look for {name} in its own catalog. "
    "bucketlake.sql(spark, 'SELECT …').createOrReplaceTempView('v') makes a view of what the table is now.",
    "CACHE": "bucketlake.sql(spark, 'SELECT * FROM {name}').cache() keeps the rows of a frame.",
    "ANALYZE": "Spark's statistics are not used. CALL layout(table => '{name}') counts files and bytes.",
    "MSCK": "Partitions are found by themselves.",
    "REPAIR": "Partitions are found by themselves. CALL repair(table => '{name}') mends indexes.",
    "REFRESH": "Every statement sees the table as it is then.",
    "LOAD": "INSERT INTO {name} SELECT * FROM parquet.`/path` loads files.",
    "EXECUTE": "Run the statement itself.",
    "OPTIMIZE": "CALL compact(table => '{name}') merges logs, CALL cluster(table => '{name}', by => 'c') sorts rows.",
    "VACUUM": "CALL clean(table => '{name}', retain_commits => 10) deletes old files.",
    "SHOW": "DESCRIBE {name}, SHOW PARTITIONS {name}, SHOW INDEXES FROM {name} and CALL describe(table => '{name}') "
    "tell about it.",
}


def check_names(text: str, tables: Collection[str]) -> None:
    """Refuse a statement for Spark that names a table of ours; `UnsupportedError` says what to do instead."""
    cursor = Cursor(text)
    first, second = cursor.token.word, cursor.ahead(1).word
    if second == "OR" and cursor.ahead(2).word == "REPLACE":
        second = cursor.ahead(3).word
    if second not in _WITH_QUERIES and (
        first in _OF_NO_TABLE or (first in _ABOUT_MORE and second in _NO_TABLES)
    ):
        return
    for name in named_in(text, tables):
        kind = f"{first} {'TABLE' if second == 'TABLE' else 'VIEW'}" if first == "CREATE" else first
        remedy = REMEDIES.get(kind, "").format(name=name)
        raise UnsupportedError(
            subject=f"a statement on the table {name!r}",
            found=f"{kind}, which Spark has and our tables have not",
            supported="CREATE, ALTER … ADD COLUMNS, DROP, DESCRIBE and SHOW PARTITIONS, INSERT, MERGE, UPDATE, DELETE, "
            "SELECT, indexes and CALL",
            remedy=f"{remedy} A table of Spark's with this name has its schema before it: default.{name}. If the word "
            f"is no table here, run the statement with spark.sql.".strip(),
        )
    if tables and (first == "EXECUTE" or any(True for _ in _identifier_clauses(tokenize(text)))):
        raise ConfigError(
            f"{'EXECUTE IMMEDIATE' if first == 'EXECUTE' else 'IDENTIFIER(…)'} hides which tables a statement names, "
            f"and one may be a table of ours, which Spark does not know. Write the name into the statement."
        )


def named_in(text: str, tables: Collection[str]) -> Iterator[str]:
    """Return what in a statement looks like the name of a table of ours.

    >>> list(named_in("TRUNCATE TABLE Orders -- db.orders", {"orders"}))
    ['Orders']
    >>> list(named_in("TRUNCATE TABLE db.orders", {"orders"})), list(named_in("DROP VIEW bucketlake.`/x`", ()))
    ([], ['bucketlake.`/x`'])
    """
    tokens = tokenize(text)
    for number, token in enumerate(tokens):
        # In quotes it may be a name too: `spark.sql.ansi.doubleQuotedIdentifiers` says so.
        if token.kind not in ("word", "name") and not token.text.startswith('"'):
            continue
        name = _plain(token)
        before = tokens[number - 1].text if number else ""
        if name == _SCHEME and before != "." and tokens[number + 1].text == ".":
            yield f"{token.text}.{tokens[number + 2].text}"
        elif name in tables and before != ".":
            yield token.text if token.kind == "word" else name
    for said in _identifier_clauses(tokens):
        if said.lower() in tables or said.lower().startswith(f"{_SCHEME}."):
            yield said


def check_query(query: str, tables: Collection[str]) -> None:
    """Refuse a query that names a table of ours where it is not looked for.

    By IDENTIFIER(…); as TABLE name, which is short for a query; as what `FROM … INSERT INTO` writes to.
    """
    tokens = tokenize(query)
    for one, two in pairwise(token for token in tokens if token.text != "("):
        is_quoted = two.text.startswith('"')
        is_ours = (two.kind in ("word", "name") or is_quoted) and _plain(two) in {*tables, _SCHEME}
        if is_ours and one.word in ("TABLE", "INTO", "OVERWRITE", *(("FROM", "JOIN") if is_quoted else ())):
            raise ConfigError(
                f"a query says {one.text} {two.text}, where a table of ours is not read. Write SELECT * FROM "
                f"{two.text}; and to write to it, begin with INSERT INTO {two.text}."
            )
    for number, token in enumerate(tokens[:-2]):
        if token.word != "IDENTIFIER" or tokens[number + 1].text != "(" or not tables:
            continue
        said = next(_identifier_clauses(tokens[number : number + 4]), "")
        is_read = number > 0 and tokens[number - 1].word in ("FROM", "JOIN")
        if said.lower() in tables or said.lower().startswith(f"{_SCHEME}.") or (is_read and not said):
            raise ConfigError(
                f"IDENTIFIER(…) hides which table a query reads{f', {said!r},' if said else ''} from bucketlake, and "
                f"Spark does not know those of ours. Write the name into the query."
            )


def _identifier_clauses(tokens: tuple[Token, ...]) -> Iterator[str]:
    """Return what IDENTIFIER(…) clauses say; empty where that is more than a text."""
    for one, two, three, four in zip(tokens, tokens[1:], tokens[2:], tokens[3:], strict=False):
        if one.word == "IDENTIFIER" and two.text == "(":
            yield unquoted(three.text).strip("`") if three.kind == "text" and four.text == ")" else ""


def _plain(token: Token) -> str:
    return token.text.strip('`"').replace("``", "`").lower()
