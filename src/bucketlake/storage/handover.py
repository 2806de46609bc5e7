"""Bytes that tasks of one job leave for each other, in a folder that all of them see.

They are no part of a table, and nobody wants them after the job: nothing is synced, and a file has its name while it is
still being written. A task makes files of its own, and what it says of them reaches the others when it is done. Where
tasks share a disk this costs two copies, to the page cache and back; a shuffle carries the same bytes through the JVMs
of both.

The driver makes the folder, and removes it with all that is in it. A task that outlives the job finds no folder and
fails, instead of leaving a file that nobody expects.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import pyarrow as pa

from bucketlake.storage.store import Store

_BUFFER_BYTES = 1 << 20


@runtime_checkable
class OnDisk(Protocol):
    """A store whose files are on a disk that every task can see."""

    def local_path(self, path: str) -> Path:
        """Return where a file is."""


@dataclass(frozen=True, slots=True)
class Handover:
    """A folder for one job. Travels to its tasks."""

    folder: Path

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have the folder as long as the job runs."""
        self.folder.mkdir(parents=True)
        try:
            yield
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def create(self) -> tuple[str, pa.NativeFile]:
        """Make a file, whose name no other attempt at the task has; it is whole when it is closed."""
        name = secrets.token_hex(8)
        return name, pa.output_stream(str(self.folder / name), compression=None, buffer_size=_BUFFER_BYTES)

    def open(self, name: str) -> pa.NativeFile:
        """Open another task's file."""
        return pa.OSFile(str(self.folder / name))


def handover_in(store: Store, folder: str) -> Handover | None:
    """Return the handover of a job in a folder of a store's; None for a store that is not on a disk."""
    return Handover(store.local_path(folder)) if isinstance(store, OnDisk) else None


def left_handovers(store: Store, folder: str) -> tuple[str, ...]:
    """Name the handovers in a folder: of jobs that run, and of those that were killed."""
    return (
        tuple(name.rpartition("/")[2] for name in store.list(folder).folders)
        if isinstance(store, OnDisk)
        else ()
    )


def remove_handover(store: Store, folder: str) -> None:
    """Remove what a job that was killed has left."""
    assert isinstance(store, OnDisk), "only these have any"
    shutil.rmtree(store.local_path(folder), ignore_errors=True)
