"""Keys that a shard of an index has, by their hashes: where each lives, in about nine bytes a key.

    directory   of the first bits of a hash: where the keys begin that have them
    rests       of each key, in the order of their hashes, the rest of the hash
    codes       of each key, which of the shard's file groups it is in

Together they hold 64 bits of every hash. A hash that is not there is that of a key which the index does not have. One
that is there is taken for its key: of m keys that are looked up among n, m * n / 2**64 are another's. Where two keys
are known to have one hash, the answer is `UNSURE`, and who asks has to ask the index itself.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import xxhash

from bucketlake.compiled import compiled
from bucketlake.layout import FileGroupId

NOWHERE, UNSURE = -1, -2
PLACES_MAX = (1 << 16) - 1
"""How many file groups codes can tell apart, one code being that of keys which are not certain."""

Hashes: TypeAlias = npt.NDArray[np.uint64]
_UNSURE_CODE = PLACES_MAX
_WORD_BYTES = 8
_KEY_BYTES_MAX = 9.9
"""What a key takes at most, of a shard that is not small."""
_RUN = 512
"""How many hashes are looked up together."""
_MAGIC = b"bucketlake known keys 2\n"
_ALIGNED = 64


@dataclass(frozen=True, slots=True, eq=False)
class KnownKeys:
    """The keys of one shard."""

    bits: int
    """How many first bits of a hash the directory has."""
    width: int
    """How many bytes a rest has."""
    directory: npt.NDArray[np.uint32]
    rests: npt.NDArray[np.uint8]
    """End to end, and eight bytes more, so that each can be read as a word."""
    codes: npt.NDArray[np.uint16]
    places: tuple[FileGroupId, ...]

    @classmethod
    def of(cls, hashes: Hashes, codes: npt.NDArray[Any], places: Sequence[FileGroupId]) -> KnownKeys:
        """Keep keys in any order; those of one hash, if they are not in one place, are not certain."""
        assert len(places) <= PLACES_MAX
        order = np.argsort(hashes, kind="stable")
        hashes, codes = hashes[order], codes[order].astype(np.uint16)
        is_same = hashes[1:] == hashes[:-1]
        if is_same.any():
            codes[1:][is_same] = _UNSURE_CODE
            codes[:-1][is_same] = _UNSURE_CODE
            keep = np.append(True, ~is_same)
            hashes, codes = hashes[keep], codes[keep]
        return _packed(hashes, codes, tuple(places))

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def size_bytes(self) -> int:
        return self.directory.nbytes + self.rests.nbytes + self.codes.nbytes

    def look_up(self, hashes: Hashes) -> npt.NDArray[np.int32]:
        """Return the number of each key's place, `NOWHERE` or `UNSURE`."""
        found = np.empty(len(hashes), np.int32)
        _probe(hashes, self.directory, self.rests, self.codes, self.bits, self.width, found)
        return found

    def hashes(self) -> Hashes:
        """Return the hashes of all keys, ascending."""
        rests = np.zeros((len(self), _WORD_BYTES), np.uint8)
        rests[:, : self.width] = self.rests[: len(self) * self.width].reshape(-1, self.width)
        low = rests.reshape(-1).view("<u8")
        shift = np.uint64(64 - self.bits)
        starts = np.arange(1 << self.bits, dtype=np.uint64) << shift
        ends = self.directory.astype(np.int64)
        high = np.repeat(starts, ends[1:] - ends[:-1])
        mask = (np.uint64(1) << shift) - np.uint64(1)
        hashes: Hashes = high | (low & mask)
        return hashes

    def changed(
        self, hashes: Hashes, codes: npt.NDArray[np.int32], places: Sequence[FileGroupId]
    ) -> KnownKeys | None:
        """Return what is known after keys came to places, or went (`NOWHERE`); None if that would be too uncertain.

        `hashes` are those of different keys, `codes` are numbers of `places`. A key that comes where one of its hash is
        may be the same, or another: it is not certain any more.
        """
        numbers = {place: number for number, place in enumerate(self.places)}
        renumbered = [numbers.setdefault(place, len(numbers)) for place in places]
        if len(numbers) > PLACES_MAX:
            return None
        told = np.array([*renumbered, NOWHERE], np.int64)[codes]
        order = np.argsort(hashes, kind="stable")
        hashes, told = hashes[order], told[order]
        has_twin = np.zeros(len(hashes), np.bool_)
        has_twin[1:] |= hashes[1:] == hashes[:-1]
        has_twin[:-1] |= hashes[1:] == hashes[:-1]
        mine, own = self.hashes(), self.codes.astype(np.int64)
        at = np.searchsorted(mine, hashes)
        # A number of another type beside them would make floats of both.
        is_there = (np.append(mine, np.uint64(0))[at] == hashes) & (at < len(mine))
        old = np.append(own, np.int64(NOWHERE))[np.where(is_there, at, len(own))]
        leaves = is_there & (told == NOWHERE) & (old != _UNSURE_CODE) & ~has_twin
        doubtful = (is_there & ~leaves & (told != old)) | (has_twin & (is_there | (told != NOWHERE)))
        if int(doubtful.sum()) * 100 > len(mine) + 10_000:
            return None
        own[at[doubtful & is_there]] = _UNSURE_CODE
        keep = np.ones(len(mine), np.bool_)
        keep[at[leaves]] = False
        comes = ~is_there & ((told != NOWHERE) | has_twin)
        comes[1:] &= ~(has_twin[1:] & (hashes[1:] == hashes[:-1]))
        new = np.where(has_twin, _UNSURE_CODE, told)[comes]
        kept, kept_codes = mine[keep], own[keep]
        into = np.searchsorted(kept, hashes[comes])
        return _packed(
            np.insert(kept, into, hashes[comes]),
            np.insert(kept_codes, into, new).astype(np.uint16),
            tuple(numbers),
        )


