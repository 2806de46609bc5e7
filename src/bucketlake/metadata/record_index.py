"""Entries of the partition `record_index`: in which file group a record key lives.

    key      the record key, as `_hoodie_record_key` spells it
    value    Location: partition, file id, instant

On disk a value is Avro (see `record_schema`), all but these fields null or empty:

    00*5 00 0a 00*3 02 location 00
    location := 02 partition, 02 high, 02 low, 02 number, 02 id, 02 milliseconds, encoding, 00

A file id that is a UUID and a number, `<uuid>-<n>`, is kept as two halves and `n` (encoding 0); any other as its text
(encoding 1). All keys that one commit puts into one file group have one value, so values are encoded and decoded once
per file group, and shared out by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import DamagedFileError
from bucketlake.metadata.avro import Reader, spell_number, spell_text

_META_FIELDS = 5
_TYPE = 5
_UUID_LETTERS = 36
_NOT_SET = -1
_HALF = 64
_AS_UUID, _AS_TEXT = 0, 1


@dataclass(frozen=True, slots=True)
class Location:
    """Where a record key lives."""

    partition: str
    file_id: str
    instant_ms: int
    """When the instant began that put it there. For people: nobody decides by it."""


@dataclass(frozen=True, slots=True, eq=False)
class Locations:
    """A column of locations, of which there are few."""

    codes: npt.NDArray[np.int32]
    """Which of `distinct` each is."""
    distinct: tuple[Location, ...]

    def partitions(self) -> pa.Array:
        return pa.array([place.partition for place in self.distinct], pa.string()).take(pa.array(self.codes))

    def file_ids(self) -> pa.Array:
        return pa.array([place.file_id for place in self.distinct], pa.string()).take(pa.array(self.codes))


def encode_locations(locations: Locations) -> pa.DictionaryArray:
    """Return the values of entries, as `hfile.encode` takes them: a few, and which one each is."""
    values = pa.array([encode_location(place) for place in locations.distinct], pa.binary())
    return pa.DictionaryArray.from_arrays(pa.array(locations.codes, pa.int32()), values)


def decode_locations(values: pa.Array, *, path: str) -> Locations:
    """Read the values of entries; `path` names their file in errors."""
    coded = pc.dictionary_encode(values)
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    distinct = tuple(decode_location(value, path=path) for value in coded.dictionary.to_pylist())
    codes = coded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return Locations(codes, distinct)


def encode_location(place: Location) -> bytes:
    """Return the value of one entry."""
    halves = _halves(place.file_id)
    if halves is None:
        high = low = number = _NOT_SET
        text, encoding = place.file_id, _AS_TEXT
    else:
        high, low, number = halves
        text, encoding = "", _AS_UUID
    set_ = b"\x02"
    fields: Sequence[bytes] = (
        spell_text(place.partition),
        spell_number(high),
        spell_number(low),
        spell_number(number),
        spell_text(text),
        spell_number(place.instant_ms),
    )
    head = b"\0" * (_META_FIELDS + 1) + spell_number(_TYPE) + b"\0" * 3 + set_
    return head + b"".join(set_ + one for one in fields) + spell_number(encoding) + b"\0\0"


def decode_location(value: bytes, *, path: str) -> Location:
    """Read the value of one entry."""
    try:
        return _decoded(Reader(value))
    except (IndexError, ValueError) as fault:
        raise DamagedFileError(
            path=path,
            found=f"an entry of {len(value)} bytes that does not say where a key lives ({fault})",
            expected="an entry of the record-level index of a metadata table",
            remedy="Build the index anew.",
        ) from fault


def _decoded(reader: Reader) -> Location:
    for _ in range(_META_FIELDS):
        if reader.number():
            reader.text()
    reader.text()
    kind = reader.number()
    if kind != _TYPE:
        raise ValueError(f"its type is {kind}")
    if any(reader.number() for _ in range(3)):
        raise ValueError("it lists files, or has statistics")
    if not reader.number():
        raise ValueError("it has no location")
    partition = reader.text() if reader.number() else ""
    high, low, number = (reader.number() if reader.number() else _NOT_SET for _ in range(3))
    text = reader.text() if reader.number() else ""
    instant_ms = reader.number() if reader.number() else 0
    encoding = reader.number()
    if encoding not in (_AS_UUID, _AS_TEXT):
        raise ValueError(f"its file id is spelled in way {encoding}")
    file_id = text if encoding == _AS_TEXT else _file_id(high, low, number)
    return Location(partition, file_id, instant_ms)


def _halves(file_id: str) -> tuple[int, int, int] | None:
    """Cut a file id into the signed halves of its UUID and its number; None if that would not give it back."""
    uuid, dash, rest = file_id[:_UUID_LETTERS], file_id[_UUID_LETTERS : _UUID_LETTERS + 1], file_id[37:]
    try:
        whole = UUID(uuid).int
        number = int(rest) if dash else _NOT_SET
    except ValueError:
        return None
    found = _signed(whole >> _HALF), _signed(whole & ((1 << _HALF) - 1)), number
    return found if number < 1 << 31 and _file_id(*found) == file_id else None


def _file_id(high: int, low: int, number: int) -> str:
    mask = (1 << _HALF) - 1
    uuid = UUID(int=(high & mask) << _HALF | (low & mask))
    return str(uuid) if number == _NOT_SET else f"{uuid}-{number}"


def _signed(half: int) -> int:
    return half - (1 << _HALF) if half >> (_HALF - 1) else half
