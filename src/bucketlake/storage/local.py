"""A folder on this machine, as a store.

A file appears under its name whole or not at all: bytes go to a hidden temporary file in the same folder, are
fsynced, and then take the name in one step; the folder is fsynced after, so that the name survives a power
cut too.

    put         rename        replaces what has the name; an empty file, such as a marker, is made in its place
    put_new     hard link     fails if anything has the name: one winner, decided by the file system
    replace_if  rename, after comparing the version under a lock

The lock is `flock` on the folder itself. It belongs to an open file description, and every operation opens
its own, so it keeps threads apart as well as processes; it dies with its holder and leaves no file behind.
`put` and `delete` take it too: a write that slipped in between the comparison and the rename would be lost,
and nobody told. It holds on one machine and among bucketlake's own writers. `put_new` needs no lock: its
promise holds for everybody.

A version is the file's modification time, inode and size. The time is set by us, to the nanosecond: older
kernels (Linux before 6.13) stamp files by a clock that moves every few milliseconds, and a freed inode is
soon used again, so that there two quick writes could look alike.

Hadoop keeps a checksum of `x` in `.x.crc` beside it and refuses to read an `x` that does not fit. We never
list these, remove them with what they describe, and remove them before we change it: without one, Hadoop
reads unchecked.

A folder that loses its last file is removed, and those above it, so that here too folders are only prefixes of
files. A write that finds its folder removed under its hands makes it again. After a deletion the folder that is left is
fsynced, unless the file was empty: a marker of a write that has ended, or the request of an instant that is undone, may
come back by a power cut, and is deleted again.

Symbolic links may lead anywhere inside the root; one that leads out is refused by every operation. The check
comes before the use: it protects from what stands in a table, not from a program that swaps links while we
run.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat as status_bits
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from bucketlake.errors import CorruptTableError
from bucketlake.storage.paths import below, check_path, unsafe
from bucketlake.storage.store import FileStat, Listing

_TEMPORARY_PREFIX = ".bucketlake-"
_TEMPORARY_SUFFIX = ".tmp"
_COPY_CHUNK_BYTES = 1 << 20
_FOLDER_ATTEMPTS = 100
_PATH = attrgetter("path")


@dataclass(frozen=True, slots=True)
class LocalStore:
    """The files below `root`, a folder that need not exist yet."""

    root: Path

    def __post_init__(self) -> None:
        # A store travels to processes with other working folders.
        object.__setattr__(self, "root", Path(self.root).absolute())

    @property
    def uri(self) -> str:
        return f"file://{self.root}"

    @property
    def requests_at_once(self) -> int:
        return 1  # measured: threads that open small files one by one only get into each other's way

    def local_path(self, path: str) -> Path:
        """Return where a file is on this machine, for readers that map or open it themselves."""
        check_path(path)
        location = self.root / path
        if not self._passes_a_link(path):
            return location
        # Only the folder is resolved: writing and deleting act on the name, as rename and unlink do.
        place = self._resolve(location.parent, path) / location.name
        if place.is_symlink():
            self._resolve(place, path)
        return place

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        """List a folder. One that somebody else has made and left empty is listed by the folder above it."""
        if folder:
            check_path(folder)
        files: list[FileStat] = []
        folders: list[str] = []
        place = self.root / folder
        if folder and self._passes_a_link(folder):
            place = self._resolve(place, folder)
        pending = [_Visit(folder, place, None)]
        while pending:
            for found in self._scan(pending.pop()):
                if isinstance(found, FileStat):
                    files.append(found)
                elif recursive:
                    if found.comes_back():
                        raise _endless(found.path)
                    pending.append(found)
                else:
                    folders.append(found.path)
        return Listing(tuple(sorted(files, key=_PATH)), tuple(sorted(folders)))

    def stat(self, path: str) -> FileStat:
        place = self.local_path(path)
        try:
            status = place.stat()
        except OSError as error:
            raise self._not_found_or(error, path) from None
        if not status_bits.S_ISREG(status.st_mode):
            raise self._not_found(path)
        return _file_stat(path, status)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        assert offset >= 0, "an offset counts from the start"
        assert length is None or length >= 0, "a length is not negative"
        place = self.local_path(path)
        try:
            with place.open("rb") as file:
                file.seek(offset)
                return file.read() if length is None else file.read(length)
        except OSError as error:
            raise self._not_found_or(error, path) from None

    def put(self, path: str, data: bytes | Path) -> None:
        place = self.local_path(path)
        if data == b"" and _made_empty(place):
            return
        with _temporary_file(place.parent, data) as temporary, _locked(place.parent):
            _checksum_of(place).unlink(missing_ok=True)
            temporary.replace(place)
        _sync(place.parent)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        place = self.local_path(path)
        if _exists(place):
            return False  # Nothing we could write would change that; spare the copy and the fsync.
        with _temporary_file(place.parent, data) as temporary:
            if not _exists(place):
                # Left by a file that is gone; Hadoop would hold ours against it.
                _checksum_of(place).unlink(missing_ok=True)
            try:
                place.hardlink_to(temporary)
            except FileExistsError:
                return False
        _sync(place.parent)
        return True

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        place = self.local_path(path)
        if _version_at(place) != version:
            return False
        with _temporary_file(place.parent, data) as temporary, _locked(place.parent):
            if _version_at(place) != version:
                return False
            _checksum_of(place).unlink(missing_ok=True)
            temporary.replace(place)
        _sync(place.parent)
        return True

    def delete(self, path: str) -> None:
        place = self.local_path(path)
        if place.is_dir() and not place.is_symlink():
            return
        says_something = False
        try:
            with _locked(place.parent), suppress(FileNotFoundError):
                _checksum_of(place).unlink(missing_ok=True)
                says_something = place.lstat().st_size > 0
                place.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return  # Not even its folder is there.
        left = self._remove_empty_folders(place.parent)
        if says_something:
            _sync(left)

    def _remove_empty_folders(self, folder: Path) -> Path:
        """Return the folder that is left."""
        while folder != self.root and folder.is_relative_to(self.root):
            try:
                folder.rmdir()
            except OSError:
                return folder  # Not empty, gone already, or a link.
            folder = folder.parent
        return folder

    def _passes_a_link(self, path: str) -> bool:
        """Whether a name on the way from the root is a link; hardly ever, and then there is nothing to follow."""
        place = str(self.root)
        for name in path.split("/"):
            place = f"{place}/{name}"
            if os.path.islink(place):  # noqa: PTH114 - a Path per name costs more than the call
                return True
        return False

    def _resolve(self, location: Path, path: str) -> Path:
        """Follow every link on the way to `location`, and refuse to leave the root."""
        root = self.root.resolve()
        try:
            resolved = location.resolve()
            leads_nowhere = resolved.is_symlink()
        except RuntimeError:  # the same news, before Python 3.13
            leads_nowhere = True
        if leads_nowhere:
            raise unsafe(path, "a symbolic link that leads to itself")
        if not resolved.is_relative_to(root):
            raise unsafe(path, f"a symbolic link to {str(resolved)!r}, which is outside of {str(root)!r}")
        return resolved

    def _scan(self, visit: _Visit) -> Iterator[FileStat | _Visit]:
        """Yield the files and folders right in one folder, in no order; nothing if it is not there."""
        try:
            entries = os.scandir(visit.place)
        except (FileNotFoundError, NotADirectoryError):
            return
        with entries:
            for entry in entries:
                path = below(visit.path, entry.name)
                is_link = entry.is_symlink()
                if is_link:
                    self._resolve(Path(entry.path), path)
                if entry.is_dir():
                    place = Path(entry.path)
                    yield _Visit(path, place.resolve() if is_link else place, visit)
                elif not _is_hidden(entry.name):
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        continue  # Deleted since, or a link to nothing.
                    if status_bits.S_ISREG(status.st_mode):
                        yield _file_stat(path, status)

    def _not_found_or(self, error: OSError, path: str) -> OSError:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR):
            return self._not_found(path)
        return error

    def _not_found(self, path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "no such file in the store", f"{self.uri}/{path}")


@dataclass(frozen=True, slots=True)
class _Visit:
    """A folder on the way of a listing: its name in the store, where it really is, and how we came there."""

    path: str
    place: Path
    parent: _Visit | None

    def comes_back(self) -> bool:
        """Whether a link led us to a folder we came through: going on would never end."""
        visit = self.parent
        while visit is not None and visit.place != self.place:
            visit = visit.parent
        return visit is not None


def _endless(path: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found="a symbolic link to a folder that contains it",
        expected="folders that come to an end",
        remedy="Remove the link.",
    )


def _file_stat(path: str, status: os.stat_result) -> FileStat:
    return FileStat(path, status.st_size, status.st_mtime_ns // 1_000_000, _version(status))


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}"


def _version_at(place: Path) -> str | None:
    try:
        return _version(place.stat())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _exists(place: Path) -> bool:
    return os.path.lexists(place)


def _is_hidden(name: str) -> bool:
    is_checksum = name.startswith(".") and name.endswith(".crc")
    is_temporary = name.startswith(_TEMPORARY_PREFIX) and name.endswith(_TEMPORARY_SUFFIX)
    return is_checksum or is_temporary


def _checksum_of(place: Path) -> Path:
    return place.with_name(f".{place.name}.crc")


@contextmanager
def _temporary_file(folder: Path, data: bytes | Path) -> Iterator[Path]:
    """Write `data` to a hidden file in `folder`, fsynced; it is gone at the end unless it was renamed."""
    temporary = folder / f"{_TEMPORARY_PREFIX}{secrets.token_hex(8)}{_TEMPORARY_SUFFIX}"
    try:
        with _create(temporary) as file:
            if isinstance(data, Path):
                with data.open("rb") as spill:
                    shutil.copyfileobj(spill, file, _COPY_CHUNK_BYTES)
            else:
                file.write(data)
            file.flush()
            now_ns = time.time_ns()
            os.utime(file.fileno(), ns=(now_ns, now_ns))
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _made_empty(place: Path) -> bool:
    """Make an empty file, which is whole as soon as it is there; return whether there was none."""
    if _exists(place):
        return False
    _checksum_of(place).unlink(missing_ok=True)
    _make_folder(place.parent)
    try:
        with place.open("xb") as file:
            now_ns = time.time_ns()
            os.utime(file.fileno(), ns=(now_ns, now_ns))
    except (FileExistsError, FileNotFoundError):  # somebody was faster, or removed the folder
        return False
    _sync(place.parent)
    return True


def _create(place: Path) -> BinaryIO:
    """Open a new file, in a folder that is made if need be, again if it was empty and somebody removed it."""
    for _ in range(_FOLDER_ATTEMPTS):
        try:
            _make_folder(place.parent)
            return place.open("xb")
        except (FileNotFoundError, FileExistsError):
            continue
    _make_folder(place.parent)
    return place.open("xb")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            # Closing is not enough: a process forked meanwhile by another thread would keep the lock.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, each one's name fsynced: a file is only as durable as its way from
    the root."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    _sync(folder.parent)


def _sync(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return  # Somebody has deleted what we wrote, and the folder with it.
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
