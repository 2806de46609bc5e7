"""The loop over encoded bytes: an Avro schema as a program, columns as its output.

A program is a table of int64, one line per schema node in depth-first order:

    OP           kind of value (`AvroKind`)
    NEXT         line after this node's subtree
    BRANCHES     branches of the union around the value; 0 if there is none
    NULL_BRANCH  which of them is null; -1 if none
    SLOT         output column; -1 if nobody wants it
    ARG          bytes of a fixed, symbols of an enum

`run` is called twice over the same bytes. The first time it checks every
length and counts what each column will hold; the second time, with memory of
exactly that size, it writes. One function does both so that they can't
disagree. All columns share one piece of memory, the arena; a line of `slots`
says where a column's parts start, in bytes:

    VALIDITY     one bit per entry, all ones at the start; -1 if never null
    VALUES       numbers, packed booleans, or int32 offsets (one more than entries)
    DATA         bytes of text and binary

Nothing is read beyond the end of the bytes, whatever they say: the answer is
then a status other than OK, and the position at fault.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64, njit, types, uint8, uint32, uint64

from bucketlake.compiled import compiled, copy_bytes

OP, NEXT, BRANCHES, NULL_BRANCH, SLOT, ARG = range(6)
VALIDITY, VALUES, DATA = range(3)
ENTRIES, BYTES, NULLS = range(3)

OK = 0
TRUNCATED = 1
BAD_NUMBER = 2
BAD_LENGTH = 3
BAD_BRANCH = 4
BAD_BOOLEAN = 5
BAD_SYMBOL = 6
BAD_DECIMAL = 7
BAD_RECORD_LENGTH = 8

# The values of AvroKind, as constants the compiler can see.
_BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES, _FIXED = 0, 1, 2, 3, 4, 5, 6
_ENUM, _DECIMAL_BYTES, _DECIMAL_FIXED, _RECORD, _ARRAY, _MAP, _UNION = 7, 8, 9, 10, 11, 12, 13

_READ_ONLY_BYTES = types.Array(uint8, 1, "C", readonly=True)


@njit(nogil=True)
def _varint(data, position, stop):  # type: ignore[no-untyped-def]  # numba infers
    """Read a zigzag number; a position of -1 says there is none."""
    bits = uint64(0)
    shift = uint64(0)
    while position < stop and shift < uint64(70):
        byte = data[position]
        position += 1
        bits |= uint64(byte & uint8(0x7F)) << shift
        if byte < 0x80:
            return int64(bits >> uint64(1)) ^ -int64(bits & uint64(1)), position
        shift += uint64(7)
    return int64(0), int64(-1)


@compiled(
    types.void(
        int64[:, ::1], int64[:, ::1], int64[:, ::1], int64, uint8[::1], int32[::1], int64[::1], boolean
    ),
)
def _append_null(program, slots, totals, node, arena8, arena32, arena64, fill):  # type: ignore[no-untyped-def]
    """Add one null to a column, and to all columns of a record: its fields are as long as itself."""
    line = node
    end = program[node, NEXT]
    while line < end:
        op = program[line, OP]
        slot = program[line, SLOT]
        if slot >= 0:
            entry = totals[slot, ENTRIES]
            if fill:
                validity = slots[slot, VALIDITY]
                if validity >= 0:
                    arena8[validity + (entry >> 3)] &= uint8(0xFF ^ (1 << (entry & 7)))
                values = slots[slot, VALUES]
                if op in (_LONG, _DOUBLE):
                    arena64[(values >> 3) + entry] = 0
                elif op in (_INT, _FLOAT, _ENUM):
                    arena32[(values >> 2) + entry] = 0
                elif op in (_DECIMAL_BYTES, _DECIMAL_FIXED):
                    arena64[(values >> 3) + 2 * entry] = 0
                    arena64[(values >> 3) + 2 * entry + 1] = 0
                elif op in (_BYTES, _FIXED):
                    arena32[(values >> 2) + entry + 1] = totals[slot, BYTES]
                elif op in (_ARRAY, _MAP):
                    arena32[(values >> 2) + entry + 1] = totals[program[line + 1, SLOT], ENTRIES]
            totals[slot, ENTRIES] = entry + 1
            totals[slot, NULLS] += 1
        if op in (_RECORD, _UNION):
            line += 1
        else:
            line = program[line, NEXT]


@compiled(
    types.UniTuple(int64, 2)(  # type: ignore[no-untyped-call]
        int64[:, ::1],
        int64[:, ::1],
        int64[:, ::1],
        _READ_ONLY_BYTES,
        int64,
        int64,
        boolean,
        boolean,
        int64[:, ::1],
        uint8[::1],
        int32[::1],
        int64[::1],
        boolean,
    ),
)
def run(  # type: ignore[no-untyped-def]
    program, slots, totals, data, position, rows, is_framed, is_whole, stack, arena8, arena32, arena64, fill
):
    """Read `rows` records from `position` on; return the status and where reading ended.

    `is_framed`: an int32 before every record gives its length. `is_whole`: the program covers the record to
    its end, so that the length can be checked. `stack` has a line per level of the schema.
    """
    size = int64(len(data))
    end_of_program = int64(program.shape[0])
    stop = size
    for _ in range(rows):
        if is_framed:
            if position + 4 > size:
                return TRUNCATED, position
            length = int64(
                int32(
                    uint32(data[position]) << uint32(24)
                    | uint32(data[position + 1]) << uint32(16)
                    | uint32(data[position + 2]) << uint32(8)
                    | uint32(data[position + 3])
                )
            )
            if length < 0 or length > size - position - 4:
                return BAD_LENGTH, position
            position += 4
            stop = position + length
        line = int64(0)
        depth = int64(0)
        frame_end = end_of_program
        while True:
            # At the end of a body: once more, or back to what is around it.
            while line == frame_end and depth > 0:
                node = stack[depth - 1, 0]
                left = int64(0)
                if program[node, OP] != _UNION:
                    left = stack[depth - 1, 1] - 1
                    if left <= 0:
                        left, after = _varint(data, position, stop)
                        if after < 0:
                            return BAD_NUMBER, position
                        if left < 0:
                            # A negative count comes with the bytes of the run, which we do not need.
                            left = -left
                            _, after = _varint(data, after, stop)
                            if after < 0:
                                return BAD_NUMBER, position
                        # No item is smaller than a byte, so no count may exceed the bytes that are left.
                        if left < 0 or left > stop - after:
                            return BAD_LENGTH, position
                        position = after
                    stack[depth - 1, 1] = left
                if left > 0:
                    line = node + 1
                    break
                slot = program[node, SLOT]
                if slot >= 0 and program[node, OP] != _UNION:
                    entry = totals[slot, ENTRIES]
                    if fill:
                        arena32[(slots[slot, VALUES] >> 2) + entry + 1] = totals[
                            program[node + 1, SLOT], ENTRIES
                        ]
                    totals[slot, ENTRIES] = entry + 1
                depth -= 1
                frame_end = stack[depth, 2]
                line = program[node, NEXT]
            if line == frame_end:
                break

            op = program[line, OP]
            slot = program[line, SLOT]
            branches = program[line, BRANCHES]
            branch = int64(0)
            if branches > 0:
                branch, after = _varint(data, position, stop)
                if after < 0:
                    return BAD_NUMBER, position
                if branch < 0 or branch >= branches:
                    return BAD_BRANCH, position
                position = after
                if branch == program[line, NULL_BRANCH]:
                    if slot >= 0:
                        _append_null(program, slots, totals, line, arena8, arena32, arena64, fill)
                    line = program[line, NEXT]
                    continue

            if op in (_BYTES, _FIXED):
                if op == _BYTES:
                    length, after = _varint(data, position, stop)
                    if after < 0:
                        return BAD_NUMBER, position
                else:
                    length, after = program[line, ARG], position
                if length < 0 or length > stop - after:
                    return BAD_LENGTH, position
                if slot >= 0:
                    entry = totals[slot, ENTRIES]
                    start = totals[slot, BYTES]
                    if fill:
                        copy_bytes(arena8, slots[slot, DATA] + start, data, after, length)
                        arena32[(slots[slot, VALUES] >> 2) + entry + 1] = start + length
                    totals[slot, ENTRIES] = entry + 1
                    totals[slot, BYTES] = start + length
                position = after + length
                line += 1
            elif op in (_LONG, _INT, _ENUM):
                number, after = _varint(data, position, stop)
                if after < 0:
                    return BAD_NUMBER, position
                if op != _LONG and (number < -0x80000000 or number > 0x7FFFFFFF):
                    return BAD_NUMBER, position
                if op == _ENUM and (number < 0 or number >= program[line, ARG]):
                    return BAD_SYMBOL, position
                if slot >= 0:
                    entry = totals[slot, ENTRIES]
                    if fill:
                        if op == _LONG:
                            arena64[(slots[slot, VALUES] >> 3) + entry] = number
                        else:
                            arena32[(slots[slot, VALUES] >> 2) + entry] = number
                    totals[slot, ENTRIES] = entry + 1
                position = after
                line += 1
            elif op in (_DOUBLE, _FLOAT):
                width = int64(8) if op == _DOUBLE else int64(4)
                if width > stop - position:
                    return TRUNCATED, position
                if slot >= 0:
                    entry = totals[slot, ENTRIES]
                    if fill:
                        copy_bytes(arena8, slots[slot, VALUES] + width * entry, data, position, width)
                    totals[slot, ENTRIES] = entry + 1
                position += width
                line += 1
            elif op == _BOOLEAN:
                if position >= stop:
                    return TRUNCATED, position
                if data[position] > 1:
                    return BAD_BOOLEAN, position
                if slot >= 0:
                    entry = totals[slot, ENTRIES]
                    if fill:
                        arena8[slots[slot, VALUES] + (entry >> 3)] |= uint8(data[position] << (entry & 7))
                    totals[slot, ENTRIES] = entry + 1
                position += 1
                line += 1
            elif op in (_DECIMAL_BYTES, _DECIMAL_FIXED):
                if op == _DECIMAL_BYTES:
                    length, after = _varint(data, position, stop)
                    if after < 0:
                        return BAD_NUMBER, position
                else:
                    length, after = program[line, ARG], position
                if length < 0 or length > stop - after:
                    return BAD_LENGTH, position
                negative = length > 0 and data[after] >= 0x80
                filler = uint8(0xFF) if negative else uint8(0)
                high = uint64(0xFFFFFFFFFFFFFFFF) if negative else uint64(0)
                low = high
                for byte in range(length):
                    # Sixteen bytes hold every decimal; what stands before them may only repeat the sign.
                    if length - byte > 16 and data[after + byte] != filler:
                        return BAD_DECIMAL, position
                    high = (high << uint64(8)) | (low >> uint64(56))
                    low = (low << uint64(8)) | uint64(data[after + byte])
                if length > 16 and (high >> uint64(63) == uint64(1)) != negative:
                    return BAD_DECIMAL, position
                if slot >= 0:
                    entry = totals[slot, ENTRIES]
                    if fill:
                        target = (slots[slot, VALUES] >> 3) + 2 * entry
                        arena64[target] = int64(low)
                        arena64[target + 1] = int64(high)
                    totals[slot, ENTRIES] = entry + 1
                position = after + length
                line += 1
            elif op == _RECORD:
                if slot >= 0:
                    totals[slot, ENTRIES] += 1
                line += 1
            elif op == _UNION:
                # One member has the value, the others a null.
                if program[line, NULL_BRANCH] >= 0 and branch > program[line, NULL_BRANCH]:
                    branch -= 1
                member = line + 1
                chosen = member
                while member < program[line, NEXT]:
                    if branch == 0:
                        chosen = member
                    elif slot >= 0:
                        _append_null(program, slots, totals, member, arena8, arena32, arena64, fill)
                    branch -= 1
                    member = program[member, NEXT]
                if slot >= 0:
                    totals[slot, ENTRIES] += 1
                stack[depth, 0] = line
                stack[depth, 2] = frame_end
                depth += 1
                line = chosen
                frame_end = program[chosen, NEXT]
            else:  # ARRAY, MAP: an empty body first, whose end reads the number of items
                stack[depth, 0] = line
                stack[depth, 1] = 0
                stack[depth, 2] = frame_end
                depth += 1
                frame_end = program[line, NEXT]
                line = frame_end
        if is_framed:
            if is_whole and position != stop:
                return BAD_RECORD_LENGTH, position
            position = stop
    return OK, position


def no_arena() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the memory of a run that only counts."""
    return np.empty(0, np.uint8), np.empty(0, np.int32), np.empty(0, np.int64)
