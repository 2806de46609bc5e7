"""Files that this machine keeps for itself, to be quicker the next time, within a number of bytes on a local disk.

Whoever loses them loses time only. A file is put under its name in one step, and never changed: a reader has the old
one or the new one, whole. Where the bytes are needed, the coldest files go first, whosever they are. All processes of a
user on the machine share the folder.

How hot a file is says how much it was used, each use counting half as much after a quarter of an hour. Its time of
modification is when its heat will be, or was, one: so files compare by their times, and nothing is written to say that
others cool. Of what is not kept a file without content says how hot it would be, and how large if that is known.

Nothing is kept unless `BUCKETLAKE_INDEX_CACHE` says how much, or `set_index_cache` does. Spark's workers take it from
their environment.
"""

from __future__ import annotations

import logging
import math
import mmap
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from bucketlake.errors import ConfigError
from bucketlake.storage.memory_budget import checked_bytes

VARIABLE = "BUCKETLAKE_INDEX_CACHE"
"""An environment variable: how many bytes of record-level indexes a machine may keep on a local disk, such as `2GB`.
Default: 0, because it pays for large indexes and far stores only."""
FOLDER_VARIABLE = "BUCKETLAKE_INDEX_CACHE_FOLDER"
"""An environment variable: the folder for them; nobody else may write to it. Default: one in the folder for temporary
files."""

_log = logging.getLogger("bucketlake.storage")
_HALF_LIFE = 15 * 60 * 1_000_000_000
_DAY = 24 * 60 * 60 * 1_000_000_000
_QUIET = 10 * 60 * 1_000_000_000
_DOUBLED_MAX = 40
_HOTTER = 2
"""So much hotter is what takes the place of others: of what is alike a part stays, and does not come and go."""
_WORD_MAX = 20
"""No content is as short."""
_SUFFIX = ".kept"
_BEING_WRITTEN = ".being-written"


@dataclass(frozen=True, slots=True)
class KeptFiles:
    """A folder of kept files, and how many bytes they may take together."""

    folder: Path
    bytes_max: int

    def open(self, name: str) -> memoryview | None:
        """Map a file into memory; None if it is not there."""
        try:
            with self._path(name).open("rb") as file:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except (OSError, ValueError):  # not there; nobody else's business; empty
            return None
        return data if len(data) > _WORD_MAX else None

    def warm(self, name: str, uses: float) -> float:
        """Note that a file is used so much, or would be if it were kept; return its heat."""
        path, now, heat = self._path(name), time.time_ns(), uses
        with suppress(OSError):
            try:
                heat += _heat_at(path.stat().st_mtime_ns, now)
            except FileNotFoundError:
                _make_own(self.folder)
                path.touch(mode=0o600)
            os.utime(path, ns=(now, _time_of(heat, now)))
        return heat

    def with_room(self, wanted: Sequence[Wanted]) -> list[str]:
        """Name those of some files that would be taken, one after the other, the hottest first."""
        files, taken = self._files() if wanted else [], list[str]()
        for one in sorted(wanted, key=lambda one: one.heat, reverse=True):
            path = self._path(one.name)
            size = max(one.size, _wanted_size(path))
            giving_way = self._giving_way(size, files, but=path, heat=one.heat)
            if giving_way is None:
                continue
            taken.append(one.name)
            going = {path.name, *(file.name for file in giving_way)}
            files = [file for file in files if file.name not in going]
            files.append(_File(path.name, size, time.time_ns() + _DAY))
        return taken

    def put(self, name: str, parts: Iterable[bytes | memoryview], *, heat: float | None = None) -> bool:
        """Put a file in the place of the one of its name; say whether there was room, and the disk took it.

        Colder ones make room; for one whose heat is given only those that are half as hot. Otherwise it is as hot as
        the one that it replaces.
        """
        data = [memoryview(part).cast("B") for part in parts]
        size = sum(map(len, data))
        if size > self.bytes_max:
            return False
        path, now = self._path(name), time.time_ns()
        try:
            _make_own(self.folder)
            files = self._files()
            giving_way = self._giving_way(size, files, but=path, heat=heat)
            if giving_way is None:
                word = str(size).encode()
                taken = len(word) + sum(file.size for file in files if file.name != path.name)
                data = [memoryview(word)] if taken <= self.bytes_max else []
            for other in giving_way or ():
                with suppress(OSError):
                    (self.folder / other.name).unlink()
            self._write(path, data, _when_one(path, now) if heat is None else _time_of(heat, now))
        except OSError as error:
            _warn(self.folder, error)
            return False
        return giving_way is not None

    def _write(self, path: Path, data: Iterable[memoryview], when_one: int) -> None:
        handle, place = tempfile.mkstemp(suffix=_BEING_WRITTEN, dir=self.folder)
        being_written = Path(place)
        try:
            with os.fdopen(handle, "wb") as file:
                for part in data:
                    file.write(part)
            os.utime(being_written, ns=(when_one, when_one))
            being_written.replace(path)
        except OSError:
            with suppress(OSError):
                being_written.unlink()
            raise

    def drop(self, name: str) -> None:
        with suppress(OSError):
            self._path(name).unlink()

    def size_bytes(self) -> int:
        """Say how many bytes are kept."""
        return sum(file.size for file in self._files())

    def _files(self) -> list[_File]:
        found = []
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.endswith((_SUFFIX, _BEING_WRITTEN)):
                    with suppress(OSError):
                        status = entry.stat()
                        found.append(_File(entry.name, status.st_size, status.st_mtime_ns))
        return found

    def _path(self, name: str) -> Path:
        return self.folder / (name + _SUFFIX)

    def _giving_way(
        self, size: int, files: Sequence[_File], *, but: Path, heat: float | None
    ) -> list[_File] | None:
        """Name the files that go where one comes, the coldest first; None if it is not to come.

        The one that it replaces counts as gone. Those without content go when nobody has asked for a day.
        """
        if size > self.bytes_max:
            return None
        now = time.time_ns()
        coldest = None if heat is None else _time_of(heat / _HOTTER, now)
        others = [file for file in files if file.name != but.name]
        going = [file for file in others if file.is_word and file.when_one < now - _DAY]
        taken = size + sum(file.size for file in others)
        if taken <= self.bytes_max:
            return going
        for file in sorted(others, key=attrgetter("when_one")):
            if file.is_word:
                continue
            if coldest is not None and file.when_one > coldest:
                return None
            going.append(file)
            taken -= file.size
            if taken <= self.bytes_max:
                return going
        return None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file that would be kept."""

    name: str
    size: int
    """About how large it is."""
    heat: float


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    size: int
    when_one: int
    """When its heat is one."""

    @property
    def is_word(self) -> bool:
        """Whether it only says how hot another would be."""
        return self.size <= _WORD_MAX and self.name.endswith(_SUFFIX)


def _when_one(path: Path, now: int) -> int:
    """Return when a file's heat is one; of one that is not there now."""
    try:
        return max(now, path.stat().st_mtime_ns)
    except OSError:
        return now


