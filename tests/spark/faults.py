"""Faults inside tasks: a store and an index that travel to executors, and there fail, or wait, as told.

An attempt cannot tell that it is the first, so what has happened is written down as files in a folder that the driver
and all executors see: a fault goes off for whoever is first to make its file.

    step="data", after=True       the first to put a data file fails, and the file is there
    step="data", nth=2            the first to put the second data file of a task fails before that
    step="replaced"               the first to replace a file of an earlier round of the write
    step="tag", always=True       every attempt fails
    step="marker", waits=True     the first attempt waits until `folder/go` is there
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from bucketlake.index import Pieces, PlacedIndex
from bucketlake.layout.names import is_partition_metadata, split_path
from bucketlake.storage import FileStat, Listing, OnDisk, Store
from bucketlake.write import GroupWritten, KeySum, WriteState
from bucketlake.write.job import Rows

Step = Literal["tag", "read", "partition metadata", "marker", "data", "replaced"]

WAIT_SECONDS_MAX = 60


class InjectedError(OSError):
    """What a fault raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that goes wrong, at one step of a write's tasks."""

    folder: Path
    step: Step
    after: bool = False
    """The step is done, and then it goes wrong."""
    nth: int = 1
    """Which of a task's steps of this kind."""
    always: bool = False
    waits: bool = False

    @property
    def happened(self) -> Path:
        """The file that whoever meets the fault first makes."""
        return self.folder / "happened"

    @property
    def pids(self) -> list[int]:
        """The processes that ran the attempt: the Python worker, its daemon, the executor's JVM, and so on up."""
        return [int(pid) for pid in self.happened.read_text().split()]

    @property
    def go(self) -> Path:
        return self.folder / "go"

    def go_off(self) -> None:
        if not (self._is_first() or self.always):
            return
        if not self.waits:
            raise InjectedError(f"injected at the step {self.step!r}")
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not self.go.exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _is_first(self) -> bool:
        self.folder.mkdir(parents=True, exist_ok=True)
        complete = self.folder / f"{os.getpid()}.pids"
        complete.write_text(" ".join(map(str, ancestors())))
        try:
            os.link(complete, self.happened)
        except FileExistsError:
            return False
        return True


def ancestors() -> list[int]:
    """Return this process and those above it."""
    pids = [os.getpid()]
    while pids[-1] > 1:
        after_name = Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2]
        pids.append(int(after_name.split()[1]))
    return pids


@dataclass(slots=True)
class FaultyTaskStore:
    """A store in which one step goes wrong. A task has its own copy, so steps are counted by attempt."""

    inner: Store
    fault: Fault
    steps: Counter[str] = field(default_factory=Counter)

    @property
    def uri(self) -> str:
        return self.inner.uri

    @property
    def requests_at_once(self) -> int:
        return self.inner.requests_at_once

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        return self.inner.list(folder, recursive=recursive)

    def stat(self, path: str) -> FileStat:
        return self.inner.stat(path)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self._before("read")
        return self.inner.read(path, offset=offset, length=length)

    def put(self, path: str, data: bytes | Path) -> None:
        kind: Step = "marker" if ".marker." in path else "data"
        self._before(kind)
        self.inner.put(path, data)
        self._after(kind)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        kind: Step = "partition metadata" if is_partition_metadata(split_path(path)[1]) else "data"
        self._before(kind)
        is_ours = self.inner.put_new(path, data)
        self._after(kind)
        return is_ours

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        self._before("replaced")
        is_ours = self.inner.replace_if(path, data, version)
        self._after("replaced")
        return is_ours

    def delete(self, path: str) -> None:
        self.inner.delete(path)

    def _before(self, step: Step) -> None:
        self.steps[step] += 1
        if not self.fault.after:
            self._meet(step)

    def _after(self, step: Step) -> None:
        if self.fault.after:
            self._meet(step)

    def _meet(self, step: Step) -> None:
        if (step, self.steps[step]) == (self.fault.step, self.fault.nth):
            self.fault.go_off()


@dataclass(slots=True)
class FaultyDiskStore(FaultyTaskStore):
    """The same of a store on a disk, where tasks leave rows for each other."""

    def local_path(self, path: str) -> Path:
        assert isinstance(self.inner, OnDisk)
        return self.inner.local_path(path)


@dataclass(frozen=True, slots=True)
class FaultyTaskIndex(PlacedIndex):
    """An index whose answer goes wrong: the first to ask is a task that tags."""

    inner: PlacedIndex
    fault: Fault

    @property
    def hash_fields(self) -> tuple[str, ...]:
        return self.inner.hash_fields

    def slot_of(self, partition: str, pieces: Pieces) -> str | None:
        return self.inner.slot_of(partition, pieces)

    def slot_of_file(self, partition: str, file_id: str) -> str | None:
        return self.inner.slot_of_file(partition, file_id)

    def locate(self, partition: str, record_keys: Any) -> Any:
        self.fault.go_off()
        return self.inner.locate(partition, record_keys)


@dataclass(frozen=True, slots=True)
class FaultyRows:
    """Rows whose tasks meet a fault; the driver meets none."""

    inner: Rows
    fault: Fault
    is_on_disk: bool = True
    """Whether tasks may know that the store is on a disk; otherwise Spark carries the rows."""

    @property
    def schema(self) -> pa.Schema:
        return self.inner.schema

    @property
    def session(self) -> Any:
        return self.inner.session  # type: ignore[attr-defined] # of those that Spark's tasks write

    @property
    def cores(self) -> int:
        return self.inner.cores

    @property
    def are_at_hand(self) -> bool:
        return self.inner.are_at_hand

    def distinct(self, columns: Any) -> pa.Table:
        return self.inner.distinct(columns)

    def run(self, plan: WriteState) -> tuple[KeySum, tuple[GroupWritten, ...]]:
        if self.fault.step == "tag":
            assert plan.index.placed is not None
            index = FaultyTaskIndex(plan.index.placed, self.fault)
            return self.inner.run(replace(plan, index=index))
        kind = FaultyDiskStore if self.is_on_disk else FaultyTaskStore
        return self.inner.run(replace(plan, store=kind(plan.store, self.fault)))
