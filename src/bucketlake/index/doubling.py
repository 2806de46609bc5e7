"""A table of simple buckets that is becoming one of twice as many, as its properties say it.

Simple buckets are a directory in which all buckets have one depth (`directory`). So while its buckets are split, one
after the other, the table is one of extendible hashing; Hudi does not write to such a table. What it was, and that it
is to be simple again, is kept beside the engine's word.

What was read, and taken back, before that was over had other buckets. When it was is kept too.
"""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.config import BucketEngine, TableProperties
from bucketlake.index.bucket_numbers import BUCKET_COUNT, BUCKET_ENGINE
from bucketlake.index.extendible import DirectoryIndex
from bucketlake.index.index import Index
from bucketlake.index.simple import SimpleIndex

DOUBLING = "bucketlake.buckets.doubling"
"""A table property: how many buckets a partition had before an unfinished doubling. Default: none. We set it."""
DOUBLED = "bucketlake.buckets.doubled"
"""A table property: when the last doubling was finished, as an instant. Default: none. We set it."""


def count_before(properties: TableProperties) -> int | None:
    """Return how many buckets a partition had that are being doubled, None if they are not."""
    text = properties.raw.get(DOUBLING, "").strip()
    return int(text) if text.isdigit() else None


def had_others(properties: TableProperties, instant: str) -> bool:
    """Tell whether the buckets that a table has now need not be those that it had at an instant."""
    return instant <= properties.raw.get(DOUBLED, "")


def why_it_stays(properties: TableProperties, instant: str) -> str | None:
    """Say why an instant that replaced file groups cannot be taken back; None if doubling is no reason."""
    if not had_others(properties, instant):
        return None
    return (
        "the table's buckets were doubled since, or that was taken back: its file groups are of other buckets"
    )


def as_directories(index: Index) -> DirectoryIndex | None:
    """Return the index that says of every key what simple buckets say, and whose buckets can be split.

    None if the index is none of simple buckets.
    """
    return DirectoryIndex({}, index.hash_fields, index.count) if isinstance(index, SimpleIndex) else None


def settings_of_beginning(count: int) -> Mapping[str, str | None]:
    return {BUCKET_ENGINE: BucketEngine.EXTENDIBLE_HASHING, DOUBLING: str(count)}


def settings_of_end(count: int, *, time: str) -> Mapping[str, str | None]:
    """Return what makes a table one of so many simple buckets."""
    return {BUCKET_ENGINE: BucketEngine.SIMPLE, BUCKET_COUNT: str(count), DOUBLING: None, DOUBLED: time}
