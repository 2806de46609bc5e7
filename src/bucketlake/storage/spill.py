"""A file being written, in memory until it is too large for that.

Most files of a write are small, and a store takes them whole: they are kept
as bytes and never touch a disk on the way. A large one goes on in a temporary
file, so that a task needs no more memory than it was given.
"""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

LIMIT_BYTES = 64 << 20
_DISK_BUFFER_BYTES = 1 << 20


class Spill(io.RawIOBase):
    """A write-only binary file; `content` is what `Store.put_new` takes.

    Leaving the `with` block removes the temporary file, if there is one. Closing, which a Parquet writer may
    do, keeps the content.

    >>> with Spill(limit_bytes=4) as file:
    ...     small = file.write(b"abc") and file.content
    ...     large = file.write(b"def") and file.content.read_bytes()
    >>> small, large
    (b'abc', b'abcdef')
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES, *, folder: Path | None = None) -> None:
        super().__init__()
        self._limit = limit_bytes
        self._folder = folder
        self._target: IO[bytes] = io.BytesIO()
        self._path: Path | None = None
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    @property
    def size_bytes(self) -> int:
        return self._size

    def write(self, data: Buffer, /) -> int:
        assert not self.closed, "the content may be on its way to a store already"
        piece = memoryview(data).cast("B")
        if self._path is None and self._size + len(piece) > self._limit:
            self._move_to_disk()
        self._target.write(piece)
        self._size += len(piece)
        return len(piece)

    @property
    def content(self) -> bytes | Path:
        """All that was written so far: bytes, or a file that is there until the `with` block ends."""
        if self._path is None:
            assert isinstance(self._target, io.BytesIO)
            return self._target.getvalue()
        self._target.flush()
        return self._path

    def _move_to_disk(self) -> None:
        assert isinstance(self._target, io.BytesIO)
        descriptor, name = tempfile.mkstemp(prefix="bucketlake-", dir=self._folder)
        self._path = Path(name)
        begun = self._target
        self._target = os.fdopen(descriptor, "wb", buffering=_DISK_BUFFER_BYTES)
        self._target.write(begun.getbuffer())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)
        self._target.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