def _packed(hashes: Hashes, codes: npt.NDArray[np.uint16], places: tuple[FileGroupId, ...]) -> KnownKeys:
    bits, width = _shape(len(hashes))
    starts = np.bincount((hashes >> np.uint64(64 - bits)).astype(np.int64), minlength=1 << bits)
    directory = np.zeros((1 << bits) + 1, np.uint32)
    directory[1:] = np.cumsum(starts)
    words = np.ascontiguousarray(hashes, "<u8").view(np.uint8).reshape(-1, _WORD_BYTES)
    rests = np.zeros(len(hashes) * width + _WORD_BYTES, np.uint8)
    rests[: len(hashes) * width] = words[:, :width].reshape(-1)
    return KnownKeys(bits, width, directory, rests, codes, places)


def _shape(count: int) -> tuple[int, int]:
    """Choose the bits of the directory and the bytes of a rest, 64 bits in all.

    The more bits, the fewer keys have an entry in common, and are gone through one by one. So it has as many as there
    is room for.
    """

    def size_of(bits: int) -> int:
        return (4 << bits) + count * (2 + _rest_bytes(bits))

    most = max(1, count.bit_length())
    fitting = [bits for bits in range(1, most + 1) if size_of(bits) <= _KEY_BYTES_MAX * count]
    bits = fitting[-1] if fitting else min(range(1, most + 1), key=size_of)
    return bits, _rest_bytes(bits)


