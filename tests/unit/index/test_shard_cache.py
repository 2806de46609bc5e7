"""What a machine keeps of an index is right or not used: a key taken for a new one would be in the table twice."""

from __future__ import annotations

import errno
import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConfigError, DynamicBuckets, RecordIndex, Table, create_table, hfile, set_index_cache
from bucketlake.commit.claims import list_claims
from bucketlake.config import load_properties
from bucketlake.index import IndexValue, resolve_index, shard_cache
from bucketlake.index.known_keys import KnownKeys
from bucketlake.layout.names import CLAIM_FOLDER
from bucketlake.metadata import shard_ranges
from bucketlake.services import check_table
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import load_state
from bucketlake.storage import KeptFiles, Store, Wanted, index_cache, kept_files
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from stand_ins.dynamic_check import check_buckets
from stand_ins.record_index_check import check_record_index

pytestmark = pytest.mark.shows("D4", "D5", "D6", "D7", "R5")

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])
KINDS: dict[str, IndexValue] = {
    "table": RecordIndex(shards=2),
    "table, verified": RecordIndex(shards=2, verify_hits=True),
    "partitions": RecordIndex(per_partition=True, shards=2),
    "dynamic": DynamicBuckets(assigners=2, keys_per_bucket=10),
}
EACH_INDEX = pytest.mark.parametrize("index", KINDS.values(), ids=KINDS)
TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
_names = itertools.count()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[KeptFiles]:
    set_index_cache("16MB", tmp_path / "kept")
    found = index_cache()
    assert found is not None
    yield found
    set_index_cache(0)


@pytest.fixture
def all_worked_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every log be worked in at once, however few keys it tells of."""
    monkeypatch.setattr(shard_cache, "_LOGGED_MIN", 0)
    monkeypatch.setattr(shard_cache, "_LOGGED_PART", 1 << 40)


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let base files have blocks of some keys, and every few blocks be kept for themselves."""
    monkeypatch.setitem(hfile.encode.__kwdefaults__, "block_bytes", 100)
    monkeypatch.setattr(shard_cache, "RANGE_BYTES_MIN", 5 * shard_cache.KEY_BYTES)
    monkeypatch.setattr(shard_cache, "RANGE_PART", 1 << 40)


