"""`bucketlake sql`: one statement on a local Spark."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from bucketlake import spark as on_spark
from bucketlake.cli.app import AsJson, Storage, app, pairs
from bucketlake.cli.rows import Limit, Unlimited, show_rows
from bucketlake.cli.screen import Screen
from bucketlake.services.secondary_index_build import BuiltSecondaryIndex, DroppedIndex
from bucketlake.sql import sql as run_sql
from bucketlake.sql.catalog import DroppedName
from bucketlake.table import Table
from bucketlake.write import CommitSummary


@app.command(epilog="Example: bucketlake sql 'SELECT count(*) FROM bucketlake.`/data/orders`'")
def sql(
    statement: Annotated[str, typer.Argument(metavar="STATEMENT", help="One SQL statement.")],
    warehouse: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of the catalog; if not given, ./spark-warehouse."),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="Text for :NAME in the statement; may be repeated."),
    ] = None,
    limit: Limit = 20,
    every: Unlimited = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Run an SQL statement. It names tables by their names, or by their paths: bucketlake.`/path`."""
    screen = Screen(as_json)
    session = on_spark.local.local_session()
    values, options = pairs(args or (), "--arg"), pairs(storage or ())
    result = run_sql(session, statement, args=values, warehouse=warehouse, storage_options=options)
    if hasattr(result, "toArrow"):
        show_rows((result if every else result.limit(limit)).toArrow(), screen)
    else:
        screen.show(*_drawn(result))


def _drawn(result: Any) -> tuple[Any, str]:
    if isinstance(result, CommitSummary | BuiltSecondaryIndex | DroppedIndex | DroppedName):
        return asdict(result), str(result)
    if isinstance(result, Table):
        found = result.describe()
        return {"name": found.name, "path": found.path}, f"{found.name}: {found.path}, {found.index}"
    return result, "done" if result is None else str(result)
