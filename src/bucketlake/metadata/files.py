"""Records of the partition `files`: which data files a partition of the table has.

    key                      value
    __all_partitions__       partition -> FileEntry(0)
    <partition>, or "."      file name -> FileEntry(size)

An entry is added, or deleted. Merged, a deletion takes an older entry away, and
stays as long as there is none; of two sizes the larger counts. On disk a value is
Avro (see `record_schema`), as we write it with all but these fields null or empty:

    00*5 00 type 02 map 00*4    map := (count (name size deleted)*)* 00
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bucketlake.errors import DamagedFileError

ALL_PARTITIONS = "__all_partitions__"
_ROOT = "."
_TYPE_PARTITIONS = 1
_TYPE_FILES = 2
_META_FIELDS = 5
_FIELDS_AFTER = 4


@dataclass(frozen=True, slots=True)
class FileEntry:
    """What a record says of one file, or of one partition."""

    size_bytes: int
    is_deleted: bool = False


Entries = Mapping[str, FileEntry]
"""Name -> what is said of it."""


def key_of(partition: str) -> str:
    """Return the key under which the files of a partition are listed.

    >>> key_of("dt=1"), key_of("")
    ('dt=1', '.')
    """
    return partition or _ROOT


def partition_of(key: str) -> str:
    return "" if key == _ROOT else key


def merged(older: Entries, newer: Entries) -> dict[str, FileEntry]:
    """Put what was said later over what was said before.

    >>> merged({"a": FileEntry(3), "b": FileEntry(1)}, {"a": FileEntry(5), "b": FileEntry(0, is_deleted=True)})
    {'a': FileEntry(size_bytes=5, is_deleted=False)}
    """
    found = dict(older)
    for name, entry in newer.items():
        known = found.get(name)
        if known is None or (known.is_deleted and not entry.is_deleted):
            found[name] = entry
        elif entry.is_deleted:
            if not known.is_deleted:
                del found[name]
        else:
            found[name] = FileEntry(max(known.size_bytes, entry.size_bytes))
    return found


def encode_entries(key: str, entries: Entries) -> bytes:
    """Return the value of a record; names in their order, so that the same entries give the same bytes."""
    kind = _TYPE_PARTITIONS if key == ALL_PARTITIONS else _TYPE_FILES
    parts = [b"\0" * _META_FIELDS, b"\0", _number(kind), b"\x02"]
    if entries:
        parts.append(_number(len(entries)))
        for name, entry in sorted(entries.items()):
            text = name.encode()
            parts += (_number(len(text)), text, _number(entry.size_bytes), bytes([entry.is_deleted]))
    parts.append(b"\0" * (1 + _FIELDS_AFTER))
    return b"".join(parts)


def decode_entries(value: bytes, *, path: str) -> dict[str, FileEntry]:
    """Read the value of a record; `path` names its file in errors."""
    try:
        return _decoded(value)
    except (IndexError, ValueError) as fault:
        raise DamagedFileError(
            path=path,
            found=f"a record of {len(value)} bytes that does not list files ({fault})",
            expected="a record of the partition `files` of a metadata table",
            remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
        ) from fault


def _decoded(value: bytes) -> dict[str, FileEntry]:
    at = 0
    for _ in range(_META_FIELDS):  # Hudi's compactions put the file's name into one of them
        is_set, at = _read_number(value, at)
        if is_set:
            length, at = _read_number(value, at)
            at += length
    length, at = _read_number(value, at)
    kind, at = _read_number(value, at + length)
    if kind not in (_TYPE_PARTITIONS, _TYPE_FILES):
        raise ValueError(f"its type is {kind}")
    has_map, at = _read_number(value, at)
    entries: dict[str, FileEntry] = {}
    if not has_map:
        return entries
    count, at = _read_number(value, at)
    while count:
        if count < 0:  # Avro's other spelling of a block: its size in bytes follows
            count = -count
            _, at = _read_number(value, at)
        for _ in range(count):
            length, at = _read_number(value, at)
            if not 0 <= length <= len(value) - at:
                raise ValueError(f"a name of {length} bytes")
            name = value[at : at + length].decode()
            size, at = _read_number(value, at + length)
            entries[name] = FileEntry(size, value[at] != 0)
            at += 1
        count, at = _read_number(value, at)
    return entries


def _number(value: int) -> bytes:
    """Spell a number as Avro does: zigzag, seven bits at a time."""
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    spelled = bytearray()
    while rest > 0x7F:
        spelled.append(rest & 0x7F | 0x80)
        rest >>= 7
    spelled.append(rest)
    return bytes(spelled)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Read a number; return it and where the next thing begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
