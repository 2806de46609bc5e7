"""Record keys -> buckets and ring hashes, a column at a time.

The twin of `hashing`, over the UTF-8 bytes of an Arrow column and with no Python object per record. Both
separators are ASCII, so keys are cut without decoding them; characters are turned into UTF-16 units only
inside `String.hashCode`. A null key has no bucket: it gives -1, and it is the caller who knows whether that
may be.

numba computes in 64 bits what two 32-bit numbers make; every `np.uint32(...)` here is the wrap-around of
Java's `int`, not a conversion for its own sake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.compiled import compiled
from bucketlake.keygen import EMPTY_PIECE, NULL_PIECE

Int32Array = npt.NDArray[np.int32]

_COMMA = ord(",")
_COLON = ord(":")
_NULL_PIECE = np.frombuffer(NULL_PIECE.encode(), np.uint8)
_EMPTY_PIECE = np.frombuffer(EMPTY_PIECE.encode(), np.uint8)
_PRIME_1 = np.uint32(2654435761)
_PRIME_2 = np.uint32(2246822519)
_PRIME_3 = np.uint32(3266489917)
_PRIME_4 = np.uint32(668265263)
_PRIME_5 = np.uint32(374761393)


def buckets_of(
    record_keys: pa.Array | pa.ChunkedArray, hash_fields: Collection[str], count: int
) -> Int32Array:
    """Return the bucket of every record key, as `bucket_of(hash_pieces(key, hash_fields), count)` would.

    >>> buckets_of(pa.array(["1", "k1:a,k2:b"]), ["k1"], 4).tolist()
    [0, 0]
    """
    assert count > 0
    names, ends = _packed(hash_fields)
    return _by_chunk(
        record_keys, lambda data, offsets, valid: _buckets(data, offsets, valid, names, ends, np.int64(count))
    )


def ring_hashes_of(record_keys: pa.Array | pa.ChunkedArray, hash_fields: Collection[str]) -> Int32Array:
    """Return the place on the ring of every record key, as `ring_hash_of(hash_pieces(...))` would.

    >>> ring_hashes_of(pa.array(["1"]), ["id"]).tolist()
    [921487538]
    """
    names, ends = _packed(hash_fields)
    return _by_chunk(
        record_keys, lambda data, offsets, valid: _ring_hashes(data, offsets, valid, names, ends)
    )


def shards_of(record_keys: pa.Array | pa.ChunkedArray, count: int) -> Int32Array:
    """Return the shard of every record key, as `shard_of(key, count)` would.

    >>> shards_of(pa.array(["k00001", "key-42"]), 10).tolist()
    [8, 0]
    """
    assert count > 0
    return _by_chunk(record_keys, lambda data, offsets, valid: _shards(data, offsets, valid, np.int64(count)))


def _packed(hash_fields: Collection[str]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Lay the field names end to end; numba reads flat arrays faster than it reads lists of bytes."""
    encoded = [field.encode("utf-8") for field in sorted(set(hash_fields) - {""})]
    names = np.frombuffer(b"".join(encoded), np.uint8)
    return names, np.cumsum([len(name) for name in encoded], dtype=np.int64)


def _by_chunk(record_keys: Any, kernel: Callable[[Any, Any, Any], Int32Array]) -> Int32Array:
    chunks = record_keys.chunks if isinstance(record_keys, pa.ChunkedArray) else [record_keys]
    hashed = [kernel(*_buffers(chunk)) for chunk in chunks if len(chunk)]
    if len(hashed) == 1:
        return hashed[0]
    return np.concatenate([np.empty(0, np.int32), *hashed])


def _buffers(keys: Any) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return bytes, offsets and validity of one array, as views wherever Arrow's layout allows it."""
    if pa.types.is_dictionary(keys.type):
        keys = keys.dictionary_decode()
    if not (pa.types.is_string(keys.type) or pa.types.is_large_string(keys.type)):
        assert pa.types.is_null(keys.type) or pa.types.is_string_view(keys.type), f"keys of type {keys.type}"
        keys = keys.cast(pa.large_string())
    valid = np.empty(0, np.bool_)
    if keys.null_count:
        valid = keys.is_valid().to_numpy(zero_copy_only=False)
    offset_type = np.int64 if pa.types.is_large_string(keys.type) else np.int32
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, offset_type)[keys.offset : keys.offset + len(keys) + 1]
    # Read-only like a buffer of Arrow's: numba compiles anew for an array that can be written.
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    return data, offsets, valid


