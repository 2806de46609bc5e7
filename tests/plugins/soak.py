"""What `make soak` tries of suites that know no end: what a seed draws, for as long as each of them gets.

    BUCKETLAKE_SOAK_SEED=7        all that is drawn follows from it, hypothesis' examples too
    BUCKETLAKE_SOAK_MINUTES=60    how long the whole may take on two cores; every suite gets its part of that

A machine that is slow or busy tries less, and takes no longer. `BUCKETLAKE_SEEDS` names seeds, and tries all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import count
from random import Random
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
SEED = int(os.environ.get("BUCKETLAKE_SOAK_SEED", "0"))
MINUTES = float(os.environ.get("BUCKETLAKE_SOAK_MINUTES", "60"))


def seeds(default_count: int) -> list[int]:
    """The seeds a test runs with; a soak has others. `BUCKETLAKE_SEEDS=17,99` replays, and `=0-500` names many."""
    first = SEED if IS_SOAK else 0
    chosen = os.environ.get("BUCKETLAKE_SEEDS", f"{first}-{first + default_count - 1}")
    numbers: list[int] = []
    for part in chosen.split(","):
        begin, _, end = part.partition("-")
        numbers += range(int(begin), int(end or begin) + 1)
    return numbers


def seeds_for(seconds: float, *, default_count: int) -> Iterable[int]:
    """The same, and in a soak as many as can be tried in that time of an hour's soak."""
    is_open = IS_SOAK and "BUCKETLAKE_SEEDS" not in os.environ
    return within(seconds, count(SEED)) if is_open else seeds(default_count)


def within(seconds: float, items: Iterable[T]) -> Iterator[T]:
    """Go through items, in a soak until their time is up; the first of them in any case."""
    until = monotonic() + seconds * MINUTES / 60
    for item in items:
        yield item
        if IS_SOAK and monotonic() > until:
            return


def shuffled(items: Iterable[T], what: str) -> list[T]:
    """Put items into an order that the seed draws, so that soaks which do not get through try others."""
    found = list(items)
    Random(f"{SEED} {what}").shuffle(found)
    return found
