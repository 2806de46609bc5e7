"""The loops that run once per record.

    record := int32 key length, int32 value length, cell key, value, vint
    cell key := int16 length, key, then at least ten bytes: family, qualifier, timestamp, type

`twin` says the same for people. A block is parsed once, into a line of `spans` per record: where its key starts and
stops, where its value starts and stops. `parse_block` checks every length; the other loops read only what it found,
so nothing is read beyond the end of a block, whatever its bytes say.

Columns are passed as `data, offsets` (`columns.ByteColumn`).
"""

from __future__ import annotations

import numpy as np

from bucketlake.compiled import compiled, copy_bytes

RECORD_OVERHEAD = 21
"""Bytes of a record beside its key and its value."""

KEY_START, KEY_STOP, VALUE_START, VALUE_STOP = range(4)

_CELL_TAIL = 10
_WORD = 8


@compiled()
def _differ_at(left, left_start, right, right_start, size):  # type: ignore[no-untyped-def] # numba infers
    """Return how many of `size` bytes agree before the first that differs."""
    at = 0
    while at + _WORD <= size and _word(left, left_start + at) == _word(right, right_start + at):
        at += _WORD
    while at < size and left[left_start + at] == right[right_start + at]:
        at += 1
    return at


@compiled()
def _word(data, at):  # type: ignore[no-untyped-def] # numba infers
    """Read eight bytes as one number, the first as its highest; spelled out, the compiler makes it one load."""
    return (
        np.uint64(data[at]) << np.uint64(56)
        | np.uint64(data[at + 1]) << np.uint64(48)
        | np.uint64(data[at + 2]) << np.uint64(40)
        | np.uint64(data[at + 3]) << np.uint64(32)
        | np.uint64(data[at + 4]) << np.uint64(24)
        | np.uint64(data[at + 5]) << np.uint64(16)
        | np.uint64(data[at + 6]) << np.uint64(8)
        | np.uint64(data[at + 7])
    )


@compiled()
def _compare(left, left_start, left_stop, right, right_start, right_stop):  # type: ignore[no-untyped-def]
    """Compare as unsigned bytes: negative, zero or positive."""
    size = min(left_stop - left_start, right_stop - right_start)
    at = 0
    while at + _WORD <= size:
        left_word = _word(left, left_start + at)
        right_word = _word(right, right_start + at)
        if left_word != right_word:
            return np.int64(1) if left_word > right_word else np.int64(-1)
        at += _WORD
    while at < size:
        if left[left_start + at] != right[right_start + at]:
            return np.int64(left[left_start + at]) - np.int64(right[right_start + at])
        at += 1
    return np.int64(left_stop - left_start) - np.int64(right_stop - right_start)


@compiled()
def _starts_with(data, start, stop, prefix, prefix_start, prefix_stop):  # type: ignore[no-untyped-def]
    size = prefix_stop - prefix_start
    return stop - start >= size and _differ_at(data, start, prefix, prefix_start, size) == size


@compiled()
def first_descent(data, offsets, is_strict):  # type: ignore[no-untyped-def]
    """Return the first key that is below the one before it, or equal to it if `is_strict`; -1 if none is."""
    for row in range(1, len(offsets) - 1):
        order = _compare(data, offsets[row - 1], offsets[row], data, offsets[row], offsets[row + 1])
        if order > 0 or (is_strict and order == 0):
            return row
    return -1


# --------------------------------------------------------------------------------------------- records to bytes


@compiled()
def cut_blocks(key_offsets, codes, value_offsets, block_bytes, starts):  # type: ignore[no-untyped-def]
    """Fill `starts` with the first record of every block.

    A block is closed before the record that would make it larger than `block_bytes`. Record `i` has value
    `codes[i]`, or value `i` if there are no codes. Return how many blocks there are, the bytes of the largest,
    those of all, and those of all values.
    """
    count = 0
    size = 0
    largest = 0
    total = 0
    of_values = 0
    for row in range(len(key_offsets) - 1):
        code = codes[row] if len(codes) else row
        value_size = value_offsets[code + 1] - value_offsets[code]
        length = RECORD_OVERHEAD + key_offsets[row + 1] - key_offsets[row] + value_size
        if row == 0 or size + length > block_bytes:
            starts[count] = row
            count += 1
            size = 0
        size += length
        largest = max(largest, size)
        total += length
        of_values += value_size
    return count, largest, total, of_values


