"""What every store must do, as tests.

    class TestMyStore(SharedStoreContract):
        @pytest.fixture
        def store(self, tmp_path: Path) -> Store:
            return MyStore(tmp_path)

`StoreContract` is for any store, `SharedStoreContract` for one that other processes can open too; they get
it as Spark's executors do, pickled. The fixture gives an empty store each time. A store that fails here loses
commits.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier as ProcessBarrier
from threading import Barrier, Event

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.errors import UnsafePathError
from bucketlake.storage import Store, open_input

ODD_NAMES = [
    "with space",
    "100%",
    "a%20b",
    "%2e%2e",
    "day=2024-01-02",
    "it's",
    'say "so"',
    "a+b&c,d;e",
    "q?u#e*r[y]{}",
    "Straße",
    "日本語",
    "\N{WATER WAVE}",
    ".hidden",
    "..dots..",
]

UNSAFE_PATHS = [
    "/etc/passwd",
    "..",
    "../out",
    "a/../../out",
    "a/..",
    "./a",
    "a/./b",
    "a//b",
    "a/",
    "a\\..\\b",
    "a\0b",
]

THREADS = 8
PROCESSES = 4
ROUNDS = 20


class StoreContract:
    """What every `Store` must do. A new store subclasses this and gets the tests."""

    foreign_files = "\0"
    """What is in the names of files that a server lists though they are its own."""

    # put, read, stat

    def test_a_file_reads_as_it_was_put(self, store: Store) -> None:
        data = bytes(range(256)) * 1000
        store.put("a/b/c", data)
        assert store.read("a/b/c") == data

    def test_an_empty_file_is_a_file(self, store: Store) -> None:
        store.put("empty", b"")
        assert store.read("empty") == b""
        assert store.read("empty", offset=0, length=10) == b""
        assert store.stat("empty").size_bytes == 0
        assert [file.path for file in store.list("").files] == ["empty"]

    def test_put_replaces_the_whole_file(self, store: Store) -> None:
        store.put("a", b"a longer text")
        store.put("a", b"short")
        assert store.read("a") == b"short"
        assert store.stat("a").size_bytes == 5

    def test_put_copies_a_local_file(self, store: Store, tmp_path_factory: pytest.TempPathFactory) -> None:
        spill = tmp_path_factory.mktemp("spill") / "data"
        data = bytes(range(256)) * 50_000  # larger than what a client sends in one piece
        spill.write_bytes(data)
        store.put("a/put", spill)
        assert store.put_new("a/new", spill)
        assert not store.put_new("a/new", spill)
        assert store.read("a/put") == data
        assert store.read("a/new") == data
        assert spill.read_bytes() == data, "the spill file is its owner's"

    @pytest.mark.parametrize(
        ("offset", "length", "expected"),
        [
            (0, None, b"0123456789"),
            (0, 10, b"0123456789"),
            (3, 4, b"3456"),
            (7, None, b"789"),
            (7, 100, b"789"),
            (9, 1, b"9"),
            (10, 1, b""),
            (10, None, b""),
            (99, 5, b""),
            (99, None, b""),
            (4, 0, b""),
        ],
    )
    def test_a_range_gives_what_is_there(
        self, store: Store, offset: int, length: int | None, expected: bytes
    ) -> None:
        store.put("digits", b"0123456789")
        assert store.read("digits", offset=offset, length=length) == expected

    def test_stat_describes_what_list_lists(self, store: Store) -> None:
        store.put("a/b", b"12345")
        assert store.list("a").files == (store.stat("a/b"),)
        assert store.stat("a/b").path == "a/b"
        assert store.stat("a/b").size_bytes == 5
        assert store.stat("a/b").modified_ms > 1_500_000_000_000, "milliseconds, of this century"

    def test_a_version_changes_with_the_content_and_only_then(self, store: Store) -> None:
        versions = []
        for n in range(20):
            store.put("a", b"%04d" % n)
            versions.append(store.stat("a").version)
            assert store.stat("a").version == versions[-1]
        assert len(set(versions)) == 20

    @pytest.mark.parametrize("path", ["missing", "folder/missing", "folder", "folder/file/below"])
    def test_a_path_without_a_file_is_not_found(self, store: Store, path: str) -> None:
        store.put("folder/file", b"x")
        with pytest.raises(FileNotFoundError):
            store.stat(path)
        with pytest.raises(FileNotFoundError):
            store.read(path)
        with pytest.raises(FileNotFoundError):
            store.read(path, offset=1, length=1)
        with pytest.raises(FileNotFoundError):
            store.read(path, offset=1, length=0)

    # list

    def test_a_listing_is_one_level_and_sorted(self, store: Store) -> None:
        for path in ["b", "a/2", "a/10", "a/1", "a/deep/er/x", "a/Deep/x", "ab/x", "Z", "é"]:
            store.put(path, b"")
        root = store.list("")
        assert [file.path for file in root.files] == ["Z", "b", "é"]
        assert root.folders == ("a", "ab")
        inner = store.list("a")
        assert [file.path for file in inner.files] == ["a/1", "a/10", "a/2"]
        assert inner.folders == ("a/Deep", "a/deep")

    def test_a_recursive_listing_has_every_file_below(self, store: Store) -> None:
        for path in ["a/x/1", "a/x/y/2", "a/0", "ab/3", "b"]:
            store.put(path, b"1")
        below_a = store.list("a", recursive=True)
        assert [file.path for file in below_a.files] == ["a/0", "a/x/1", "a/x/y/2"]
        assert below_a.folders == ()
        everything = store.list("", recursive=True)
        assert [file.path for file in everything.files] == ["a/0", "a/x/1", "a/x/y/2", "ab/3", "b"]

    def test_a_long_listing_is_complete(self, store: Store) -> None:
        with ThreadPoolExecutor(THREADS) as pool:  # more than a server gives in one answer
            list(pool.map(lambda n: store.put(f"many/{n:04d}", b""), range(1100)))
        expected = [f"many/{n:04d}" for n in range(1100)]
        assert [file.path for file in store.list("many").files] == expected
        assert [file.path for file in store.list("", recursive=True).files] == expected

    @pytest.mark.parametrize("recursive", [False, True])
    @pytest.mark.parametrize("folder", ["", "missing", "a/missing", "a/file"])
    def test_a_folder_that_is_not_there_is_empty(self, store: Store, folder: str, recursive: bool) -> None:
        if folder:
            store.put("a/file", b"x")
        listing = store.list(folder, recursive=recursive)
        assert (listing.files, listing.folders) == ((), ())

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_are_names(self, store: Store, name: str) -> None:
        path = f"{name}/in/{name}"
        assert store.put_new(path, b"1")
        store.put(path, b"22")
        assert store.replace_if(path, b"333", store.stat(path).version)
        assert store.read(path) == b"333"
        assert store.list("").folders == (name,)
        assert [file.path for file in store.list(f"{name}/in").files] == [path]
        assert [file.path for file in store.list(name, recursive=True).files] == [path]
        store.delete(path)
        assert store.list("", recursive=True).files == ()

    # put_new, replace_if, delete

    def test_put_new_writes_once(self, store: Store) -> None:
        assert store.put_new("a/new", b"first")
        assert not store.put_new("a/new", b"second")
        assert store.read("a/new") == b"first"

    def test_put_new_can_follow_a_delete(self, store: Store) -> None:
        assert store.put_new("a", b"first")
        store.delete("a")
        assert store.put_new("a", b"second")
        assert store.read("a") == b"second"

    def test_replace_if_needs_the_present_version(self, store: Store) -> None:
        store.put("a", b"one")
        first = store.stat("a").version
        assert store.replace_if("a", b"two", first)
        assert not store.replace_if("a", b"three", first)
        assert store.read("a") == b"two"

    def test_replace_if_needs_a_file(self, store: Store) -> None:
        store.put("a", b"one")
        version = store.stat("a").version
        store.delete("a")
        assert not store.replace_if("a", b"two", version)
        assert not store.replace_if("folder/none", b"two", version)
        assert store.list("", recursive=True).files == ()

    def test_delete_takes_one_file_and_is_content_with_none(self, store: Store) -> None:
        store.put("a/x", b"1")
        store.put("a/xy", b"2")
        store.delete("a/x")
        store.delete("a/x")
        store.delete("missing/x")
        store.delete("a")
        assert [file.path for file in store.list("", recursive=True).files] == ["a/xy"]

    # many at once

    def test_put_new_has_exactly_one_winner_among_threads(self, store: Store) -> None:
        for round_number in range(ROUNDS):
            path = f"claims/{round_number}"
            wins = _at_once(partial(_claim, store, path))
            assert wins.count(True) == 1
            assert store.read(path) == b"%d" % wins.index(True)

    def test_replace_if_has_exactly_one_winner_among_threads(self, store: Store) -> None:
        store.put("counter", b"start")
        for round_number in range(ROUNDS):
            version = store.stat("counter").version
            wins = _at_once(partial(_replace, store, version, round_number))
            assert wins.count(True) == 1
            assert store.read("counter") == b"%d %d" % (round_number, wins.index(True))

    def test_a_reader_never_sees_half_a_file(self, store: Store) -> None:
        versions = [bytes([letter]) * size for letter, size in [(97, 300_000), (98, 70_000)]]
        store.put("a", versions[0])
        finished = Event()

        def write() -> None:
            try:
                for n in range(40):
                    store.put("a", versions[n % 2])
            finally:
                finished.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            reads = 0
            while not finished.is_set() or reads == 0:
                assert store.read("a") in versions
                listed = [file.path for file in store.list("", recursive=True).files]
                assert [path for path in listed if self.foreign_files not in path] == ["a"]
                reads += 1
            writing.result()

    # safety, travel, pyarrow

    @pytest.mark.parametrize("path", UNSAFE_PATHS)
    def test_unsafe_paths_are_refused(self, store: Store, path: str) -> None:
        operations: list[Callable[[], object]] = [
            lambda: store.list(path),
            lambda: store.list(path, recursive=True),
            lambda: store.stat(path),
            lambda: store.read(path),
            lambda: store.read(path, offset=1, length=1),
            lambda: store.put(path, b""),
            lambda: store.put_new(path, b""),
            lambda: store.replace_if(path, b"", "version"),
            lambda: store.delete(path),
        ]
        for operation in operations:
            with pytest.raises(UnsafePathError):
                operation()

    def test_the_root_is_not_a_file(self, store: Store) -> None:
        with pytest.raises(UnsafePathError):
            store.put("", b"")
        with pytest.raises(UnsafePathError):
            store.delete("")

    def test_a_pickled_store_is_the_same_store(self, store: Store) -> None:
        store.put("a", b"before")
        travelled: Store = pickle.loads(pickle.dumps(store))
        assert travelled.uri == store.uri
        assert travelled.read("a") == b"before"
        travelled.put("b", b"after")
        assert store.read("b") == b"after"
        pickle.dumps(travelled)

    def test_a_file_opens_as_arrow_input(self, store: Store) -> None:
        data = bytes(range(256)) * 16_000  # several pieces
        for path, content in [("large", data), ("small", data[:1000]), ("empty", b"")]:
            store.put(path, content)
            with open_input(store, path) as file:
                assert file.size() == len(content)
                assert file.read() == content
                if content:
                    assert file.read_at(10, 5) == content[5:15]
                for start in (0, len(content) // 2, max(0, len(content) - 7)):
                    file.seek(start)
                    assert file.read(100) == content[start : start + 100]
        with pytest.raises(FileNotFoundError):
            open_input(store, "missing")

    def test_parquet_reads_through_arrow_input(self, store: Store) -> None:
        table = pa.table({"n": pa.array(range(300_000)), "text": [f"row {n * 7919}" for n in range(300_000)]})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=50_000, compression="none")
        store.put("a.parquet", sink.getvalue().to_pybytes())
        with open_input(store, "a.parquet") as file:
            assert pq.ParquetFile(file, pre_buffer=True).read().equals(table)
        with open_input(store, "a.parquet") as file:
            assert pq.ParquetFile(file).read_row_group(3, columns=["n"]).num_rows == 50_000


class SharedStoreContract(StoreContract):
    """And what a store must do that several processes use at once."""

    def test_put_new_has_exactly_one_winner_among_processes(self, store: Store) -> None:
        wins = _in_processes(_claim_every_round, store)
        for round_number, claims in enumerate(zip(*wins, strict=True)):
            assert claims.count(True) == 1
            assert store.read(f"claims/{round_number}") == b"%d" % claims.index(True)

    def test_replace_if_loses_no_update_among_processes(self, store: Store) -> None:
        store.put("counter", b"0")
        _in_processes(_count_every_round, store)
        assert store.read("counter") == b"%d" % (PROCESSES * ROUNDS)


def _claim(store: Store, path: str, n: int) -> bool:
    return store.put_new(path, b"%d" % n)


def _replace(store: Store, version: str, round_number: int, n: int) -> bool:
    return store.replace_if("counter", b"%d %d" % (round_number, n), version)


def _at_once(attempt: Callable[[int], bool]) -> list[bool]:
    """Call `attempt` in as many threads, none before all are ready."""
    ready = Barrier(THREADS)

    def wait_and_attempt(n: int) -> bool:
        ready.wait()
        return attempt(n)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(wait_and_attempt, range(THREADS)))


_Work = Callable[[Store, int, "ProcessBarrier"], list[bool]]


def _in_processes(work: _Work, store: Store) -> list[list[bool]]:
    """Run `work` in fresh processes that open the store themselves, and return what each one returned."""
    # A fork of this process would share the client's sockets and threads. The server that processes are forked from
    # has imported this module, and opened nothing.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    ready = context.Barrier(PROCESSES)
    pipes = [context.Pipe(duplex=False) for _ in range(PROCESSES)]
    processes = [
        context.Process(target=_work_and_tell, args=(work, pickle.dumps(store), n, ready, pipes[n][1]))
        for n in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    for _, ours in pipes:
        ours.close()  # so that a process that dies ends its pipe
    try:
        results: list[list[bool]] = [receiver.recv() for receiver, _ in pipes]
    finally:
        for process, (receiver, _) in zip(processes, pipes, strict=True):
            receiver.close()
            process.join(timeout=60)
            process.close()
    return results


def _work_and_tell(
    work: _Work, pickled: bytes, n: int, ready: ProcessBarrier, answer: Connection[list[bool], None]
) -> None:
    with answer:
        try:
            answer.send(work(pickle.loads(pickled), n, ready))
        except BaseException:
            ready.abort()  # the others need not wait
            raise


def _claim_every_round(store: Store, n: int, ready: ProcessBarrier) -> list[bool]:
    wins = []
    for round_number in range(ROUNDS):
        ready.wait(timeout=60)
        wins.append(_claim(store, f"claims/{round_number}", n))
    return wins


def _count_every_round(store: Store, _: int, ready: ProcessBarrier) -> list[bool]:
    for _round in range(ROUNDS):
        ready.wait(timeout=60)
        while True:
            version = store.stat("counter").version
            value = int(store.read("counter"))
            if store.replace_if("counter", b"%d" % (value + 1), version):
                break
    return []
