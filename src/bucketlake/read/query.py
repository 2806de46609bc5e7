"""What a caller wants to see of a table: which version, which columns, which rows.

snapshot         everything committed, merged
read optimized   base files only: fast, without what is still in logs
time travel      a snapshot of the instants requested at or before a time
incremental      the rows written by instants that completed in (begin, end]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.commit.claims import Claim
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.read.filters import Filter, RawFilter, parse_filters
from bucketlake.read.settled import settled_end
from bucketlake.schema import META_COLUMNS, with_meta_columns
from bucketlake.state import TableState, table_schema
from bucketlake.timeline import InZone, Moment, in_process_zone, parse_instant_time


@dataclass(frozen=True, slots=True)
class Query:
    """A request that was checked against the table; nothing in it can turn out to be wrong later."""

    table_schema: pa.Schema
    """All columns, meta columns first if the table has them."""
    columns: tuple[str, ...]
    """The columns of the result, in order."""
    filters: tuple[Filter, ...]
    read_optimized: bool
    as_of: str | None
    """Instants requested after this time are not seen."""
    begin: str | None
    """Only rows of instants that completed after this time."""
    end: str | None
    """And at or before this one, if set."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return pa.schema([self.table_schema.field(name) for name in self.columns])


_WITHOUT_META_COLUMNS = (
    " Hudi's meta columns are empty in its files (hoodie.populate.meta.fields=false), and not shown."
)


def make_query(
    state: TableState,
    *,
    columns: str | Sequence[str] | None = None,
    filters: Iterable[RawFilter] | None = (),
    meta_columns: bool = True,
    read_optimized: bool = False,
    as_of: Moment | None = None,
    begin: Moment | None = None,
    end: Moment | None = None,
    in_zone: InZone = in_process_zone,
    unpublished: Claim | None = None,
) -> Query:
    """Check a request against the table, and say at once what cannot be answered.

    `in_zone` says in which zone a text without an offset is meant: this process's, unless there is a session.
    `unpublished` is a commit that an incremental read must not reach past.
    """
    if as_of is not None and (begin is not None or end is not None):
        raise ConfigError(
            "as_of asks for one version and begin/end for the changes between two; give one or the other."
        )
    if end is not None and begin is None:
        raise ConfigError(
            "end without begin: an incremental read is (begin, end]; begin='0' starts at the first commit."
        )
    if read_optimized and begin is not None:
        raise ConfigError(
            "read_optimized leaves out the logs, an incremental read needs them; give one or the other."
        )
    has_meta_columns = state.properties.has_meta_columns
    if begin is not None and not has_meta_columns:
        raise UnsupportedError(
            subject=f"hoodie.populate.meta.fields of {state.store.uri}",
            found="false: its rows do not say which commit wrote them",
            supported="incremental reads where it is true, as Hudi",
            remedy="Read snapshots with as_of=... and compare them, or write the table anew with meta columns.",
        )
    zone = state.properties.timeline_timezone
    instant, first, last = (
        None if moment is None else parse_instant_time(moment, zone, in_zone=in_zone)
        for moment in (as_of, begin, end)
    )
    if first is not None and last is not None and first > last:
        raise ConfigError(f"begin {begin!r} lies after end {end!r}.")
    if first is not None:
        last = settled_end(last, unpublished)
    data = table_schema(state, as_of=instant)
    # A column added later is null in older files, whatever its schema says, and Spark reads all as nullable.
    every = with_meta_columns(data) if has_meta_columns else data
    everything = pa.schema([field.with_nullable(True) for field in every])
    if isinstance(columns, str):
        columns = (columns,)
    if columns is None:
        columns = everything.names if meta_columns else data.names
    if not isinstance(columns, Iterable):
        raise ConfigError(f"columns is {columns!r}; expected the name of a column, or a list of names.")
    columns = tuple(columns)
    unknown = [name for name in columns if name not in everything.names]
    if unknown:
        raise ConfigError(
            f"the table has no column {', '.join(map(repr, unknown))}; it has {', '.join(everything.names)}."
            f"{_WITHOUT_META_COLUMNS if set(unknown) & set(META_COLUMNS) else ''}"
        )
    return Query(
        table_schema=everything,
        columns=columns,
        filters=parse_filters(filters or (), everything),
        read_optimized=read_optimized,
        as_of=instant,
        begin=first,
        end=last,
    )
