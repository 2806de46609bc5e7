"""What is kept of an index says of every key what a dict says: a wrong place would be a second row of the key."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.index.known_keys import (
    NOWHERE,
    UNSURE,
    KnownKeys,
    decode_known_keys,
    encode_known_keys,
    probe_twin,
)

pytestmark = pytest.mark.shows("D4", "D7")

WORD = (1 << 64) - 1
HASHES = st.one_of(
    st.integers(0, WORD),
    st.sampled_from([0, 1, WORD, WORD - 1, 1 << 63, (1 << 63) - 1]),
    # They agree in their first bits, or in their last.
    st.integers(0, 40),
    st.integers(0, 40).map(lambda n: n << 57),
)
PLACES = [("p", f"{n:08d}-a") for n in range(5)]
KNOWN = st.dictionaries(HASHES, st.integers(0, 4), max_size=60)


def of(known: Mapping[int, int]) -> KnownKeys:
    return KnownKeys.of(np.array([*known], np.uint64), np.array([*known.values()], np.int32), PLACES)


def asked(*maps: Mapping[int, int]) -> list[int]:
    return sorted(
        {hashed ^ bit for known in maps for hashed in known for bit in (0, 1, 1 << 20, 1 << 63)} | {0, 7}
    )


@given(KNOWN)
def test_a_hash_is_found_where_it_is_and_no_other(known: dict[int, int]) -> None:
    kept, hashes = of(known), asked(known)
    assert kept.look_up(np.array(hashes, np.uint64)).tolist() == probe_twin(known, hashes)
    assert kept.hashes().tolist() == sorted(known)


@given(st.lists(st.tuples(HASHES, st.integers(0, 4)), max_size=60))
def test_keys_of_one_hash_are_not_certain(keys: list[tuple[int, int]]) -> None:
    keys = keys + keys[:3]
    codes: dict[int, int] = {}
    for hashed, code in keys:
        codes[hashed] = UNSURE if hashed in codes else code
    kept = KnownKeys.of(
        np.array([hashed for hashed, _ in keys], np.uint64),
        np.array([code for _, code in keys], np.int32),
        PLACES,
    )
    assert kept.look_up(np.array(asked(codes), np.uint64)).tolist() == probe_twin(codes, asked(codes))


@given(KNOWN, st.lists(st.dictionaries(HASHES, st.integers(-1, 4), max_size=20), max_size=4))
def test_changes_are_worked_in_one_after_the_other(
    known: dict[int, int], changes: list[dict[int, int]]
) -> None:
    kept = of(known)
    expected = dict(known)
    for change in changes:
        # A key that is there already and comes again is that one, or another with its hash.
        for hashed, code in change.items():
            before = expected.get(hashed)
            if code == NOWHERE:
                if before != UNSURE:
                    expected.pop(hashed, None)
            elif before is None or before == code:
                expected[hashed] = code
            else:
                expected[hashed] = UNSURE
        # The places of a log have other numbers.
        other = PLACES[::-1]
        codes = np.array([code if code < 0 else 4 - code for code in change.values()], np.int32)
        after = kept.changed(np.array([*change], np.uint64), codes, other)
        assert after is not None
        kept = after
        hashes = asked(known, change)
        found = kept.look_up(np.array(hashes, np.uint64)).tolist()
        assert [None if n < 0 else kept.places[n] for n in found] == [
            None if n < 0 else PLACES[n] for n in probe_twin(expected, hashes)
        ]
        assert [n for n in found if n < 0] == [n for n in probe_twin(expected, hashes) if n < 0]
        assert len(kept) == len(expected)


@given(KNOWN, st.dictionaries(HASHES, st.integers(-1, 4), min_size=1, max_size=9))
def test_two_keys_of_one_hash_among_the_changes_are_not_certain(
    known: dict[int, int], change: dict[int, int]
) -> None:
    hashes = np.array([*change, *change], np.uint64)
    codes = np.array([*change.values(), *change.values()], np.int32)
    kept = of(known).changed(hashes, codes, PLACES)
    assert kept is not None
    expected = dict.fromkeys(known, 0)
    for hashed in change:
        assert kept.look_up(np.array([hashed], np.uint64))[0] == UNSURE
        expected.pop(hashed, None)
    for hashed in expected:
        assert kept.look_up(np.array([hashed], np.uint64))[0] == known[hashed]


@given(KNOWN)
def test_bytes_are_what_they_were_made_of_or_nothing(known: dict[int, int]) -> None:
    kept = of(known)
    data = b"".join(encode_known_keys(kept, {"files": ["a"]}))
    found = decode_known_keys(memoryview(data))
    assert found is not None
    back, facts = found
    assert facts == {"files": ["a"]}
    assert back.places == kept.places
    assert back.look_up(np.array(asked(known), np.uint64)).tolist() == probe_twin(known, asked(known))
    for end in {len(data) // 2, len(data) - 1, 30, 3}:
        assert decode_known_keys(memoryview(data[:end])) is None


@given(KNOWN, st.data())
def test_a_bit_that_has_flipped_is_noticed(known: dict[int, int], data: st.DataObject) -> None:
    kept = of(known)
    # Facts that no process has seen before: who has proven a file once believes it.
    whole = bytearray(b"".join(encode_known_keys(kept, {"seen": data.draw(st.integers())})))
    places = [at for at in range(len(whole)) if at < 60 or whole[at]]
    at = data.draw(st.sampled_from(places))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    found = decode_known_keys(memoryview(whole))
    if found is not None:  # between the parts
        assert found[0].look_up(np.array(asked(known), np.uint64)).tolist() == probe_twin(known, asked(known))


@pytest.mark.shows("X10")
def test_what_is_kept_is_read_where_it_lies_and_takes_no_memory_beside_that() -> None:
    chance = np.random.default_rng(2)
    hashes = chance.integers(0, 1 << 63, 200_000, dtype=np.uint64)
    kept, asked = KnownKeys.of(hashes, hashes % 5, PLACES), hashes[:1_000]
    data = memoryview(b"".join(encode_known_keys(kept, {})))
    kept.look_up(asked)  # compiles
    tracemalloc.start()
    try:
        found = decode_known_keys(data)
        assert found is not None
        assert (found[0].look_up(asked) == asked % np.uint64(5)).all()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert data.nbytes <= 10 * len(hashes)
    assert peak < data.nbytes / 10


def test_a_key_takes_ten_bytes_at_most() -> None:
    chance = np.random.default_rng(1)
    for count in (2_000, 10_000, 99_999, 131_072, 1_000_000, 3_000_000):
        hashes = chance.integers(0, 1 << 63, count, dtype=np.uint64) * np.uint64(2)
        kept = KnownKeys.of(hashes, chance.integers(0, 5, count), PLACES)
        assert kept.size_bytes <= 10 * count, (count, kept.size_bytes / count)
        assert kept.bits + 8 * kept.width >= 64
