"""Where may a key live? One protocol; an engine's file has the class that answers it.

An index is asked for pruning, so it must never leave out a file group that holds the key. Whenever what it
finds is not what it expects (a file id without a bucket number, a bucket beyond the count, a file group that
the ring does not know) it gives all file groups back: slow is allowed, a lost row is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

Pieces = tuple[str | None, ...]

BUCKETS_DEFAULT = 4
"""Of a partition, where nobody says."""


class Index(Protocol):
    """What a bucket index answers. An implementation is a value: picklable, the same answer every time."""

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The record-key fields that decide where a key lives."""

    @property
    def version(self) -> str:
        """The instant of the version of the layout that it goes by; empty if the engine has none for a whole table."""

    def bucket_count(self, partition: str) -> int | None:
        """Return how many file groups a partition can have, None if that is not known."""

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:
        """Return how the file id of these pieces' file group begins, None if that is not known."""

    def locate(self, partition: str, record_keys: Any) -> Any:
        """Return `prefix_of` for a column of record keys, as a `pa.DictionaryArray` of text.

        Null where it is not known, and for a null key.
        """

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:
        """Return the `prefix_of` every key in this file group, None if no key can live there."""

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        """Return those of `file_ids`, the partition's visible file groups, that may hold any of `pieces`.

        All of them whenever in doubt.
        """

    def foresee(self, partitions: Iterable[str]) -> None:
        """Work out at once what is asked of these partitions next: one by one may be slow."""

    def replacing(self, instant: str) -> Index:
        """Return the index that holds once `instant` has replaced all file groups of the partitions it writes to."""

    def layout_files(self, partition: str) -> Mapping[str, bytes]:
        """Return what must be on disk, path -> bytes, before a write to this partition is committed.

        Derived by every writer alike: it does not matter who puts it there.
        """


class Unwritten:
    """What an index says that keeps nothing on disk, and whose ids never come back."""

    __slots__ = ()

    @property
    def version(self) -> str:
        return ""

    def foresee(self, partitions: Iterable[str]) -> None:
        pass

    def replacing(self, instant: str) -> Self:  # noqa: ARG002 # the protocol's
        return self

    def layout_files(self, partition: str) -> Mapping[str, bytes]:  # noqa: ARG002 # the protocol's
        return {}


@dataclass(frozen=True, slots=True)
class NoIndex(Unwritten):
    """Nothing tells where a key lives."""

    hash_fields: tuple[str, ...] = ()
    reason: str = "the table has no bucket index that we know of"
    """Why, for people: shown where a plan is explained."""

    def __str__(self) -> str:
        return f"none: {self.reason}"

    def bucket_count(self, partition: str) -> int | None:  # noqa: ARG002 # the protocol's
        return None

    def prefix_of(self, partition: str, pieces: Pieces) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def locate(self, partition: str, record_keys: Any) -> Any:  # noqa: ARG002 # the protocol's
        return nowhere(record_keys)

    def prefix_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def file_groups(
        self,
        partition: str,  # noqa: ARG002 # the protocol's
        file_ids: Collection[str],
        pieces: Collection[Pieces],  # noqa: ARG002
    ) -> frozenset[str]:
        return frozenset(file_ids)


def verify(index: Index, partition: str, file_id: str, record_keys: Any) -> str | None:
    """Return the first of a file group's record keys that does not belong there, None if they all do.

    For bucket counts that a caller gave: Hudi stores none, and a wrong one would prune away rows. A key whose
    place the index doesn't know is no offence.

    >>> from bucketlake.index.simple import SimpleIndex
    >>> verify(SimpleIndex(4, ("id",)), "", "00000000-159a-4953-a3c4-b777b847ae7f-0", pa.array(["1", "2"]))
    '2'
    """
    located = index.locate(partition, record_keys)
    fits = [_begins(file_id, prefix) for prefix in located.dictionary.to_pylist()]
    if all(fits):
        return None
    offender = pc.index(pa.array(fits, pa.bool_()).take(located.indices), False).as_py()
    return None if offender < 0 else str(record_keys[offender].as_py())


def _begins(file_id: str, prefix: str) -> bool:
    """Tell whether a file id has this prefix: bulk inserts leave the closing `-0` away, others have it."""
    return file_id == prefix or file_id.startswith(prefix + "-")


def nowhere(record_keys: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.nulls(len(record_keys), pa.int32()), pa.array([], pa.string()))