@pytest.fixture
def shards_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The shards that were read whole, or were asked about keys."""
    read: list[str] = []
    for module, name in ((shard_ranges, "read_shard"), (shard_cache, "look_up_shard")):
        reading = getattr(module, name)

        def noted(store: Any, shard: Any, *args: Any, reading: Callable[..., Any] = reading) -> Any:
            read.append(shard.logs[-1].path if shard.logs else shard.base.path)
            return reading(store, shard, *args)

        monkeypatch.setattr(module, name, noted)
    return read


def a_table(table_type: str = "MERGE_ON_READ", index: IndexValue | None = None, at: str = "") -> Table:
    return create_table(
        at or f"memory://shard-cache-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index or DynamicBuckets(assigners=2, keys_per_bucket=10),
        table_type=table_type,
        maintenance="off",
    )


def rows(keys: range, ts: int = 1, partition: str = "p") -> pa.Table:
    values = [{"id": f"k{n}", "dt": partition, "ts": ts} for n in keys]
    return pa.Table.from_pylist(values, SCHEMA)


def check(table: Table, keys: set[str]) -> None:
    table = Table(table.store, load_properties(table.store))
    found = table.to_arrow(columns=["id"])["id"].to_pylist()
    assert sorted(found) == sorted(keys)
    check_record_index(table.store)
    assert check_table(table.store).damage == ()


def names(*ranges: range) -> set[str]:
    return {f"k{n}" for keys in ranges for n in keys}


@TYPES
def test_keys_are_found_in_what_is_kept(kept: KeptFiles, shards_read: list[str], table_type: str) -> None:
    table = a_table(table_type)
    table.upsert(rows(range(40)))
    assert kept.size_bytes() == 0, "nothing was there to be kept"
    table.upsert(rows(range(20, 60), ts=2))
    assert len(shards_read) == 2
    assert kept.size_bytes() > 0
    for number in range(3, 6):
        table.upsert(rows(range(20, 60 + number), ts=number))
    assert len(shards_read) == 2, "a shard was read though it was kept"
    check(table, names(range(65)))
    check_buckets(table.store)


@TYPES
@pytest.mark.usefixtures("kept", "all_worked_in")
def test_many_logs_are_worked_in(table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[int] = []
    changing = KnownKeys.changed

    def noted(known: KnownKeys, *args: Any) -> KnownKeys | None:
        after = changing(known, *args)
        changes.append(-1 if after is None else len(after))
        return after

    monkeypatch.setattr(KnownKeys, "changed", noted)
    table = a_table(table_type)
    table.upsert(rows(range(40)))
    for number in range(2, 8):
        table.upsert(rows(range(10 * number, 10 * number + 50), ts=number))
        table.delete(pa.table({"id": [f"k{n}" for n in range(3 * number, 3 * number + 6)], "dt": ["p"] * 6}))
    assert changes
    assert -1 not in changes
    gone = {f"k{n}" for number in range(2, 8) for n in range(3 * number, 3 * number + 6)}
    later = {f"k{n}" for number in range(3, 8) for n in range(10 * number, 10 * number + 50)}
    alive = table.to_arrow(columns=["id"])["id"].to_pylist()
    assert set(alive) >= later - gone
    check(table, set(alive))


@EACH_INDEX
@TYPES
def test_keys_of_every_index_are_found_in_what_is_kept(
    kept: KeptFiles, shards_read: list[str], table_type: str, index: IndexValue
) -> None:
    table = a_table(table_type, index)
    table.upsert(rows(range(40)))
    compact_metadata(table.store)
    done = table.upsert(rows(range(20, 60), ts=2))
    assert (done.looked_up, done.cache_hits) == (40, 0)
    assert kept.size_bytes() > 0
    del shards_read[:]
    done = table.upsert(rows(range(30, 70), ts=3))
    is_verified = index == KINDS["table, verified"]
    assert len(shards_read) == (2 if is_verified else 0)
    # Of keys that came with the second write its logs tell.
    assert (done.looked_up, done.cache_hits) == (40, 10 if is_verified else 20)
    text = "20 of 40 keys looked up in what is kept of the index"
    assert (text in str(done)) is not is_verified
    check(table, names(range(70)))


@pytest.mark.usefixtures("small_ranges")
@EACH_INDEX
def test_a_range_is_read_once_so_many_of_its_keys_were_asked_that_it_is_worth_while(
    kept: KeptFiles, shards_read: list[str], index: IndexValue
) -> None:
    table = a_table(index=index)
    table.upsert(rows(range(100, 300)))
    compact_metadata(table.store)
    before = set(kept.folder.iterdir()) if kept.folder.is_dir() else set()
    hits = []
    for number in range(20):
        done = table.upsert(rows(range(150, 152), ts=2 + number))
        hits.append(done.cache_hits)
    assert hits[0] == 0, "two keys are no reason to read a range"
    assert hits[-1] == (0 if index == KINDS["table, verified"] else 2)
    full = [file for file in set(kept.folder.iterdir()) - before if file.stat().st_size]
    assert 1 <= len(full) <= 2, "no other range was read"
    check(table, names(range(100, 300)))


@pytest.mark.usefixtures("small_ranges")
@EACH_INDEX
def test_of_a_shard_that_is_too_large_the_hottest_ranges_are_kept(tmp_path: Path, index: IndexValue) -> None:
    table = a_table(index=index)
    table.upsert(rows(range(100, 400)))
    compact_metadata(table.store)
    budget, hits = 8_000, list[int]()
    set_index_cache(budget, tmp_path / "kept")
    try:
        for number in range(3):  # all alike: a part is kept, and stays
            done = table.upsert(rows(range(100, 400), ts=2 + number))
            hits.append(done.cache_hits)
            assert KeptFiles(tmp_path / "kept", budget).size_bytes() <= budget
        for number in range(9):
            hot = table.upsert(rows(range(350, 360), ts=9 + number))
        assert KeptFiles(tmp_path / "kept", budget).size_bytes() <= budget
    finally:
        set_index_cache(0)
    check(table, names(range(100, 400)))
    if index != KINDS["table, verified"]:
        assert hits[0] == 0
        assert 0 < hits[1] == hits[2] < 200
        assert hot.cache_hits == 10


def test_what_is_twice_as_hot_takes_the_place_of_others(tmp_path: Path) -> None:
    kept = KeptFiles(tmp_path / "kept", 1_000)
    for name, uses in (("a", 4.0), ("b", 8.0)):
        assert kept.put(name, [b"x" * 400], heat=kept.warm(name, uses))
    heat = kept.warm("c", 6)
    assert not kept.with_room([Wanted("c", 400, heat)])
    assert not kept.put("c", [b"x" * 400], heat=heat)
    assert kept.size_bytes() == 800 + len("400"), "how large it would be is remembered"
    assert not kept.with_room([Wanted("c", 150, heat)])
    heat = kept.warm("c", 6)
    assert heat == pytest.approx(12, rel=0.01), "it was remembered that it was asked for"
    assert kept.with_room([Wanted("c", 400, heat), Wanted("d", 400, heat / 2)]) == ["c"]
    assert kept.put("c", [b"x" * 400], heat=heat)
    assert kept.open("a") is None
    assert kept.open("b") is not None
    assert kept.with_room([Wanted("d", 200, 0.1)]) == ["d"], "there is room"


def test_what_is_remembered_of_others_counts_too(tmp_path: Path) -> None:
    kept = KeptFiles(tmp_path / "kept", 1_000)
    assert kept.put("hot", [b"x" * 995], heat=kept.warm("hot", 9))
    for number in range(9):
        name = f"cold {number}"
        assert not kept.put(name, [b"x" * 300], heat=kept.warm(name, 1))
        assert kept.size_bytes() <= 1_000
    assert kept.size_bytes() == 995 + len("300")
    assert kept.warm("cold 8", 1) == pytest.approx(2, rel=0.01), "it was remembered that it was asked for"


def test_heat_halves_in_a_quarter_of_an_hour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, now = KeptFiles(tmp_path / "kept", 1_000), time.time_ns()
    kept.warm("a", 8)
    monkeypatch.setattr(time, "time_ns", lambda: now + 15 * 60 * 10**9)
    assert kept.warm("a", 1) == pytest.approx(5, rel=0.01)
    monkeypatch.setattr(time, "time_ns", lambda: now + 30 * 24 * 3600 * 10**9)
    assert kept.put("b", [b"x"])
    assert [file.name for file in kept.folder.iterdir()] == ["b.kept"], "nobody has asked for the other"


def roll_back(table: Table) -> set[str]:
    done = table.upsert(rows(range(30, 50), ts=5))
    table.upsert(rows(range(5), ts=6))
    for one in load_state(table.store).timeline.writes[:0:-1]:
        table.rollback(one.requested)
        if one.requested == done.instant:
            break
    return names(range(30))


def restore(table: Table) -> set[str]:
    table.savepoint()
    table.upsert(rows(range(30, 50), ts=5))
    table.upsert(rows(range(30, 50), ts=6))
    table.restore(table.savepoints()[0].instant)
    return names(range(30))


def rebuild(table: Table) -> set[str]:
    table.metadata.rebuild()
    return names(range(30))


def compact(table: Table) -> set[str]:
    compact_metadata(table.store)
    return names(range(30))


def cluster(table: Table) -> set[str]:
    table.cluster(by="ts")
    return names(range(30))


def overwrite(table: Table) -> set[str]:
    table.overwrite(rows(range(20, 50), ts=7))
    return names(range(20, 50))


def delete_partition(table: Table) -> set[str]:
    table.delete_partitions(["p"])
    return set()


def delete_and_insert(table: Table) -> set[str]:
    table.delete(pa.table({"id": ["k1", "k2"], "dt": ["p", "p"]}))
    table.upsert(rows(range(2, 3), ts=9))
    return names(range(30)) - {"k1"}


class Cut(FaultyStore):
    """A store on which a write fails, or its process dies, right before its claim or right after it."""

    def __init__(self, inner: Store, *, is_dead: bool, after: bool) -> None:
        super().__init__(inner)
        self._is_dead = is_dead
        self._after = after

    def put_new(self, path: str, data: bytes | Path) -> bool:
        is_claim = path.startswith(CLAIM_FOLDER)
        if is_claim and self._fails_at is None:
            self._fails_at = len(self.operations) + 1 + self._after
        return super().put_new(path, data)


def cut_off(table: Table, *, is_dead: bool, after: bool = False) -> None:
    cut = Table(Cut(table.store, is_dead=is_dead, after=after), table.properties)
    with pytest.raises(InjectedError):
        cut.upsert(rows(range(20, 50), ts=5))


def fail(table: Table) -> set[str]:
    """A write that fails takes back what it has put, in the index too."""
    cut_off(table, is_dead=False)
    return names(range(30))


@pytest.mark.parametrize(
    "happens",
    [roll_back, restore, rebuild, compact, cluster, overwrite, delete_partition, delete_and_insert, fail],
)
@pytest.mark.parametrize("verifies", [False, True])
@pytest.mark.usefixtures("all_worked_in")
@TYPES
def test_what_is_kept_is_right_whatever_happens(
    kept: KeptFiles, table_type: str, verifies: bool, happens: Callable[[Table], set[str]]
) -> None:
    table = a_table(table_type, DynamicBuckets(assigners=2, keys_per_bucket=10, verify_hits=verifies))
    table.upsert(rows(range(30)))
    happens_between(table, kept, happens)
    check_buckets(table.store)


def happens_between(table: Table, kept: KeptFiles, happens: Callable[[Table], set[str]]) -> None:
    """Keep an index, let something happen, and write again."""
    table.upsert(rows(range(30), ts=2))
    assert kept.size_bytes() > 0
    there = happens(table)
    check(table, there)
    for number in (10, 11):
        table = Table(table.store, load_properties(table.store))
        table.upsert(rows(range(25, 45), ts=number))
        check(table, there | names(range(25, 45)))


@pytest.mark.parametrize(
    "happens",
    [roll_back, restore, rebuild, compact, cluster, overwrite, delete_partition, delete_and_insert, fail],
)
@pytest.mark.usefixtures("small_ranges", "all_worked_in")
@pytest.mark.parametrize("name", ["table", "partitions"])
def test_what_is_kept_of_ranges_is_right_whatever_happens(
    kept: KeptFiles, name: str, happens: Callable[[Table], set[str]]
) -> None:
    table = a_table("MERGE_ON_READ" if name == "table" else "COPY_ON_WRITE", KINDS[name])
    table.upsert(rows(range(30)))
    compact_metadata(table.store)
    happens_between(table, kept, happens)


@pytest.mark.usefixtures("small_ranges")
def test_keys_that_move_and_come_back_are_found(kept: KeptFiles) -> None:
    table = a_table(index=KINDS["table"])
    table.upsert(rows(range(30)))
    compact_metadata(table.store)
    table.upsert(rows(range(30), ts=2))
    assert table.upsert(rows(range(10), ts=3, partition="q")).moved == 10
    done = table.upsert(rows(range(5), ts=4))
    assert (done.moved, done.cache_hits) == (5, 0), "where they are now only the logs tell"
    check(table, names(range(30)))


@pytest.mark.shows("R6")
@EACH_INDEX
@TYPES
def test_after_a_failure_claimed_entries_are_seen_and_others_are_not(
    kept: KeptFiles, table_type: str, index: IndexValue
) -> None:
    for after in (False, True):
        table = a_table(table_type, index)
        table.upsert(rows(range(30)))
        table.upsert(rows(range(30), ts=2))
        files = [file.read_bytes() for file in sorted(kept.folder.iterdir())]
        assert any(files)
        cut_off(table, is_dead=True, after=after)
        assert len(load_state(table.store).timeline.pending()) == 1
        assert len(list_claims(table.store).numbers) == 2 + after
        assert [file.read_bytes() for file in sorted(kept.folder.iterdir())] == files, (
            "nothing was kept of it"
        )
        done = table.upsert(rows(range(60), ts=9))
        assert done.looked_up == 60
        assert done.cache_hits > 0 or index == KINDS["table, verified"]
        check(table, names(range(60)))
        if table_type == "COPY_ON_WRITE":
            seen = 50 if after else 30
            assert (done.inserted, done.updated) == (60 - seen, seen)


def test_a_table_that_is_made_again_is_another(kept: KeptFiles, tmp_path: Path) -> None:
    for _ in range(2):
        table = a_table(at=str(tmp_path / "t"))
        table.upsert(rows(range(30)))
        table.upsert(rows(range(30), ts=2))
        check(table, names(range(30)))
        (tmp_path / "t").rename(tmp_path / f"gone {next(_names)}")


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_file_that_is_damaged_or_of_another_table_is_not_used(kept: KeptFiles, damage: str) -> None:
    table = a_table()
    table.upsert(rows(range(30)))
    table.upsert(rows(range(30), ts=2))
    assert table.upsert(rows(range(30), ts=3)).cache_hits == 30
    files = sorted(kept.folder.iterdir())
    contents = [file.read_bytes() for file in files]
    for file, content, other in zip(files, contents, contents[::-1], strict=True):
        flipped = bytearray(content)
        flipped[-30:-8] = bytes(byte ^ 1 for byte in content[-30:-8])
        file.write_bytes({"cut": content[:-9], "flipped": flipped, "empty": b"", "other": other}[damage])
    # This process has read the files when they were whole.
    table.upsert(rows(range(20, 60), ts=4))
    check(table, names(range(60)))
    check_buckets(table.store)


@pytest.mark.usefixtures("small_ranges")
@EACH_INDEX
def test_a_file_of_another_range_is_not_used(kept: KeptFiles, index: IndexValue) -> None:
    table = a_table(index=index)
    table.upsert(rows(range(100, 160)))
    compact_metadata(table.store)
    table.upsert(rows(range(100, 160), ts=2))
    assert table.upsert(rows(range(100, 160), ts=3)).cache_hits == (
        0 if index == KINDS["table, verified"] else 60
    )
    files = sorted(file for file in kept.folder.iterdir() if file.stat().st_size)
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    assert table.upsert(rows(range(100, 160), ts=4)).cache_hits == 0
    check(table, names(range(100, 160)))


def test_a_disk_that_takes_nothing_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "full").write_text("no folder")
    set_index_cache("1MB", tmp_path / "full")
    try:
        table = a_table()
        for number in range(3):
            table.upsert(rows(range(10 * number, 10 * number + 30), ts=number))
        check(table, names(range(50)))
        assert caplog.text.count("nothing is kept of an index") == 1, "not for every shard of every write"
    finally:
        set_index_cache(0)


def test_a_disk_that_is_full_in_the_middle_of_a_file_leaves_nothing_of_it(
    kept: KeptFiles, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opening = os.fdopen

    @contextmanager
    def full(handle: int, mode: str) -> Iterator[Any]:
        def write(data: memoryview) -> None:
            file.write(data[:20])
            raise OSError(errno.ENOSPC, "No space left on device")

        with opening(handle, mode) as file:
            yield SimpleNamespace(write=write)

    table = a_table()
    table.upsert(rows(range(30)))
    with monkeypatch.context() as patch:
        patch.setattr(kept_files.os, "fdopen", full)
        patch.setattr(kept_files, "_warned", {})
        done = table.upsert(rows(range(10, 40), ts=2))
    assert (done.looked_up, done.cache_hits) == (30, 0)
    assert "No space left on device" in caplog.text
    assert kept.size_bytes() == 0
    table.upsert(rows(range(40), ts=3))
    assert table.upsert(rows(range(40), ts=4)).cache_hits == 40, "there is room again"
    check(table, names(range(40)))


@pytest.mark.shows("X10")
@pytest.mark.parametrize("bytes_max", [0, 100, 3_000, 20_000])
def test_no_more_bytes_are_kept_than_was_said(tmp_path: Path, bytes_max: int) -> None:
    set_index_cache(bytes_max, tmp_path / "kept")
    try:
        table = a_table()
        for number in range(3):
            for partition in ("p", "q", "r"):
                table.upsert(rows(range(100 * number, 100 * number + 200), ts=number, partition=partition))
                kept = KeptFiles(tmp_path / "kept", bytes_max)
                assert kept.size_bytes() <= bytes_max
        assert check_record_index(table.store) == 1_200
        assert (kept.size_bytes() > 0) == (bytes_max >= 3_000)
    finally:
        set_index_cache(0)


@pytest.mark.shows("D5")
def test_only_the_partitions_that_are_written_to_are_kept(kept: KeptFiles, shards_read: list[str]) -> None:
    table = a_table(index=DynamicBuckets(assigners=1))
    everything = [rows(range(3), partition=f"p{n}") for n in range(50)]
    table.upsert(pa.concat_tables(everything))
    table.upsert(rows(range(5), ts=2, partition="p7"))
    assert len(shards_read) == len(list(kept.folder.iterdir())) == 1
    assert "record-index-p7-" in shards_read[0]


def test_the_files_that_were_used_longest_ago_go_first(tmp_path: Path) -> None:
    kept = KeptFiles(tmp_path / "kept", 1_000)
    for name in "abc":
        assert kept.put(name, [b"x" * 300])
    kept.warm("a", 1)
    assert kept.put("d", [b"x" * 200, b"y" * 100])
    assert kept.open("b") is None
    assert bytes(kept.open("d") or b"") == b"x" * 200 + b"y" * 100
    assert not kept.put("e", [b"x" * 1_001])
    assert kept.put("a", [b"z" * 400]), "it takes its own place"
    assert kept.open("c") is not None


@pytest.mark.parametrize("budget", ["much", -1, 1.5, True])
def test_a_bound_that_is_none_is_refused(budget: Any) -> None:
    with pytest.raises(ConfigError, match="the index cache is"):
        set_index_cache(budget)


def test_the_environment_says_what_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept_files, "_said", [])
    assert index_cache() is None
    monkeypatch.setenv("BUCKETLAKE_INDEX_CACHE", "2MB")
    monkeypatch.setenv("BUCKETLAKE_INDEX_CACHE_FOLDER", str(tmp_path))
    assert index_cache() == KeptFiles(tmp_path, 2 << 20)
    monkeypatch.setenv("BUCKETLAKE_INDEX_CACHE", "much")
    with pytest.raises(ConfigError, match="BUCKETLAKE_INDEX_CACHE is 'much'"):
        index_cache()


def test_every_hit_is_asked_about_if_the_table_says_so(kept: KeptFiles, shards_read: list[str]) -> None:
    table = a_table(index=DynamicBuckets(assigners=1, verify_hits=True))
    table.upsert(rows(range(20)))
    table.upsert(rows(range(20), ts=2))
    before = len(shards_read)
    table.upsert(rows(range(20), ts=3))
    assert len(shards_read) == before + 1
    table.upsert(rows(range(20, 40), ts=3))
    assert len(shards_read) == before + 1, "what is not found is new"
    assert str(resolve_index(load_state(table.store))).startswith("dynamic buckets: 1 assigner,")


def test_a_hash_that_two_keys_share_is_asked_about(kept: KeptFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    hashing = shard_cache.key_hashes
    monkeypatch.setattr(shard_cache, "key_hashes", lambda keys: hashing(keys) % 16)
    table = a_table(index=DynamicBuckets(assigners=1, keys_per_bucket=7))
    table.upsert(rows(range(60)))
    table.upsert(rows(range(60), ts=2))
    table.upsert(rows(range(60), ts=3))
    check(table, names(range(60)))


@pytest.fixture
def one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the keys `twin` and `k3` one hash, in what is kept."""
    hashing = shard_cache.key_hashes

    def hashes(keys: pa.Array) -> Any:
        made = hashing(keys)
        texts = keys.to_pylist()
        for number, text in enumerate(texts):
            if text == "twin":
                made[number] = hashing(pa.array(["k3"]))[0]
        return made

    monkeypatch.setattr(shard_cache, "key_hashes", hashes)