@compiled()
def _buckets(data, offsets, valid, names, ends, count):  # type: ignore[no-untyped-def] # numba infers
    buckets = np.empty(len(offsets) - 1, np.int32)
    for row in range(len(buckets)):
        if len(valid) and not valid[row]:
            buckets[row] = -1
            continue
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        # Most keys are ASCII and have one field: hash in the same pass that looks for what would tell
        # otherwise.
        whole = np.uint32(0)
        seen = np.uint8(0)
        commas = False
        colons = False
        for place in range(start, stop):
            byte = data[place]
            whole = np.uint32(31 * whole + byte)
            seen |= byte
            commas |= byte == _COMMA
            colons |= byte == _COLON
        if commas and colons:
            list_hash = _list_hash(data, start, stop, names, ends)
        elif seen < 0x80:
            list_hash = np.uint32(31 + whole)
        else:
            list_hash = np.uint32(31 + _string_hash(data, start, stop))
        buckets[row] = np.int64(list_hash & np.uint32(0x7FFFFFFF)) % count
    return buckets


@compiled()
def _shards(data, offsets, valid, count):  # type: ignore[no-untyped-def] # numba infers
    shards = np.empty(len(offsets) - 1, np.int32)
    for row in range(len(shards)):
        if len(valid) and not valid[row]:
            shards[row] = -1
            continue
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        whole = np.uint32(0)
        seen = np.uint8(0)
        for place in range(start, stop):
            byte = data[place]
            whole = np.uint32(31 * whole + byte)
            seen |= byte
        if seen >= 0x80:
            whole = np.uint32(_string_hash(data, start, stop))
        size = np.int64(whole)
        if size > 0x80000000:
            size = 0x100000000 - size
        shards[row] = size % count
    return shards


@compiled()
def _ring_hashes(data, offsets, valid, names, ends):  # type: ignore[no-untyped-def] # numba infers
    hashes = np.empty(len(offsets) - 1, np.int32)
    longest = np.int64(0)
    for row in range(len(hashes)):
        longest = max(longest, np.int64(offsets[row + 1]) - np.int64(offsets[row]))
    # The pieces joined are never longer than their key: `null` is shorter than its placeholder.
    joined = np.empty(longest, np.uint8)
    for row in range(len(hashes)):
        if len(valid) and not valid[row]:
            hashes[row] = -1
            continue
        start, stop = np.int64(offsets[row]), np.int64(offsets[row + 1])
        commas = False
        colons = False
        for place in range(start, stop):
            commas |= data[place] == _COMMA
            colons |= data[place] == _COLON
        if commas and colons:
            length = _join_pieces(data, start, stop, names, ends, joined)
            ring_hash = _xxh32(joined, 0, length)
        else:
            ring_hash = _xxh32(data, start, stop)
        hashes[row] = np.int32(ring_hash & np.uint32(0x7FFFFFFF))
    return hashes


@compiled()
def _list_hash(data, start, stop, names, ends):  # type: ignore[no-untyped-def] # numba infers
    key_start = start
    list_hash = np.uint32(1)
    found = False
    while start < stop:
        colon = _find(data, _COLON, start, stop)
        end = _value_end(data, colon, stop)
        if _is_hash_field(data, start, colon, names, ends):
            found = True
            piece_hash = np.uint32(0)
            if not _equal(data, colon + 1, end, _NULL_PIECE) and not _equal(
                data, colon + 1, end, _EMPTY_PIECE
            ):
                piece_hash = _string_hash(data, colon + 1, end)
            list_hash = np.uint32(31 * list_hash + piece_hash)
        if end == stop:
            break
        start = end + 1
    if not found:
        list_hash = np.uint32(31 + _string_hash(data, key_start, stop))
    return list_hash


@compiled()
def _join_pieces(data, start, stop, names, ends, joined):  # type: ignore[no-untyped-def] # numba infers
    key_start = start
    length = 0
    found = False
    while start < stop:
        colon = _find(data, _COLON, start, stop)
        end = _value_end(data, colon, stop)
        if _is_hash_field(data, start, colon, names, ends):
            found = True
            if _equal(data, colon + 1, end, _NULL_PIECE):
                for place in range(2, 6):  # the letters of `__null__`
                    joined[length] = _NULL_PIECE[place]
                    length += 1
            elif not _equal(data, colon + 1, end, _EMPTY_PIECE):
                for place in range(colon + 1, end):
                    joined[length] = data[place]
                    length += 1
        if end == stop:
            break
        start = end + 1
    if not found:
        for place in range(key_start, stop):
            joined[length] = data[place]
            length += 1
    return length


@compiled()
def _find(data, byte, start, stop):  # type: ignore[no-untyped-def] # numba infers
    for place in range(start, stop):
        if data[place] == byte:
            return place
    return stop


@compiled()
def _value_end(data, colon, stop):  # type: ignore[no-untyped-def] # numba infers
    comma = -1
    for place in range(colon + 1, stop):
        if data[place] == _COMMA:
            comma = place
        elif data[place] == _COLON and comma >= 0:
            return comma
    return stop