@compiled()
def put_records(  # type: ignore[no-untyped-def]
    key_data, key_offsets, codes, value_data, value_offsets, start, stop, block
):
    """Write records `start` to `stop` into `block`, which is large enough; return where they end."""
    at = 0
    for row in range(start, stop):
        code = codes[row] if len(codes) else row
        key_size = key_offsets[row + 1] - key_offsets[row]
        value_size = value_offsets[code + 1] - value_offsets[code]
        _put_int32(block, at, key_size + 2 + _CELL_TAIL)
        _put_int32(block, at + 4, value_size)
        block[at + 8] = np.uint8(key_size >> 8)
        block[at + 9] = np.uint8(key_size & 0xFF)
        at += 10
        copy_bytes(block, at, key_data, key_offsets[row], key_size)
        at += key_size
        # No family, the largest timestamp, a put.
        block[at] = np.uint8(0)
        block[at + 1] = np.uint8(0x7F)
        for byte in range(2, 9):
            block[at + byte] = np.uint8(0xFF)
        block[at + 9] = np.uint8(4)
        at += _CELL_TAIL
        copy_bytes(block, at, value_data, value_offsets[code], value_size)
        at += value_size
        block[at] = np.uint8(0)
        at += 1
    return at


@compiled()
def _put_int32(block, at, number):  # type: ignore[no-untyped-def]
    block[at] = np.uint8(number >> 24)
    block[at + 1] = np.uint8(number >> 16 & 0xFF)
    block[at + 2] = np.uint8(number >> 8 & 0xFF)
    block[at + 3] = np.uint8(number & 0xFF)


# --------------------------------------------------------------------------------------------- bytes to records


@compiled()
def parse_block(block, spans):  # type: ignore[no-untyped-def]
    """Fill a line of `spans` per record; return the number of records, the bytes of their keys and their values.

    A number of -1 says that the record at the position that comes with it cannot be.
    """
    size = np.int64(len(block))
    at = np.int64(0)
    count = 0
    key_bytes = np.int64(0)
    value_bytes = np.int64(0)
    while at < size:
        record = at
        if size - at < RECORD_OVERHEAD:
            return -1, record, 0
        cell_size = _int32(block, at)
        value_size = _int32(block, at + 4)
        key_size = np.int64(np.int16(np.uint16(block[at + 8]) << np.uint16(8) | np.uint16(block[at + 9])))
        at += 8
        if cell_size > size - at - 1 or key_size < 0 or key_size > cell_size - 2 - _CELL_TAIL:
            return -1, record, 0
        spans[count, KEY_START] = at + 2
        spans[count, KEY_STOP] = at + 2 + key_size
        at += cell_size
        if value_size < 0 or value_size > size - at - 1:
            return -1, record, 0
        spans[count, VALUE_START] = at
        at += value_size
        spans[count, VALUE_STOP] = at
        # A Hadoop vint of HBase's: one byte, or one that says how many follow.
        first = np.int64(np.int8(block[at]))
        at += 1
        if first < -112:
            at += -112 - first if first >= -120 else -120 - first
            if at > size:
                return -1, record, 0
        count += 1
        key_bytes += key_size
        value_bytes += value_size
    return count, key_bytes, value_bytes


@compiled()
def _int32(block, at):  # type: ignore[no-untyped-def]
    return np.int64(
        np.int32(
            np.uint32(block[at]) << np.uint32(24)
            | np.uint32(block[at + 1]) << np.uint32(16)
            | np.uint32(block[at + 2]) << np.uint32(8)
            | np.uint32(block[at + 3])
        )
    )


@compiled()
def gather(block, spans, chosen, part, data, offsets, row, size):  # type: ignore[no-untyped-def]
    """Append the keys (`part` KEY_START) or values (VALUE_START) of the chosen records to a column.

    The column has `row` strings of `size` bytes, and memory enough.
    """
    for number in range(len(chosen)):
        start = np.int64(spans[chosen[number], part])
        length = np.int64(spans[chosen[number], part + 1]) - start
        copy_bytes(data, size, block, start, length)
        size += length
        row += 1
        offsets[row] = size


# --------------------------------------------------------------------------------------------------- searching


@compiled()
def find_blocks(index_data, index_offsets, data, offsets, blocks):  # type: ignore[no-untyped-def]
    """Fill `blocks` with the one block that can hold each of the ascending keys; -1 if none can."""
    last = len(index_offsets) - 2
    block = -1
    for row in range(len(offsets) - 1):
        while (
            block < last
            and _compare(
                index_data,
                index_offsets[block + 1],
                index_offsets[block + 2],
                data,
                offsets[row],
                offsets[row + 1],
            )
            <= 0
        ):
            block += 1
        blocks[row] = block


