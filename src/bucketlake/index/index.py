"""Where does a key live? The protocol that every engine answers; an engine's file has the class that does.

There are two kinds. A *placed* index works out where a key lives (`locate`). A *recorded* one has written it down, and
looks it up (`index/recorded.py`). A file group is known by its partition and file id. What a file id begins with, or
which number a bucket has, is an engine's own business: to everybody else a *slot* is the text of a place that one file
group at a time can take.

An index is asked for pruning, so it must never leave out a file group that holds the key. Whenever what it
finds is not what it expects (a file id without a bucket number, a bucket beyond the count, a file group that
the ring does not know) it gives all file groups back: slow is allowed, a lost row is not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.layout import FileGroupId
from bucketlake.layout.names import new_file_id
from bucketlake.timeline import RESIZE_STRATEGY

if TYPE_CHECKING:
    from bucketlake.index.consistent import HashingMetadata
    from bucketlake.index.recorded import RecordedIndex
    from bucketlake.index.ring import Ring
    from bucketlake.index.rules import CountRules

Pieces = tuple[str | None, ...]

BUCKETS_DEFAULT = 4
"""Of a partition, where nobody says."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a key lives and why, for people."""

    slot: str | None = None
    hash: int | None = None
    bucket: int | None = None
    rule: str | None = None
    """Which rule gives the partition its number of buckets."""
    rules_version: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)
    """What else an engine has to say, by a word of its own."""
    groups: frozenset[FileGroupId] | None = None
    """The file groups in which the key is recorded; None if nobody has recorded that."""


class Index(Protocol):
    """What every index answers. An implementation is a value: picklable, the same answer every time.

    What has a body here is what most engines say. In a dataclass, a field that stands for a property of this protocol
    without a default is written `= field()`: else the property would be taken for its default.
    """

    __slots__ = ()

    @property
    def hash_fields(self) -> tuple[str, ...]:
        """The record-key fields that decide where a key lives; none if no hash does."""

    @property
    def version(self) -> str:
        """The instant of the version of the layout that it goes by; empty if the engine has none for a whole table."""
        return ""

    @property
    def is_known(self) -> bool:
        """Whether it tells where keys live; a table whose index does not is read, and not written."""
        return True

    @property
    def placed(self) -> PlacedIndex | None:
        """Itself, if it works out where a key lives."""
        return None

    @property
    def recorded(self) -> RecordedIndex | None:
        """Itself, if it looks up where a key lives."""
        return None

    @property
    def rescalable(self) -> RescalableIndex | None:
        """Itself, if rules can give partitions other numbers of buckets."""
        return None

    @property
    def resizable(self) -> ResizableIndex | None:
        """Itself, if buckets can be split and merged."""
        return None

    def bucket_count(self, partition: str) -> int | None:  # noqa: ARG002 # for those who know
        """Return how many file groups a partition can have, None if that is not known, or not limited."""
        return None

    def slot_of_file(self, partition: str, file_id: str) -> str | None:
        """Return the slot of a file group, None if it is none of this index. Two of one slot are one too many."""

    def file_groups(
        self,
        partition: str,  # noqa: ARG002 # for those who know
        file_ids: Collection[str],
        pieces: Collection[Pieces],  # noqa: ARG002
    ) -> frozenset[str]:
        """Return those of `file_ids`, the partition's visible file groups, that may hold any of `pieces`.

        All of them whenever in doubt.
        """
        return frozenset(file_ids)

    def foresee(self, partitions: Iterable[str]) -> None:  # noqa: ARG002 # for those who are slow
        """Work out at once what is asked of these partitions next: one by one may be slow."""
        return

    def replacing(self, instant: str) -> Index:  # noqa: ARG002 # for those whose ids come back
        """Return the index that holds once `instant` has replaced all file groups of the partitions it writes to."""
        return self

    def layout_files(self, partition: str) -> Mapping[str, bytes]:  # noqa: ARG002 # for those who keep some
        """Return what must be on disk, path -> bytes, before a write to this partition is committed.

        Derived by every writer alike: it does not matter who puts it there.
        """
        return {}

    def stray(self, partition: str, file_id: str, record_keys: Any) -> str | None:
        """Return the first of a file group's record keys that does not belong there, None if they all do.

        A key whose place the index doesn't know is no offence.
        """

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:
        """Say where a key lives and why; `pieces` are those of it that `hash_fields` name."""

    def described(self) -> str:
        """Say what it is, for people, and how much there is of it; may look at files."""
        return str(self)

    def expected_groups(self, partition: str) -> str:  # noqa: ARG002 # for those who know more
        """Say which file groups a partition can have, for who found another."""
        return f"file groups of {self}"


