"""What a log file says, as columns: rows to merge, or keys to delete.

A data block becomes one `LogRecords` and a delete block one `LogDeletes`.
Both carry the instant of their block, and a reader hands them on in the order
in which they apply: later ones are newer.

This module holds the two values only. Bytes become values in `reader`; how
two versions of a record become one is the business of `merge`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LogRecords:
    """The rows of one data block, newest version of a key last."""

    records: pa.Table
    """Aligned to the wanted schema; of a partial block, only the columns it holds."""

    is_partial: bool
    """Header IS_PARTIAL: columns that are absent were not touched by this write."""

    instant: str
    """Header INSTANT_TIME."""


@dataclass(frozen=True, slots=True)
class LogDeletes:
    """The keys of one delete block."""

    keys: pa.Array
    """Record keys, text."""

    ordering: pa.StructArray | None
    """One field per ordering field, of the table's types; None if the table has no ordering field."""

    is_commit_time: pa.BooleanArray
    """Whether a delete carries no ordering value of its own: it wins over all that is older."""

    instant: str
    """Header INSTANT_TIME."""