def _rest_bytes(bits: int) -> int:
    return -(-(64 - bits) // 8)


@compiled()
def _word(data, at):  # type: ignore[no-untyped-def] # numba infers
    """Read eight bytes as one number, the first as its lowest; spelled out, the compiler makes it one load."""
    return (
        np.uint64(data[at])
        | np.uint64(data[at + 1]) << np.uint64(8)
        | np.uint64(data[at + 2]) << np.uint64(16)
        | np.uint64(data[at + 3]) << np.uint64(24)
        | np.uint64(data[at + 4]) << np.uint64(32)
        | np.uint64(data[at + 5]) << np.uint64(40)
        | np.uint64(data[at + 6]) << np.uint64(48)
        | np.uint64(data[at + 7]) << np.uint64(56)
    )


@compiled()
def _probe(hashes, directory, rests, codes, bits, width, found):  # type: ignore[no-untyped-def] # numba infers
    """Look hashes up; `probe_twin` says the same for people.

    Each step is done for a run of them before the next: what one has to fetch from memory does not keep the others
    waiting.
    """
    shift = np.uint64(64 - bits)
    mask = np.uint64(0xFFFFFFFFFFFFFFFF) >> np.uint64(64 - 8 * width)
    starts, ends = np.empty(_RUN, np.int64), np.empty(_RUN, np.int64)
    words = np.empty(_RUN, np.uint64)
    for first in range(0, len(hashes), _RUN):
        count = min(_RUN, len(hashes) - first)
        for n in range(count):
            entry = np.int64(hashes[first + n] >> shift)
            starts[n] = directory[entry]
            ends[n] = directory[entry + 1]
        for n in range(count):
            words[n] = _word(rests, starts[n] * width) & mask
        for n in range(count):
            wanted = hashes[first + n] & mask
            key, word = starts[n], words[n]
            while key < ends[n] and word != wanted:
                key += 1
                word = _word(rests, key * width) & mask
            starts[n] = key if key < ends[n] else -1
        for n in range(count):
            found[first + n] = -1 if starts[n] < 0 else codes[starts[n]]
        for n in range(count):
            if found[first + n] == 65535:
                found[first + n] = -2


def probe_twin(known: Mapping[int, int], hashes: Sequence[int]) -> list[int]:
    """Look hashes up in a dict of hash -> number of a place, or `UNSURE`."""
    return [known.get(hashed, NOWHERE) for hashed in hashes]


# --------------------------------------------------------------------------------------------------------- as bytes


def encode_known_keys(known: KnownKeys, facts: Mapping[str, Any]) -> list[bytes | memoryview]:
    """Return the bytes of a file that keeps them, with what its writer says of it."""
    arrays = [known.directory, known.codes, known.rests]
    body: list[bytes | memoryview] = []
    sums = xxhash.xxh3_64()
    for array in arrays:
        data = np.ascontiguousarray(array).view(np.uint8).data
        sums.update(data)
        body += [data, b"\0" * (-data.nbytes % _ALIGNED)]
    header = json.dumps(
        {
            "facts": facts,
            "bits": known.bits,
            "width": known.width,
            "keys": len(known),
            "places": known.places,
            "sum": sums.intdigest(),
        }
    ).encode()
    head = _MAGIC + len(header).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little") + header
    return [head, b"\0" * (-len(head) % _ALIGNED), *body[:-1]]


def decode_known_keys(data: memoryview) -> tuple[KnownKeys, Mapping[str, Any]] | None:
    """Read them back, without a copy; None for bytes that are cut off, altered or none of ours.

    The sum is compared each time: a file may be damaged after it was read well.
    """
    start = len(_MAGIC) + 8
    if bytes(data[: len(_MAGIC)]) != _MAGIC or data.nbytes < start:
        return None
    length, crc = (int.from_bytes(data[at : at + 4], "little") for at in (start - 8, start - 4))
    head = bytes(data[start : start + length])
    if zlib.crc32(head) != crc:
        return None
    facts = json.loads(head)
    keys, bits, width = facts["keys"], facts["bits"], facts["width"]
    at = start + length
    found: list[npt.NDArray[Any]] = []
    sums = xxhash.xxh3_64()
    for kind, count in (
        (np.uint32, (1 << bits) + 1),
        (np.uint16, keys),
        (np.uint8, keys * width + _WORD_BYTES),
    ):
        at += -at % _ALIGNED
        size = count * np.dtype(kind).itemsize
        if at + size > data.nbytes:
            return None
        sums.update(data[at : at + size])
        found.append(np.frombuffer(data, kind, count, at))
        at += size
    if sums.intdigest() != facts["sum"]:
        return None
    places = tuple((partition, file_id) for partition, file_id in facts["places"])
    directory, codes, rests = found
    return KnownKeys(bits, width, directory, rests, codes, places), facts["facts"]
