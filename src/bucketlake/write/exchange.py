"""The exchange: rows with one code are brought to one task, which goes on with them.

    scatter   rows become pieces, each of one code
    gather    the pieces of a code reach one task, in one run; what it makes of them are pieces again
    finish    the same, for the last time: what comes back are a few lines for the driver

A code is an integer: which task it is, and what within the task.

    code := task (15 bits) what (48 bits)

How pieces travel is an `Exchange`. In one process they are sorted (`InProcess`); between tasks that see one disk they
are files, elsewhere Spark shuffles them (`spark/exchange.py`). Every piece has its number of rows and the sum of its
keys' hashes, so that whoever sends and whoever receives can be compared.

A stage may run twice for one task, whoever is first wins, and tasks may die: a stage's pieces are those of attempts
that were reported to the driver, and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.layout import FileGroupId
from bucketlake.schema import META_COLUMNS

GROUP_BITS = 48
PASSED_OVER = -1
"""The code of rows that go nowhere."""


@dataclass(frozen=True, slots=True)
class KeySum:
    """A number of rows, and the sum of their keys' hashes, modulo 2**64."""

    rows: int
    key_hash_sum: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one code."""

    code: int
    group: FileGroupId | None
    """The file group that all of them are of; None if two have the code, or none."""
    rows: pa.RecordBatch
    key_hash_sum: int = 0


@dataclass(frozen=True, slots=True)
class Coded:
    """Rows in the order of their codes."""

    rows: pa.RecordBatch
    codes: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.uint64]
    """Of their keys."""
    groups: Mapping[int, FileGroupId | None]

    def starts(self, rows_max: int | None = None) -> list[int]:
        """Cut the rows where the code changes, and so often that no more than `rows_max` stay together."""
        changes = np.flatnonzero(self.codes[1:] != self.codes[:-1]) + 1
        runs = pairwise([0, *changes.tolist(), len(self.codes)])
        step = rows_max or max(1, len(self.codes))
        return [cut for start, stop in runs for cut in range(start, stop, step)]

    def pieces(self, starts: Sequence[int]) -> Iterator[Piece]:
        sums = np.add.reduceat(self.hashes, starts).tolist() if starts else []
        for (start, stop), key_sum in zip(pairwise([*starts, len(self.codes)]), sums, strict=True):
            code = int(self.codes[start])
            yield Piece(code, self.groups.get(code), self.rows.slice(start, stop - start), key_sum)


Cut = Callable[[pa.Table], Coded]
"""Gives rows their codes. Travels to tasks."""
Stage = Callable[[Iterator[Piece]], Iterator[Coded]]
"""What a task does with its pieces, which come sorted by their codes. Travels to tasks."""
Last = Callable[[Iterator[Piece]], Iterator[str]]
"""The same, for the last stage."""

Pieces = TypeVar("Pieces")


class Exchange(Protocol[Pieces]):
    """What brings pieces to tasks. `Pieces` is how it holds those of a stage."""

    def scatter(self, columns: Sequence[str], cut: Cut) -> Pieces:
        """Cut the rows into pieces; they are evaluated once, now or when they are first asked for."""

    def of(self, coded: Coded) -> Pieces:
        """Cut rows of the driver's own into pieces: some at least, and few."""

    def joined(self, one: Pieces, other: Pieces) -> Pieces:
        """Return the pieces of two stages as those of one."""

    def gather(self, pieces: Pieces, then: Stage, *, tasks: int) -> Pieces:
        """Bring the pieces of a code to one task of so many, and return what these make of them."""

    def finish(self, pieces: Pieces, then: Last, *, tasks: int) -> tuple[str, ...]:
        """Do the same, and return what the tasks say."""

    def facts(self, pieces: Pieces) -> pa.Table:
        """List the pieces: their `code`, `partition` and `file_id` of their file group, number of `rows`, and
        `key_hash_sum`."""

    def recoded(
        self, pieces: Pieces, codes: npt.NDArray[np.int64], groups: Sequence[FileGroupId | None]
    ) -> Pieces:
        """Return the pieces with other codes and file groups, in the order of `facts`; the rows stay where they are."""

    def fetch(self, pieces: Pieces, code: int) -> list[pa.RecordBatch]:
        """Bring the rows of a code to the driver."""

    def sum_of(self, pieces: Pieces, *, received: KeySum) -> KeySum:
        """Count what was sent; `received` is what is said to have arrived."""


class InProcess:
    """Rows that are in memory, brought together by a sort."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows.drop_columns([name for name in rows.column_names if name in META_COLUMNS])

    def scatter(self, columns: Sequence[str], cut: Cut) -> list[Piece]:
        if not self._rows.num_rows:
            return []
        return _pieces_of([cut(self._rows.select(list(columns)))])

    def of(self, coded: Coded) -> list[Piece]:
        return _pieces_of([coded])

    def joined(self, one: list[Piece], other: list[Piece]) -> list[Piece]:
        return [*one, *other]

    def gather(self, pieces: list[Piece], then: Stage, *, tasks: int) -> list[Piece]:  # noqa: ARG002 # there is one
        return _pieces_of(then(iter(_in_order(pieces))))

    def finish(self, pieces: list[Piece], then: Last, *, tasks: int) -> tuple[str, ...]:  # noqa: ARG002
        return tuple(then(iter(_in_order(pieces))))

    def facts(self, pieces: list[Piece]) -> pa.Table:
        return pa.table(
            {
                "code": pa.array([piece.code for piece in pieces], pa.int64()),
                "partition": pa.array([piece.group and piece.group[0] for piece in pieces], pa.string()),
                "file_id": pa.array([piece.group and piece.group[1] for piece in pieces], pa.string()),
                "rows": pa.array([piece.rows.num_rows for piece in pieces], pa.int64()),
                "key_hash_sum": pa.array([piece.key_hash_sum for piece in pieces], pa.uint64()),
            }
        )

    def recoded(
        self, pieces: list[Piece], codes: npt.NDArray[np.int64], groups: Sequence[FileGroupId | None]
    ) -> list[Piece]:
        told = zip(pieces, codes.tolist(), groups, strict=True)
        return [replace(piece, code=code, group=group) for piece, code, group in told]

    def fetch(self, pieces: list[Piece], code: int) -> list[pa.RecordBatch]:
        return [piece.rows for piece in pieces if piece.code == code]

    def sum_of(self, pieces: list[Piece], *, received: KeySum) -> KeySum:  # noqa: ARG002 # it is certain
        rows = sum(piece.rows.num_rows for piece in pieces)
        return KeySum(rows, sum(piece.key_hash_sum for piece in pieces) % (1 << 64))


def _pieces_of(stages: Iterable[Coded]) -> list[Piece]:
    return [piece for coded in stages for piece in coded.pieces(coded.starts()) if piece.code != PASSED_OVER]


def _in_order(pieces: list[Piece]) -> list[Piece]:
    return sorted((piece for piece in pieces if piece.code >= 0), key=lambda piece: piece.code)