@compiled()
def match_keys(block, spans, count, data, offsets, start, stop, rows, records):  # type: ignore[no-untyped-def]
    """Find the ascending keys `start` to `stop` in a block.

    Fill `rows` with those that are there and `records` with the record of each; return how many, and the bytes of
    their values.
    """
    found = 0
    size = 0
    row = start
    record = 0
    while row < stop and record < count:
        order = _compare(
            block, spans[record, KEY_START], spans[record, KEY_STOP], data, offsets[row], offsets[row + 1]
        )
        if order < 0:
            record += 1
        else:
            if order == 0:
                rows[found] = row
                records[found] = record
                found += 1
                size += spans[record, VALUE_STOP] - spans[record, VALUE_START]
            row += 1
    return found, size


@compiled()
def find_prefix_blocks(index_data, index_offsets, data, offsets, is_wanted):  # type: ignore[no-untyped-def]
    """Mark the blocks that can hold a key that starts with one of the ascending prefixes."""
    count = len(index_offsets) - 1
    block = -1
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        while (
            block + 1 < count
            and _compare(index_data, index_offsets[block + 1], index_offsets[block + 2], data, start, stop)
            <= 0
        ):
            block += 1
        if block >= 0:
            is_wanted[block] = True
        after = block + 1
        while after < count and _starts_with(
            index_data, index_offsets[after], index_offsets[after + 1], data, start, stop
        ):
            is_wanted[after] = True
            after += 1


@compiled()
def mark_shortest(data, offsets, is_kept):  # type: ignore[no-untyped-def]
    """Mark, of ascending prefixes, those that start with no other one."""
    last = -1
    for row in range(len(offsets) - 1):
        is_kept[row] = last < 0 or not _starts_with(
            data, offsets[row], offsets[row + 1], data, offsets[last], offsets[last + 1]
        )
        if is_kept[row]:
            last = row


@compiled()
def match_prefixes(block, spans, count, data, offsets, records):  # type: ignore[no-untyped-def]
    """Fill `records` with those whose key starts with a prefix; return how many, the bytes of keys and of values.

    Prefixes ascend and none starts with another. So only the last that is not above a key can be its prefix.
    """
    found = 0
    key_bytes = 0
    value_bytes = 0
    for record in range(count):
        start, stop = spans[record, KEY_START], spans[record, KEY_STOP]
        low, high = 0, len(offsets) - 1
        while low < high:
            middle = (low + high) // 2
            if _compare(data, offsets[middle], offsets[middle + 1], block, start, stop) <= 0:
                low = middle + 1
            else:
                high = middle
        if low > 0 and _starts_with(block, start, stop, data, offsets[low - 1], offsets[low]):
            records[found] = record
            found += 1
            key_bytes += stop - start
            value_bytes += spans[record, VALUE_STOP] - spans[record, VALUE_START]
    return found, key_bytes, value_bytes


# ----------------------------------------------------------------------------------------------------- sorting


@compiled()
def common_prefix(data, offsets):  # type: ignore[no-untyped-def]
    """Return how many bytes all strings begin with alike."""
    if len(offsets) < 2:
        return np.int64(0)
    first = offsets[0]
    size = offsets[1] - first
    for row in range(1, len(offsets) - 1):
        size = _differ_at(data, first, data, offsets[row], min(size, offsets[row + 1] - offsets[row]))
        if size == 0:
            break
    return np.int64(size)


@compiled()
def put_words(data, offsets, skipped, words):  # type: ignore[no-untyped-def]
    """Fill `words` with the eight bytes of each string after those skipped, zeros where it has ended."""
    for row in range(len(offsets) - 1):
        start, stop = offsets[row] + skipped, offsets[row + 1]
        if stop - start >= _WORD:
            words[row] = _word(data, start)
        else:
            word = np.uint64(0)
            for byte in range(_WORD):
                word <<= np.uint64(8)
                if start + byte < stop:
                    word |= np.uint64(data[start + byte])
            words[row] = word


@compiled()
def settle_ties(data, offsets, words, order, run_max):  # type: ignore[no-untyped-def]
    """Put rows of equal words, which are together in `order`, in the order of their strings, equal ones by number.

    Return False, with some left to do, if more than `run_max` rows have one word.
    """
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and words[order[stop]] == words[order[start]]:
            stop += 1
        if stop - start > run_max:
            return False
        for place in range(start + 1, stop):
            row = order[place]
            while place > start:
                other = order[place - 1]
                compared = _compare(
                    data, offsets[other], offsets[other + 1], data, offsets[row], offsets[row + 1]
                )
                if compared < 0 or (compared == 0 and other < row):
                    break
                order[place] = other
                place -= 1
            order[place] = row
        start = stop
    return True