@compiled()
def _is_hash_field(data, start, stop, names, ends):  # type: ignore[no-untyped-def] # numba infers
    if len(ends) == 0:
        return True
    begin = np.int64(0)
    for end in ends:
        if _equal(data, start, stop, names[begin:end]):
            return True
        begin = end
    return False


@compiled()
def _equal(data, start, stop, text):  # type: ignore[no-untyped-def] # numba infers
    if stop - start != len(text):
        return False
    for place in range(len(text)):  # noqa: SIM110 # numba compiles loops better than generators
        if data[start + place] != text[place]:
            return False
    return True


@compiled()
def _string_hash(data, start, stop):  # type: ignore[no-untyped-def] # numba infers
    """`String.hashCode` of UTF-8 bytes: each character as its one or two UTF-16 units."""
    string_hash = np.uint32(0)
    place = start
    while place < stop:
        lead = np.uint32(data[place])
        if lead < 0x80:
            string_hash = np.uint32(31 * string_hash + lead)
            place += 1
        elif lead < 0xE0:
            unit = (lead & np.uint32(0x1F)) << np.uint32(6) | _tail(data, place + 1)
            string_hash = np.uint32(31 * string_hash + unit)
            place += 2
        elif lead < 0xF0:
            unit = (lead & np.uint32(0x0F)) << np.uint32(12) | _tail(data, place + 1) << np.uint32(6)
            string_hash = np.uint32(31 * string_hash + (unit | _tail(data, place + 2)))
            place += 3
        else:
            character = (lead & np.uint32(0x07)) << np.uint32(18) | _tail(data, place + 1) << np.uint32(12)
            character |= _tail(data, place + 2) << np.uint32(6) | _tail(data, place + 3)
            character -= np.uint32(0x10000)
            high = np.uint32(0xD800) + (character >> np.uint32(10))
            low = np.uint32(0xDC00) + (character & np.uint32(0x3FF))
            string_hash = np.uint32(31 * np.uint32(31 * string_hash + high) + low)
            place += 4
    return string_hash


@compiled()
def _tail(data, place):  # type: ignore[no-untyped-def] # numba infers
    return np.uint32(data[place]) & np.uint32(0x3F)


@compiled()
def _xxh32(data, start, stop):  # type: ignore[no-untyped-def] # numba infers
    """XXH32 with seed 0: four lanes of 16 bytes, then words, then bytes, then the final mix."""
    length = stop - start
    place = start
    if length >= 16:
        lane_1 = np.uint32(_PRIME_1 + _PRIME_2)
        lane_2 = _PRIME_2
        lane_3 = np.uint32(0)
        lane_4 = np.uint32(0 - _PRIME_1)
        while place + 16 <= stop:
            lane_1 = _round(lane_1, _word(data, place))
            lane_2 = _round(lane_2, _word(data, place + 4))
            lane_3 = _round(lane_3, _word(data, place + 8))
            lane_4 = _round(lane_4, _word(data, place + 12))
            place += 16
        mixed = np.uint32(_rotate(lane_1, 1) + _rotate(lane_2, 7) + _rotate(lane_3, 12) + _rotate(lane_4, 18))
    else:
        mixed = _PRIME_5
    mixed = np.uint32(mixed + length)
    while place + 4 <= stop:
        mixed = np.uint32(_rotate(np.uint32(mixed + _word(data, place) * _PRIME_3), 17) * _PRIME_4)
        place += 4
    while place < stop:
        mixed = np.uint32(_rotate(np.uint32(mixed + data[place] * _PRIME_5), 11) * _PRIME_1)
        place += 1
    mixed = np.uint32((mixed ^ mixed >> np.uint32(15)) * _PRIME_2)
    mixed = np.uint32((mixed ^ mixed >> np.uint32(13)) * _PRIME_3)
    return mixed ^ mixed >> np.uint32(16)


@compiled()
def _round(lane, word):  # type: ignore[no-untyped-def] # numba infers
    return np.uint32(_rotate(np.uint32(lane + word * _PRIME_2), 13) * _PRIME_1)


@compiled()
def _rotate(word, bits):  # type: ignore[no-untyped-def] # numba infers
    return np.uint32(word << np.uint32(bits)) | np.uint32(word >> np.uint32(32 - bits))


@compiled()
def _word(data, place):  # type: ignore[no-untyped-def] # numba infers
    low = np.uint32(data[place]) | np.uint32(data[place + 1]) << np.uint32(8)
    return low | np.uint32(data[place + 2]) << np.uint32(16) | np.uint32(data[place + 3]) << np.uint32(24)
