"""Recorded counts: how many buckets every partition was given, noted by the writes that gave them.

    .hoodie/.simple_hashing/meta/<instant>.hashing_meta    one Avro record, as the RFC's draft has it:

    SimpleHashMeta    := version: int, partitionMeta: map of partition -> PartitionHashInfo
    PartitionHashInfo := bucketNumber: int, instant: string

Earlier records have the map under `partitions`, and no version; they are read too.

Rules say how many buckets a partition is to have; this says how many it got. A writer whose rules give another count,
because they are stale or somebody has changed a version of them by hand, would split the partition's layout: it is
refused. A count that is older than the rules in force was overtaken by a rescale (Hudi's do not record), and is
derived anew.

A record is whole: it repeats what the one before it says. It is written under the table's lock, before the commit,
by a write to partitions that none is recorded for. So a file alone proves nothing: the record that counts is the one
whose write was completed last on the active timeline, else the newest from before that timeline's start.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro

from bucketlake.errors import CorruptTableError, LayoutMismatchError
from bucketlake.index.keeper import NOTHING, Upkeep
from bucketlake.index.partition import VersionedRules
from bucketlake.layout.names import (
    RECORDED_COUNTS_FOLDER,
    parse_hashing_name,
    recorded_counts_path,
    split_path,
)
from bucketlake.storage import Store
from bucketlake.timeline import Timeline

RECORDS_KEPT = 10

_VERSION = 1

_SCHEMA = fastavro.parse_schema(
    {
        "type": "record",
        "name": "SimpleHashMeta",
        "fields": [
            {"name": "version", "type": "int"},
            {
                "name": "partitionMeta",
                "type": {
                    "type": "map",
                    "values": {
                        "type": "record",
                        "name": "PartitionHashInfo",
                        "fields": [
                            {"name": "bucketNumber", "type": "int"},
                            {"name": "instant", "type": "string"},
                        ],
                    },
                },
            },
        ],
    }
)


@dataclass(frozen=True, slots=True)
class RecordedCount:
    count: int
    instant: str
    """Of the write that gave the partition its buckets."""


Counts = Mapping[str, RecordedCount]
"""By partition."""


def load_counts(store: Store, timeline: Timeline) -> Counts:
    """Read the record that counts; empty if there is none."""
    chosen = choose_record(recorded_instants(store), timeline)
    return {} if chosen is None else _read(store, chosen)


def plan_record(
    store: Store, timeline: Timeline, partitions: Collection[str], by: VersionedRules, *, instant: str
) -> Upkeep:
    """Check the counts of partitions that `instant` is about to commit to, and say how to record those that are new.

    To be called under the table's lock, with the timeline as it is then.
    """
    known = recorded_instants(store)
    chosen = choose_record(known, timeline)
    counts = plan_counts(
        {} if chosen is None else _read(store, chosen), sorted(partitions), by, instant=instant
    )
    if counts is None:
        return NOTHING
    old = [i for i in sorted(known)[: -(RECORDS_KEPT - 1)] if i not in (chosen, instant)]
    return Upkeep(
        puts={recorded_counts_path(instant): encode_counts(counts)},
        deletes=tuple(recorded_counts_path(i) for i in old),
    )


def plan_counts(
    recorded: Counts, partitions: Collection[str], by: VersionedRules, *, instant: str
) -> Counts | None:
    """Return all counts once `instant` is committed, None if they stay as they are.

    LayoutMismatchError if one of its partitions has another count than the rules give it.
    """
    assert by.rules is not None
    is_rescale = by.version == instant
    if is_rescale:
        # Whoever is not rewritten has no rows. A count that was recorded for it since the rescale began is overtaken
        # too, though it looks newer than the rules.
        partitions = sorted({*partitions, *recorded})
    added: dict[str, RecordedCount] = {}
    for partition, count in zip(partitions, by.rules.counts_of(list(partitions)), strict=True):
        before = recorded.get(partition)
        if is_rescale and before is not None and before.count == count:
            continue
        if is_rescale or before is None or before.instant < by.version:
            added[partition] = RecordedCount(count, instant)
        elif before.count != count:
            raise LayoutMismatchError(
                f"partition {partition!r} was given {before.count} buckets by the write of {before.instant}, and by "
                f"the rules of {by.version} it has {count} ({by.rules.explain(partition).reason}). Writing by them "
                f"would put keys that the partition has into new file groups, as duplicates. Nothing of this write is "
                f"visible. Somebody has changed the rules without a rescale: put the .hashing_config of {by.version} "
                f"back as it was."
            )
    return {**recorded, **added} if added else None


def choose_record(instants: Iterable[str], timeline: Timeline) -> str | None:
    """Return the instant of the record that counts."""
    instants = list(instants)
    completions = {i.requested: i.completed or "" for i in timeline.writes}
    completed = [i for i in instants if i in completions]
    if completed:
        # Not the newest by name: who began later may have committed earlier, and then knew less.
        return max(completed, key=lambda i: (completions[i], i))
    start = timeline.start
    return max((i for i in instants if start is not None and i < start), default=None)


def encode_counts(counts: Counts) -> bytes:
    record = {
        "version": _VERSION,
        "partitionMeta": {
            partition: {"bucketNumber": recorded.count, "instant": recorded.instant}
            for partition, recorded in counts.items()
        },
    }
    buffer = io.BytesIO()
    fastavro.writer(buffer, _SCHEMA, [record], codec="deflate", strict=True)
    return buffer.getvalue()


def decode_counts(data: bytes, *, path: str) -> Counts:
    """Read a record; `path` is for the error if it is none."""
    try:
        record: Any
        (record,) = fastavro.reader(io.BytesIO(data))
        partitions = record["partitions"] if "partitions" in record else record["partitionMeta"]
        return {
            str(partition): RecordedCount(int(entry["bucketNumber"]), str(entry["instant"]))
            for partition, entry in partitions.items()
        }
    except Exception as fault:  # fastavro raises whatever its decoder stumbles on
        raise CorruptTableError(
            path=path,
            found=f"bytes that are no recorded counts ({type(fault).__name__}: {fault})",
            expected="one Avro record with partitions, bucket numbers and instants",
            remedy="Delete the file: counts are then taken from the rules, and recorded anew.",
        ) from fault


def recorded_instants(store: Store) -> list[str]:
    """Return the instants of all records, whether they count or not."""
    names = (split_path(file.path)[1] for file in store.list(RECORDED_COUNTS_FOLDER).files)
    return [found[0] for name in names if (found := parse_hashing_name(name)) and found[1] == "hashing_meta"]


def _read(store: Store, instant: str) -> Counts:
    path = recorded_counts_path(instant)
    return decode_counts(store.read(path), path=path)
