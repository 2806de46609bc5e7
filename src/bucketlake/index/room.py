"""Where new keys go: file groups with room are filled up, and others opened.

A group that takes new keys is rewritten with them. So a commit rewrites no more than a few times the bytes that it
brings: small batches do not rewrite large files again and again, and small files do not stay small for ever. Only a
group without logs is filled: with logs, its rows would have to be merged first.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bucketlake.index.recorded import NewKeys
from bucketlake.layout import FileSlice
from bucketlake.layout.names import new_file_id

GROUP_BYTES = 120 << 20
"""What a file group grows to, as Hudi's do."""
SMALL_BYTES = 100 << 20
"""What has less is filled up."""
REWRITTEN_PER_NEW = 4
"""How many bytes a commit rewrites, at most, for each that it brings to a partition."""
REWRITTEN_ALWAYS = 32 << 10
"""As many at least: that costs little beside the commit itself, and a file group for every small batch costs more."""


@dataclass(slots=True)
class _Group:
    file_id: str
    room: int


def fill_groups(
    new: Sequence[NewKeys],
    groups: Mapping[str, Mapping[str, FileSlice]],
    *,
    instant: str,
    row_bytes: int,
) -> list[str]:
    """Choose the file group for each batch of new keys, which stays together. The same answer every time."""
    by_partition: dict[str, list[int]] = {}
    for place, keys in enumerate(new):
        by_partition.setdefault(keys.partition, []).append(place)
    chosen = [""] * len(new)
    for partition, places in by_partition.items():
        brought = row_bytes * sum(new[place].count for place in places)
        open_groups = _with_room(groups.get(partition, {}), brought)
        opened = 0
        for place in sorted(places, key=lambda place: (-new[place].count, place)):
            size = row_bytes * new[place].count
            group = next((g for g in open_groups if g.room >= size), None)
            if group is None:
                prefix = f"{zlib.crc32(f'{instant}/{partition}/{opened}'.encode()):08x}"
                group = _Group(new_file_id(prefix, partition=partition, instant=instant), GROUP_BYTES)
                open_groups.append(group)
                opened += 1
            group.room -= size
            chosen[place] = group.file_id
    return chosen


def _with_room(slices: Mapping[str, FileSlice], brought: int) -> list[_Group]:
    """Choose groups to fill, the largest first, as long as what is rewritten is not too much."""
    budget = max(REWRITTEN_ALWAYS, REWRITTEN_PER_NEW * brought)
    found: list[_Group] = []
    for part in sorted(slices.values(), key=lambda part: (-part.size_bytes, part.file_id)):
        if part.base_file is None or part.log_files or part.size_bytes >= SMALL_BYTES:
            continue
        if part.size_bytes <= budget:
            budget -= part.size_bytes
            found.append(_Group(part.file_id, GROUP_BYTES - part.size_bytes))
    return found
