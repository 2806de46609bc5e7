"""A cache that takes more than it was given gets its process killed, and one that forgets the wrong things is slow."""

from __future__ import annotations

import random
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from bucketlake.errors import ConfigError
from bucketlake.storage import FileCache, FileStat, MemoryBudget, MemoryStore, set_memory_budget
from bucketlake.storage.memory_budget import ENTRY_BYTES

pytestmark = pytest.mark.shows("X10")

STORE = MemoryStore("one")


def a_file(name: str, version: str = "1") -> FileStat:
    return FileStat(name, 1, 1, version)


def fact_of(entry_bytes: int, name: str = "a") -> int:
    """Return the size of a fact whose entry takes so many bytes."""
    return entry_bytes - ENTRY_BYTES - sum(map(sys.getsizeof, (STORE.uri, name, "1")))


def test_what_was_used_longest_ago_goes_first_whatever_kind_it_is() -> None:
    budget = MemoryBudget(4_000)
    footers: FileCache[str] = FileCache("footers", budget)
    blocks: FileCache[bytes] = FileCache("blocks", budget)
    footers.put(STORE, a_file("a"), "of a", fact_of(2_000))
    blocks.put(STORE, a_file("a"), b"a's", fact_of(1_000))
    footers.put(STORE, a_file("b"), "of b", fact_of(1_000))
    assert footers.get(STORE, a_file("a")) == "of a"
    footers.put(STORE, a_file("c"), "of c", fact_of(1_000))
    assert blocks.get(STORE, a_file("a")) is None
    assert [footers.get(STORE, a_file(name)) for name in "abc"] == ["of a", "of b", "of c"]
    blocks.put(STORE, a_file("a"), b"again", fact_of(1_000))
    assert [footers.get(STORE, a_file(name)) for name in "abc"] == [None, "of b", "of c"]
    assert blocks.get(STORE, a_file("a")) == b"again"


def test_kinds_stores_files_and_versions_are_told_apart() -> None:
    budget = MemoryBudget(100_000)
    caches: list[FileCache[object]] = [FileCache("one", budget), FileCache("other", budget)]
    places = [
        (cache, store, a_file(name, version))
        for cache in caches
        for store in (MemoryStore("x"), MemoryStore("y"))
        for name in "ab"
        for version in "12"
    ]
    for number, (cache, store, file) in enumerate(places):
        cache.put(store, file, number, 0)
    assert [cache.get(store, file) for cache, store, file in places] == list(range(16))


def test_a_fact_that_would_take_more_than_half_is_not_remembered() -> None:
    budget = MemoryBudget(4_000)
    cache: FileCache[str] = FileCache("facts", budget)
    cache.put(STORE, a_file("a"), "half", fact_of(2_000))
    cache.put(STORE, a_file("b"), "more", fact_of(2_001))
    assert [cache.get(STORE, a_file(name)) for name in "ab"] == ["half", None]


def test_a_fact_that_comes_twice_counts_once() -> None:
    budget = MemoryBudget(4_000)
    cache: FileCache[str] = FileCache("facts", budget)
    for _ in range(5):
        cache.put(STORE, a_file("a"), "of a", fact_of(2_000))
    assert budget.in_use().size_bytes == 2_000


def test_hits_and_misses_are_counted_by_kind() -> None:
    budget = MemoryBudget(100_000)
    footers: FileCache[str] = FileCache("footers", budget)
    FileCache[str]("blocks", budget).get(STORE, a_file("a"))
    for _ in range(3):
        footers.get(STORE, a_file("a"))
        footers.put(STORE, a_file("a"), "of a", 10)
    blocks, of_footers = budget.in_use().kinds
    assert (blocks.kind, blocks.entries, blocks.hits, blocks.misses) == ("blocks", 0, 0, 1)
    assert (of_footers.kind, of_footers.entries, of_footers.hits, of_footers.misses) == ("footers", 1, 2, 1)
    assert of_footers.size_bytes == budget.in_use().size_bytes > ENTRY_BYTES


