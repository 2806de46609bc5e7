"""One number for a set of record keys: the sum of their hashes.

A file's footer carries the sum over the keys it holds, and whoever moved rows
from file to file can prove by addition that none was lost or doubled. The
hash is XXH64 with seed 0 of a key's UTF-8 bytes; sums wrap at 64 bits.

The kernel reads the bytes of an Arrow column in place. Its twin is the
`xxhash` library, to which the tests compare it key by key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.compiled import compiled

UInt64Array = npt.NDArray[np.uint64]

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)
_LANE_1_START = np.uint64(0x60EA27EEADC0B5D6)  # PRIME_1 + PRIME_2
_LANE_4_START = np.uint64(0x61C8864E7A143579)  # -PRIME_1


def key_hashes(keys: pa.Array | pa.ChunkedArray) -> UInt64Array:
    """Return the hash of every key.

    >>> [hex(code) for code in key_hashes(pa.array(["", "1"])).tolist()]
    ['0xef46db3751d8e999', '0xb7b41276360564d4']
    """
    chunks = keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]
    hashed = [_hashes(*_buffers(chunk)) for chunk in chunks if len(chunk)]
    return np.concatenate([np.empty(0, np.uint64), *hashed])


def key_hash_sum(keys: pa.Array | pa.ChunkedArray) -> int:
    """Return the sum of the keys' hashes, modulo 2**64.

    >>> key_hash_sum(pa.array(["a", "b"])) == key_hash_sum(pa.array(["b", "a"]))
    True
    """
    return int(key_hashes(keys).sum(dtype=np.uint64))


def _buffers(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    assert keys.null_count == 0, "a record without a key has no place in a table"
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        assert pa.types.is_string_view(keys.type) or pa.types.is_dictionary(keys.type), keys.type
        keys = keys.cast(pa.large_string())
    offset_type = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, offset_type)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    data.flags.writeable = False  # numba compiles anew for an array that can be written
    offsets.flags.writeable = False
    return data, offsets


@compiled()
def _hashes(data, offsets):  # type: ignore[no-untyped-def] # numba infers
    hashes = np.empty(len(offsets) - 1, np.uint64)
    for row in range(len(hashes)):
        hashes[row] = _xxh64(data, np.uint64(offsets[row]), np.uint64(offsets[row + 1]))
    return hashes


@compiled()
def _xxh64(data, start, stop):  # type: ignore[no-untyped-def] # numba infers
    """XXH64 with seed 0: four lanes of 32 bytes, then words, then bytes, then the final mix."""
    place = start
    if stop - start >= np.uint64(32):
        lane_1 = _LANE_1_START
        lane_2 = _PRIME_2
        lane_3 = np.uint64(0)
        lane_4 = _LANE_4_START
        while place + np.uint64(32) <= stop:
            lane_1 = _round(lane_1, _word(data, place))
            lane_2 = _round(lane_2, _word(data, place + np.uint64(8)))
            lane_3 = _round(lane_3, _word(data, place + np.uint64(16)))
            lane_4 = _round(lane_4, _word(data, place + np.uint64(24)))
            place += np.uint64(32)
        mixed = _rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18)
        mixed = _merge(mixed, lane_1)
        mixed = _merge(mixed, lane_2)
        mixed = _merge(mixed, lane_3)
        mixed = _merge(mixed, lane_4)
    else:
        mixed = _PRIME_5
    mixed += stop - start
    while place + np.uint64(8) <= stop:
        mixed = _rotate(mixed ^ _round(np.uint64(0), _word(data, place)), 27) * _PRIME_1 + _PRIME_4
        place += np.uint64(8)
    if place + np.uint64(4) <= stop:
        mixed = _rotate(mixed ^ _half_word(data, place) * _PRIME_1, 23) * _PRIME_2 + _PRIME_3
        place += np.uint64(4)
    while place < stop:
        mixed = _rotate(mixed ^ np.uint64(data[place]) * _PRIME_5, 11) * _PRIME_1
        place += np.uint64(1)
    mixed = (mixed ^ mixed >> np.uint64(33)) * _PRIME_2
    mixed = (mixed ^ mixed >> np.uint64(29)) * _PRIME_3
    return mixed ^ mixed >> np.uint64(32)


@compiled()
def _round(lane, word):  # type: ignore[no-untyped-def] # numba infers
    return _rotate(lane + word * _PRIME_2, 31) * _PRIME_1


@compiled()
def _merge(mixed, lane):  # type: ignore[no-untyped-def] # numba infers
    return (mixed ^ _round(np.uint64(0), lane)) * _PRIME_1 + _PRIME_4


@compiled()
def _rotate(word, bits):  # type: ignore[no-untyped-def] # numba infers
    return word << np.uint64(bits) | word >> np.uint64(64 - bits)


@compiled()
def _half_word(data, place):  # type: ignore[no-untyped-def] # numba infers
    low = np.uint64(data[place]) | np.uint64(data[place + np.uint64(1)]) << np.uint64(8)
    high = np.uint64(data[place + np.uint64(2)]) | np.uint64(data[place + np.uint64(3)]) << np.uint64(8)
    return low | high << np.uint64(16)


@compiled()
def _word(data, place):  # type: ignore[no-untyped-def] # numba infers
    return _half_word(data, place) | _half_word(data, place + np.uint64(4)) << np.uint64(32)
