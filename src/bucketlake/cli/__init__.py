"""The command line: each command prints what a function below returned."""

from bucketlake.cli import (
    buckets,
    clustering,
    demo,
    doctor,
    fsck,
    history,
    index,
    inspect,
    maintain,
    metadata,
    repair,
    report,
    resize,
    rows,
    service_run,
    services,
    sql,
    stream,
    write,
)
from bucketlake.cli.app import app
from bucketlake.cli.ending import main

__all__ = [
    "app",
    "buckets",
    "clustering",
    "demo",
    "doctor",
    "fsck",
    "history",
    "index",
    "inspect",
    "main",
    "maintain",
    "metadata",
    "repair",
    "report",
    "resize",
    "rows",
    "service_run",
    "services",
    "sql",
    "stream",
    "write",
]
