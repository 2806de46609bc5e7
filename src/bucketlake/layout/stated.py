"""What commits say of the files they wrote, held against what is there.

A commit names each of its files and tells its size. A file that a reader needs
and that is gone, cut, or longer than that must not be passed over: its rows
would be missing, or old ones come back. What a clean, a rollback or a replace
took away is not missed, because no reader needs it.

Where several commits append to one log (table version 6), or a resize that was
taken back has changed the logs beside it, sizes tell nothing, and only the
file's presence is asked for.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from bucketlake.errors import DamagedFileError
from bucketlake.layout.file_slice import BaseFile, DataFile, FileSlice, LogFile
from bucketlake.layout.listing import find_data_file


@dataclass(frozen=True)
class StatedFiles:
    """The files of one commit, as it tells them: a path and a size each, by partition."""

    requested: str
    """The commit's requested time."""
    files: Mapping[str, tuple[DataFile, ...]]

    @cached_property
    def beside(self) -> frozenset[str]:
        """The instants of resizes that the commit wrote beside."""
        return frozenset(file.instant for group in self.files.values() for file in group) - {self.requested}


def stated_files(requested: str, written: Iterable[tuple[str, str, int]]) -> StatedFiles:
    """Gather what a commit tells: partition, path and size of each file. Files that hold no records are passed over."""
    files: dict[str, list[DataFile]] = {}
    for partition, path, size_bytes in written:
        file = find_data_file(path, size_bytes=size_bytes)
        if file is not None:
            files.setdefault(partition, []).append(file)
    return StatedFiles(requested, {partition: tuple(group) for partition, group in files.items()})


def files_stated_by(
    commits: Iterable[StatedFiles], partition: str, *, completed: Container[str], one_commit_per_log: bool
) -> dict[str, DataFile]:
    """Return the files that `commits` say are in a partition, by path; a size that tells nothing is 0.

    A file that was put beside a resize counts once the resize is among `completed`.
    """
    found: dict[str, DataFile] = {}
    for commit in commits:
        files = commit.files.get(partition, ())
        if not files:
            continue
        is_settled = one_commit_per_log and all(instant in completed for instant in commit.beside)
        for file in files:
            is_own = file.instant == commit.requested
            if not is_own and one_commit_per_log and file.instant not in completed:
                continue
            has_size = isinstance(file, BaseFile) or (is_settled and file.path not in found)
            found[file.path] = file if has_size else replace(file, size_bytes=0)
    return found


def prove(seen: FileSlice, listed: Mapping[str, DataFile], stated: Mapping[str, DataFile]) -> FileSlice:
    """Check the files of a slice that a reader is to see; logs that a commit says are whole are marked so."""
    if seen.base_file is not None:
        check_file(seen.base_file, listed, stated)
    logs = []
    for log in seen.log_files:
        check_file(log, listed, stated)
        is_whole = bool(log.path in stated and stated[log.path].size_bytes)
        logs.append(replace(log, is_whole=True) if is_whole else log)
    return replace(seen, log_files=tuple(logs))


def check_file(file: DataFile, listed: Mapping[str, DataFile], stated: Mapping[str, DataFile]) -> None:
    """Raise `DamagedFileError` if a file is not there as a commit tells it."""
    there, told = listed.get(file.path), stated.get(file.path)
    if told is None:
        return
    if there is None:
        raise _damaged(file, found="no such file", size_bytes=told.size_bytes)
    if told.size_bytes not in (0, there.size_bytes):
        raise _damaged(file, found=f"{there.size_bytes:,} bytes", size_bytes=told.size_bytes)


def _damaged(file: DataFile, *, found: str, size_bytes: int) -> DamagedFileError:
    kind = "log" if isinstance(file, LogFile) else "base file"
    size = f" of {size_bytes:,} bytes" if size_bytes else ""
    return DamagedFileError(
        path=file.path,
        found=found,
        expected=f"the {kind}{size} that the commit of {file.written_at} tells of",
        remedy="Rows of a committed write are missing. Put the file back from a copy, roll the write back if it is the "
        "newest, or restore a savepoint. To give the rows up, write the partition anew with overwrite.",
    )
