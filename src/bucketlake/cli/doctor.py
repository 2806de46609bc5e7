"""`bucketlake doctor`: whether this machine, and a store, have what bucketlake needs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from bucketlake import spark as on_spark
from bucketlake.checkup import Check, Verdict, doctor
from bucketlake.cli.app import AsJson, Storage, app, pairs
from bucketlake.cli.screen import Screen
from bucketlake.errors import SetupError

EXIT_FAILED = 7


@app.command(
    name="doctor",
    epilog="Examples: bucketlake doctor; bucketlake doctor s3://lake/orders --spark",
)
def doctor_command(
    table: Annotated[
        str | None, typer.Argument(metavar="[TABLE]", help="A table, or a folder that is to become one.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="Start Spark on this machine, and ask a worker.")
    ] = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Check Java, Spark and its workers, and the rights, clock and lock of a store. Says what to do."""
    session, failed = None, []
    if spark:
        try:
            session = on_spark.local.local_session()
        except SetupError as error:
            failed = [
                Check("Spark", Verdict.WRONG, str(error), "Install Java 17 or newer, and set JAVA_HOME.")
            ]
    found = doctor(table, spark=session, storage_options=pairs(storage or ()))
    checks = [*found.checks, *failed]
    Screen(as_json).show([asdict(check) for check in checks], "\n".join(map(str, checks)))
    if not found.is_fine or failed:
        raise typer.Exit(EXIT_FAILED)
