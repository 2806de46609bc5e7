"""The door to bytes: seven operations on paths relative to the table's root.

A path has no leading slash and uses `/`; the empty path is the root itself.
Folders exist only as prefixes of files: nothing creates or deletes one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, order=True)
class FileStat:
    """One file, as a store lists it."""

    path: str
    """Relative to the root."""
    size_bytes: int
    modified_ms: int
    """Milliseconds since the epoch."""
    version: str
    """What `replace_if` compares. Changes with the content; on S3 the same bytes again have the same version."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a folder holds: its files, and the names of the folders right below it."""

    files: tuple[FileStat, ...]
    """Sorted by path."""
    folders: tuple[str, ...]
    """Paths relative to the root, sorted, no trailing slash; empty for a recursive listing."""


class Store(Protocol):
    """Seven operations on paths relative to the table's root.

    An implementation is picklable (it travels to executors), keeps no cache, and raises `FileNotFoundError`
    for a path that is not there and `UnsafePathError` for one that leads out of the root. Hadoop's `.crc`
    side files on local disks are never listed.
    """

    @property
    def uri(self) -> str:
        """The root, as a person or another engine would write it."""

    @property
    def requests_at_once(self) -> int:
        """How many requests it pays to have under way; 1 where there is nothing to wait for."""

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        """List a folder. A folder that is not there is an empty listing."""

    def stat(self, path: str) -> FileStat:
        """Describe one file."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Read a file, or a range of it. A range that runs over the end gives what is there."""

    def put(self, path: str, data: bytes | Path) -> None:
        """Write a whole file, or nothing; replaces what is there. A `Path` is a local file to copy from."""

    def put_new(self, path: str, data: bytes | Path) -> bool:
        """Write a whole file unless it exists; return whether we wrote it.

        The atomic step every commit rests on.
        """

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        """Replace a file only if its version is still `version`; return whether we did."""

    def delete(self, path: str) -> None:
        """Delete one file, and its `.crc` side file. A file that is not there is no error."""