def _wanted_size(path: Path) -> int:
    """Return how large a file would be that was not taken, as far as that is known."""
    try:
        with path.open("rb") as file:
            text = file.read(_WORD_MAX + 1)
    except OSError:
        return 0
    return int(text) if len(text) <= _WORD_MAX and text.isdigit() else 0


def _heat_at(when_one: int, now: int) -> float:
    return math.exp2(min((when_one - now) / _HALF_LIFE, _DOUBLED_MAX))


def _time_of(heat: float, now: int) -> int:
    """Return when something is as hot as one that is this hot now."""
    return now + round(_HALF_LIFE * math.log2(heat))


def _make_own(folder: Path) -> None:
    """Make a folder that nobody else may write to: what is kept there is believed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} belongs to somebody else, or others may write to it")


_warned: dict[Path, int] = {}


def _warn(folder: Path, error: OSError) -> None:
    """Say why nothing is kept, once in a while: it is so for every shard of every batch."""
    now = time.monotonic_ns()
    if folder not in _warned or now - _warned[folder] >= _QUIET:
        _warned[folder] = now
        _log.warning("nothing is kept of an index in %s: %s", folder, error)


_said: list[KeptFiles | None] = []
"""What `set_index_cache` has said last, if anything."""


def set_index_cache(budget: int | str, folder: str | os.PathLike[str] | None = None) -> None:
    """Let this machine keep at most so many bytes of record-level indexes on a local disk: `1 << 30`, or `"1GB"`.

    With 0, nothing is kept and every write asks the index itself, which takes longer. `folder` must belong to this user
    alone, on a disk of this machine. Other processes, such as Spark's workers, follow the environment variables
    `BUCKETLAKE_INDEX_CACHE` and `BUCKETLAKE_INDEX_CACHE_FOLDER`.
    """
    bytes_max = checked_bytes(budget, name="the index cache", default=0)
    if folder is not None and not isinstance(folder, str | os.PathLike):
        raise ConfigError(f"the folder of the index cache is {folder!r}; expected a path.")
    _said[:] = [_of(bytes_max, None if folder is None else Path(folder))]


def index_cache() -> KeptFiles | None:
    """Return where what indexes say is kept; None if nothing is."""
    if _said:
        return _said[0]
    text = os.environ.get(VARIABLE)
    if text is None:
        return None
    return _of(checked_bytes(text, name=f"the environment variable {VARIABLE}", default=0), None)


def _of(bytes_max: int, folder: Path | None) -> KeptFiles | None:
    if not bytes_max:
        return None
    if folder is None:
        said = os.environ.get(FOLDER_VARIABLE)
        folder = Path(said) if said else Path(tempfile.gettempdir()) / f"bucketlake-index-{os.getuid()}"
    return KeptFiles(folder, bytes_max)
