"""Whether two writes that ran at the same time may both commit. Pure: values in, a value out.

A write touches file groups, or whole partitions. Two writes are in each other's way if they touch the same group,
or one replaces a partition that the other touches. There is one exception:
two writes that only append logs to a group may both commit where the rows
themselves say which is newer, since readers merge the logs in any order; and
everywhere, if the one that commits first was also begun first, for then
readers agree on which comes before the other. It does not hold where an index
keeps which keys there are, and one of the two takes some away: a key that one
deletes, or moves elsewhere, and the other updates would be in the log again,
and not in the index. Nor does it hold where a file group takes only so many
keys, and both bring new ones that together are too many.

A write whose rows were computed from those of the table is stale as soon as
another has touched what it read (`find_stale_read`). And a log that comes
after such a write, and was begun before it, does not commute with it: of equal
ordering values the wrong one would win.

A write that is in another's way need not be run again as a whole if the
other was begun first: where it rewrote a file group that both touched, it
does so again, on what the other left, and keeps the rest.

File groups are compared by their slots: two writers that open the same
bucket may give it different ids. Which slot a file group has, the table's
index says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from bucketlake.layout import FileGroupId
from bucketlake.metadata.change import INDEX_FILES_KEY, concerned_by, logged_keys_of
from bucketlake.schema import avro_to_arrow
from bucketlake.timeline import CommitMetadata

Slot = tuple[str, str]
"""A partition, and the slot of a file group in it: its file id, if that has none."""

SlotOf = Callable[[str, str], str | None]
"""Of a file group, the slot: `Index.slot_of_file`."""

COMPUTED = "bucketlake.computed"
"""In a commit's extra metadata: its rows were computed from those of the table."""

_WHOLE_PARTITIONS = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})


class ReadScope(StrEnum):
    """Where a key may turn up that a write has looked for, and has not found."""

    GROUP = "group"
    """In the file group that the index works out."""
    PARTITION = "partition"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a write touched."""

    rewritten: frozenset[Slot] = frozenset()
    """Groups that got a new base file, or gave way, or whose keys were recorded anew."""
    appended: frozenset[Slot] = frozenset()
    """Groups that got a log file only."""
    log_ids: Mapping[FileGroupId, Slot] = field(default_factory=dict)
    """The same by their file ids."""
    removing: frozenset[Slot] = frozenset()
    """Those of the groups that got a log which may take keys away."""
    replaced_partitions: frozenset[str] = frozenset()
    """Partitions that were replaced whole."""
    is_whole_table: bool = False
    """Whether all of the table was replaced."""
    is_delete: bool = False
    """Whether its logs hide rows whatever those say: what they hide depends on what came before them."""
    is_computed: bool = False
    """Whether its rows were computed from those of the table, so that they depend on what came before them."""
    schema: pa.Schema | None = None
    """The table's columns after it, if it says so."""
    grown: Mapping[FileGroupId, int] = field(default_factory=dict)
    """By how many keys its logs make groups grow that are full at some number of them."""

    @property
    def groups(self) -> frozenset[Slot]:
        return self.rewritten | self.appended

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(partition for partition, _ in self.groups) | self.replaced_partitions


@dataclass(frozen=True, slots=True)
class ReadBasis:
    """What the rows of a write were computed from: an UPDATE or a MERGE reads the table before it writes to it."""

    groups: frozenset[FileGroupId]
    """The file groups that were read."""
    scope: ReadScope
    """How far around these, and around what was written, somebody else's write makes the rows stale."""


@dataclass(frozen=True, slots=True)
class Other:
    """A write that was completed since ours began."""

    name: str
    footprint: Footprint
    is_earlier: bool = False
    """Whether it was begun before ours: then its files come before ours for every reader."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a write cannot be committed as it is."""

    name: str
    """Of the first that is in our way."""
    stale: frozenset[Slot] = frozenset()
    """Groups that must be written again, and with them all is well; none if all must be written again."""


def footprint_of(metadata: CommitMetadata, slot_of: SlotOf) -> Footprint:
    """Say what a commit touched. A compaction touches nothing: it changes no row, and leaves room for logs."""
    schema = avro_to_arrow(metadata.schema, path="a commit") if metadata.schema else None
    if metadata.is_compaction:
        return Footprint(schema=schema)

    def place_of(partition: str, file_id: str) -> Slot:
        return partition, slot_of(partition, file_id) or file_id

    rewritten = {
        place_of(partition, file_id) for partition, ids in metadata.replaced.items() for file_id in ids
    }
    rewritten |= {place_of(*group) for group in concerned_by(metadata)}
    appended: set[Slot] = set()
    log_ids: dict[FileGroupId, Slot] = {}
    removing: set[Slot] = set()
    # Who does not say what became of keys, such as Hudi, may count deletes elsewhere, or not at all.
    tells = INDEX_FILES_KEY in metadata.extra
    for stat in metadata.write_stats:
        group = place_of(stat.partition, stat.file_id)
        if stat.log_files:
            appended.add(group)
            log_ids[stat.partition, stat.file_id] = group
            if stat.deleted or not tells:
                removing.add(group)
        else:
            rewritten.add(group)
    whole = metadata.partitions if metadata.operation in _WHOLE_PARTITIONS else frozenset()
    return Footprint(
        rewritten=frozenset(rewritten),
        appended=frozenset(appended - rewritten),
        log_ids=log_ids,
        removing=frozenset(removing - rewritten),
        replaced_partitions=whole,
        is_whole_table=metadata.operation == "INSERT_OVERWRITE_TABLE",
        is_delete=metadata.operation == "DELETE",
        is_computed=COMPUTED in metadata.extra,
        schema=schema,
        grown={
            (partition, file_id): keys
            for partition, by_id in logged_keys_of(metadata).items()
            for file_id, keys in by_id.items()
        },
    )


