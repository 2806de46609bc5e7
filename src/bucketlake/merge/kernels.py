"""The loops that run once per record: a hash table of keys, and the fold over the logs.

Compiled by numba on first use and cached on disk. Every other module of this
package works on whole columns. What the loops compute is written a second
time, for people, in `twin`.

Record keys are passed as Arrow holds them: key `i` is
`data[offsets[i]:offsets[i + 1]]`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bucketlake.compiled import compiled

RECORD, ROW_DELETE, BLOCK_DELETE = 0, 1, 2
"""What a log entry is: a row, a row that says it is a delete, an entry of a delete block."""

_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_LOW_HALF = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_WORD = np.uint64(8)


@compiled()
def _word(data: npt.NDArray[np.uint8], at: np.uint64) -> np.uint64:
    """Read eight bytes as one number; spelled out, the compiler makes it one load."""
    return np.uint64(
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@compiled()
def _hash(data: npt.NDArray[np.uint8], start: np.uint64, stop: np.uint64) -> np.uint64:
    """Hash a key eight bytes a step; it only has to agree with itself inside one process."""
    state = (stop - start) * _SPREAD
    if stop - start >= _WORD:
        at = start
        while at + _WORD < stop:
            state = (state ^ _word(data, at)) * _MIX
            state ^= state >> _HALF
            at += _WORD
        state = (state ^ _word(data, stop - _WORD)) * _MIX  # may overlap the step before
    else:
        for byte in range(start, stop):
            state = (state ^ np.uint64(data[np.uint64(byte)])) * _MIX
    state ^= state >> _HALF
    state *= _SPREAD
    return state ^ (state >> np.uint64(29))


@compiled()
def _same(
    data: npt.NDArray[np.uint8],
    start: np.uint64,
    stop: np.uint64,
    other: npt.NDArray[np.uint8],
    other_start: np.uint64,
    other_stop: np.uint64,
) -> bool:
    """Compare two keys whose hashes agree: no early exit, for the bytes nearly always agree too."""
    size = stop - start
    if size != other_stop - other_start:
        return False
    difference = np.uint64(0)
    if size >= _WORD:
        at = np.uint64(0)
        while at + _WORD < size:
            difference |= _word(data, start + at) ^ _word(other, other_start + at)
            at += _WORD
        difference |= _word(data, stop - _WORD) ^ _word(other, other_stop - _WORD)
    else:
        for byte in range(size):
            at = np.uint64(byte)
            difference |= np.uint64(data[start + at] ^ other[other_start + at])
    return bool(difference == np.uint64(0))


@compiled()
def number_keys(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32],
    slots: npt.NDArray[np.uint64],
    numbers: npt.NDArray[np.int32],
) -> int:
    """Give equal keys one number, counted from 0 by first appearance; return how many there are.

    Fills `numbers`, per entry. `slots`, zeros on entry and of a power of two in
    length, is the open hash table: the upper half of a key's hash, then 1 + the
    first entry that has the key.
    """
    mask = np.uint64(len(slots) - 1)
    count = 0
    for entry in range(len(offsets) - 1):
        start, stop = np.uint64(offsets[entry]), np.uint64(offsets[entry + 1])
        code = _hash(data, start, stop)
        at = code & mask
        while True:
            slot = slots[at]
            if slot == 0:
                slots[at] = code & ~_LOW_HALF | np.uint64(entry + 1)
                numbers[entry] = count
                count += 1
                break
            if (slot ^ code) >> _HALF == 0:
                first = np.int64(slot & _LOW_HALF) - 1
                first_start, first_stop = np.uint64(offsets[first]), np.uint64(offsets[first + 1])
                if _same(data, start, stop, data, first_start, first_stop):
                    numbers[entry] = numbers[first]
                    break
            at = (at + np.uint64(1)) & mask
    return count


@compiled()
def match_keys(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int32],
    slots: npt.NDArray[np.uint64],
    numbers: npt.NDArray[np.int32],
    base_data: npt.NDArray[np.uint8],
    base_offsets: npt.NDArray[np.int32],
    met: npt.NDArray[np.bool_],
    found_rows: npt.NDArray[np.int64],
    found_numbers: npt.NDArray[np.int64],
) -> int:
    """Find the base rows whose key is in the table and was not met before; return how many.

    Fills `found_rows` and `found_numbers` side by side, and notes in `met` what was found.
    """
    mask = np.uint64(len(slots) - 1)
    # Hashing all keys first leaves a loop so short that the processor waits for
    # several slots at a time: the table is larger than its caches.
    codes = np.empty(len(base_offsets) - 1, dtype=np.uint64)
    for row in range(len(codes)):
        codes[row] = _hash(base_data, np.uint64(base_offsets[row]), np.uint64(base_offsets[row + 1]))
    found = 0
    for row in range(len(codes)):
        code = codes[row]
        at = code & mask
        slot = slots[at]
        while slot != 0:
            if (slot ^ code) >> _HALF == 0:
                first = np.int64(slot & _LOW_HALF) - 1
                start, stop = np.uint64(base_offsets[row]), np.uint64(base_offsets[row + 1])
                first_start, first_stop = np.uint64(offsets[first]), np.uint64(offsets[first + 1])
                if _same(base_data, start, stop, data, first_start, first_stop):
                    number = numbers[first]
                    if not met[number]:
                        met[number] = True
                        found_rows[found] = row
                        found_numbers[found] = number
                        found += 1
                    break
            at = (at + np.uint64(1)) & mask
            slot = slots[at]
    return found


@compiled()
def _compare(codes: npt.NDArray[np.int64], left: int, right: int) -> int:
    for field in range(codes.shape[0]):
        if codes[field, left] != codes[field, right]:
            return 1 if codes[field, left] > codes[field, right] else -1
    return 0


@compiled()
def _replaces(
    newer: int,
    older: int,
    kinds: npt.NDArray[np.uint8],
    undated: npt.NDArray[np.bool_],
    codes: npt.NDArray[np.int64],
    nulls: npt.NDArray[np.uint64],
) -> bool:
    """Tell whether log entry `newer` takes the place of `older`, in event time."""
    if kinds[newer] == BLOCK_DELETE:
        if undated[older]:
            return False
        # Hudi compares a delete block's value only if its class is that of the
        # existing one, and its null is of another class than a value.
        if undated[newer] or nulls[newer] != nulls[older]:
            return True
        return bool(_compare(codes, older, newer) <= 0)
    if undated[newer] or undated[older]:
        return True
    return bool(_compare(codes, newer, older) >= 0)


@compiled()
def fold(
    numbers: npt.NDArray[np.int32],
    kinds: npt.NDArray[np.uint8],
    undated: npt.NDArray[np.bool_],
    codes: npt.NDArray[np.int64],
    nulls: npt.NDArray[np.uint64],
    by_commit_time: bool,
    winners: npt.NDArray[np.int64],
) -> None:
    """Leave in `winners`, -1 on entry, the entry of every key that outlives the others."""
    for entry in range(len(numbers)):
        number = numbers[entry]
        older = winners[number]
        if older < 0 or by_commit_time or _replaces(entry, older, kinds, undated, codes, nulls):
            winners[number] = entry


@compiled()
def fold_pieces(
    numbers: npt.NDArray[np.int32],
    kinds: npt.NDArray[np.uint8],
    undated: npt.NDArray[np.bool_],
    codes: npt.NDArray[np.int64],
    nulls: npt.NDArray[np.uint64],
    by_commit_time: bool,
    blocks: npt.NDArray[np.int32],
    present: npt.NDArray[np.bool_],
    winners: npt.NDArray[np.int64],
    sources: npt.NDArray[np.int64],
) -> None:
    """Do as `fold`, and leave in `sources` where each column's value comes from.

    `present[block, column]` says which columns the block of an entry has. Of
    two records the winner keeps what it has and takes the rest from the other,
    also when the other is older news; a delete gives and takes nothing.
    """
    for entry in range(len(numbers)):
        number = numbers[entry]
        older = winners[number]
        has = present[blocks[entry]]
        is_first = older < 0
        if is_first or by_commit_time or _replaces(entry, older, kinds, undated, codes, nulls):
            winners[number] = entry
            starts_anew = is_first or kinds[older] != RECORD or kinds[entry] != RECORD
            for column in range(sources.shape[1]):
                if has[column]:
                    sources[number, column] = entry
                elif starts_anew:
                    sources[number, column] = -1
        elif kinds[older] == RECORD and kinds[entry] == RECORD:
            for column in range(sources.shape[1]):
                if sources[number, column] < 0 and has[column]:
                    sources[number, column] = entry
