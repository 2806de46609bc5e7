"""Which buckets to split and which to merge: decided from the rings, the bytes of file groups, and the keys' hashes.

    ResizeTrigger   when a bucket is large, when it is small, and how much may be done in a round
    plan_resize     pure: the changes, and what was left alone and why; prints as the rings before and after

A large bucket is split in two, at a point that a policy chooses; small neighbours become one. A bucket without files
is as small as can be, and goes with a neighbour that has some. A partition that somebody is resizing already waits for
the next round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from bucketlake.errors import ConfigError
from bucketlake.index import BUCKETS_MAX, Node, Ring, Tag, derived_prefix
from bucketlake.index.ring import HASH_MAX, RANGE, middle_between
from bucketlake.layout import FileGroupId, FileSlice

FILE_BYTES = 120 << 20
"""How large a base file should become at most; Hudi's `hoodie.parquet.max.file.size`."""
SPLIT_THRESHOLD = 2.0
MERGE_THRESHOLD = 0.2
ROUND_BYTES = 2 << 30
PARTITIONS_AT_ONCE = 10_000

Hashes = npt.NDArray[np.int32]


class SplitPolicy(Protocol):
    """Where to split a bucket: the last hash of the first half, None if there is no such point.

    It is given the ring, the bucket's place on it, and the hashes of keys in the bucket, sorted: a sample. Any hash of
    the bucket's range will do but the last, after which nothing is left for the second half.
    """

    def __call__(self, ring: Ring, place: int, hashes: Hashes) -> int | None: ...


def at_the_middle(ring: Ring, place: int, hashes: Hashes) -> int | None:
    """Split in the middle of the range; where all keys are on one side, in the middle of that, and so on."""
    low, high = ring.before(place).value, ring.nodes[place].value
    first, last = offset(ring, place, hashes[0]), offset(ring, place, hashes[-1])
    if first == last:
        return None
    while True:
        middle = middle_between(low, high)
        if middle is None:
            return None
        reach = offset(ring, place, middle)
        if first <= reach < last:
            return middle
        low, high = (middle, high) if reach < first else (low, middle)


def evenly(ring: Ring, place: int, hashes: Hashes) -> int | None:
    """Split so that half of the keys fall to each side."""
    return ring.halving_point(place, hashes)


POLICIES: Mapping[str, SplitPolicy] = {"middle": at_the_middle, "even": evenly}


