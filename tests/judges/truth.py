"""What a table must hold after a history of batches, said in SQL and by nobody who can read Hudi.

A `Ledger` writes down every batch and lets DuckDB answer. Both merge modes are folds over the history of a key:

    commit time    the last batch that names the key wins; a delete wins like any other row
    event time     everything up to the key's last delete operation is void (it carries no ordering value);
                   of what follows, the highest ordering value wins, the later batch among equals;
                   a winner with `_hoodie_is_deleted` removes the key

Hudi is that fold, except where it forgets. A deleted row leaves no trace in a base file, and a log's own rows are
merged before they meet the base file. So after a deletion, a row whose ordering value is lower than one the key had
before is kept or dropped depending on the table type and on when compaction ran. A ledger refuses such a batch with
`NotAFold`: for it the judge is Hudi itself.

Outside its subject: null ordering values, several rows of one key in a batch, strings beyond U+FFFF as ordering values
(Java compares UTF-16 units, DuckDB bytes), keys that move between partitions, partial updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import duckdb
import pyarrow as pa

DELETE_FIELD = "_hoodie_is_deleted"


class Ordering(StrEnum):
    EVENT_TIME = "event time"
    COMMIT_TIME = "commit time"


class NotAFold(Exception):
    """Hudi's answer to this history depends on its files, not only on its batches."""


class Ledger:
    """The history of one table.

    >>> ledger = Ledger(key=["id"], ordering="ts")
    >>> ledger.upsert(pa.table({"id": [1, 2], "ts": [5, 5], "name": ["a", "b"]}))
    >>> ledger.upsert(pa.table({"id": [1, 2], "ts": [4, 6], "name": ["late", "new"]}))
    >>> ledger.rows().to_pylist()
    [{'id': 1, 'ts': 5, 'name': 'a'}, {'id': 2, 'ts': 6, 'name': 'new'}]
    """

    def __init__(
        self, *, key: Sequence[str], ordering: str | None, mode: Ordering = Ordering.EVENT_TIME
    ) -> None:
        assert ordering is not None or mode is Ordering.COMMIT_TIME, "event time needs an ordering column"
        self._key = ", ".join(map(_quoted, key))
        self._mode = mode
        self._ordering = _quoted(ordering) if ordering is not None and mode is Ordering.EVENT_TIME else "0"
        self._database = duckdb.connect()
        self._columns: dict[str, None] = {}
        self._batch_count = 0

    def upsert(self, rows: pa.Table) -> None:
        """Apply a batch; its rows with a true `_hoodie_is_deleted` are deletes with an ordering value."""
        self._record(rows, is_delete_operation=False)

    def delete(self, rows: pa.Table) -> None:
        """Apply `operation=delete`: the keys go, whatever their ordering values."""
        self._record(rows, is_delete_operation=True)

    def rows(self) -> pa.Table:
        """Return the rows the table must hold now, without meta columns, sorted by key."""
        columns = ", ".join(map(_quoted, self._columns))
        return self._ask(f"""
            WITH
                live AS ({_AFTER_LAST_DELETE.format(key=self._key)}),
                winners AS (
                    SELECT * FROM live
                    QUALIFY row_number() OVER (
                        PARTITION BY {self._key} ORDER BY {self._ordering} DESC, ledger_batch DESC) = 1
                )
            SELECT {columns} FROM winners WHERE NOT ledger_is_delete ORDER BY {self._key}
        """)

    def _record(self, rows: pa.Table, *, is_delete_operation: bool) -> None:
        self._batch_count += 1
        soft = f"coalesce({_quoted(DELETE_FIELD)}, false)" if DELETE_FIELD in rows.column_names else "false"
        self._database.register("batch", rows)
        self._database.execute(f"""
            CREATE TABLE incoming AS
            SELECT *, {self._batch_count} AS ledger_batch, {is_delete_operation} AS ledger_is_operation,
                   {is_delete_operation} OR {soft} AS ledger_is_delete
            FROM batch
        """)
        self._database.unregister("batch")
        self._refuse_repeated_keys()
        if self._batch_count == 1:
            self._database.execute("ALTER TABLE incoming RENAME TO history")
        else:
            if self._mode is Ordering.EVENT_TIME and not is_delete_operation:
                self._refuse_what_depends_on_files()
            # UNION widens types and fills new columns with nulls, as Hudi's schema evolution does.
            self._database.execute("""
                CREATE TABLE longer AS FROM history UNION ALL BY NAME FROM incoming;
                DROP TABLE history; DROP TABLE incoming; ALTER TABLE longer RENAME TO history;
            """)
        if not is_delete_operation:
            self._columns |= dict.fromkeys(rows.column_names)

    def _refuse_repeated_keys(self) -> None:
        repeated = self._ask(f"SELECT {self._key} FROM incoming GROUP BY ALL HAVING count(*) > 1")
        assert repeated.num_rows == 0, f"a batch names a key twice: {repeated.to_pylist()}"

    def _refuse_what_depends_on_files(self) -> None:
        late = self._ask(f"""
            SELECT {self._key} FROM (SELECT {self._key}, {self._ordering} AS new FROM incoming) AS incoming
            JOIN (
                SELECT {self._key}, bool_or(ledger_is_delete) AS was_deleted,
                       max({self._ordering}) FILTER (NOT ledger_is_operation) AS old
                FROM history GROUP BY {self._key}
            ) AS past USING ({self._key})
            WHERE was_deleted AND new < old
        """)
        if late.num_rows:
            self._database.execute("DROP TABLE incoming")
            raise NotAFold(f"late rows for keys that were deleted before: {late.to_pylist()}")

    def _ask(self, query: str) -> pa.Table:
        return self._database.sql(query).to_arrow_table()


_AFTER_LAST_DELETE = """
    SELECT * FROM history
    QUALIFY ledger_batch > coalesce(
        max(ledger_batch) FILTER (ledger_is_operation) OVER (PARTITION BY {key}), 0)
"""


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
