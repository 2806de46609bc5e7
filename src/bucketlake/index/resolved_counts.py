"""Bucket counts that rules have given, remembered for as many partitions as memory allows.

A rule is a regular expression, and a table may have a hundred thousand partitions that every operation asks about.
One cache serves all rule sets of a process; the partitions that were asked for longest ago are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock

PARTITIONS_KEPT = 500_000
"""Some 300 bytes each: 150 MB."""

_counts: OrderedDict[tuple[str, str], int] = OrderedDict()
_guard = Lock()


def remembered(
    rules: str, partitions: Sequence[str], resolve: Callable[[Sequence[str]], Sequence[int]]
) -> list[int]:
    """Return the counts of some partitions by the rule set that is spelled `rules`; `resolve` gives unknown ones."""
    with _guard:
        found = [_recall((rules, partition)) for partition in partitions]
    unknown = [partition for partition, count in zip(partitions, found, strict=True) if count is None]
    if unknown:
        resolved = dict(zip(unknown, resolve(unknown), strict=True))
        with _guard:
            for partition, count in list(resolved.items())[-PARTITIONS_KEPT:]:
                _counts[rules, partition] = count
            while len(_counts) > PARTITIONS_KEPT:
                _counts.popitem(last=False)
        return [resolved[p] if count is None else count for p, count in zip(partitions, found, strict=True)]
    return [count for count in found if count is not None]


def _recall(key: tuple[str, str]) -> int | None:
    count = _counts.get(key)
    if count is not None:
        _counts.move_to_end(key)
    return count
