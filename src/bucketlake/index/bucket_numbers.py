"""Buckets that are numbered from 0: how their numbers stand in file ids, and which of them keys belong to."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.index.hashing import bucket_of
from bucketlake.index.hashing_arrow import buckets_of
from bucketlake.index.index import Pieces, Place
from bucketlake.index.rules import BUCKETS_MAX

BUCKET_ENGINE = "hoodie.index.bucket.engine"
BUCKET_COUNT = "hoodie.bucket.index.num.buckets"
"""Where a table keeps how many buckets a partition has, or begins with."""
ALL_HASHES = 1 << 31
"""As many buckets as there are hashes: a key's is its hash."""
_BUCKET_FILE_ID = re.compile(r"([0-9]{8})-")


def bucket_prefix(bucket: int) -> str:
    return f"{bucket:08d}"


def locate_buckets(record_keys: Any, hash_fields: Collection[str], count: int) -> Any:
    buckets = buckets_of(record_keys, hash_fields, count)
    unknown = buckets < 0
    found, numbers = occurring(np.where(unknown, 0, buckets), count)
    prefixes = [bucket_prefix(bucket) for bucket in found]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=unknown), pa.array(prefixes, pa.string()))


def occurring(places: npt.NDArray[Any], count: int) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Return the numbers below `count` that occur, and for each place which of them it is.

    A dictionary holds no others, because a table may have millions of buckets. Told by counting, as long as that
    takes no more than to sort the places.
    """
    if count > len(places):
        distinct, inverse = np.unique(places, return_inverse=True)
        return distinct.tolist(), inverse.astype(np.int32)
    found = np.flatnonzero(np.bincount(places, minlength=1))
    numbers = np.zeros(count, np.int32)
    numbers[found] = np.arange(len(found), dtype=np.int32)
    return found.tolist(), numbers[places]


def check_count(count: int) -> None:
    """Refuse a number of buckets that no partition can have."""
    if not 1 <= count <= BUCKETS_MAX:
        raise ConfigError(
            f"the bucket count is {count}; expected 1 to {BUCKETS_MAX} per partition. A bucket should hold some "
            f"hundred MB of rows."
        )


def bucket_place(pieces: Pieces, count: int) -> Place:
    """Say where a key lives, of `count` buckets."""
    hashed = bucket_of(pieces, ALL_HASHES)
    return Place(slot=bucket_prefix(hashed % count), hash=hashed, bucket=hashed % count)


def is_bucket_file_id(file_id: str) -> bool:
    """Tell whether a file id begins with a bucket's number, as those of tables with counts do.

    >>> is_bucket_file_id("00000003-159a-4953-a3c4-b777b847ae7f-0")
    True
    >>> is_bucket_file_id("9d4157e4-36db-4672-9652-f509e920c4a7-0")
    False
    """
    return _BUCKET_FILE_ID.match(file_id) is not None


def bucket_of_file(file_id: str, count: int) -> str | None:
    match = _BUCKET_FILE_ID.match(file_id)
    return match[1] if match is not None and int(match[1]) < count else None


def bucket_groups(count: int, file_ids: Collection[str], pieces: Collection[Pieces]) -> frozenset[str]:
    every = frozenset(file_ids)
    bucket_by_group: dict[str, int] = {}
    for file_id in every:
        prefix = bucket_of_file(file_id, count)
        if prefix is None:
            return every
        bucket_by_group[file_id] = int(prefix)
    wanted = {bucket_of(piece, count) for piece in pieces}
    return frozenset(file_id for file_id, bucket in bucket_by_group.items() if bucket in wanted)
