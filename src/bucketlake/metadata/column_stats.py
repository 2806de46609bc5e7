"""Records of the partitions `column_stats` and `partition_stats`: the range of a column in a file, or a partition.

    column_stats       key  column partition file        type 3
    partition_stats    key  column partition             type 6

The parts of a key are hashes in base64: XXH64 of the names of column and partition, MD5 of the file's. On disk a value
is Avro (see `record_schema`), as we write it with all but these fields null or empty:

    00*5 00 type 00 00 02 range 00*2
    range  := 02 name, 02 column, least, most, (02 number)*4, is_deleted, is_tight, value type
    least  := 00, or the number of a wrapper record and a value
    numbers   of values, nulls among them, bytes, bytes uncompressed

Hudi keeps the value as one of a few primitives, and says beside it what it stands for. Of a file there is one record
per column, for good. Of a partition every commit may write one: a tight one takes the place of the older, any other
widens it. So a commit need not know what else the partition holds.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeVar

import numpy as np
import xxhash

from bucketlake.errors import DamagedFileError
from bucketlake.metadata.avro import read_number, spell_number
from bucketlake.metadata.files import key_of

_SEED = 0xFFFFFFFF_DABADABA
_META_FIELDS = 5
_TYPE_FILE, _TYPE_PARTITION = 3, 6


class Kind(IntEnum):
    """What a value stands for; the numbers are Hudi's."""

    NULL = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    FLOAT = 5
    DOUBLE = 6
    STRING = 7
    BYTES = 8
    FIXED = 9
    DECIMAL = 10
    UUID = 11
    DATE = 12
    TIME_MILLIS = 13
    TIME_MICROS = 14
    TIMESTAMP_MILLIS = 15
    TIMESTAMP_MICROS = 16
    TIMESTAMP_NANOS = 17
    LOCAL_TIMESTAMP_MILLIS = 18
    LOCAL_TIMESTAMP_MICROS = 19
    LOCAL_TIMESTAMP_NANOS = 20


@dataclass(frozen=True, slots=True)
class ValueType:
    kind: Kind
    detail: str | None = None
    """Of a decimal `precision,scale`."""

    @property
    def scale(self) -> int:
        return int((self.detail or "0,0").partition(",")[2])


NOTHING = ValueType(Kind.NULL)
"""The type of what has no value at all."""

