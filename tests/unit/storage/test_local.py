"""A table on a disk is shared with Hadoop, with links, and with programs that die in the middle."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from bucketlake.errors import CorruptTableError, UnsafePathError
from bucketlake.storage import LocalStore, Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    folder.mkdir()
    return folder


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# Hadoop's checksum files


def test_checksum_files_are_not_listed(store: LocalStore, root: Path) -> None:
    store.put("p/data", b"x")
    (root / "p" / ".data.crc").write_bytes(b"crc")
    (root / "p" / "plain.crc").write_bytes(b"no side file: it has no dot in front")
    assert [file.path for file in store.list("p").files] == ["p/data", "p/plain.crc"]
    assert [file.path for file in store.list("", recursive=True).files] == ["p/data", "p/plain.crc"]


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.put("data", b"new"),
        lambda store: store.replace_if("data", b"new", store.stat("data").version),
        lambda store: store.delete("data"),
    ],
    ids=["put", "replace_if", "delete"],
)
def test_a_changed_file_loses_its_checksum_file(
    store: LocalStore, root: Path, change: Callable[[Store], object]
) -> None:
    store.put("data", b"old")
    (root / ".data.crc").write_bytes(b"crc of old")
    change(store)
    assert ".data.crc" not in names_in(root)


def test_a_new_file_does_not_inherit_a_checksum_file(store: LocalStore, root: Path) -> None:
    (root / ".data.crc").write_bytes(b"crc of a file that is gone")
    assert store.put_new("data", b"new")
    assert names_in(root) == ["data"]


def test_a_write_that_loses_leaves_the_checksum_file(store: LocalStore, root: Path) -> None:
    store.put("data", b"old")
    (root / ".data.crc").write_bytes(b"crc of old")
    assert not store.put_new("data", b"new")
    assert not store.replace_if("data", b"new", "another version")
    assert names_in(root) == [".data.crc", "data"]


# Temporary files


def test_no_operation_leaves_a_temporary_file(store: LocalStore, root: Path) -> None:
    store.put("a", b"1")
    store.put_new("b", b"2")
    store.put_new("b", b"3")
    store.replace_if("a", b"4", store.stat("a").version)
    store.replace_if("a", b"5", "another version")
    with pytest.raises(FileNotFoundError):
        store.put("c", root / "no such spill file")
    assert names_in(root) == ["a", "b"]


def test_what_a_killed_writer_left_is_not_listed(
    store: LocalStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "unlink", die)  # not even the tidying runs
    with pytest.raises(KeyboardInterrupt):
        store.put("a", b"half of it")
    monkeypatch.undo()
    assert len(names_in(root)) == 1, "the temporary file"
    assert store.list("").files == ()
    assert store.put_new("a", b"whole")


# Links


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_bytes(b"secret")
    return folder


@pytest.mark.parametrize("path", ["link", "link/secret", "link/new", "file_link", "dangling"])
def test_a_link_out_of_the_root_is_refused_by_every_operation(
    store: LocalStore, root: Path, outside: Path, path: str
) -> None:
    (root / "link").symlink_to(outside)
    (root / "file_link").symlink_to("../outside/secret")
    (root / "dangling").symlink_to(outside / "nothing")
    operations: list[Callable[[], object]] = [
        lambda: store.stat(path),
        lambda: store.read(path),
        lambda: store.list(path),
        lambda: store.put(path, b"mine"),
        lambda: store.put_new(path, b"mine"),
        lambda: store.replace_if(path, b"mine", "version"),
        lambda: store.delete(path),
        lambda: store.local_path(path),
    ]
    for operation in operations:
        with pytest.raises(UnsafePathError):
            operation()
    assert names_in(outside) == ["secret"]
    assert (outside / "secret").read_bytes() == b"secret"


@pytest.mark.parametrize("target", ["..", "../outside", "../outside/secret", "/etc"])
@pytest.mark.parametrize("recursive", [False, True])
def test_a_listing_does_not_follow_a_link_out_of_the_root(
    store: LocalStore, root: Path, outside: Path, target: str, recursive: bool
) -> None:
    (root / "link").symlink_to(target)
    with pytest.raises(UnsafePathError, match="outside of"):
        store.list("", recursive=recursive)


def test_a_folder_beside_the_root_with_a_longer_name_is_outside(store: LocalStore, root: Path) -> None:
    beside = root.with_name(root.name + "-2")
    beside.mkdir()
    (root / "link").symlink_to(beside)
    with pytest.raises(UnsafePathError):
        store.put("link/a", b"")


def test_a_link_that_stays_inside_is_followed(store: LocalStore, root: Path) -> None:
    store.put("real/data", b"x")
    (root / "folder").symlink_to("real")
    (root / "file").symlink_to("real/data")
    assert store.read("folder/data") == store.read("file") == b"x"
    assert store.list("").folders == ("folder", "real")
    assert [file.path for file in store.list("", recursive=True).files] == [
        "file",
        "folder/data",
        "real/data",
    ]


def test_writing_to_a_link_replaces_the_link_and_not_its_target(store: LocalStore, root: Path) -> None:
    store.put("real", b"x")
    (root / "link").symlink_to("real")
    assert not store.put_new("link", b"y")
    store.put("link", b"y")
    assert (store.read("link"), store.read("real")) == (b"y", b"x")
    (root / "again").symlink_to("real")
    store.delete("again")
    assert store.read("real") == b"x"


def test_a_link_to_nothing_is_no_file(store: LocalStore, root: Path) -> None:
    (root / "dangling").symlink_to("nothing")
    assert store.list("").files == ()
    with pytest.raises(FileNotFoundError):
        store.stat("dangling")


@pytest.mark.parametrize("target", [".", "../a"])
def test_a_folder_that_contains_itself_is_an_error_and_not_a_loop(
    store: LocalStore, root: Path, target: str
) -> None:
    store.put("a/b", b"x")
    (root / "a" / "again").symlink_to(target)
    with pytest.raises(CorruptTableError, match="contains it"):
        store.list("", recursive=True)
    assert store.list("a").folders == ("a/again",)


def test_a_link_to_itself_is_refused(store: LocalStore, root: Path) -> None:
    (root / "self").symlink_to("self")
    with pytest.raises(UnsafePathError):
        store.list("")
    with pytest.raises(UnsafePathError):
        store.read("self")


def test_the_root_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    alias = LocalStore(tmp_path / "alias")
    alias.put("a/b", b"x")
    assert LocalStore(root).read("a/b") == b"x"
    assert [file.path for file in alias.list("", recursive=True).files] == ["a/b"]


# Versions and the lock


def test_quick_writes_of_one_size_have_different_versions(store: LocalStore) -> None:
    versions = set()
    for _ in range(100):
        store.put("a", b"same")
        versions.add(store.stat("a").version)
    assert len(versions) == 100


def test_the_time_in_a_version_is_set_by_us_to_the_nanosecond(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel with a coarse clock stamps quick writes alike, and this one may not be such a kernel."""
    times = iter([1_700_000_000_123_456_789, 1_700_000_000_123_456_790, 1_700_000_000_123_456_791])
    monkeypatch.setattr("bucketlake.storage.local.time.time_ns", lambda: next(times))
    store.put_new("a", b"same")
    first = store.stat("a")
    store.put("a", b"same")
    second = store.stat("a")
    store.replace_if("a", b"same", second.version)
    third = store.stat("a")
    stamps = [int(stat.version.partition("-")[0], 16) for stat in (first, second, third)]
    assert [stamp % 1_000_000 for stamp in stamps] == [456_789, 456_790, 456_791]
    assert first.modified_ms == 1_700_000_000_123


