"""The `bucketlake` command: what it shares between its sub-commands.

Exit codes: 0 done; 1 nothing found; 2 the call is wrong (a path, an option, a value);
3 the table is broken; 4 the table uses what bucketlake does not support; 5 another writer was in the way;
6 what was written is not what was given, and was taken back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, RenderableType
from rich.table import Table as Grid

from bucketlake.errors import (
    BucketlakeError,
    ConfigError,
    ConflictError,
    CorruptTableError,
    ProofError,
    UnsupportedError,
)
from bucketlake.table import Table

app = typer.Typer(
    name="bucketlake",
    help="Make, write, read Hudi tables, and look into them, without Hudi.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXIT_NOTHING_FOUND = 1
_EXIT_CODES: Sequence[tuple[type[BucketlakeError], int]] = (
    (ConfigError, 2),
    (CorruptTableError, 3),
    (UnsupportedError, 4),
    (ConflictError, 5),
    (ProofError, 6),
)

TablePath = Annotated[str, typer.Argument(metavar="TABLE", help="Path or URI of the table.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Storage = Annotated[
    list[str] | None,
    typer.Option("--storage", metavar="NAME=VALUE", help="Option of the object store; may be repeated."),
]
Buckets = Annotated[
    int | None, typer.Option(help="Buckets per partition, for a table whose writer did not store it.")
]


@dataclass(frozen=True, slots=True)
class Screen:
    """Where results go: a person's terminal or a program's pipe."""

    as_json: bool

    def show(self, value: Any, *drawings: RenderableType) -> None:
        """Print the value as JSON, or what draws it."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
            return
        console = Console()
        for drawing in drawings:
            console.print(drawing)


def open_table(path: str, storage: Sequence[str] | None, *, buckets: int | None = None) -> Table:
    return Table.open(path, storage_options=pairs(storage or ()), buckets=buckets)


def pairs(texts: Sequence[str]) -> Mapping[str, str] | None:
    split = [text.partition("=") for text in texts]
    wrong = [text for text, (_, equals, _) in zip(texts, split, strict=True) if not equals]
    if wrong:
        raise ConfigError(f"--storage takes NAME=VALUE and got {wrong[0]!r}.")
    return {name: value for name, _, value in split} or None


def grid(title: str, *columns: str, numbers: Sequence[str] = ()) -> Grid:
    """Make a table for the terminal; the columns named in `numbers` are right-aligned."""
    made = Grid(
        title=title,
        title_justify="left",
        header_style="bold",
        # Room for the layout of a table in the 80 columns of a pipe.
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        pad_edge=False,
    )
    for column in columns:
        is_number = column in numbers
        made.add_column(column, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return made


def human_bytes(count: float) -> str:
    """Spell a size for a person.

    >>> human_bytes(1536)
    '1.5 KiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; an error of ours is one sentence on stderr and an exit code."""
    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="bucketlake")
    except BucketlakeError as error:
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]error:[/] {_escaped(str(error))}", highlight=False
        )
        sys.exit(next(code for kind, code in _EXIT_CODES if isinstance(error, kind)))


def _escaped(text: str) -> str:
    return text.replace("[", r"\[")