Value = bool | int | float | str | bytes
"""As it is stored: days, micros, the unscaled bytes of a decimal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnRange:
    """What the values of a column are, in a file or in a partition."""

    name: str
    """Of the file, or the partition."""
    column: str
    type: ValueType
    least: Value | None
    most: Value | None
    values: int
    """Nulls included."""
    nulls: int
    size_bytes: int = 0
    raw_bytes: int = 0
    is_deleted: bool = False
    is_tight: bool = False
    """Of a partition: there are such values; else there may be."""


def file_key(column: str, partition: str, file: str) -> str:
    """Return the key under which a column of a file is described."""
    digest = hashlib.md5(file.encode(), usedforsecurity=False).digest()
    return partition_key(column, partition) + base64.b64encode(digest).decode()


def partition_key(column: str, partition: str) -> str:
    """Return the key under which a column of a partition is described.

    >>> partition_key("a", "p0169")
    'BFHqp2KLzrM=+Z6Ox3BeXh8='
    """
    return column_key(column) + _hashed(key_of(partition))


def column_key(column: str) -> str:
    """Return what all keys of a column begin with."""
    return _hashed(column)


_HASH_LETTERS = 12


def _hashed(name: str) -> str:
    return base64.b64encode(xxhash.xxh64_digest(name.encode(), seed=_SEED)).decode()


def shards_of(keys: list[str], count: int) -> list[int]:
    """Return the number of the shard of each key: Java's hash of the text, modulo their count. Keys are ASCII.

    >>> shards_of(["a", "polygenelubricants"], 100)
    [97, 48]
    """
    if count == 1:
        return [0] * len(keys)
    hashes = np.zeros(len(keys), np.int32)
    padded = np.array([key.encode() for key in keys], "S")
    lengths = np.array([len(key) for key in keys])
    for place, letters in enumerate(padded.view(np.uint8).reshape(len(keys), -1).T):
        hashes = np.where(place < lengths, hashes * np.int32(31) + letters.astype(np.int32), hashes)
    return [abs(int(code)) % count for code in hashes]


# ── Two records of one key ──────────────────────────────────────────────────────────────────────────────────────────


def widened(older: ColumnRange, newer: ColumnRange) -> ColumnRange:
    """Return what holds of the values of both, with the type and the name of the newer."""
    assert older.column == newer.column
    return replace(
        newer,
        least=_extreme(min, older.least, newer.least, newer.type),
        most=_extreme(max, older.most, newer.most, newer.type),
        values=older.values + newer.values,
        nulls=older.nulls + newer.nulls,
        size_bytes=older.size_bytes + newer.size_bytes,
        raw_bytes=older.raw_bytes + newer.raw_bytes,
    )


def merged(older: ColumnRange, newer: ColumnRange) -> ColumnRange:
    """Put what was said later over what was said before."""
    return newer if newer.is_deleted or older.is_deleted or newer.is_tight else widened(older, newer)


def _extreme(
    choose: Callable[..., Value], one: Value | None, other: Value | None, kind: ValueType
) -> Value | None:
    found = [value for value in (one, other) if value is not None]
    return choose(found, key=lambda value: _rank(value, kind)) if found else None


def _rank(value: Value, type: ValueType) -> object:
    """Return what puts values into their order: NaN is above all numbers, -0.0 below 0.0."""
    if type.kind is Kind.DECIMAL:
        assert isinstance(value, bytes)
        return int.from_bytes(value, signed=True)
    if isinstance(value, float):
        return (value != value, value if value == value else 0.0, not str(value).startswith("-"))
    return value  # code points and UTF-8 bytes have the same order


def are_comparable(one: Kind, other: Kind) -> bool:
    """Tell whether Hudi can widen a range of one kind by one of the other: in Java they must be of one class.

    >>> are_comparable(Kind.TIMESTAMP_MILLIS, Kind.TIMESTAMP_MICROS), are_comparable(Kind.INT, Kind.LONG)
    (True, False)
    """
    return Kind.NULL in (one, other) or _CLASSES.get(one, one.name) == _CLASSES.get(other, other.name)


_CLASSES = {
    kind: word
    for word in ("LOCAL_TIMESTAMP", "TIMESTAMP", "TIME")
    for kind in Kind
    if kind.name.startswith(f"{word}_")
} | {Kind.FIXED: Kind.BYTES.name}


def kinds_of_columns(values: Values, *, path: str) -> dict[str, frozenset[Kind]]:
    """Return of which kinds the ranges of each column are, by the beginning of their keys: see `column_key`."""
    found: dict[str, set[Kind]] = {}
    for key, value in values.items():
        is_plain = value[-3:] == b"\0\0\0" and value[-5:-4] == b"\x02"
        kind = Kind(value[-4] >> 1) if is_plain else decode_range(value, path=path)[1].type.kind
        found.setdefault(key[:_HASH_LETTERS], set()).add(kind)
    return {column: frozenset(kinds) for column, kinds in found.items()}


Values = Mapping[str, bytes]
"""Key -> value of a record, as it is stored."""


def merge_values(parts: Iterable[tuple[Values, Iterable[str]]], *, path: str) -> dict[str, bytes]:
    """Merge the records of a shard: base and log blocks, the oldest first, each with the keys that it deletes.

    A key that occurs once keeps its bytes. What is deleted is gone: there is nothing older than the base.
    `path` names the shard in errors.
    """
    found: dict[str, bytes] = {}
    for values, deleted in parts:
        for key, value in values.items():
            older = found.get(key)
            found[key] = value if older is None else _merged_value(older, value, path)
        for key in deleted:
            found.pop(key, None)
    return {key: value for key, value in found.items() if not is_deleted(value, path=path)}


def _merged_value(older: bytes, newer: bytes, path: str) -> bytes:
    kind, said = decode_range(newer, path=path)
    return encode_range(merged(decode_range(older, path=path)[1], said), of_partition=kind == _TYPE_PARTITION)


def is_deleted(value: bytes, *, path: str) -> bool:
    """Tell whether a record is a tombstone; by what it ends with, where no detail of its type follows."""
    if value[-3:] == b"\0\0\0" and value[-5:-4] == b"\x02":
        return value[-7] != 0
    return decode_range(value, path=path)[1].is_deleted


# ── Bytes ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _STRING = range(1, 8)
"""The numbers of the wrapper records, in the union of all."""
_WRAPPERS = {
    Kind.BOOLEAN: _BOOLEAN,
    Kind.INT: _INT,
    Kind.DATE: _INT,
    Kind.TIME_MILLIS: _INT,
    Kind.FLOAT: _FLOAT,
    Kind.DOUBLE: _DOUBLE,
    Kind.STRING: _STRING,
    Kind.UUID: _STRING,
    Kind.BYTES: _BYTES,
    Kind.FIXED: _BYTES,
    Kind.DECIMAL: _BYTES,
}
"""The others are longs."""
_SINGLE, _PRECISE = struct.Struct("<f"), struct.Struct("<d")


def encode_range(said: ColumnRange, *, of_partition: bool) -> bytes:
    """Return the value of a record."""
    counts = (said.values, said.nulls, said.size_bytes, said.raw_bytes)
    return b"".join(
        [
            b"\0" * (_META_FIELDS + 1),
            spell_number(_TYPE_PARTITION if of_partition else _TYPE_FILE),
            b"\0\0\x02",
            b"\x02" + _text(said.name),
            b"\x02" + _text(said.column),
            _wrapped(said.least, said.type.kind),
            _wrapped(said.most, said.type.kind),
            *(b"\x02" + spell_number(count) for count in counts),
            bytes([said.is_deleted, said.is_tight]),
            b"\x02" + spell_number(said.type.kind),
            b"\0" if said.type.detail is None else b"\x02" + _text(said.type.detail),
            b"\0\0",
        ]
    )


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _sized(data: bytes) -> bytes:
    return spell_number(len(data)) + data


def _wrapped(value: Value | None, kind: Kind) -> bytes:
    if value is None:
        return b"\0"
    wrapper = _WRAPPERS.get(kind, _LONG)
    return spell_number(wrapper) + _SPELLED[wrapper](value)


_SPELLED: Mapping[int, Callable[..., bytes]] = {
    _BOOLEAN: lambda value: bytes([value]),
    _INT: spell_number,
    _LONG: spell_number,
    _FLOAT: _SINGLE.pack,
    _DOUBLE: _PRECISE.pack,
    _BYTES: _sized,
    _STRING: _text,
}


def decode_range(value: bytes, *, path: str) -> tuple[int, ColumnRange]:
    """Read the value of a record, and its type; `path` names its file in errors."""
    try:
        return _Reader(value).record()
    except (IndexError, ValueError, KeyError, struct.error) as fault:
        raise DamagedFileError(
            path=path,
            found=f"a record of {len(value)} bytes that describes no column ({fault})",
            expected="a record of the partition `column_stats` or `partition_stats` of a metadata table",
            remedy="Drop the two and let Hudi build them anew: `bucketlake metadata rebuild TABLE`.",
        ) from fault


_T = TypeVar("_T")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def record(self) -> tuple[int, ColumnRange]:
        for _ in range(_META_FIELDS):  # Hudi's compactions put the file's name into one of them
            self._optional(self._sized)
        self._sized()
        kind = self._number()
        if kind not in (_TYPE_FILE, _TYPE_PARTITION) or [self._number() for _ in range(3)] != [0, 0, 1]:
            raise ValueError(f"its type is {kind}")
        name, column = self._optional(self._text), self._optional(self._text)
        least, most = self._wrapped(), self._wrapped()
        counts = [self._optional(self._number) for _ in range(4)]
        is_deleted, is_tight = self._byte() != 0, self._byte() != 0
        type = self._optional(lambda: ValueType(Kind(self._number()), self._optional(self._text)))
        if name is None or column is None or type is None or None in counts:
            raise ValueError("a field that must be set is null")
        values, nulls, size_bytes, raw_bytes = (count or 0 for count in counts)
        return kind, ColumnRange(
            name=name,
            column=column,
            type=type,
            least=least,
            most=most,
            values=values,
            nulls=nulls,
            size_bytes=size_bytes,
            raw_bytes=raw_bytes,
            is_deleted=is_deleted,
            is_tight=is_tight,
        )

    def _number(self) -> int:
        found, self._at = read_number(self._data, self._at)
        return found

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _taken(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError(f"a value of {size} bytes")
        self._at += size
        return self._data[self._at - size : self._at]

    def _sized(self) -> bytes:
        return self._taken(self._number())

    def _text(self) -> str:
        return self._sized().decode()

    def _optional(self, read: Callable[[], _T]) -> _T | None:
        return read() if self._number() else None

    def _wrapped(self) -> Value | None:
        wrapper = self._number()
        if not wrapper:
            return None
        reads: Mapping[int, Callable[[], Value]] = {
            _BOOLEAN: lambda: self._byte() != 0,
            _INT: self._number,
            _LONG: self._number,
            _FLOAT: lambda: float(_SINGLE.unpack(self._taken(4))[0]),
            _DOUBLE: lambda: float(_PRECISE.unpack(self._taken(8))[0]),
            _BYTES: self._sized,
            _STRING: self._text,
        }
        return reads[wrapper]()