def test_a_put_is_never_lost_to_a_replacement_of_what_was_before_it(store: LocalStore) -> None:
    """`put` takes the lock too: it comes first, and `replace_if` fails; or it comes last, and stays."""
    for n in range(100):
        store.put("a", b"start")
        version = store.stat("a").version
        with ThreadPoolExecutor(2) as pool:
            replacing = pool.submit(store.replace_if, "a", b"replaced", version)
            putting = pool.submit(store.put, "a", b"put %d" % n)
            replacing.result()
            putting.result()
        assert store.read("a") == b"put %d" % n


def test_an_operation_leaves_no_open_file(store: LocalStore) -> None:
    store.put("a", b"x")
    before = os.dup(0)
    os.close(before)
    for _ in range(20):
        store.put("a", b"x")
        store.replace_if("a", b"y", store.stat("a").version)
        store.put_new("b", b"x")
        store.list("", recursive=True)
        store.delete("b")
    after = os.dup(0)
    os.close(after)
    assert after == before, "the lowest free descriptor is the same"


# The rest


def test_a_relative_root_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore(Path("table"))
    store.put("a", b"x")
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(store)).read("a") == b"x"
    assert store.uri == f"file://{tmp_path}/table"


def test_a_pipe_is_no_file(store: LocalStore, root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert store.list("").files == ()
    with pytest.raises(FileNotFoundError):
        store.stat("pipe")


def test_files_are_readable_for_others_as_the_umask_says(store: LocalStore, root: Path) -> None:
    before = os.umask(0o022)
    try:
        store.put("a", b"x")
        store.put_new("b", b"x")
    finally:
        os.umask(before)
    assert {(root / name).stat().st_mode & 0o777 for name in ("a", "b")} == {0o644}


def test_a_folder_that_loses_its_last_file_is_gone(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for path in ("a/b/c/x", "a/b/y", "z"):
        store.put(path, b"")
    store.delete("a/b/c/x")
    assert store.list("a/b").folders == ()
    store.delete("a/b/y")
    assert not (tmp_path / "a").exists()
    store.delete("z")
    assert tmp_path.exists(), "the root stays"


@pytest.mark.parametrize(("data", "synced"), [(b"", 0), (b"a commit", 1)])
def test_only_the_deletion_of_what_says_something_is_made_to_last(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, data: bytes, synced: int
) -> None:
    store.put("temp/1/day/file.marker", data)
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    store.delete("temp/1/day/file.marker")
    assert len(calls) == synced
    assert store.list("", recursive=True).files == ()


def test_a_folder_that_is_removed_under_a_write_is_made_again(tmp_path: Path) -> None:
    """One thread fills a folder and empties it, others write to it."""
    store = LocalStore(tmp_path)
    stop = Event()

    def come_and_go() -> None:
        while not stop.is_set():
            store.put("a/b/passing", b"")
            store.delete("a/b/passing")

    with ThreadPoolExecutor(3) as pool:
        passing = pool.submit(come_and_go)
        written = [pool.submit(store.put_new, f"a/b/{n % 2}/{n}", b"x") for n in range(100)]
        assert all(write.result() for write in written)
        for n in range(100):
            store.delete(f"a/b/{n % 2}/{n}")
        stop.set()
        passing.result()
    assert store.list("", recursive=True).files == ()
