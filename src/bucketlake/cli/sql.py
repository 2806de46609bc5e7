"""`bucketlake sql`: one statement on a local Spark."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.text import Text

from bucketlake import spark as on_spark
from bucketlake.cli.app import AsJson, Screen, Storage, app, pairs
from bucketlake.cli.rows import show_rows
from bucketlake.errors import ConfigError
from bucketlake.sql import sql as run_sql
from bucketlake.table import Table
from bucketlake.write import CommitSummary


@app.command()
def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One SQL statement.")],
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the catalog; if not given, ./spark-warehouse."),
    ] = None,
    limit: Annotated[int, typer.Option(help="Rows to print at most; 0 for all.")] = 20,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Run an SQL statement on tables, which it calls by name or as bucketlake.`/path`."""
    screen = Screen(as_json)
    session = on_spark.local.local_session()
    try:
        result = run_sql(session, statement, warehouse=warehouse, storage_options=pairs(storage or ()))
        if hasattr(result, "toArrow"):
            rows = (result.limit(limit) if limit else result).toArrow()
            show_rows(rows.to_pylist(), rows.schema, screen)
            return
    except Exception as error:
        # By the name of its module: a command that needs no Spark should not import it.
        if not type(error).__module__.startswith("pyspark.errors"):
            raise
        raise ConfigError(f"Spark says: {error}") from error
    screen.show(*_drawn(result))


def _drawn(result: Any) -> tuple[Any, Text]:
    if isinstance(result, CommitSummary):
        return asdict(result), Text(str(result))
    if isinstance(result, Table):
        found = result.describe()
        return {"name": found.name, "path": found.path}, Text(f"{found.name}: {found.path}, {found.index}")
    return result, Text("done" if result is None else str(result))
