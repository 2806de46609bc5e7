"""Secondary indexes: partitions of Hudi's metadata table that say which record keys have a value in a column.

A write tells them what became of its merged rows: a key that has another value now goes under the one and comes under
the other. Which shard has an entry follows from its value, so who asks for a value opens one shard. The record keys
that are found are looked up in the record-level index, which knows their file groups.

To write, only the number of shards matters. What there is of an index is looked at when somebody asks for values, and
is pinned to the table as it was when the index was resolved.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CommitConflictError, ConfigError, CorruptTableError, UnsupportedError
from bucketlake.index.hashing_arrow import shards_of
from bucketlake.index.index_logs import IndexLogsKeeper, in_unlike_orders, log_path, prove_log
from bucketlake.index.listed import (
    ENTRIES,
    EntryFile,
    KeyRecords,
    RowsChanged,
    register_metadata_indexes,
)
from bucketlake.keygen import texts_of
from bucketlake.layout.names import parse_index_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import SECONDARY_BUILT, SECONDARY_PREFIX, folder_of
from bucketlake.metadata.record_reads import fault_of
from bucketlake.metadata.record_shards import pinned_slices
from bucketlake.metadata.secondary_index import (
    SecondaryIndexDefinition,
    refuse_dropped,
    secondary_indexes,
    shard_number,
)
from bucketlake.metadata.secondary_keys import (
    entry_keys,
    prefixes_of_entries,
    prefixes_of_values,
    record_keys_of_entries,
)
from bucketlake.metadata.secondary_shard import (
    count_entries,
    decode_secondary_log,
    encode_secondary_log,
    entries_of_values,
    entry_said_last,
    least_of_values,
    read_entries,
)
from bucketlake.metadata.step import Step
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.state import TableState
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import Timeline

ENTRY_BYTES_MAX = (1 << 15) - 1
"""Hudi keeps the length of a key in 16 bits."""

_log = logging.getLogger("bucketlake.index")
_UNREADABLE = (CommitConflictError, CorruptTableError, UnsupportedError, FileNotFoundError)
"""What may become of an index that is damaged, or that others change while it is looked at."""


def is_indexable(kind: pa.DataType) -> bool:
    """Tell whether Hudi takes a secondary index of a column of this type (`isSecondaryIndexSupportedType`).

    Not of a timestamp without a zone.
    """
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_date32(kind)
        or (pa.types.is_timestamp(kind) and kind.tz is not None)
    )


def is_certain_for_reads(kind: pa.DataType) -> bool:
    """Tell whether every writer spells the values of this type alike, so that a reader may look one up.

    Not so with floating point: Hudi on JDK 17 and older writes some numbers with more digits than we do, and a query
    that asks for 0.0 means -0.0 too, which has entries of its own. Nor with timestamps: where a table declares
    milliseconds, it is the engine that says whether an entry has these, or microseconds.
    """
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_signed_integer(kind)
        or pa.types.is_date32(kind)
    )


def spelled(values: Any) -> Any:
    """Return the values of a column as the keys of entries spell them, nulls kept: a day as a number, as Hudi does.

    >>> spelled(pa.array([1, None])).to_pylist()
    ['1', None]
    """
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    return texts_of(values, field="an indexed column")


def entry_keys_of(rows: pa.Table, column: str) -> pa.Array:
    """Return the keys of the entries that rows have; they have `_hoodie_record_key` and the indexed column."""
    values = spelled(rows.column(column).combine_chunks())
    return entry_keys(values, rows.column(RECORD_KEY_COLUMN).combine_chunks())


def check_entry_keys(keys: Any, definition: SecondaryIndexDefinition) -> None:
    """Raise `ConfigError` for keys of entries that Hudi cannot have, or would not find in one file."""
    column, drop = definition.column, f"drop the index: table.drop_index({definition.name!r})"
    lengths = pc.binary_length(keys)
    longest = pc.max(lengths).as_py() or 0
    if longest > ENTRY_BYTES_MAX:
        key = keys[pc.index(lengths, longest).as_py()].as_py()
        raise ConfigError(
            f"the value {key[:40]!r}… of column {column!r} and its record key have {longest:,} bytes together, and a "
            f"secondary index holds at most {ENTRY_BYTES_MAX:,}. Nothing was written. Shorten the value, or {drop}."
        )
    mixed = in_unlike_orders(keys)
    if mixed is not None:
        one, other = mixed
        raise ConfigError(
            f"the entries {one[:40]!r} and {other[:40]!r} of column {column!r} have characters from U+E000 to U+FFFF, "
            f"and beyond. Hudi sorts these in one order and searches in another, and would miss rows by an index of "
            f"both. Nothing was written. Spell the values without the one or the other, or {drop}."
        )


@dataclass(frozen=True, slots=True)
class KeysOfValues:
    """The record keys that have some values, as an index says."""

    keys: pa.Array | None
    """None if a reader must look himself."""
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPlace:
    """Where an index has the entry of a row; prints as a line."""

    index: str
    column: str
    value: str | None
    """As entries spell it; None for null."""
    shard: str
    file: str | None
    """The file that says last whether the entry is there; None if none says anything of it."""
    state: str
    """`in step`, or what is wrong."""

    def __str__(self) -> str:
        of = f"{self.column} = {self.value!r}" if self.value is not None else f"{self.column} is null"
        return f"{self.index}: {of}, shard {self.shard}, {self.file or 'no file'}; {self.state}"


@dataclass(frozen=True, slots=True)
class _SecondaryShard:
    file_id: str
    slice: ShardSlice


@dataclass(frozen=True, slots=True)
class _Pinned:
    step: Step
    shards: tuple[_SecondaryShard, ...]


@dataclass(frozen=True, slots=True)
class IndexSize:
    """How much there is of an index."""

    shards: int
    entries: int
    """Of base files."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SecondaryIndex(KeyRecords):
    """An index of the values of a column."""

    store: Store
    properties: TableProperties
    timeline: Timeline
    definition: SecondaryIndexDefinition
    _counted: list[int] = field(default_factory=list, compare=False, repr=False)
    """How many shards there are, once somebody has asked."""
    _looked_at: list[_Pinned] = field(default_factory=list, compare=False, repr=False)

    def __str__(self) -> str:
        return f"secondary index {self.definition.name} of {self.definition.column}"

    def __getstate__(self) -> list[Any]:
        # Counted before it travels, so that all who get it spread entries alike. Who gets it looks nothing up.
        return [self.store, self.properties, self.timeline, self.definition, [self.shards], []]

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.definition.column,)

    @property
    def shards(self) -> int:
        if not self._counted:
            self._counted.append(self._count())
        return self._counted[0]

    def _count(self) -> int:
        folder = folder_of(self.definition.partition)
        names = (split_path(file.path)[1] for file in self.store.list(folder).files)
        parsed = (parse_index_base_file_name(name) or parse_log_file_name(name) for name in names)
        numbers = {shard_number(found.file_id) for found in parsed if found is not None}
        if numbers != set(range(len(numbers))) or not numbers:
            self._refuse_if_made_anew()
            raise CorruptTableError(
                path=folder,
                found="no shards" if not numbers else f"{len(numbers)} shards, and not those from 0 on",
                expected=f"all shards of the {self}",
                remedy=f"Files of the index are lost. Drop it, and create it again: table.drop_index("
                f"{self.definition.name!r}), table.create_index({self.definition.name!r}, "
                f"on={self.definition.column!r}).",
            )
        return len(numbers)

    def _refuse_if_made_anew(self) -> None:
        """Files of an index that was dropped since the table was looked at are not lost, whether or not it is back."""
        refuse_dropped(self.store, [self.definition.partition])
        if load_properties(self.store).raw.get(SECONDARY_BUILT) != self.properties.raw.get(SECONDARY_BUILT):
            raise CommitConflictError(
                f"the {self} of {self.store.uri} was dropped and made again while it was looked at. Nothing was "
                f"written. Run it again."
            )

    def check_there(self, partitions: Collection[str]) -> None:  # noqa: ARG002 # it is of the whole table
        assert self.shards

    def told(self, changed: RowsChanged) -> pa.RecordBatch:
        """Return which entries went and came: those that are the same before and after did neither."""
        before, after = self.entry_keys_of(changed.before), self.entry_keys_of(changed.after)
        went = before.filter(pc.invert(pc.is_in(before, value_set=after)))
        came = after.filter(pc.invert(pc.is_in(after, value_set=before)))
        ids = pa.concat_arrays([pa.nulls(len(went), pa.string()), pa.repeat(pa.scalar(""), len(came))])
        keys = pa.concat_arrays([went, came])
        where = pa.repeat(pa.scalar(""), len(keys))
        return pa.RecordBatch.from_arrays([keys, where, ids], schema=ENTRIES)

    def entry_keys_of(self, rows: pa.Table | None) -> pa.Array:
        """Return the keys of the entries that rows have; they have `_hoodie_record_key` and the indexed column."""
        return pa.array([], pa.string()) if rows is None else entry_keys_of(rows, self.definition.column)

    def check_entries(self, shard: int, entries: pa.Table) -> None:  # noqa: ARG002 # wherever they go
        """Refuse entries that Hudi cannot have, or would not find. Those that go may be what they are."""
        has_come = pc.is_valid(_flat(entries["file_id"]))
        check_entry_keys(_flat(entries["key"]).filter(has_come), self.definition)

    def shard_of(self, partitions: Any, record_keys: Any) -> npt.NDArray[np.int64]:  # noqa: ARG002 # the value tells
        return shards_of(prefixes_of_entries(_flat(record_keys)), self.shards).astype(np.int64)

    def entry_files(self, shard: int, entries: pa.Table, *, instant: str) -> Mapping[str, EntryFile]:
        keys = _flat(entries["key"])
        has_come = pc.is_valid(_flat(entries["file_id"]))
        came = keys.filter(has_come).unique()
        gone = keys.filter(pc.invert(has_come)).unique()
        gone = gone.filter(pc.invert(pc.is_in(gone, value_set=came)))
        path = log_path(self.definition.partition, self.definition.shard_file_id(shard), instant)
        data = encode_secondary_log(instant, self.definition.partition, came, gone)
        prove_log(decode_secondary_log(data, path).keys, pa.concat_arrays([came, gone]))
        return {path: EntryFile(data, entries)}

    @property
    def _pinned(self) -> _Pinned:
        if not self._looked_at:
            partition = self.definition.partition
            step, slices = pinned_slices(self.store, self.properties, self.timeline, partition)
            numbered = sorted((shard_number(file_id) or 0, file_id) for file_id in slices)
            shards = tuple(_SecondaryShard(file_id, slices[file_id]) for _, file_id in numbered)
            self._looked_at.append(_Pinned(step, shards))
        return self._looked_at[0]

    @property
    def fault(self) -> str | None:
        """Say why a reader cannot rely on it, None if he can."""
        step, shards = self._pinned.step, self._pinned.shards
        if not shards or len(shards) != self.shards:
            return f"{len(shards)} of its {self.shards} shards count"
        partition = self.definition.partition
        return fault_of(self.store, self.properties, self.timeline, step, shards, partition=partition)

    def record_keys_of(
        self, values: Any, *, are_worth: Callable[[int], bool] = lambda _: True
    ) -> KeysOfValues:
        """Return the record keys that have one of these values, if so many are worth it.

        That is asked before they are read, of about how many there are at the least, and after it. It is never an
        error: whoever reads can do without.
        """
        try:
            fault = self.fault
            found = KeysOfValues(None, fault) if fault else self._record_keys_of(_flat(values), are_worth)
        except _UNREADABLE as error:
            fault, found = str(error), KeysOfValues(None, str(error))
        if fault is not None:
            _log.warning("read without the %s of %s: %s", self, self.store.uri, fault)
        return found

    def _record_keys_of(self, values: Any, are_worth: Callable[[int], bool]) -> KeysOfValues:
        prefixes = prefixes_of_values(spelled(values)).unique()
        numbers = shards_of(prefixes, self.shards)
        shards = self._pinned.shards
        asked = [
            (shards[n].slice, prefixes.filter(pa.array(numbers == n))) for n in np.unique(numbers).tolist()
        ]
        least = sum(in_parallel(lambda one: least_of_values(self.store, *one), asked, self.store))
        if not are_worth(least):
            return KeysOfValues(None, f"about {least:,} record keys or more have these values")
        found = in_parallel(lambda one: entries_of_values(self.store, *one), asked, self.store)
        parts = [record_keys_of_entries(keys).cast(pa.string()) for keys in found]
        keys = pa.concat_arrays([pa.array([], pa.string()), *parts])
        if not are_worth(len(keys)):
            return KeysOfValues(None, f"{len(keys):,} record keys have these values")
        return KeysOfValues(keys)

    def place_of(self, value: pa.Array, record_key: str) -> EntryPlace:
        """Say where the entry of a row is that has this one value."""
        spelling = spelled(value)
        (key,) = entry_keys(spelling, pa.array([record_key], pa.string())).to_pylist()
        shard, file, state = "unknown", None, ""
        try:
            pinned, fault = self._pinned.shards, self.fault
            number = int(self.shard_of(None, pa.array([key], pa.string()))[0])
            shard = f"{number} of {self.shards} ({self.definition.shard_file_id(number)})"
            if fault is None:
                said_by, is_there = entry_said_last(self.store, pinned[number].slice, key)
                file = None if said_by is None else split_path(said_by.path)[1]
                state = "in step" if is_there else "the entry is missing"
            else:
                state = f"not relied on: {fault}"
        except _UNREADABLE as error:
            state = f"not relied on: {error}"
        return EntryPlace(
            index=self.definition.name,
            column=self.definition.column,
            value=spelling[0].as_py(),
            shard=shard,
            file=file,
            state=state,
        )

    def those_there(self, keys: pa.Array) -> pa.Array:
        """Return those of these keys of entries that the index has."""
        prefixes = prefixes_of_entries(keys).unique()
        numbers = shards_of(prefixes, self.shards)
        found = [pa.array([], pa.string())]
        for number in np.unique(numbers).tolist():
            mine = prefixes.filter(pa.array(numbers == number))
            entries = entries_of_values(self.store, self._pinned.shards[number].slice, mine)
            found.append(entries.filter(pc.is_in(entries, value_set=keys)).cast(pa.string()))
        return pa.concat_arrays(found)

    def entries_of(self, shard: int) -> pa.Array:
        """Return the keys of all entries of one shard, ascending."""
        return read_entries(self.store, self._pinned.shards[shard].slice)

    def size(self) -> IndexSize:
        """Count what it is made of. Reads the ends of its base files."""
        slices = [one.slice for one in self._pinned.shards]
        files = [file for one in slices for file in (one.base, *one.logs) if file is not None]
        entries = sum(count_entries(self.store, one) for one in slices)
        return IndexSize(len(slices), entries, sum(file.size_bytes for file in files))

    def described(self) -> str:
        """Say how many shards and entries there are, and whether they can be relied on."""
        try:
            fault, size = self.fault, self.size()
        except _UNREADABLE as error:
            return f"{self}; not relied on: {error}"
        said = (
            f"{size.shards:,} shard{'' if size.shards == 1 else 's'}, {size.entries:,} entries in base files"
        )
        return f"{self}: {said}; {'in step' if fault is None else f'not relied on: {fault}'}"


