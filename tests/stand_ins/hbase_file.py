"""HFiles as others write them: in any order of keys, with more in a record than we put there, with levels of index.

HBase's writer gives a record a family, a qualifier, a timestamp and a version number, verifies its blocks by
checksums, and puts an index over the index of a large file. Hudi's writer sorts keys as Java sorts strings.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketlake.hfile import Codec
from bucketlake.hfile.trailer import Trailer, encode_info, encode_trailer
from bucketlake.hfile.twin import Record
from bucketlake.hfile.wire import put_vint

CHUNK_BYTES = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class HbaseStyle:
    """What may differ from file to file."""

    codec: Codec = Codec.GZIP
    block_records: int = 3
    fan_out: int = 2
    """Entries of an index block."""

    levels: int = 1
    family: bytes = b""
    qualifier: bytes = b""
    timestamp: int = (1 << 63) - 1
    version: bytes = b"\0"
    """A vint."""

    shortens_keys: bool = False
    """Whether the index has the shortest key that divides a block from the one before it."""

    meta: Mapping[bytes, bytes] | None = None


def hbase_file(
    records: Sequence[Record], style: HbaseStyle | None = None, info: Mapping[str, bytes] | None = None
) -> bytes:
    style = style or HbaseStyle()
    file = bytearray()
    entries: list[tuple[int, int, bytes]] = []
    before = b""
    for start in range(0, len(records), style.block_records):
        chosen = records[start : start + style.block_records]
        key = chosen[0][0]
        if style.shortens_keys and start:
            key = next(key[:size] for size in range(len(key) + 1) if key[:size] > before)
        before = chosen[-1][0]
        payload = b"".join(_record(record, style) for record in chosen)
        entries.append((*_append(file, b"DATABLK*", payload, style), _cell_key(key, style)))
    levels = 1
    while levels < style.levels and entries:
        magic = b"IDXLEAF2" if levels == 1 else b"IDXINTE2"
        above = []
        for start in range(0, len(entries), style.fan_out):
            chosen = entries[start : start + style.fan_out]
            above.append((*_append(file, magic, _leaf(chosen), style), chosen[0][2]))
        entries = above
        levels += 1
    meta = [(*_append(file, b"METABLKc", text, style), name) for name, text in (style.meta or {}).items()]
    load_on_open_at = len(file)
    middle = struct.pack(">qii", *entries[0][:2], 0) if levels > 1 else b""
    _append(file, b"IDXROOT2", _root(entries) + middle, style)
    _append(file, b"IDXROOT2", _root(meta), style)
    file_info_at = len(file)
    _append(file, b"FILEINF2", encode_info({"hfile.COMPARATOR": b"x", **(info or {})}), style)
    file += encode_trailer(
        Trailer(
            load_on_open_at=load_on_open_at,
            file_info_at=file_info_at,
            data_index_count=len(entries),
            meta_index_count=len(meta),
            entry_count=len(records),
            index_levels=levels,
            codec=style.codec,
        )
    )
    return bytes(file)


def _cell_key(key: bytes, style: HbaseStyle) -> bytes:
    cell = struct.pack(">h", len(key)) + key + bytes([len(style.family)]) + style.family + style.qualifier
    return cell + struct.pack(">qb", style.timestamp, 4)


def _record(record: Record, style: HbaseStyle) -> bytes:
    key, value = record
    cell = _cell_key(key, style)
    return struct.pack(">ii", len(cell), len(value)) + cell + value + style.version


def _append(file: bytearray, magic: bytes, payload: bytes, style: HbaseStyle) -> tuple[int, int]:
    stored = gzip.compress(payload, mtime=0) if style.codec is Codec.GZIP else payload
    size = 33 + len(stored)
    checksums = b"\xab" * (4 * -(-size // CHUNK_BYTES))
    start = len(file)
    file += struct.pack(
        ">8siiqbii", magic, len(stored) + len(checksums), len(payload), start, 1, CHUNK_BYTES, size
    )
    file += stored + checksums
    return start, len(file) - start


def _root(entries: Sequence[tuple[int, int, bytes]]) -> bytes:
    return b"".join(
        struct.pack(">qi", offset, size) + put_vint(len(key)) + key for offset, size, key in entries
    )


def _leaf(entries: Sequence[tuple[int, int, bytes]]) -> bytes:
    parts = [struct.pack(">qi", offset, size) + key for offset, size, key in entries]
    starts = [sum(map(len, parts[:number])) for number in range(len(parts) + 1)]
    return struct.pack(f">i{len(starts)}i", len(parts), *starts) + b"".join(parts)