@pytest.mark.usefixtures("kept", "one_hash")
@pytest.mark.parametrize("verifies", [False, True])
@TYPES
def test_a_key_that_is_taken_for_another_is_recorded_by_the_next_compaction_at_the_latest(
    table_type: str, verifies: bool
) -> None:
    table = a_table(table_type, DynamicBuckets(assigners=1, keys_per_bucket=50, verify_hits=verifies))
    table.upsert(rows(range(10)))
    table.upsert(rows(range(10), ts=2))
    table.upsert([{"id": "twin", "dt": "p", "ts": 3}])
    everything = {*names(range(10)), "twin"}
    if table_type == "MERGE_ON_READ" and not verifies:
        assert "twin" not in set(table.locations("p")["key"].to_pylist())
        (finding,) = check_table(table.store).damage
        assert "twin" in finding.text
        assert "1 key" in str(table.plan_repair())
        table.compact(delta_commits=1)
    check(table, everything)
    table.upsert([{"id": "twin", "dt": "p", "ts": 4}])
    check(table, everything)


@pytest.mark.usefixtures("kept", "one_hash")
@pytest.mark.parametrize("partition", ["p", "q"])
@pytest.mark.parametrize("verifies", [False, True])
@TYPES
def test_a_key_that_is_taken_for_another_in_an_index_of_the_table_is_no_worse(
    table_type: str, verifies: bool, partition: str
) -> None:
    """The other may be in another partition: then the key is taken for one that moves."""
    table = a_table(table_type, RecordIndex(shards=1, verify_hits=verifies))
    table.upsert(rows(range(10)))
    compact_metadata(table.store)
    table.upsert(rows(range(10), ts=2))
    done = table.upsert([{"id": "twin", "dt": partition, "ts": 3}])
    assert done.moved == (partition == "q" and not verifies)
    everything = {*names(range(10)), "twin"}
    if table_type == "MERGE_ON_READ" and not verifies and partition == "p":
        (finding,) = check_table(table.store).damage
        assert "twin" in finding.text
        table.compact(delta_commits=1)
    check(table, everything)
    table.upsert([{"id": "twin", "dt": partition, "ts": 4}])
    check(table, everything)