def resolve_secondary(state: TableState, partition: str) -> SecondaryIndex:
    """Return a secondary index that a table lists; `UnsupportedError` if it cannot be kept."""
    definition = secondary_indexes(state.store, state.properties).get(partition)
    if definition is None:
        refuse_dropped(state.store, [partition])
        raise UnsupportedError(
            subject=f"the index {partition} of {state.store.uri}",
            found="no definition of it, or one of another kind or version",
            supported="secondary indexes of one column, in version V2",
            remedy=f"Delist it: `bucketlake metadata delist {state.store.uri}`, or drop it with Hudi.",
        )
    return SecondaryIndex(state.store, state.properties, state.timeline, definition)


def secondary_indexes_of(state: TableState) -> tuple[SecondaryIndex, ...]:
    """Return the secondary indexes that a table lists and that can be kept."""
    found = secondary_indexes(state.store, state.properties).values()
    return tuple(SecondaryIndex(state.store, state.properties, state.timeline, one) for one in found)


def secondary_indexes_for_reads(state: TableState) -> tuple[SecondaryIndex, ...]:
    """Return the same; none if nobody can tell which there are, for whoever reads can do without."""
    try:
        return secondary_indexes_of(state)
    except _UNREADABLE as error:
        _log.warning("read without the secondary indexes of %s: %s", state.store.uri, error)
        return ()


def _flat(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


register_metadata_indexes(SECONDARY_PREFIX, resolve_secondary, keeper=IndexLogsKeeper)
