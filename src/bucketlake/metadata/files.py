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
from bucketlake.metadata.avro import Reader, spell_number, spell_text

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
    parts = [b"\0" * _META_FIELDS, b"\0", spell_number(kind), b"\x02"]
    if entries:
        parts.append(spell_number(len(entries)))
        for name, entry in sorted(entries.items()):
            parts += (spell_text(name), spell_number(entry.size_bytes), bytes([entry.is_deleted]))
    parts.append(b"\0" * (1 + _FIELDS_AFTER))
    return b"".join(parts)


def decode_entries(value: bytes, *, path: str) -> dict[str, FileEntry]:
    """Read the value of a record; `path` names its file in errors."""
    try:
        return _decoded(Reader(value))
    except (IndexError, ValueError) as fault:
        raise DamagedFileError(
            path=path,
            found=f"a record of {len(value)} bytes that does not list files ({fault})",
            expected="a record of the partition `files` of a metadata table",
            remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
        ) from fault


def _decoded(reader: Reader) -> dict[str, FileEntry]:
    for _ in range(_META_FIELDS):  # Hudi's compactions put the file's name into one of them
        if reader.number():
            reader.text()
    reader.text()
    kind = reader.number()
    if kind not in (_TYPE_PARTITIONS, _TYPE_FILES):
        raise ValueError(f"its type is {kind}")
    entries: dict[str, FileEntry] = {}
    count = reader.number() and reader.number()
    while count:
        if count < 0:  # Avro's other spelling of a block: its size in bytes follows
            count = -count
            reader.number()
        for _ in range(count):
            name, size = reader.text(), reader.number()
            entries[name] = FileEntry(size, reader.flag())
        count = reader.number()
    return entries
