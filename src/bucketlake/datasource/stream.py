"""`spark.readStream.format("bucketlake")`: a table as a stream of what changes in it.

Spark 4.1 keeps one reader for a query, in a process of its own, and makes others for tasks. It asks for the latest
offset without saying where it is. So the reader keeps in mind the end of the last batch that Spark planned; after a
restart Spark begins by planning an empty batch at the last offset of the checkpoint, or asks for the latest offset at
once if there is none. That is all of the state: what lies between two offsets is a function of these and of the table.

An offset is given only for what readers of the timeline see for good (`read/settled.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from bucketlake.basefile import read_footer
from bucketlake.commit.claims import list_claims
from bucketlake.datasource.offsets import (
    INITIAL,
    NOTHING,
    Batch,
    Mark,
    Offset,
    Written,
    batch_between,
    choose_end,
    cut,
    parse_offset,
)
from bucketlake.datasource.options import Start, StreamOptions
from bucketlake.datasource.reader import PARTITION_BYTES, check_types
from bucketlake.errors import ConfigError, DamagedFileError, SchemaError, UnsupportedError
from bucketlake.layout import FileSlice
from bucketlake.looks import look_at
from bucketlake.read import (
    BEGINNING,
    Change,
    ChangeKinds,
    ChangePlan,
    Comparison,
    ReadContext,
    changes_until,
    is_service,
    make_query,
    oldest_begin,
    pack_slices,
    place_of,
    plan_comparisons,
    plan_completed,
    read_comparison,
    read_slice,
    unpublished_commit,
    with_change,
)
from bucketlake.spark import settle_worker
from bucketlake.state import TableState, commit_metadata, instants_between, writes_between
from bucketlake.storage import in_parallel
from bucketlake.table import Table
from bucketlake.timeline import ArchivedInstant, Instant, load_history

LOG_ROW_BYTES = 100
"""What a row of a file group without a base file is taken for, to guess how many there are."""


def stream_schema(options: StreamOptions) -> pa.Schema:
    """Return the columns of a stream: those of the table, and `op` if there is to be one."""
    table = Table.open(options.path, **options.table)
    found = table.query(**options.query).schema
    if options.op is None:
        return found
    # Spark does not tell columns apart by case.
    taken = {name.lower() for name in (*found.names, *table.schema.names)}
    if not options.op or options.op.lower() in taken:
        raise ConfigError(
            f"the option op is {options.op!r}; expected the name of a column that the table does not have. "
            f"It has {', '.join(table.schema.names)}."
        )
    return found.append(pa.field(options.op, pa.string()))


class StreamReader(DataSourceStreamReader):
    def __init__(self, options: StreamOptions, schema: pa.Schema, *, has_every_column: bool) -> None:
        self.options = options
        self.schema = schema
        self.has_every_column = has_every_column
        """Whether the stream was to have all columns of the table, and should say if there are more."""
        self._position: Offset | None = None
        self._offered: Offset | None = None
        self._written: dict[str, Written] = {}
        self._there: frozenset[str] = frozenset()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(INITIAL)

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        table = self._table()
        # Claims are read before the timeline: see `read.settled`.
        claims = list_claims(table.store)

        def look(state: TableState) -> Offset:
            self._check(state)
            until = changes_until(state.timeline, unpublished_commit(claims, state.timeline)) or BEGINNING
            if self._position is not None:
                return self._next(table, state, self._position, until)
            origin = self._origin(state, until)
            following = self._next(table, state, Offset(origin), until)
            return Offset(following.done, following.upto, following.place, following.with_op, origin)

        self._offered = look_at(table.store, look)
        return self._offered.as_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        since, until = parse_offset(start), parse_offset(end)
        assert until is not None, "a batch ends with an offset that was given"
        if since == until:
            if self._position is None and self._offered is not None:
                batch_between(since, self._offered)  # nothing is in the checkpoint yet of what was offered
            self._position = until
            return []
        batch = batch_between(since, until)
        table = self._table()

        def look(state: TableState) -> Sequence[InputPartition]:
            self._check(state)
            self._check_there(state, batch.end)
            pieces = self._pieces(table, state, batch, with_op=until.with_op or self._compares(batch))
            return [InputPartition(task) for task in pieces[batch.first : batch.stop].tasks()]

        try:
            found = look_at(table.store, look)
        except DamagedFileError as error:
            raise ConfigError(f"{error} {_remedy(batch)}") from error
        self._position = until
        self._written.clear()
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settle_worker()
        task: _Task = partition.value
        for batch in task.rows(self.options.op):
            yield batch.select(self.schema.names)

    def _table(self) -> Table:
        return Table.open(self.options.path, **self.options.table)

    def _names(self) -> list[str]:
        return [name for name in self.schema.names if name != self.options.op]

    def _check(self, state: TableState) -> None:
        """Refuse tables that have no stream of changes, and columns that are not those of the stream any more."""
        if state.properties.table_version < 8:
            raise UnsupportedError(
                subject=f"hoodie.table.version of {state.store.uri}",
                found=f"{state.properties.table_version}: its timeline does not say when writes completed",
                supported="streams of tables of version 8 and 9",
                remedy="Upgrade the table with Hudi.",
            )
        query = make_query(state, begin=BEGINNING, meta_columns=self.options.meta_columns)
        found, wanted = query.schema, self._names()
        everything = query.table_schema.names
        gone = [name for name in wanted if name not in everything]
        if gone:
            raise SchemaError(
                f"the table has no column {', '.join(map(repr, gone))} any more, and this stream has. Restart the "
                f"query from its checkpoint: it has the table's columns then; or name those to keep with the option "
                f"columns."
            )
        new = [name for name in found.names if name not in self.schema.names] if self.has_every_column else []
        if new:
            raise SchemaError(
                f"the table has the new column {', '.join(map(repr, new))}, and this stream began without: Spark keeps "
                f"the columns that a stream starts with. Restart the query from its checkpoint to have it; or name the "
                f"columns to go on with by the option columns."
            )
        types = pa.schema([query.table_schema.field(name) for name in wanted])
        check_types(types, pa.schema([self.schema.field(name) for name in wanted]))

    def _origin(self, state: TableState, until: str) -> Mark:
        match self.options.start:
            case Start.BEGINNING:
                return NOTHING
            case Start.NOW:
                return _mark_at(state, until)
            case Start.OLDEST:
                return _mark_at(state, oldest_begin(state))
        begin, oldest = self.options.begin(state.properties.timeline_timezone), oldest_begin(state)
        if begin < oldest:
            raise ConfigError(
                f"the stream is to start at {self.options.start}, and changes can be read one by one from {oldest} on: "
                f"what is older was cleaned. start='oldest' begins there, start='beginning' with the rows that are "
                f"there now; table.alter(keep_commits=...) keeps more from now on."
            )
        return _mark_at(state, begin)

    def _next(self, table: Table, state: TableState, at: Offset, until: str) -> Offset:
        """Choose where the next batch ends."""
        self._check_there(state, at.upto or at.done)
        max_rows = self.options.max_rows
        if at.upto is not None:
            return self._cut(table, state, at)
        if at.done == NOTHING:
            whole = Offset(_mark_at(state, until))
            return whole if max_rows is None else self._cut(table, state, Offset(at.done, whole.done))
        new = writes_between(state, at.done.time, max(until, at.done.time))
        if max_rows is None and self.options.max_instants is None:
            has_changes = any(not self._of(state, write).is_service for write in new)
            return Offset(_mark_of(new[-1])) if has_changes else at
        chosen = choose_end(
            (self._of(state, write) for write in new),
            max_instants=self.options.max_instants,
            max_rows=max_rows,
        )
        if chosen is None:
            return at
        if max_rows is not None and chosen.rows > max_rows:
            compares = self.options.op is not None
            return self._cut(table, state, Offset(at.done, chosen.mark, with_op=compares))
        return Offset(chosen.mark)

    def _cut(self, table: Table, state: TableState, at: Offset) -> Offset:
        """Choose how many more pieces of an interval the next batch has."""
        assert at.upto is not None
        batch = Batch(at.done, at.upto)
        try:
            pieces = self._pieces(table, state, batch, with_op=at.with_op)
        except DamagedFileError as error:
            raise ConfigError(f"{error} {_remedy(batch)}") from error
        place = at.place
        if self.options.max_rows is not None:
            place = cut(pieces.row_counts(state, batch), at.place, self.options.max_rows)
        if self.options.max_rows is None or place >= len(pieces):
            return Offset(at.upto)
        return Offset(at.done, at.upto, place, at.with_op)

    def _of(self, state: TableState, write: Instant | ArchivedInstant) -> Written:
        """Read what a write says of itself, once."""
        known = self._written.get(write.requested)
        if known is None:
            commit = commit_metadata(state, write)
            rows = sum(stat.inserted + stat.updated + stat.deleted for stat in commit.write_stats)
            known = Written(_mark_of(write), rows, is_service(commit))
            self._written[write.requested] = known
        return known

    def _compares(self, batch: Batch) -> bool:
        return self.options.op is not None and batch.begin != NOTHING

    def _pieces(self, table: Table, state: TableState, batch: Batch, *, with_op: bool) -> _Pieces:
        """Return what a batch consists of, all of its interval, in an order that is always the same."""
        if with_op != self._compares(batch):
            raise ConfigError(
                f"the stream was stopped amid the changes up to {batch.end.time}, and the option op was "
                f"{'given' if with_op else 'left out'} then. Restart it in the same way once, until it is past them."
            )
        is_snapshot = batch.begin == NOTHING
        since = self._past_services(state, batch) if with_op else batch.begin.time
        if is_snapshot or with_op:
            oldest = oldest_begin(state)
            seen = batch.end.time if is_snapshot else since
            if seen < oldest:
                raise ConfigError(
                    f"the table cannot be seen any more as it was at {seen}: what completed until {oldest} may have "
                    f"been cleaned since. {_remedy(batch)}"
                )
        if is_snapshot:
            query = make_query(state, columns=self._names())
            plan = plan_completed(state, query, batch.end.time)
            return _Pieces(plan.slices, plan.context)
        if with_op:
            query = make_query(state, columns=self._names())
            compared = plan_comparisons(state, query, since, batch.end.time)
            return _Pieces(compared.comparisons, compared)
        try:
            changes = table.plan(columns=self._names(), begin=batch.begin.time, end=batch.end.time)
        except ConfigError as error:
            raise ConfigError(f"{error} {_remedy(batch)}") from error
        return _Pieces(tuple(sorted(changes.slices, key=place_of)), changes.context)

    def _past_services(self, state: TableState, batch: Batch) -> str:
        """Return when the last service was done that came before all changes of a batch.

        The table has the same rows then as at the batch's begin, and more of its files are there still.
        """
        since = batch.begin.time
        for write in writes_between(state, batch.begin.time, batch.end.time):
            if not self._of(state, write).is_service:
                break
            since = write.completed or since
        return since

    def _check_there(self, state: TableState, mark: Mark) -> None:
        """Refuse to go on from a write that was taken back: its rows have been given."""
        instant = mark.instant
        if not instant or (instant in self._there and instant in state.view.completions):
            return
        start = state.timeline.start
        is_there = any(
            write.requested == instant and (write.completed or "") <= mark.time
            for write in state.timeline.writes
        )
        if not is_there and start is not None and instant < start and instant not in state.view.undone:
            archived = load_history(state.store, state.properties, since=instant)
            is_there = any(a.requested == instant for a in archived)
        if not is_there:
            raise ConfigError(
                f"the stream has given the rows of the write {instant}, completed at {mark.time}, and the table has no "
                f"such write any more: it was rolled back, or the table was restored or made anew. Take back what was "
                f"made of its rows, and begin with a new checkpoint, from start='beginning', or from the moment up to "
                f"which the rows are right."
            )
        self._there = frozenset({instant})


@dataclass(frozen=True, slots=True)
class _Pieces:
    """The slices or comparisons of an interval."""

    them: Sequence[FileSlice] | Sequence[Comparison]
    read_with: ReadContext | ChangePlan

    def __len__(self) -> int:
        return len(self.them)

    def __getitem__(self, part: slice) -> _Pieces:
        return _Pieces(self.them[part], self.read_with)

    def tasks(self) -> list[_Task]:
        """Share the pieces out; what tells deletes alone stays before the rest, as Spark keeps the order of tasks."""
        pieces: Sequence[FileSlice | Comparison] = self.them
        packs: list[tuple[FileSlice | Comparison, ...]] = []
        for _, some in groupby(pieces, key=_is_of_deletes):
            packs += pack_slices(list(some), PARTITION_BYTES)
        return [_Task(pack, self.read_with) for pack in packs]

    def row_counts(self, state: TableState, batch: Batch) -> list[int]:
        """Guess how many rows each piece gives: of a snapshot by footers, of changes by what writes tell."""
        if batch.begin == NOTHING:
            slices = [one for one in self.them if isinstance(one, FileSlice)]
            return in_parallel(lambda part: _rows_of(part, state), slices, state.store)
        rows: Counter[tuple[str, str]] = Counter()
        deletes: Counter[tuple[str, str]] = Counter()
        for _, commit in instants_between(state, batch.begin.time, batch.end.time):
            for stat in () if is_service(commit) else commit.write_stats:
                group = (stat.partition, stat.file_id)
                rows[group] += stat.inserted + stat.updated
                deletes[group] += stat.deleted
        every = rows + deletes
        by_kinds = {ChangeKinds.ALL: every, ChangeKinds.ROWS: rows, ChangeKinds.DELETES: deletes}
        return [
            sum(by_kinds[one.kinds][group] for group in one.groups)
            if isinstance(one, Comparison)
            else every[place_of(one)]
            for one in self.them
        ]


@dataclass(frozen=True, slots=True)
class _Task:
    """What one task reads. Picklable."""

    them: tuple[FileSlice | Comparison, ...]
    read_with: ReadContext | ChangePlan

    def rows(self, op: str | None) -> Iterator[pa.RecordBatch]:
        for one in self.them:
            if isinstance(one, Comparison):
                assert isinstance(self.read_with, ChangePlan) and op is not None
                yield from read_comparison(one, self.read_with, op)
                continue
            assert isinstance(self.read_with, ReadContext)
            for batch in read_slice(one, self.read_with):
                yield batch if op is None else with_change(batch, op, Change.INSERT)


def _is_of_deletes(one: FileSlice | Comparison) -> bool:
    return isinstance(one, Comparison) and one.kinds is ChangeKinds.DELETES


def _rows_of(part: FileSlice, state: TableState) -> int:
    if part.base_file is not None:
        return read_footer(state.store, part.base_file.path).row_count
    return part.size_bytes // LOG_ROW_BYTES


def _mark_of(write: Instant | ArchivedInstant) -> Mark:
    return Mark(write.completed or "", write.requested)


def _mark_at(state: TableState, time: str) -> Mark:
    """Return a moment, and the last write on the timeline that completed until then."""
    until = [write for write in state.timeline.writes if (write.completed or "") <= time]
    last = max(until, key=lambda write: (write.completed or "", write.requested), default=None)
    return Mark(time, last.requested if last is not None else "")


def _remedy(batch: Batch) -> str:
    return (
        f"The stream has yet to give what completed after {batch.begin.time or 'the beginning'} and until "
        f"{batch.end.time}. If a clean was faster, begin with a new checkpoint, and start='oldest' or 'beginning'; "
        f"table.alter(keep_commits=...) keeps more for a stream that lags."
    )
