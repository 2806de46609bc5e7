"""A dict, as a store: for tests, and for trying things out.

A memory store lives in one process. Pickled and unpickled there it is the same store, as a store that travels
to a thread or a local task must be; in any other process it is refused, where an empty table would be a lie.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from weakref import WeakValueDictionary

from bucketlake.errors import UnsupportedError
from bucketlake.storage.paths import check_path
from bucketlake.storage.store import FileStat, Listing


class MemoryStore:
    """Files in this process's memory. Stores of one name share their files; one without a name is alone."""

    def __init__(self, name: str | None = None) -> None:
        if name is None:
            self._name = f"unnamed-{next(_NUMBERS)}"
            self._shelf = _UNNAMED.setdefault(self._name, _Shelf())
        else:
            self._name = name
            self._shelf = _NAMED.setdefault(name, _Shelf())

    @property
    def uri(self) -> str:
        return f"memory://{self._name}"

    @property
    def requests_at_once(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"MemoryStore({self._name!r})"

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        if folder:
            check_path(folder)
        prefix = f"{folder}/" if folder else ""
        with self._shelf.lock:
            inside = [file.stat for path, file in self._shelf.files.items() if path.startswith(prefix)]
        if recursive:
            return Listing(tuple(sorted(inside)), ())
        files: list[FileStat] = []
        folders: set[str] = set()
        for stat in inside:
            name, slash, _ = stat.path[len(prefix) :].partition("/")
            if slash:
                folders.add(prefix + name)
            else:
                files.append(stat)
        return Listing(tuple(sorted(files)), tuple(sorted(folders)))

    def stat(self, path: str) -> FileStat:
        return self._file(path).stat

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        assert offset >= 0, "an offset counts from the start"
        assert length is None or length >= 0, "a length is not negative"
        data = self._file(path).data
        return data[offset:] if length is None else data[offset : offset + length]

    def put(self, path: str, data: bytes | Path) -> None:
        check_path(path)
        content = _content_of(data)
        with self._shelf.lock:
            self._shelf.keep(path, content)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        check_path(path)
        content = _content_of(data)
        with self._shelf.lock:
            if path in self._shelf.files:
                return False
            self._shelf.keep(path, content)
            return True

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        check_path(path)
        content = _content_of(data)
        with self._shelf.lock:
            present = self._shelf.files.get(path)
            if present is None or present.stat.version != version:
                return False
            self._shelf.keep(path, content)
            return True

    def delete(self, path: str) -> None:
        check_path(path)
        with self._shelf.lock:
            self._shelf.files.pop(path, None)

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self._name, _this_process())

    def _file(self, path: str) -> _File:
        check_path(path)
        with self._shelf.lock:
            file = self._shelf.files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file in the store", f"{self.uri}/{path}")
        return file


@dataclass(frozen=True, slots=True)
class _File:
    stat: FileStat
    data: bytes


@dataclass(slots=True, weakref_slot=True)
class _Shelf:
    """The files of one name, and the lock around them."""

    files: dict[str, _File] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    versions: itertools.count[int] = field(default_factory=itertools.count)

    def keep(self, path: str, data: bytes) -> None:
        assert self.lock.locked(), "files change under the lock only"
        modified_ms = time.time_ns() // 1_000_000
        self.files[path] = _File(FileStat(path, len(data), modified_ms, str(next(self.versions))), data)


# A named store is found again by its name, so it lives as long as the process; an unnamed one while held.
_NAMED: dict[str, _Shelf] = {}
_UNNAMED: WeakValueDictionary[str, _Shelf] = WeakValueDictionary()
_NUMBERS = itertools.count()
_PROCESS_TOKEN = secrets.token_hex(8)


def _this_process() -> tuple[str, int]:
    # A forked child has its parent's token and a copy of its files, which soon differ: so the id counts too.
    return _PROCESS_TOKEN, os.getpid()


def _reopen(name: str, process: tuple[str, int]) -> MemoryStore:
    if process != _this_process():
        raise UnsupportedError(
            subject=f"memory://{name}",
            found="a store in the memory of another process",
            supported="memory stores within one process",
            remedy="Put the table on a disk or an object store to use it from several processes.",
        )
    store = MemoryStore.__new__(MemoryStore)
    store._name = name
    store._shelf = _NAMED[name] if name in _NAMED else _UNNAMED[name]
    return store


def _content_of(data: bytes | Path) -> bytes:
    return data.read_bytes() if isinstance(data, Path) else bytes(data)
