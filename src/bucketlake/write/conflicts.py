"""Whether two writes that ran at the same time may both commit. Pure: values in, a value out.

A write touches file groups, known by partition and bucket, or whole
partitions. Two writes are in each other's way if they touch the same group,
or one replaces a partition that the other touches. There is one exception:
two writes that only append logs to a group may both commit where the rows
themselves say which is newer, since readers merge the logs in any order.

A bucket stands for its file group here, not the file id: two writers that
open the same bucket give it different ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from bucketlake.schema import avro_to_arrow
from bucketlake.timeline import CommitMetadata

Group = tuple[str, str]
"""Partition, and bucket or file id."""

_BUCKET = re.compile(r"[0-9]{8}(?=-)")
_WHOLE_PARTITIONS = frozenset({"INSERT_OVERWRITE", "INSERT_OVERWRITE_TABLE", "DELETE_PARTITION"})


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a write touched."""

    rewritten: frozenset[Group] = frozenset()
    """Groups that got a new base file, or gave way."""
    appended: frozenset[Group] = frozenset()
    """Groups that got a log file only."""
    replaced_partitions: frozenset[str] = frozenset()
    """Partitions that were replaced whole."""
    is_whole_table: bool = False
    """Whether all of the table was replaced."""
    schema: pa.Schema | None = None
    """The table's columns after it, if it says so."""

    @property
    def groups(self) -> frozenset[Group]:
        return self.rewritten | self.appended

    @property
    def partitions(self) -> frozenset[str]:
        return frozenset(partition for partition, _ in self.groups) | self.replaced_partitions


def footprint_of(metadata: CommitMetadata) -> Footprint:
    """Say what a commit touched. A compaction touches nothing: it changes no row, and leaves room for logs."""
    schema = avro_to_arrow(metadata.schema, path="a commit") if metadata.schema else None
    if metadata.is_compaction:
        return Footprint(schema=schema)
    rewritten = {
        (partition, _bucket(file_id)) for partition, ids in metadata.replaced.items() for file_id in ids
    }
    appended: set[Group] = set()
    for stat in metadata.write_stats:
        # A delete without ordering values does not commute: what it hides depends on what came before it.
        is_append = bool(stat.log_files) and metadata.operation != "DELETE"
        (appended if is_append else rewritten).add((stat.partition, _bucket(stat.file_id)))
    whole = metadata.partitions if metadata.operation in _WHOLE_PARTITIONS else frozenset()
    return Footprint(
        rewritten=frozenset(rewritten),
        appended=frozenset(appended - rewritten),
        replaced_partitions=whole,
        is_whole_table=metadata.operation == "INSERT_OVERWRITE_TABLE",
        schema=schema,
    )


def find_conflict(
    ours: Footprint, others: Iterable[tuple[str, Footprint]], *, logs_commute: bool
) -> str | None:
    """Return the first of `others`, pairs of a name and a footprint, that is in our way; None if nobody is.

    >>> ours = Footprint(appended=frozenset({("dt=1", "00000001")}))
    >>> find_conflict(ours, [("a", ours)], logs_commute=True) is None
    True
    >>> find_conflict(ours, [("a", ours)], logs_commute=False)
    'a'
    """
    return next((name for name, other in others if _meet(ours, other, logs_commute=logs_commute)), None)


def _meet(ours: Footprint, other: Footprint, *, logs_commute: bool) -> bool:
    if ours.is_whole_table or other.is_whole_table:
        return True
    if ours.schema is not None and other.schema is not None and ours.schema != other.schema:
        # The later of two commits says what the table's columns are; it must know of the earlier one's.
        return True
    if ours.replaced_partitions & other.partitions or other.replaced_partitions & ours.partitions:
        return True
    if ours.rewritten & other.groups or other.rewritten & ours.groups:
        return True
    return not logs_commute and bool(ours.appended & other.appended)


def _bucket(file_id: str) -> str:
    found = _BUCKET.match(file_id)
    return found[0] if found else file_id
