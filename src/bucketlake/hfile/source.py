"""Where the bytes of an HFile come from: ranges of something that has a name and a size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bucketlake.errors import DamagedFileError

BytesLike = Any
"""bytes, a memoryview or a `pa.Buffer`: what `memoryview` takes."""

Range = tuple[int, int]
"""Offset and length."""


class Source(Protocol):
    """A file that can be read by ranges. `name` appears in errors."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def read(self, ranges: Sequence[Range]) -> Sequence[BytesLike]:
        """Return the bytes of every range, in the order asked. Ranges lie within the size."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """A source over bytes that are here already, such as those of a log block."""

    data: BytesLike
    name: str = "an HFile in memory"

    @property
    def size(self) -> int:
        return memoryview(self.data).nbytes

    def read(self, ranges: Sequence[Range]) -> list[memoryview]:
        data = memoryview(self.data).cast("B")
        return [data[offset : offset + length] for offset, length in ranges]


def read_ranges(source: Source, ranges: Sequence[Range]) -> list[memoryview]:
    """Read, and raise `DamagedFileError` if the source has fewer bytes than its size says."""
    pieces = [memoryview(piece).cast("B") for piece in source.read(ranges)]
    for (offset, length), piece in zip(ranges, pieces, strict=True):
        if len(piece) != length:
            raise damaged(
                source.name, found=f"{len(piece)} bytes at position {offset}", expected=f"{length} bytes"
            )
    return pieces


def damaged(name: str, *, found: str, expected: str) -> DamagedFileError:
    return DamagedFileError(
        path=name,
        found=found,
        expected=expected,
        remedy="The HFile is damaged: restore it from a copy, or have it written again.",
    )