def find_conflict(
    ours: Footprint,
    others: Iterable[Other],
    *,
    logs_commute: bool,
    keeps_keys: bool = False,
    keeps_values: bool = False,
    room: Mapping[FileGroupId, int] | None = None,
) -> Conflict | None:
    """Say who of `others` is in our way, and what that makes stale; None if nobody is.

    `keeps_keys` tells whether the table has an index of which keys there are, and `keeps_values` whether it has one of
    the values that rows have. An index of values is told what a write changed. Two who changed the same rows, each on
    what there was before the other, have told it too much.

    `room` says how many more keys groups take that ours has appended new keys to. Two who fill a group with different
    keys may both commit as long as all of them fit.

    >>> ours = Footprint(appended=frozenset({("dt=1", "00000001")}))
    >>> find_conflict(ours, [Other("a", ours)], logs_commute=True) is None
    True
    >>> find_conflict(ours, [Other("a", ours)], logs_commute=False)
    Conflict(name='a', stale=frozenset())
    """
    others = list(others)
    found = [
        Conflict(other.name, stale)
        for other in others
        if (
            stale := _stale(
                ours, other, logs_commute=logs_commute, keeps_keys=keeps_keys, keeps_values=keeps_values
            )
        )
        is not None
    ]
    if not found:
        too_many = _who_overfills(others, room or {})
        return None if too_many is None else Conflict(too_many)
    whole = next((conflict for conflict in found if not conflict.stale), None)
    return whole or Conflict(found[0].name, frozenset().union(*(conflict.stale for conflict in found)))


def _who_overfills(others: Iterable[Other], room: Mapping[FileGroupId, int]) -> str | None:
    """Name the one of `others` whose keys, with those before it, do not fit into a group beside ours."""
    brought: Counter[FileGroupId] = Counter()
    for other in others:
        brought.update({group: keys for group, keys in other.footprint.grown.items() if group in room})
        if any(keys > max(0, room[group]) for group, keys in brought.items()):
            return other.name
    return None


def find_stale_read(read: ReadBasis, ours: Footprint, others: Iterable[Other], slot_of: SlotOf) -> str | None:
    """Name who of `others` has changed what the rows of a write were computed from; None if nobody has.

    Logs may commute, and a row that was computed from what another log has changed still overwrites that. So whoever
    has touched a file group that was read, or one that is written, makes the rows stale.
    """
    groups = ours.groups | {(p, slot_of(p, file_id) or file_id) for p, file_id in read.groups}
    partitions = ours.partitions | {partition for partition, _ in read.groups}
    for other in others:
        theirs = other.footprint
        is_change = theirs.is_whole_table or bool(theirs.partitions)
        if theirs.is_whole_table or (is_change and read.scope is ReadScope.TABLE):
            return other.name
        touched = theirs.partitions if read.scope is ReadScope.PARTITION else theirs.replaced_partitions
        if touched & partitions or theirs.groups & groups:
            return other.name
    return None


def _stale(
    ours: Footprint, other: Other, *, logs_commute: bool, keeps_keys: bool, keeps_values: bool
) -> frozenset[Slot] | None:
    """Return the groups of ours that `other` makes stale, none for all of them; None if it is not in our way."""
    everything: frozenset[Slot] = frozenset()
    theirs = other.footprint
    if ours.is_whole_table or theirs.is_whole_table:
        return everything
    if ours.schema is not None and theirs.schema is not None and ours.schema != theirs.schema:
        # The later of two commits says what the table's columns are; it must know of the earlier one's.
        return everything
    if ours.replaced_partitions & theirs.partitions or theirs.replaced_partitions & ours.partitions:
        return everything
    rewritten = ours.rewritten & theirs.groups
    hidden = ours.appended & theirs.rewritten
    depends = ours.is_delete or theirs.is_delete or theirs.is_computed
    is_ordered = other.is_earlier or (logs_commute and not depends)
    shared = ours.appended & theirs.appended
    if not ours.log_ids.keys() >= {file for file, group in theirs.log_ids.items() if group in shared}:
        return everything  # Both opened the bucket, each with an id of its own.
    if shared and (keeps_values or (keeps_keys and shared & (ours.removing | theirs.removing))):
        return everything
    if not (rewritten or hidden or (shared and not is_ordered)):
        return None
    return rewritten if other.is_earlier and not hidden else everything