@runtime_checkable
class PlacedIndex(Index, Protocol):
    """An index that works out where a key lives."""

    __slots__ = ()

    @property
    def placed(self) -> Self:
        return self

    def slot_of(self, partition: str, pieces: Pieces) -> str | None:
        """Return the slot of the key with these pieces, None if that is not known."""

    def locate(self, partition: str, record_keys: Any) -> Any:
        """Return `slot_of` for a column of record keys, as a `pa.DictionaryArray` of text.

        Null where it is not known, and for a null key.
        """

    def new_file_id(self, partition: str, slot: str, *, instant: str) -> str:
        """Return the id of the file group that `instant` opens in a slot: the same for everybody who asks."""
        return new_file_id(slot, partition=partition, instant=instant)

    def number_of(self, slot: str) -> int:
        """Return a number by which slots are spread over tasks: those of a partition should have different ones."""
        return int(slot[:8], 16)

    def stray(self, partition: str, file_id: str, record_keys: Any) -> str | None:
        """
        >>> from bucketlake.index.simple import SimpleIndex
        >>> file_id = "00000000-159a-4953-a3c4-b777b847ae7f-0"
        >>> SimpleIndex(4, ("id",)).stray("", file_id, pa.array(["1", "2"]))
        '2'
        """
        located = self.locate(partition, record_keys)
        own = self.slot_of_file(partition, file_id)
        fits = [slot == own for slot in located.dictionary.to_pylist()]
        if all(fits):
            return None
        offender = pc.index(pa.array(fits, pa.bool_()).take(located.indices), False).as_py()
        return None if offender < 0 else str(record_keys[offender].as_py())

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        return Place(slot=self.slot_of(partition, pieces))


class RescalableIndex(PlacedIndex, Protocol):
    """An index whose partitions get other numbers of buckets by rules."""

    __slots__ = ()

    @property
    def rescalable(self) -> Self:
        return self

    def number_of(self, slot: str) -> int:
        return int(slot)

    def slot_at(self, number: int) -> str:
        """Return the slot of a bucket's number."""
        return f"{number:08d}"

    @property
    def rules(self) -> CountRules | None:
        """The rules that it has, None if all partitions have one count."""

    def with_rules(self, rules: CountRules, version: str = "") -> RescalableIndex:
        """Return the index that goes by these rules, as the version of an instant says them."""


class ResizableIndex(PlacedIndex, Protocol):
    """An index whose buckets are split and merged."""

    __slots__ = ()

    @property
    def resizable(self) -> Self:
        return self

    @property
    def rings(self) -> Mapping[str, HashingMetadata]:
        """The rings that are stored, by partition."""

    @property
    def resize_strategy(self) -> str:
        """What a plan of a resize says of who is to run it: Hudi's class, or a word that Hudi stops at."""
        return RESIZE_STRATEGY

    def ring(self, partition: str) -> Ring | None: ...

    def positions_of(self, partition: str, record_keys: Any) -> Any:
        """Return where on a partition's ring a column of record keys lies, as numbers; below 0 for a null key."""

    def metadata(self, partition: str) -> HashingMetadata | None:
        """Return the version of a partition's ring that this index goes by, None if it has none."""

    def with_rings(self, rings: Mapping[str, HashingMetadata]) -> ResizableIndex:
        """Return the index that goes by these rings, and knows no others."""


@dataclass(frozen=True, slots=True)
class NoIndex(Index):
    """Nothing tells where a key lives."""

    hash_fields: tuple[str, ...] = ()
    reason: str = "the table has no bucket index that we know of"
    """Why, for people: shown where a plan is explained."""

    def __str__(self) -> str:
        return f"none: {self.reason}"

    @property
    def is_known(self) -> bool:
        return False

    def slot_of_file(self, partition: str, file_id: str) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def stray(self, partition: str, file_id: str, record_keys: Any) -> str | None:  # noqa: ARG002 # the protocol's
        return None

    def explain(self, partition: str, record_key: str, pieces: Pieces) -> Place:  # noqa: ARG002 # the protocol's
        return Place()


def nowhere(record_keys: Any) -> Any:
    """Return what `locate` says of keys of which nothing is known."""
    return pa.DictionaryArray.from_arrays(pa.nulls(len(record_keys), pa.int32()), pa.array([], pa.string()))
