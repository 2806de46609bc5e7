"""Rows that are computed from those of the table that they are written to, such as an UPDATE's or a MERGE's.

They are computed when the write has begun, on the table as it is then. The write is committed only if nobody has
changed since what was read; otherwise it is run again, and its rows are computed anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bucketlake.commit.conflicts import ReadBasis, ReadScope
from bucketlake.index import Index
from bucketlake.layout import FileGroupId

if TYPE_CHECKING:
    from bucketlake.state import TableState
    from bucketlake.write.job import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """Rows, and what they were computed from."""

    rows: Rows
    groups: frozenset[FileGroupId]
    """The file groups that were read."""
    may_insert: bool = False
    """Whether there are rows whose keys the table did not have: another writer may bring such a key, too."""

    def basis(self, index: Index) -> ReadBasis:
        """Say which writes of others make these rows stale, where `index` says where keys live."""
        scope = ReadScope.GROUP
        if self.may_insert and index.recorded is not None:
            scope = ReadScope.TABLE if index.recorded.is_global else ReadScope.PARTITION
        return ReadBasis(self.groups, scope)


class Computation(ABC):
    """What computes rows from a table."""

    def check(self, state: TableState) -> None:  # noqa: B027 # some can tell nothing yet
        """Refuse, before anything is written, what cannot be computed on this table."""

    @abstractmethod
    def on(self, state: TableState) -> AbstractContextManager[Computed]:
        """Compute rows on the table as it is in `state`; they can be used until the context ends."""
