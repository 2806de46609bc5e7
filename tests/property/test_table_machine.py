"""A table is a dict, whoever does what to it in whatever order: see `stand_ins/table_machine.py`.

`BUCKETLAKE_SEEDS=17` repeats a history, `BUCKETLAKE_SEEDS=0-500` tries many; a soak tries 150 of each kind of table,
other ones with every run, and prints what repeats a failure.
"""

from __future__ import annotations

import os
from random import SystemRandom

import pytest

from judges.random_tables import seeds
from stand_ins.table_machine import KINDS, TALLY, drawn, replay, run_history, with_upkeep

IS_SOAK = os.environ.get("HYPOTHESIS_PROFILE") == "soak"
STEPS = 60 if IS_SOAK else 24
COUNT = 150 if IS_SOAK else 2


def _seeds() -> list[int]:
    if IS_SOAK and "BUCKETLAKE_SEEDS" not in os.environ:
        first = SystemRandom().randrange(10**6)
        return list(range(first, first + COUNT))
    return seeds(default_count=COUNT)


@pytest.mark.thorough
@pytest.mark.shows(
    "C5", "C6", "C8", "C9", "H2", "H3", "P4", "P6", "P7", "P8", "P11", "P13", "P14", "X2", "X9"
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_a_dict_however_those_who_use_it_are_interleaved_and_killed(kind: str) -> None:
    TALLY.clear()
    for seed in _seeds():
        try:
            run_history(kind, seed, count=STEPS)
        except Exception as error:
            error.add_note(f"seed {seed}, {kind!r}")
            raise
    print(kind, dict(sorted(TALLY.items())))


@pytest.mark.thorough
@pytest.mark.shows("H1")
@pytest.mark.parametrize("kind", ["simple cow", "simple mor", "ring dual"])
def test_a_table_is_a_dict_though_rounds_of_maintenance_run_beside_those_who_use_it(kind: str) -> None:
    TALLY.clear()
    for seed in _seeds():
        try:
            replay(kind, with_upkeep(drawn(kind, seed, count=STEPS), every=3), is_calm=seed % 3 == 0)
        except Exception as error:
            error.add_note(f"seed {seed}, {kind!r}, with rounds")
            raise
    assert TALLY["maintenance: done"]
    print(kind, dict(sorted(TALLY.items())))
