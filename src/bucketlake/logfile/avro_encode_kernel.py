"""The loop over columns: an Avro schema as a program, encoded bytes as its output.

The mirror of `avro_kernel`. A program is a table of int64, one line per schema
node in depth-first order:

    OP           kind of value (`AvroKind`), or LITERAL: the same bytes in every row
    NEXT         line after this node's subtree
    NULL_BYTE    what is written for a null: its branch, encoded; -1 if it may not be null
    VALUE_BYTE   what is written before a value: its branch, encoded; -1 if there is no union
    SLOT         input column
    ARG          bytes of a decimal or literal

All columns lie in one piece of memory, the arena; a line of `slots` says where
a column's parts start, in bytes, and which entry is its first:

    VALIDITY     one bit per entry; -1 if never null
    VALUES       numbers, packed booleans, or int32 offsets
    DATA         bytes of text, binary and literals
    FIRST        number of the entry that counts as 0

The caller gives memory that is certainly large enough; nothing is checked here
but nulls where there may be none.
"""

from __future__ import annotations

from numba import boolean, int32, int64, njit, uint8, uint64

from bucketlake.compiled import compiled, copy_bytes

OP, NEXT, NULL_BYTE, VALUE_BYTE, SLOT, ARG = range(6)
VALIDITY, VALUES, DATA, FIRST = range(4)

# The values of AvroKind, as constants the compiler can see.
_BOOLEAN, _INT, _LONG, _FLOAT, _DOUBLE, _BYTES = 0, 1, 2, 3, 4, 5
_DECIMAL_BYTES, _DECIMAL_FIXED, _RECORD = 8, 9, 10
LITERAL = 14


@njit(nogil=True)
def _put_varint(out, at, number):  # type: ignore[no-untyped-def]  # numba infers
    """Write a zigzag number; return where it ends."""
    bits = (uint64(number) << uint64(1)) ^ uint64(number >> int64(63))
    while bits >= uint64(0x80):
        out[at] = uint8((bits & uint64(0x7F)) | uint64(0x80))
        bits >>= uint64(7)
        at += 1
    out[at] = uint8(bits)
    return at + 1


@njit(nogil=True)
def _put_decimal(out, at, low, high, size):  # type: ignore[no-untyped-def]
    """Write the last `size` bytes of a 128-bit number, most significant first."""
    for byte in range(size):
        shift = 8 * (size - 1 - byte)
        word = low if shift < 64 else high
        out[at + byte] = uint8((word >> uint64(shift & 63)) & uint64(0xFF))
    return at + size


@njit(nogil=True)
def _decimal_size(low, high):  # type: ignore[no-untyped-def]
    """Return how many bytes hold a 128-bit number and its sign: Java's `BigInteger.toByteArray`."""
    if int64(high) < 0:
        low, high = ~low, ~high
    bits = int64(0)
    while high > uint64(0):
        high >>= uint64(1)
        bits += 1
    if bits > 0:
        bits += 64
    else:
        while low > uint64(0):
            low >>= uint64(1)
            bits += 1
    return bits // 8 + 1


@compiled(
    int64(
        int64[:, ::1],
        int64[:, ::1],
        int64,
        boolean,
        int64[:, ::1],
        uint8[::1],
        int32[::1],
        int64[::1],
        uint8[::1],
        int64,
    ),
)
def run(program, slots, rows, is_framed, stack, arena8, arena32, arena64, out, at):  # type: ignore[no-untyped-def]
    """Encode `rows` records into `out` from `at` on; return where they end, or -1 for a null in a wrong place.

    `is_framed`: an int32 before every record gives its length. `stack` has a line per level of the schema.
    """
    end_of_program = int64(program.shape[0])
    for row in range(rows):
        frame = at
        if is_framed:
            at += 4
        line = int64(0)
        depth = int64(0)
        entry = int64(row)
        frame_end = end_of_program
        while True:
            # At the end of a body: the next item, or back to what is around it.
            while line == frame_end and depth > 0:
                node = stack[depth - 1, 0]
                entry = stack[depth - 1, 1] + 1
                if entry < stack[depth - 1, 2]:
                    stack[depth - 1, 1] = entry
                    line = node + 1
                    break
                out[at] = uint8(0)
                at += 1
                depth -= 1
                frame_end = stack[depth, 3]
                entry = stack[depth, 4]
                line = program[node, NEXT]
            if line == frame_end:
                break

            op = program[line, OP]
            slot = program[line, SLOT]
            position = entry + slots[slot, FIRST]
            validity = slots[slot, VALIDITY]
            if validity >= 0 and not (arena8[validity + (position >> 3)] >> uint8(position & 7)) & uint8(1):
                if program[line, NULL_BYTE] < 0:
                    return int64(-1)
                out[at] = uint8(program[line, NULL_BYTE])
                at += 1
                line = program[line, NEXT]
                continue
            if program[line, VALUE_BYTE] >= 0:
                out[at] = uint8(program[line, VALUE_BYTE])
                at += 1

            values = slots[slot, VALUES]
            if op == _BYTES:
                start = int64(arena32[(values >> 2) + position])
                length = int64(arena32[(values >> 2) + position + 1]) - start
                at = _put_varint(out, at, length)
                copy_bytes(out, at, arena8, slots[slot, DATA] + start, length)
                at += length
                line += 1
            elif op == _LONG:
                at = _put_varint(out, at, arena64[(values >> 3) + position])
                line += 1
            elif op == _INT:
                at = _put_varint(out, at, int64(arena32[(values >> 2) + position]))
                line += 1
            elif op in (_DOUBLE, _FLOAT):
                width = int64(8) if op == _DOUBLE else int64(4)
                copy_bytes(out, at, arena8, values + width * position, width)
                at += width
                line += 1
            elif op == _BOOLEAN:
                out[at] = (arena8[values + (position >> 3)] >> uint8(position & 7)) & uint8(1)
                at += 1
                line += 1
            elif op in (_DECIMAL_FIXED, _DECIMAL_BYTES):
                low = uint64(arena64[(values >> 3) + 2 * position])
                high = uint64(arena64[(values >> 3) + 2 * position + 1])
                size = program[line, ARG]
                if op == _DECIMAL_BYTES:
                    size = _decimal_size(low, high)
                    at = _put_varint(out, at, size)
                at = _put_decimal(out, at, low, high, size)
                line += 1
            elif op == _RECORD:
                line += 1
            elif op == LITERAL:
                copy_bytes(out, at, arena8, slots[slot, DATA], program[line, ARG])
                at += program[line, ARG]
                line += 1
            else:  # ARRAY, MAP
                start = int64(arena32[(values >> 2) + position])
                stop = int64(arena32[(values >> 2) + position + 1])
                if start == stop:
                    out[at] = uint8(0)
                    at += 1
                    line = program[line, NEXT]
                    continue
                at = _put_varint(out, at, stop - start)
                stack[depth, 0] = line
                stack[depth, 1] = start
                stack[depth, 2] = stop
                stack[depth, 3] = frame_end
                stack[depth, 4] = entry
                depth += 1
                entry = start
                frame_end = program[line, NEXT]
                line += 1
        if is_framed:
            length = at - frame - 4
            out[frame] = uint8((length >> 24) & 0xFF)
            out[frame + 1] = uint8((length >> 16) & 0xFF)
            out[frame + 2] = uint8((length >> 8) & 0xFF)
            out[frame + 3] = uint8(length & 0xFF)
    return at
