"""Engines by name: which one a table has, and how a user adds one.

An engine is two things. Its *value* says what a new table is to have (`create_table(..., index=SimpleBuckets(8))`): it
checks itself, and is kept in `hoodie.properties`. The `Engine` finds out again, of a table that was made with it, where
keys live, and says what is kept on disk for that. Nothing found in a table is ever imported: who opens a table with an
engine of his own has registered it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bucketlake.config import TableType
from bucketlake.errors import ConfigError
from bucketlake.index.index import Index
from bucketlake.index.keeper import Keeper
from bucketlake.state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """What else is said of a table that is to be made."""

    key: tuple[str, ...]
    partition: tuple[str, ...]
    partition_types: tuple[pa.DataType, ...] = ()
    """Of the partition columns, in their order."""
    table_type: TableType
    non_blocking: bool = False


class IndexValue(Protocol):
    """All that is said of where the keys of a new table live. Frozen; prints itself."""

    @property
    def engine(self) -> str:
        """The word of its engine, as `hoodie.index.bucket.engine` has it."""

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The key columns that decide where a key lives; empty: all of them."""

    def check(self, table: NewTable) -> None:
        """Raise `ConfigError` if no such table can be made."""

    def settings(self) -> Mapping[str, str]:
        """Return what the table's properties say of it, beside its engine and hash fields."""

    def first_files(self) -> Mapping[str, bytes]:
        """Return what must be on disk before it is a table, path -> bytes."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How to find out where the keys of a table live that has the engine of this word."""

    word: str
    resolve: Callable[[TableState, str | None], Index]
    """Of a table, and the instant as of which it is read: None for now."""
    keeper: Keeper


_registered: dict[str, Engine] = {}
_BUILT_IN = ("SIMPLE", "SIMPLE_HASHING", "CONSISTENT_HASHING", "DYNAMIC", "EXTENDIBLE_HASHING")


def register_engine(
    word: str, resolve: Callable[[TableState, str | None], Index], *, keeper: Keeper | None = None
) -> None:
    """Register an engine of your own in this process, before you open tables that have it.

    Tables keep `word`. `resolve` returns the index of such a table from its properties and files. Its second argument
    is the instant as of which the table is read, None for now. `keeper` says what the engine keeps on disk.
    """
    name = word.strip().upper()
    if not name or name in _BUILT_IN:
        raise ConfigError(
            f"an engine cannot be registered as {word!r}: expected a word of your own, not one of "
            f"{', '.join(_BUILT_IN)}."
        )
    _registered[name] = Engine(name, resolve, keeper or Keeper())


def registered_engine(word: str) -> Engine | None:
    """Return the engine that a user has registered under a word."""
    return _registered.get(word)


def how_to_register(word: str) -> str:
    """Say what to do about a table whose engine is not known here."""
    return (
        f"Register it before you open the table: bucketlake.register_engine({word!r}, resolve), with the function that "
        f"whoever made the table used."
    )
