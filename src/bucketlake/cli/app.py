"""The `bucketlake` command: what it shares between its sub-commands.

Exit codes: 0 done; 1 nothing found; 2 the call is wrong (a path, an option, a value);
3 the table is broken; 4 the table uses what bucketlake does not support; 5 another writer was in the way;
6 what was written is not what was given, and was taken back; 7 what the command needs failed: the disk is full, a
permission is missing, Java is; 130 interrupted; 141 nobody reads the output any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from bucketlake.errors import ConfigError
from bucketlake.index import IndexValue
from bucketlake.index.told import index_of_text, told
from bucketlake.table import Table

app = typer.Typer(
    name="bucketlake",
    no_args_is_help=True,
    epilog="Examples: bucketlake demo; bucketlake describe /data/orders; bucketlake COMMAND --help",
    pretty_exceptions_enable=False,
)

EXIT_NOTHING_FOUND = 1


def _say_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"bucketlake {version('bucketlake')}")
        raise typer.Exit


@app.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Make, write, read and inspect Hudi tables, without Hudi."""


TablePath = Annotated[str, typer.Argument(metavar="TABLE", help="Path or URI of the table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", metavar="NAME=VALUE", help="Option of the object store; may be repeated."),
]
Index = Annotated[
    str | None,
    typer.Option(
        metavar="INDEX",
        help='Where keys live, as in Python: "SimpleBuckets(4)", "PartitionBuckets(\'2026-.*,16\', default=4)", '
        '"ConsistentBuckets(4, virtual_logs=True)", "ExtendibleBuckets(4)", "RecordIndex()", '
        '"RecordIndex(per_partition=True, shards=2)", '
        '"DynamicBuckets(assigners=8)"; a '
        "table that says it itself needs none.",
    ),
]
Buckets = Annotated[
    int | None, typer.Option(help="Buckets per partition: short for --index SimpleBuckets(N).")
]


def open_table(
    path: str, storage: Sequence[str] | None, *, index: str | None = None, buckets: int | None = None
) -> Table:
    return Table.open(path, index=index_value(index, buckets), storage_options=pairs(storage or ()))


def index_value(index: str | None, buckets: int | None) -> IndexValue | None:
    """Read what a caller says of an index: one of the two, or nothing."""
    return told(None if index is None else index_of_text(index), buckets)


def pairs(texts: Sequence[str], option: str = "--storage") -> Mapping[str, str] | None:
    split = [text.partition("=") for text in texts]
    wrong = [text for text, (_, equals, _) in zip(texts, split, strict=True) if not equals]
    if wrong:
        raise ConfigError(f"{option} takes NAME=VALUE and got {wrong[0]!r}.")
    return {name: value for name, _, value in split} or None
