"""Doubling: a table of N simple buckets becomes one of 2N, bucket by bucket, while writers and readers go on.

    look_for_doubling   which buckets are still to be split; writes nothing
    double_table        begins, or goes on where an earlier call ended
    undo_doubling       the way back, until it is over

Simple buckets are a directory in which all buckets have one depth (`index/directory.py`). So doubling is three steps:

    1. `hoodie.properties` says that the table has extendible hashing. No file moves; Hudi writes to it no more.
    2. Every bucket is split by its next bit: one resize after the other, each committed on its own.
    3. `hoodie.properties` says simple buckets again, twice as many. Hudi writes to it again.

The first and the third are taken under the table's lock; who is writing just then is run again. Cut off anywhere, the
table is what it says it is, and the next call goes on.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass

from bucketlake.commit.claims import latest_time
from bucketlake.commit.locks import table_lock
from bucketlake.commit.publishing import settle
from bucketlake.commit.recovery import pending_rescales, recover
from bucketlake.commit.writable import check_writable
from bucketlake.config import update_properties
from bucketlake.errors import CommitConflictError, ConfigError, ConflictError
from bucketlake.index import BUCKETS_MAX, Directory
from bucketlake.index.directory import base_of
from bucketlake.index.doubling import (
    as_directories,
    count_before,
    settings_of_beginning,
    settings_of_end,
)
from bucketlake.index.fingerprint import writing_index
from bucketlake.index.resizes import pending_resizes
from bucketlake.index.ring import middle_between
from bucketlake.layout.names import EXTENDIBLE_METADATA_FOLDER
from bucketlake.services.clustering import Clustered
from bucketlake.services.resize import abort_resize, ring_states, run_resize, schedule_resize
from bucketlake.services.resize_plan import ROUND_BYTES, BucketChange, PartitionResize, Resize, RingState
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import TableState, files_of, load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action, Clock, process_clock
from bucketlake.write.state import is_non_blocking

_CONFLICTS_MAX = 8
_log = logging.getLogger("bucketlake.services")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketToSplit:
    """A bucket that has rows, and is not split yet."""

    partition: str
    number: int
    size_bytes: int
    is_held: bool
    """Whether another service has taken it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubling:
    """What a doubling has to do yet; prints."""

    before: int
    """Buckets per partition."""
    is_begun: bool
    left: tuple[BucketToSplit, ...]
    split: int
    """How many are split."""
    pending: tuple[str, ...] = ()
    """Splits that are on the timeline, and are completed first."""

    @property
    def after(self) -> int:
        return 2 * self.before

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.left)

    def __str__(self) -> str:
        whole = self.split + len(self.left)
        begun = f"{self.split:,} of {whole:,} buckets are split" if self.is_begun else "not begun"
        lines = [f"simple buckets: {self.before} -> {self.after} per partition; {begun}"]
        lines += [
            f"  {one.partition or '(the table)'}: bucket {one.number} -> {one.number} and "
            f"{one.number + self.before}, {one.size_bytes:,} bytes"
            for one in self.left
        ]
        lines += [f"  the split of {instant} is completed first" for instant in self.pending]
        return "\n".join(
            [*lines, f"{len(self.left):,} buckets to split, {self.size_bytes:,} bytes to rewrite"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubled:
    """What a call did; prints."""

    buckets: int
    """Per partition, as soon as it is finished."""
    runs: tuple[Clustered, ...]
    """Resizes, each committed on its own."""
    is_finished: bool

    def __str__(self) -> str:
        end = (
            f"simple buckets: {self.buckets} per partition"
            if self.is_finished
            else "not finished: the same call goes on. Until then Hudi reads the table, and does not write to it"
        )
        return "\n".join([*map(str, self.runs), end])


def look_for_doubling(store: Store) -> Doubling:
    """Say which buckets a doubling has yet to split."""
    state = load_state(store)
    count, is_begun = _count_of(state)
    found = _buckets(state)
    left = tuple(
        BucketToSplit(
            partition=one.partition,
            number=one.number,
            size_bytes=one.size_bytes,
            is_held=one.prefix in one.state.held,
        )
        for one in found
        if one.depth == base_of(count)[1]
    )
    split = {(one.partition, one.number % count) for one in found if one.depth > base_of(count)[1]}
    pending = tuple(pending_resizes(store, state.timeline)) if is_begun else ()
    return Doubling(before=count, is_begun=is_begun, left=left, split=len(split), pending=pending)


def double_table(
    store: Store, *, rounds: int | None = None, tasks: Tasks = here, clock: Clock | None = None
) -> Doubled:
    """Split the buckets of a table that are not split yet; with the last one, it has simple buckets again.

    A round splits one bucket of every partition, or of as many as `resize` rewrites in a round. With `rounds`, the rest
    is left to the next call. Beside another process that is at it, `ConflictError`.
    """
    if rounds is not None and rounds < 1:
        raise ConfigError(f"rounds is {rounds}; expected 1 at least.")
    state = load_state(store)
    _count_of(state)
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    count, is_begun = _count_of(load_state(store))
    if not is_begun:
        begin_doubling(store, count)
    done: list[Clustered] = []
    for instant in pending_resizes(store, load_state(store).timeline):
        with suppress(CommitConflictError):  # it is planned anew
            done.append(run_resize(store, instant, tasks=tasks, clock=clock))
    conflicts = 0
    while rounds is None or len(done) < rounds:
        plan = next_round(store, count)
        if plan is None and _end(store, count, 2 * count, clock):
            break
        scheduled = None if plan is None else schedule_resize(store, plan, clock=clock)
        try:
            if scheduled is not None:
                done.append(run_resize(store, scheduled, tasks=tasks, clock=clock))
                conflicts = 0
                continue
        except CommitConflictError as conflict:
            _log.info("%s: a split was in others' way, and is planned anew: %s", store.uri, conflict)
        conflicts += 1
        if conflicts > _CONFLICTS_MAX:
            raise ConflictError(
                f"others take the buckets of {store.uri} that are to be split, again and again. Call it again later."
            )
    is_finished = _end(store, count, 2 * count, clock)
    return Doubled(buckets=2 * count, runs=tuple(done), is_finished=is_finished)


def undo_doubling(store: Store, *, tasks: Tasks = here, clock: Clock | None = None) -> Doubled:
    """Merge what was split, and give the table its number of buckets back. What was written meanwhile stays."""
    state = load_state(store)
    count, is_begun = _count_of(state)
    if not is_begun:
        raise ConfigError(
            f"the buckets of {store.uri} are not being doubled: there is nothing to take back. Fewer buckets it gets "
            f"by a rescale, `bucketlake buckets overwrite`."
        )
    clock = clock or process_clock(state.properties.timeline_timezone)
    recover(store, state.properties, clock=clock)
    state = load_state(store)
    for instant in pending_resizes(store, state.timeline):
        abort_resize(store, instant, clock=clock)
    done = []
    conflicts = 0
    while plan := next_merges(store, count):
        scheduled = schedule_resize(store, plan, clock=clock)
        try:
            if scheduled is not None:
                done.append(run_resize(store, scheduled, tasks=tasks, clock=clock))
                conflicts = 0
                continue
        except CommitConflictError as conflict:
            _log.info("%s: a merge was in others' way, and is planned anew: %s", store.uri, conflict)
        conflicts += 1
        if conflicts > _CONFLICTS_MAX:
            raise ConflictError(
                f"others take the buckets of {store.uri} that are to be merged, again and again. Call it again later."
            )
    is_finished = _end(store, count, count, clock)
    return Doubled(buckets=count, runs=tuple(done), is_finished=is_finished)


@dataclass(frozen=True, slots=True)
class _Found:
    """A bucket, where it is."""

    state: RingState
    place: int

    @property
    def directory(self) -> Directory:
        assert isinstance(self.state.ring, Directory)
        return self.state.ring

    @property
    def partition(self) -> str:
        return self.state.partition

    @property
    def prefix(self) -> str:
        return self.state.ring.nodes[self.place].file_id_prefix

    @property
    def number(self) -> int:
        return self.directory.number_of(self.place)

    @property
    def depth(self) -> int:
        return self.directory.depth_of(self.place)

    @property
    def size_bytes(self) -> int:
        return self.state.slices[self.prefix].size_bytes


def _count_of(state: TableState) -> tuple[int, bool]:
    """Return how many buckets are doubled, and whether that is begun; refuse what cannot be doubled."""
    check_writable(state)
    properties, uri = state.properties, state.store.uri
    index = writing_index(state)
    begun = count_before(properties)
    if begun is not None:
        return begun, True
    rings = as_directories(index)
    count = None if rings is None else rings.initial_count
    if count is None:
        instead = (
            "Give it rules with twice the numbers: `bucketlake buckets overwrite`."
            if index.rescalable is not None
            else "Its buckets split by themselves: `bucketlake buckets resize`."
            if index.resizable is not None
            else "It has no number of buckets."
        )
        raise ConfigError(f"{uri} has {index}, and doubling is for simple buckets. {instead}")
    if is_non_blocking(properties):
        raise ConfigError(
            f"{uri} is non-blocking: the ids of its file groups are fixed, and a split gives them new ones. Make a "
            f"table without non_blocking and copy the rows."
        )
    if 2 * count > BUCKETS_MAX:
        raise ConfigError(
            f"{uri} has {count} buckets per partition, and {BUCKETS_MAX} is the most there can be."
        )
    for what, pending in (
        ("rescale", [one.requested for one in pending_rescales(state.store, state.timeline)]),
        ("clustering", [one.requested for one in state.timeline.pending(Action.CLUSTERING)]),
    ):
        if pending:
            raise ConflictError(
                f"the {what} of {pending[0]} is pending on {uri}, and would not fit other buckets. Complete it or "
                f"take it back, then double."
            )
    return count, False


def begin_doubling(store: Store, count: int) -> None:
    """Say that the buckets of a table are being doubled."""
    with table_lock(store) as held:
        state = load_state(store)
        settle(store, state.properties)
        state = load_state(store)
        if _count_of(state) != (count, False):
            raise ConflictError(
                f"somebody else has begun to double the buckets of {store.uri}. Call it again."
            )
        if state.timeline.pending(Action.ROLLBACK, Action.RESTORE):
            raise ConflictError(
                f"somebody is taking something back on {store.uri}. Double its buckets once that is over."
            )
        # What an earlier doubling left tells of other buckets.
        for file in store.list(EXTENDIBLE_METADATA_FOLDER, recursive=True).files:
            held.delete(file.path)
        update_properties(held, settings_of_beginning(count))


def _end(store: Store, count: int, count_after: int, clock: Clock) -> bool:
    """Give the table simple buckets again, if all that have rows are those of `count_after`; tell whether it has."""
    with table_lock(store) as held:
        state = load_state(store)
        claims, timeline = settle(store, state.properties)
        state = load_state(store)
        if count_before(state.properties) != count:
            return True  # somebody else has done it
        depth = base_of(count_after)[1]
        # Whoever is taking something back brings file groups of other buckets.
        is_undone = bool(timeline.pending(Action.ROLLBACK, Action.RESTORE))
        if (
            is_undone
            or pending_resizes(store, timeline)
            or any(one.depth != depth for one in _buckets(state))
        ):
            return False
        time = clock.next_instant(after=latest_time(timeline, claims))
        update_properties(held, settings_of_end(count_after, time=time))
        return True


def _buckets(state: TableState) -> list[_Found]:
    """Find the buckets that have rows."""
    index = writing_index(state)
    rings = as_directories(index) or index.resizable
    assert rings is not None
    return [
        _Found(one, place)
        for one in ring_states(state, files_of(state), rings)
        for place, prefix in enumerate(one.ring.prefixes)
        if prefix in one.slices
    ]


def next_round(store: Store, count: int) -> Resize | None:
    """Choose what to split next; None if all buckets are split, or somebody else has ended the doubling."""
    state = load_state(store)
    if count_before(state.properties) != count:
        return None
    left = [one for one in _buckets(state) if one.depth == base_of(count)[1]]
    if not left:
        return None
    free = [one for one in left if one.prefix not in one.state.held and not one.state.is_resizing]
    if not free:
        raise ConflictError(
            f"bucket {left[0].number} of {left[0].partition or state.store.uri} is to be split, and another service "
            f"has taken it: a compaction or a resize that is pending. Complete it, then call this again."
        )
    number = min(one.number for one in free)
    changes: list[_Found] = []
    room = ROUND_BYTES
    for one in free:
        if one.number == number and (one.size_bytes <= room or not changes):
            changes.append(one)
            room -= one.size_bytes
    return _resize_of([(one,) for one in changes])


def next_merges(store: Store, count: int) -> Resize | None:
    """Choose what to merge next; None if nothing is split, or somebody else has ended the doubling."""
    state = load_state(store)
    merges = _to_merge(state, count) if count_before(state.properties) == count else []
    return _resize_of(merges) if merges else None


def _to_merge(state: TableState, count: int) -> list[tuple[_Found, ...]]:
    """Find the halves to merge, of one bucket number; one of them may be empty."""
    depth = base_of(count)[1]
    with_rows = [one for one in _buckets(state) if one.depth > depth]
    if not with_rows:
        return []
    number = min(one.number % count for one in with_rows)
    states = {one.partition: one.state for one in with_rows if one.number % count == number}
    pairs = [
        tuple(half for half in _places(of) if half.depth > depth and half.number % count == number)
        for of in states.values()
    ]
    return [both for both in pairs if all(half.prefix not in half.state.held for half in both)]


def _places(state: RingState) -> list[_Found]:
    return [_Found(state, place) for place in range(len(state.ring.nodes))]


def _resize_of(chosen: list[tuple[_Found, ...]]) -> Resize:
    """Make a plan of buckets to split, one each, or to merge, two each; of one partition no more than one."""
    return Resize(partitions=tuple(map(_partition_resize, chosen)))


def _partition_resize(found: tuple[_Found, ...]) -> PartitionResize:
    first = found[0]
    at = None
    if len(found) == 1:
        at = middle_between(
            first.directory.before(first.place).value, first.directory.nodes[first.place].value
        )
        assert at is not None, "so many buckets that no bit is left"
    change = BucketChange(
        partition=first.partition,
        places=tuple(one.place for one in found),
        slices=tuple(one.state.slices[one.prefix] for one in found if one.prefix in one.state.slices),
        at=at,
    )
    return PartitionResize(
        partition=first.partition,
        ring=first.state.ring,
        sequence=first.state.sequence,
        sizes={prefix: part.size_bytes for prefix, part in first.state.slices.items()},
        changes=(change,),
    )
