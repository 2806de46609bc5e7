"""Record key -> hash pieces -> bucket, one key at a time, in code that anyone can check.

A bucket index hashes the text of the record key, not the columns it came from. A key of several fields reads
`f1:v1,f2:v2`, and only the values of the hash fields count:

    "7"                  hash field id    -> ("7",)
    "k1:a,k2:__null__"   hash field k2    -> (None,)
    "k1:a,k2:b"          both             -> ("a", "b")    in the key's order, never in the hash fields'

The pieces feed one of two hashes: `bucket_of` (simple and partition-level buckets) or `ring_hash_of`
(consistent hashing). Both must equal Hudi's bit for bit: a miss is a silent duplicate on write and a lost row
on read. `hashing_arrow` is the fast twin of this module.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import xxhash

from bucketlake.keygen import EMPTY_PIECE, NULL_PIECE, KeyGenerator

INT32_MASK = 0xFFFFFFFF
INT31_MASK = 0x7FFFFFFF


def hash_pieces(record_key: str, hash_fields: Collection[str]) -> tuple[str | None, ...]:
    """Return the texts of a record key that its bucket hangs on.

    A key without `,` or without `:` is one piece, whole. Otherwise the key is read as `field:value` pairs: a
    value ends at the last comma before the next colon that has a comma between it and the value's start, so a
    value may hold colons, or commas, or colons and then commas. A comma and a later colon inside a value do
    cut it (KeyGenUtils.extractRecordKeysByFields does the same). No hash fields means every field; a key in
    which no hash field is found is one piece.

    >>> hash_pieces("k1:a,k2:13:50:42", ["k2"])
    ('13:50:42',)
    >>> hash_pieces("k1:a,b:c,k2:d", ["k1", "k2"])
    ('a', 'd')
    """
    if "," not in record_key or ":" not in record_key:
        return (record_key,)
    wanted = frozenset(hash_fields) - {""}
    pieces: list[str | None] = []
    start = 0
    while start < len(record_key):
        colon = record_key.index(":", start)
        end = _value_end(record_key, colon)
        if not wanted or record_key[start:colon] in wanted:
            value = record_key[colon + 1 : end]
            pieces.append(None if value == NULL_PIECE else "" if value == EMPTY_PIECE else value)
        start = end + 1
    return tuple(pieces) or (record_key,)


def bucket_of(pieces: Sequence[str | None], count: int) -> int:
    """Return the bucket, in `range(count)`, that owns these pieces.

    Equal to Java's `List.hashCode` over the strings, sign bit dropped.

    >>> bucket_of(["id-7"], 16)
    4
    >>> bucket_of(["id-7", "2024"], 16)
    12
    """
    assert count > 0
    list_hash = 1
    for piece in pieces:
        list_hash = (31 * list_hash + (0 if piece is None else _java_string_hash(piece))) & INT32_MASK
    return (list_hash & INT31_MASK) % count


def shard_of(record_key: str, count: int) -> int:
    """Return the shard, in `range(count)`, of an index in the metadata table that has this key.

    Equal to Java's `Math.abs(key.hashCode()) % count`, with the one number that has no absolute value taken as it is.

    >>> shard_of("k00001", 10), shard_of("polygenelubricants", 256)
    (8, 0)
    """
    assert count > 0
    unsigned = _java_string_hash(record_key)
    return (unsigned if unsigned <= INT31_MASK + 1 else INT32_MASK + 1 - unsigned) % count


def ring_hash_of(pieces: Sequence[str | None]) -> int:
    """Return the place on the consistent-hashing ring, 31 bits, of these pieces.

    XXH32 with seed 0 over the pieces written one after the other; Java's `String.join` writes a null as
    `null`.

    >>> ring_hash_of(["1"])
    921487538
    """
    joined = "".join("null" if piece is None else piece for piece in pieces)
    return int(xxhash.xxh32_intdigest(joined.encode("utf-8"), seed=0)) & INT31_MASK


def pieces_from_hash_values(
    generator: KeyGenerator,
    hash_fields: Collection[str],
    values: Mapping[str, object],
    *,
    other_fields_are_safe: bool,
) -> tuple[str | None, ...] | None:
    """Return the pieces that every row with these values has, or None when rows with them may have others.

    `values` pins columns, as `WHERE k1 = 'a'` does; anything outside the record-key fields is ignored. Pieces
    are certain when all key fields are pinned, because then the whole key is known. When only the hash fields
    are pinned, a row's other key fields must not disturb how its key is read, which `other_fields_are_safe`
    promises: see `cannot_disturb`. Values whose text another engine might write differently (floating point)
    give None too, and so do values that can't be a key at all.

    >>> generator = KeyGenerator(record_key_fields=("k1", "k2"), encodes_field_names=True)
    >>> pieces_from_hash_values(generator, ["k1"], {"k1": "a"}, other_fields_are_safe=True)
    ('a',)
    >>> pieces_from_hash_values(generator, ["k1"], {"k1": "a"}, other_fields_are_safe=False) is None
    True
    >>> pieces_from_hash_values(generator, ["k1"], {"k1": "a", "k2": "x,k1:b"}, other_fields_are_safe=False)
    ('a', 'b')
    """
    key_fields = generator.record_key_fields
    pinned = {field: values[field] for field in key_fields if field in values}
    if not set(hash_fields) <= set(pinned) or not hash_fields:
        return None
    if len(pinned) < len(key_fields) and not other_fields_are_safe:
        return None
    # A number stands in for what is not pinned: it is text like any that a safe field can have.
    record_key = generator.certain_record_key_of({field: pinned.get(field, 0) for field in key_fields})
    if record_key is None:
        return None
    return hash_pieces(record_key, hash_fields)


def cannot_disturb(value: str, hash_fields: Collection[str]) -> bool:
    """Tell whether this text of another key field leaves the hash fields' pieces as they are.

    A value is cut only at a comma that a colon follows; what stands between is then taken for a field's name,
    and reading falls into step again at the next real field. So a value disturbs if and only if it holds
    `,<hash field>:`. Numbers, booleans, dates and timestamps have no comma in their text and never do; text
    can.

    >>> cannot_disturb("a,b:c", ["k1"]), cannot_disturb("a,k1:c", ["k1"])
    (True, False)
    """
    return not any(f",{field}:" in value for field in hash_fields)


def _value_end(record_key: str, colon: int) -> int:
    """Return where the value after `colon` ends: a comma's place, or the key's length.

    Where a field that is no hash field stands last and its value has a colon, Hudi 1.2.0 never returns, so no
    table of its making has such a key; reading to the end is what it does for hash fields.
    """
    next_colon = record_key.find(":", colon + 1)
    while next_colon >= 0:
        comma = record_key.rfind(",", colon + 1, next_colon)
        if comma >= 0:
            return comma
        next_colon = record_key.find(":", next_colon + 1)
    return len(record_key)


def _java_string_hash(text: str) -> int:
    """Return `String.hashCode`, unsigned: over UTF-16 units, so a character beyond the BMP counts as two."""
    units = text.encode("utf-16-le", "surrogatepass")
    string_hash = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        string_hash = (31 * string_hash + (high << 8 | low)) & INT32_MASK
    return string_hash