def test_a_smaller_budget_takes_effect_at_once() -> None:
    budget = MemoryBudget(100_000)
    cache: FileCache[str] = FileCache("facts", budget)
    for name in "abcd":
        cache.put(STORE, a_file(name), f"of {name}", fact_of(1_000))
    budget.resize(2_500)
    assert (budget.in_use().size_bytes, budget.in_use().budget_bytes) == (2_000, 2_500)
    assert [cache.get(STORE, a_file(name)) for name in "abcd"] == [None, None, "of c", "of d"]
    budget.resize(100_000)
    cache.put(STORE, a_file("a"), "of a", fact_of(1_000))
    assert cache.get(STORE, a_file("d")) == "of d"


def test_a_budget_of_nothing_remembers_nothing() -> None:
    budget = MemoryBudget(0)
    cache: FileCache[str] = FileCache("facts", budget)
    cache.put(STORE, a_file("a"), "of a", 0)
    assert cache.get(STORE, a_file("a")) is None
    assert budget.in_use().size_bytes == 0


def test_threads_together_never_exceed_the_budget() -> None:
    budget = MemoryBudget(50_000)
    caches: list[FileCache[int]] = [FileCache(kind, budget) for kind in "xyz"]
    gets = 2_000

    def use(seed: int) -> int:
        chance = random.Random(seed)
        most = 0
        for _ in range(gets):
            cache, name = chance.choice(caches), chance.randrange(40)
            file = a_file(str(name))
            assert cache.get(STORE, file) in (None, name)
            cache.put(STORE, file, name, chance.randrange(10_000))
            if chance.random() < 0.01:
                budget.resize(chance.choice([0, 20_000, 50_000]))
            most = max(most, budget.in_use().size_bytes)
        return most

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(use, range(8))) <= 50_000
    found = budget.in_use()
    assert sum(kind.hits + kind.misses for kind in found.kinds) == 8 * gets
    budget.resize(0)
    assert all((kind.entries, kind.size_bytes) == (0, 0) for kind in budget.in_use().kinds)


def test_what_is_in_use_prints_as_a_table() -> None:
    budget = MemoryBudget(512 << 20)
    cache: FileCache[str] = FileCache("footers", budget)
    cache.put(STORE, a_file("a"), "of a", fact_of(1 << 20))
    cache.get(STORE, a_file("a"))
    assert str(budget.in_use()).split("\n") == [
        "kind            entries        size         hits       misses",
        "footers               1     1.0 MiB            1            0",
        "1.0 MiB of 512.0 MiB in use",
    ]


@pytest.mark.parametrize("wrong", [-1, True, 1.5, None, "", "lots", "-1", "1.5GB", "12 parsecs", "1 2", b"1"])
def test_a_budget_that_makes_no_sense_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match=r"the memory budget is .*It must be a number of bytes.* 512MB"):
        set_memory_budget(wrong)  # type: ignore[arg-type] # that is the point


@pytest.mark.parametrize(
    ("variable", "bytes_max"),
    [
        (None, 256 << 20),
        ("0", 0),
        ("1000000", 1_000_000),
        ("512MB", 512 << 20),
        ("2g", 2 << 30),
        ("7 KiB", 7_168),
    ],
)
def test_the_environment_says_the_budget_and_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, bytes_max: int
) -> None:
    if variable is None:
        monkeypatch.delenv("BUCKETLAKE_MEMORY", raising=False)
    else:
        monkeypatch.setenv("BUCKETLAKE_MEMORY", variable)
    budget = MemoryBudget()
    assert budget.in_use().budget_bytes == bytes_max
    monkeypatch.setenv("BUCKETLAKE_MEMORY", "5")
    assert budget.in_use().budget_bytes == bytes_max


@pytest.mark.parametrize("wrong", ["", "lots", "-5", "1e9", "5 MBit"])
def test_a_wrong_word_in_the_environment_is_an_error_wherever_it_first_matters(
    monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("BUCKETLAKE_MEMORY", wrong)
    budget = MemoryBudget()
    cache: FileCache[str] = FileCache("facts", budget)
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"variable BUCKETLAKE_MEMORY is {wrong!r}"):
            cache.put(STORE, a_file("a"), "of a", 1)
        with pytest.raises(ConfigError, match=f"variable BUCKETLAKE_MEMORY is {wrong!r}"):
            budget.in_use()
