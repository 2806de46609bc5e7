"""The command line: each command prints what a function below returned."""

from bucketlake.cli import (
    clustering,
    fsck,
    history,
    inspect,
    maintain,
    rows,
    service_run,
    services,
    sql,
    write,
)
from bucketlake.cli.app import app, main

__all__ = [
    "app",
    "clustering",
    "fsck",
    "history",
    "inspect",
    "main",
    "maintain",
    "rows",
    "service_run",
    "services",
    "sql",
    "write",
]
