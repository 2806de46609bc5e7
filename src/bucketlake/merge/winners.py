"""Phase 1: all log versions of a key become one, before any base row is looked at.

Hudi fills a map from record key to record, block by block, and only then opens
the base file. The result is not what one long fold from the base row would
give: see docs/formats/merging.md for the case in which a deleted row returns.

An *entry* is a row of a data block or a key of a delete block; entries are
counted through all logs in the order they apply. A *number* stands for one of
the distinct keys. `Winners` holds the entry that won for each number, and
which entries those are is all it keeps: rows stay where the log reader put them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, CorruptTableError, UnsupportedError
from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.merge.kernels import (
    BLOCK_DELETE,
    RECORD,
    ROW_DELETE,
    fold,
    fold_pieces,
    match_keys,
    number_keys,
)
from bucketlake.merge.ordering import (
    Codes,
    codes_of,
    codes_side_by_side,
    comparable_alone,
    is_java_integer,
    not_older,
)
from bucketlake.merge.rules import (
    DELETE_OPERATIONS,
    IS_DELETED_COLUMN,
    OPERATION_COLUMN,
    MergeRules,
    top_level,
)
from bucketlake.schema import RECORD_KEY_COLUMN

Log = LogRecords | LogDeletes
Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


def fold_logs(logs: Sequence[Log], rules: MergeRules, schema: pa.Schema) -> Winners:
    """Find the winning entry of every key in `logs`, given in the order they apply."""
    sizes = [_size(log) for log in logs]
    keys = KeyTable.build(pa.concat_arrays([chunk for log in logs for chunk in _key_chunks(log)]))
    kinds = np.concatenate([_kinds(log, rules) for log in logs])
    if rules.by_commit_time:
        ordering: list[pa.Array] = []
        undated = kinds != RECORD
    else:
        ordering = [_ordering_column(logs, name, schema) for name in rules.ordering_fields]
        undated = _undated(logs, kinds, ordering)
    codes = [codes_of(column) for column in ordering]

    columns = (
        np.array(codes, dtype=np.int64) if codes else np.empty((0, len(kinds)), dtype=np.int64),
        _null_masks(ordering, len(kinds)),
        rules.by_commit_time,
    )
    entries = np.full(keys.count, -1, dtype=np.int64)
    sources = None
    present = _present(logs, schema)
    if present.all():
        fold(keys.numbers, kinds, undated, *columns, entries)
    else:
        blocks = np.repeat(np.arange(len(logs), dtype=np.int32), sizes)
        sources = np.full((keys.count, len(schema)), -1, dtype=np.int64)
        fold_pieces(keys.numbers, kinds, undated, *columns, blocks, present, entries, sources)

    return Winners(
        logs=tuple(logs),
        rules=rules,
        schema=schema,
        keys=keys,
        entries=entries,
        is_record=kinds[entries] == RECORD,
        undated=undated[entries],
        ordering=tuple(
            code[entries] if comparable_alone(column.type) else column.take(pa.array(entries))
            for code, column in zip(codes, ordering, strict=True)
        ),
        sources=sources,
    )


@dataclass(frozen=True)
class Winners:
    """The log version of every key, ready to meet the base file.

    Arrays are indexed by number unless they say otherwise.
    """

    logs: tuple[Log, ...]
    rules: MergeRules
    schema: pa.Schema
    keys: KeyTable
    entries: Indices
    is_record: Mask
    undated: Mask
    """A delete that carries no ordering value: it wins over every base row."""

    ordering: tuple[Codes | pa.Array, ...]
    """Per ordering field: codes, or the values where codes need their counterpart to be made."""

    sources: Indices | None
    """Per number and column the entry that has the value, -1 for none; None if all rows are whole."""

    def beat(self, batch: pa.RecordBatch, rows: Indices, numbers: Indices) -> Mask:
        """Tell which of the winners `numbers` replace the base rows they are paired with."""
        if self.rules.by_commit_time:
            return np.ones(len(rows), dtype=np.bool_)
        newer: list[Codes] = []
        older: list[Codes] = []
        for name, held in zip(self.rules.ordering_fields, self.ordering, strict=True):
            column = _field(batch, name)
            if isinstance(held, np.ndarray):
                newer.append(held[numbers])
                older.append(codes_of(column)[rows])
            else:
                pair = codes_side_by_side(held.take(pa.array(numbers)), column.take(pa.array(rows)))
                newer.append(pair[0])
                older.append(pair[1])
        return self.undated[numbers] | not_older(newer, older)

    def lacks_columns(self, numbers: Indices) -> Mask:
        """Tell which of these are partial updates that a base row has to complete."""
        if self.sources is None:
            return np.zeros(len(numbers), dtype=np.bool_)
        return self._incomplete[numbers] & self.is_record[numbers]

    def complete(self, batch: pa.RecordBatch, rows: Indices, numbers: Indices) -> pa.RecordBatch:
        """Return the rows of partial updates, absent columns taken from their base rows."""
        assert self.sources is not None
        columns = []
        for position, field in enumerate(self.schema):
            source = self.sources[numbers, position]
            has = source >= 0
            stale = batch.column(field.name).take(pa.array(rows[~has]))
            fresh = self._stacked(field).take(pa.array(source[has]))
            order = np.empty(len(rows), dtype=np.int64)
            order[~has] = np.arange(len(stale))
            order[has] = np.arange(len(stale), len(rows))
            columns.append(pa.concat_arrays([stale, fresh]).take(pa.array(order)))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def rows(self, chosen: Mask, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the chosen winners, each of which is a record; of their columns these (None: all)."""
        names = self.schema.names if columns is None else list(columns)
        if self.sources is not None:
            yield from self._rows_of_pieces(np.flatnonzero(chosen), names)
            return
        # Rows leave block by block, in slices or through a filter: nothing is stacked or gathered.
        is_chosen = np.zeros(len(self.keys.numbers), dtype=np.bool_)
        is_chosen[self.entries[chosen]] = True
        start = 0
        for log in self.logs:
            stop = start + _size(log)
            of_log = is_chosen[start:stop]
            if isinstance(log, LogRecords) and of_log.any():
                table = _conform(log.records, self.schema).select(names)
                yield from (batch for batch in _only(table, of_log).to_batches() if batch.num_rows)
            start = stop

    def _rows_of_pieces(self, numbers: Indices, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        assert self.sources is not None
        if not len(numbers):
            return
        schema = pa.schema([self.schema.field(name) for name in names])
        columns = []
        for field in schema:
            source = self.sources[numbers, self.schema.get_field_index(field.name)]
            # A null index gives a null: the column of a partial insert that nobody ever set.
            columns.append(self._stacked(field).take(pa.array(source, mask=source < 0)))
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    @cached_property
    def _incomplete(self) -> Mask:
        assert self.sources is not None
        return np.asarray((self.sources < 0).any(axis=1), dtype=np.bool_)

    @cached_property
    def _stacks(self) -> dict[str, pa.Array]:
        return {}

    def _stacked(self, field: pa.Field) -> pa.Array:
        """Return a column of all logs, indexed by entry; deletes and blocks without it hold nulls."""
        if field.name not in self._stacks:
            chunks: list[pa.Array] = []
            for log in self.logs:
                if isinstance(log, LogRecords) and field.name in log.records.column_names:
                    chunks += log.records.column(field.name).cast(field.type).chunks
                else:
                    chunks.append(pa.nulls(_size(log), field.type))
            self._stacks[field.name] = pa.concat_arrays(chunks)
        return self._stacks[field.name]


_RUN_ROWS = 256
"""To slice a table takes as long as to filter about so many rows of it."""


def _only(table: pa.Table, chosen: Mask) -> pa.Table:
    """Return the rows that are chosen; without a copy if they stand together."""
    changes = np.flatnonzero(chosen[1:] != chosen[:-1]) + 1
    if len(changes) * _RUN_ROWS > len(chosen):
        return table.filter(pa.array(chosen))
    bounds = pairwise([0, *changes.tolist(), len(chosen)])
    return pa.concat_tables([table.slice(start, stop - start) for start, stop in bounds if chosen[start]])


@dataclass(frozen=True)
class KeyTable:
    """The distinct keys of the logs; see `kernels` for the layout."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int32]
    slots: npt.NDArray[np.uint64]
    numbers: npt.NDArray[np.int32]
    """Per entry, the number of its key."""

    count: int

    @classmethod
    def build(cls, keys: pa.StringArray) -> KeyTable:
        data, offsets = _bytes_of(keys)
        # At most half full, so that a search ends after a step or two.
        slots = np.zeros(1 << (2 * len(keys)).bit_length(), dtype=np.uint64)
        numbers = np.empty(len(keys), dtype=np.int32)
        count = number_keys(data, offsets, slots, numbers)
        return cls(data, offsets, slots, numbers, count)

    def match(self, keys: pa.StringArray, met: Mask) -> tuple[Indices, Indices]:
        """Pair rows of `keys` with numbers, leaving out, and noting, what is in `met`."""
        data, offsets = _bytes_of(keys)
        rows = np.empty(len(keys), dtype=np.int64)
        numbers = np.empty(len(keys), dtype=np.int64)
        found = match_keys(
            self.data, self.offsets, self.slots, self.numbers, data, offsets, met, rows, numbers
        )
        return rows[:found], numbers[:found]


def base_keys(batch: pa.RecordBatch) -> pa.StringArray:
    """Return the record keys of a base batch as strings without nulls."""
    return _checked_keys(batch.column(RECORD_KEY_COLUMN), "base file")


def _bytes_of(keys: pa.StringArray) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, offsets, data = keys.buffers()
    if not len(keys):
        return np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int32)
    bounds = np.frombuffer(offsets, dtype=np.int32, count=len(keys) + 1, offset=4 * keys.offset)
    return np.frombuffer(data or b"", dtype=np.uint8), bounds


def _checked_keys(keys: pa.Array, path: str) -> pa.StringArray:
    if keys.null_count:
        raise CorruptTableError(
            path=path,
            found=f"{keys.null_count} rows without a value in {RECORD_KEY_COLUMN}",
            expected="a record key in every row",
            remedy="Versions of a record are found by their key; write these rows again with a key.",
        )
    return keys if keys.type == pa.string() else keys.cast(pa.string())


def _size(log: Log) -> int:
    return log.records.num_rows if isinstance(log, LogRecords) else len(log.keys)


def _key_chunks(log: Log) -> list[pa.Array]:
    path = f"log block of instant {log.instant}"
    keys = log.records.column(RECORD_KEY_COLUMN) if isinstance(log, LogRecords) else log.keys
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    return [_checked_keys(chunk, path) for chunk in chunks] or [pa.array([], pa.string())]


def _kinds(log: Log, rules: MergeRules) -> npt.NDArray[np.uint8]:
    if isinstance(log, LogDeletes):
        return np.full(len(log.keys), BLOCK_DELETE, dtype=np.uint8)
    kinds = np.full(log.records.num_rows, RECORD, dtype=np.uint8)
    for mask in _delete_masks(log.records, rules):
        kinds[np.asarray(pc.fill_null(mask, False))] = ROW_DELETE
    return kinds


def _delete_masks(records: pa.Table, rules: MergeRules) -> Iterator[pa.Array]:
    names = records.column_names
    if IS_DELETED_COLUMN in names:
        mask = records.column(IS_DELETED_COLUMN)
        if not pa.types.is_boolean(mask.type):
            raise UnsupportedError(
                subject=f"the type of column {IS_DELETED_COLUMN}",
                found=str(mask.type),
                supported="boolean, as Hudi",
                remedy="Rename the column, or rewrite it as boolean.",
            )
        yield mask
    if OPERATION_COLUMN in names:
        yield pc.is_in(records.column(OPERATION_COLUMN), value_set=pa.array(DELETE_OPERATIONS))
    if rules.delete_field and top_level(rules.delete_field, records.schema) in names:
        assert rules.delete_marker is not None
        yield _reads_like(_field(records, rules.delete_field), rules.delete_marker)


def _reads_like(values: pa.Array, marker: str) -> pa.Array:
    """Tell which values Hudi on Spark would print as `marker`: it compares their `toString`."""
    kind = values.type
    if pa.types.is_floating(kind):
        try:
            number = float(marker)
        except ValueError:
            return pa.nulls(len(values), pa.bool_())
        return pc.equal(values, pa.scalar(number, kind))
    if pa.types.is_temporal(kind):  # days or microseconds since 1970
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return pc.equal(values.cast(pa.string()), marker)


def _ordering_column(logs: Sequence[Log], name: str, schema: pa.Schema) -> pa.Array:
    """Return one ordering field of every entry, null where an entry has none."""
    if top_level(name, schema) not in schema.names:
        raise ConfigError(
            f"the table orders records by {name!r} and its columns are {', '.join(schema.names)}. "
            f"Correct hoodie.table.ordering.fields, or read the column as well."
        )
    kind = _kind_of(name, schema)
    chunks = []
    for log in logs:
        if isinstance(log, LogDeletes):
            has = log.ordering is not None and log.ordering.type.get_field_index(name) >= 0
            column = pc.struct_field(log.ordering, [name]) if has else pa.nulls(len(log.keys), kind)
        elif top_level(name, log.records.schema) in log.records.column_names:
            column = _field(log.records, name)
        else:
            column = pa.nulls(log.records.num_rows, kind)
        chunks.append(column.cast(kind))
    return pa.concat_arrays(chunks)


def _undated(logs: Sequence[Log], kinds: npt.NDArray[np.uint8], ordering: Sequence[pa.Array]) -> Mask:
    """Tell which entries are deletes without an ordering value of their own.

    Of an entry in a delete block the log reader has said it. A deleting row
    with one ordering field is undated by a null, and where values are Java
    Integers by a 0; several fields make an array, which is never the default.
    """
    undated = np.concatenate(
        [
            np.asarray(log.is_commit_time.to_numpy(zero_copy_only=False), dtype=np.bool_)
            if isinstance(log, LogDeletes)
            else np.zeros(_size(log), dtype=np.bool_)
            for log in logs
        ]
    )
    if len(ordering) == 1:
        column = ordering[0]
        undated |= np.asarray(column.is_null())
        if is_java_integer(column.type):
            undated |= (kinds == ROW_DELETE) & (codes_of(column) == 0)
    return np.asarray(undated & (kinds != RECORD), dtype=np.bool_)


def _null_masks(ordering: Sequence[pa.Array], count: int) -> npt.NDArray[np.uint64]:
    """Return a bit per ordering field and entry: set where the value is a null of another Java class."""
    masks = np.zeros(count, dtype=np.uint64)
    for position, column in enumerate(ordering):
        if column.null_count and not is_java_integer(column.type):
            masks |= np.asarray(column.is_null()).astype(np.uint64) << np.uint64(position % 64)
    return masks


def _present(logs: Sequence[Log], schema: pa.Schema) -> Mask:
    """Return, per log and column, whether the log has the column; deletes need none."""
    return np.array(
        [
            [isinstance(log, LogDeletes) or name in names for name in schema.names]
            for log in logs
            for names in [set() if isinstance(log, LogDeletes) else set(log.records.column_names)]
        ],
        dtype=np.bool_,
    ).reshape(len(logs), len(schema))


def _field(data: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    """Return a column, or the nested field a dotted name leads to, in one chunk."""
    top = top_level(name, data.schema)
    column = data.column(top)
    if top != name:
        column = pc.struct_field(column, name.split(".")[1:])
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _kind_of(name: str, schema: pa.Schema) -> pa.DataType:
    top = top_level(name, schema)
    kind = schema.field(top).type
    for inner in name.split(".")[1:] if top != name else ():
        kind = kind.field(inner).type
    return kind


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema) else table.select(schema.names).cast(schema)