def offset(ring: Ring, place: int, ring_hash: int) -> int:
    """Return how far into a bucket's range a hash is, so that a range that wraps around is like any other."""
    return int((int(ring_hash) - ring.before(place).value - 1) % RANGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeTrigger:
    """When to split and merge buckets, and how much at once."""

    file_bytes: int = FILE_BYTES
    """The size that a bucket should have."""
    split_threshold: float = SPLIT_THRESHOLD
    """A bucket whose files have more than so many times `file_bytes` is split."""
    merge_threshold: float = MERGE_THRESHOLD
    """Neighbours that together have at most so many times `file_bytes` become one."""
    min_buckets: int = 1
    """The fewest buckets of a partition."""
    max_buckets: int = BUCKETS_MAX
    """The most buckets of a partition."""
    partitions: tuple[str, ...] | None = None
    """Only these partitions."""
    partitions_at_once: int = PARTITIONS_AT_ONCE
    """The most partitions in a round."""
    bytes_at_once: int = ROUND_BYTES
    """The most bytes that a round rewrites; one change is made in any case."""
    policy: SplitPolicy = at_the_middle
    """The function that says where to split."""

    def __post_init__(self) -> None:
        if self.file_bytes <= 0 or self.split_threshold <= 0 or self.merge_threshold < 0:
            raise ConfigError(
                f"a resize needs positive sizes, and got file_bytes={self.file_bytes}, "
                f"split_threshold={self.split_threshold}, merge_threshold={self.merge_threshold}."
            )
        if not 1 <= self.min_buckets <= self.max_buckets <= BUCKETS_MAX:
            raise ConfigError(
                f"min_buckets={self.min_buckets} and max_buckets={self.max_buckets} contradict each other; expected "
                f"1 <= min_buckets <= max_buckets <= {BUCKETS_MAX}."
            )
        if self.split_threshold < 2 * self.merge_threshold:
            raise ConfigError(
                f"split_threshold={self.split_threshold} and merge_threshold={self.merge_threshold} would split a "
                f"bucket and merge its halves again, for ever. Let the first be twice the second at least."
            )
        if self.partitions_at_once <= 0 or self.bytes_at_once <= 0:
            raise ConfigError("a round must be allowed one partition and one byte at least.")

    @property
    def split_bytes(self) -> float:
        return self.file_bytes * self.split_threshold

    @property
    def merge_bytes(self) -> float:
        return self.file_bytes * self.merge_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketChange:
    """A bucket to split, or neighbours to merge."""

    partition: str
    places: tuple[int, ...]
    """On the ring, in its order."""
    slices: tuple[FileSlice, ...]
    at: int | None = None
    """Of a split, the last hash of the first half."""

    @property
    def size_bytes(self) -> int:
        return sum(part.size_bytes for part in self.slices)

    def children(self, ring: Ring, *, salt: str) -> tuple[Node, ...]:
        """Return the nodes that come and go; `salt` is never used twice, so ids do not come back."""

        def fresh(value: int) -> str:
            return derived_prefix(salt, value, self.partition)

        if self.at is not None:
            return ring.split_into(self.places[0], self.at, fresh)
        return ring.merge_into(self.places, fresh)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResize:
    """What happens to one partition; prints as its ring before and after."""

    partition: str
    ring: Ring
    sequence: int
    sizes: dict[str, int]
    """Prefix -> bytes, of the buckets that have files."""
    changes: tuple[BucketChange, ...]

    @property
    def after(self) -> Ring:
        """The ring afterwards, with stand-ins for the new ids."""
        nodes = [node for change in self.changes for node in change.children(self.ring, salt="new")]
        return self.ring.with_children(nodes)

    @property
    def _new_sizes(self) -> dict[str, int]:
        """What to expect of the new buckets."""
        found: dict[str, int] = {}
        for change in self.changes:
            come = [node for node in change.children(self.ring, salt="new") if node.tag is Tag.REPLACE]
            found |= {node.file_id_prefix: change.size_bytes // len(come) for node in come}
        return found

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)

    def __str__(self) -> str:
        splits = sum(change.at is not None for change in self.changes)
        before, after = draw(self.ring, self.sizes), draw(self.after, self.sizes | self._new_sizes)
        return "\n".join(
            [
                f"{self.partition or '(the table)'}: {len(self.ring.nodes)} -> {len(self.after.nodes)} buckets, "
                f"{splits} to split, {len(self.changes) - splits} to merge, {self.size_bytes:,} bytes to rewrite",
                f"  before {before}",
                f"  after  {after}",
            ]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resize:
    """A round of resizing; prints as a list of partitions."""

    partitions: tuple[PartitionResize, ...]
    left_alone: tuple[str, ...] = ()
    """Why large buckets, or whole partitions, are not touched: a line each."""
    later: int = 0
    """Changes for which this round has no room."""

    @property
    def is_empty(self) -> bool:
        return not self.partitions

    @property
    def changes(self) -> tuple[BucketChange, ...]:
        return tuple(change for one in self.partitions for change in one.changes)

    @property
    def groups(self) -> frozenset[FileGroupId]:
        return frozenset((part.partition, part.file_id) for change in self.changes for part in change.slices)

    @property
    def size_bytes(self) -> int:
        return sum(change.size_bytes for change in self.changes)

    def __str__(self) -> str:
        lines = [str(one) for one in self.partitions] or ["nothing to resize"]
        lines += [f"left alone: {line}" for line in self.left_alone]
        if self.later:
            lines.append(f"{self.later:,} more changes are left to the next rounds")
        if self.partitions:
            lines.append(f"{len(self.changes):,} changes, {self.size_bytes:,} bytes to rewrite")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingState:
    """One partition as a plan sees it."""

    partition: str
    ring: Ring
    sequence: int
    slices: Mapping[str, FileSlice]
    """Prefix -> what a reader sees of the bucket."""
    held: frozenset[str] = frozenset()
    """Prefixes of buckets that another service has taken."""
    is_resizing: bool = False


def large_buckets(state: RingState, trigger: ResizeTrigger) -> tuple[str, ...]:
    """Name the buckets to split, the largest first: their keys are to be looked at before it is decided where."""
    if state.is_resizing:
        return ()
    large = [
        (part.size_bytes, prefix)
        for prefix, part in state.slices.items()
        if part.size_bytes > trigger.split_bytes and prefix not in state.held
    ]
    room = max(0, trigger.max_buckets - len(state.ring.nodes))
    return tuple(prefix for _, prefix in sorted(large, reverse=True)[:room])


def plan_resize(
    states: Sequence[RingState], hashes: Mapping[FileGroupId, Hashes], trigger: ResizeTrigger
) -> Resize:
    """Choose what to split and what to merge. `hashes` are those of keys in large buckets, by their prefix."""
    known = {state.partition for state in states}
    for partition in trigger.partitions or ():
        if partition not in known:
            raise ConfigError(
                f"the table has no partition {partition!r}. Name partitions by their paths, as `bucketlake layout` "
                f"shows them."
            )
    chosen: list[PartitionResize] = []
    left_alone: list[str] = []
    later, room, rooms = 0, trigger.bytes_at_once, trigger.partitions_at_once
    for state in sorted(states, key=lambda state: state.partition):
        if trigger.partitions is not None and state.partition not in trigger.partitions:
            continue
        if state.is_resizing:
            left_alone.append(f"{state.partition or '(the table)'} is being resized already")
            continue
        found: list[BucketChange] = []
        for change in _changes(state, hashes, trigger, left_alone):
            has_room = change.size_bytes <= room or (not chosen and not found)
            if not has_room or (not found and rooms == 0):
                later += 1
                continue
            found.append(change)
            room -= change.size_bytes
        if found:
            rooms -= 1
            sizes = {prefix: part.size_bytes for prefix, part in state.slices.items()}
            chosen.append(
                PartitionResize(
                    partition=state.partition,
                    ring=state.ring,
                    sequence=state.sequence,
                    sizes=sizes,
                    changes=tuple(found),
                )
            )
    return Resize(partitions=tuple(chosen), left_alone=tuple(left_alone), later=later)


def _changes(
    state: RingState,
    hashes: Mapping[FileGroupId, Hashes],
    trigger: ResizeTrigger,
    left_alone: list[str],
) -> Iterator[BucketChange]:
    splits = 0
    touched: set[int] = set()
    for prefix in large_buckets(state, trigger):
        place = state.ring.place_of(prefix)
        sample = hashes.get((state.partition, prefix))
        at = (
            _split_point(state, place, sample, trigger.policy) if sample is not None and len(sample) else None
        )
        if at is None:
            left_alone.append(
                f"{state.partition or '(the table)'}: bucket {prefix} has {state.slices[prefix].size_bytes:,} bytes, "
                f"and no point between its keys: all have one hash. Hash more fields of the key, or raise the threshold"
            )
            continue
        splits += 1
        touched.add(place)
        yield BucketChange(partition=state.partition, places=(place,), slices=(state.slices[prefix],), at=at)
    spare = len(state.ring.nodes) + splits - trigger.min_buckets
    for places in state.ring.runs_to_merge(
        _sizes_to_merge(state, touched), limit=trigger.merge_bytes, spare=spare
    ):
        prefixes = [state.ring.nodes[place].file_id_prefix for place in places]
        slices = tuple(state.slices[prefix] for prefix in prefixes if prefix in state.slices)
        if slices:  # a plan names file groups, so buckets without any are left alone
            yield BucketChange(partition=state.partition, places=tuple(places), slices=slices)


def _split_point(state: RingState, place: int, hashes: Hashes, policy: SplitPolicy) -> int | None:
    """Ask the policy, and take its answer for no more than what it is: somebody's function."""
    at = policy(state.ring, place, hashes)
    if at is None:
        return None
    is_whole = isinstance(at, int | np.integer) and not isinstance(at, bool)
    if not is_whole or not state.ring.can_split(place, int(at)):
        first, last = (state.ring.before(place).value + 1) % RANGE, state.ring.nodes[place].value
        around = f" (after {HASH_MAX} comes 0)" if first > last else ""
        raise ConfigError(
            f"the split policy {getattr(policy, '__name__', None) or policy!r} chose {at!r} for bucket "
            f"{state.ring.nodes[place].file_id_prefix} of {state.partition or '(the table)'}; expected a hash of the "
            f"bucket's range, {first} to {last}{around}, but not its last, or None. Mend the policy, or take one "
            f"of {', '.join(POLICIES)}. Nothing was changed."
        )
    return int(at)


def _sizes_to_merge(state: RingState, touched: set[int]) -> list[int | None]:
    """Return the bytes of every bucket, in the order of the ring; None of one that is to stay as it is."""

    def size(place: int) -> int | None:
        prefix = state.ring.nodes[place].file_id_prefix
        if place in touched or prefix in state.held:
            return None
        part = state.slices.get(prefix)
        return 0 if part is None else part.size_bytes

    return [size(place) for place in range(len(state.ring.nodes))]


_BAR = 64


def draw(ring: Ring, sizes: Mapping[str, int]) -> str:
    """Draw a ring as a bar: `|` where a range ends, and before it how full it is.

    >>> draw(Ring((Node(0x3FFFFFFF, "a"), Node(0x7FFFFFFF, "b"))), {"a": 4, "b": 1})[:33]
    '[███████████████████████████████|'
    """
    most = max(sizes.values(), default=0)
    cells = []
    for column in range(_BAR):
        low, high = column * ring.span // _BAR, (column + 1) * ring.span // _BAR - 1
        node = ring.node_of(low)
        ends = any(low <= one.value <= high for one in ring.nodes) and column < _BAR - 1
        if ends:
            cells.append("|")
        elif node.file_id_prefix in sizes:
            cells.append(" ▁▂▃▄▅▆▇█"[1 + 7 * sizes[node.file_id_prefix] // max(1, most)])
        else:
            cells.append(" ")
    return f"[{''.join(cells)}]"
