"""Where a file group's records are: its files, and the slices a reader may see."""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.layout.names import is_shadow
from bucketlake.timeline.clock import shift_instant


@dataclass(frozen=True, slots=True, order=True)
class BaseFile:
    path: str
    """Relative to the table's root, partition included."""
    file_id: str
    write_token: str
    instant: str
    size_bytes: int

    @property
    def written_at(self) -> str:
        """The instant of the write that put it there."""
        return self.instant


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    path: str
    file_id: str
    instant: str
    """The instant in the name: the delta commit's own (table version 8 and later), or the base file's (6)."""
    version: int
    write_token: str
    size_bytes: int
    is_whole: bool = False
    """Whether a commit tells its size, and it has it: then a block that is cut off was not left by a crash."""

    @property
    def written_at(self) -> str:
        """The instant of the write that put it there: beside a resize, that of the name is the resize's."""
        return shift_instant(self.instant, self.version) if is_shadow(self.write_token) else self.instant

    @property
    def order(self) -> tuple[str, int, str]:
        """What log files of a slice are sorted by, to apply in turn (Hudi: LogFileComparator)."""
        return (self.instant, self.version, self.write_token)


DataFile = BaseFile | LogFile


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: at most one base file, and the logs that apply over it, in order."""

    partition: str
    file_id: str
    instant: str
    """The base instant: of the base file, or of the first log of a group that has none."""
    base_file: BaseFile | None
    log_files: tuple[LogFile, ...]
    """In the order in which they apply."""

    @property
    def size_bytes(self) -> int:
        base = self.base_file.size_bytes if self.base_file else 0
        return base + sum(log.size_bytes for log in self.log_files)
