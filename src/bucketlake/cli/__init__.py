"""The command line: each command prints what a function below returned."""

from bucketlake.cli import inspect, rows
from bucketlake.cli.app import app, main

__all__ = ["app", "inspect", "main", "rows"]
