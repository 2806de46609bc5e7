"""The command line: each command prints what a function below returned."""

from bucketlake.cli import fsck, history, inspect, maintain, rows, services, write
from bucketlake.cli.app import app, main

__all__ = ["app", "fsck", "history", "inspect", "main", "maintain", "rows", "services", "write"]
