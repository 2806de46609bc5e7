"""A table is a dict, whoever does what to it in whatever order: see `stand_ins/table_machine.py`.

`BUCKETLAKE_SEEDS=17` repeats a history, `BUCKETLAKE_SEEDS=0-500` tries many; a soak tries, of each kind of table, as
many as its time allows, and prints what repeats a failure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from plugins.soak import IS_SOAK, seeds_for
from stand_ins.table_machine import KINDS, TALLY, drawn, replay, run_history, with_upkeep

STEPS = 60 if IS_SOAK else 24
SOAK_SECONDS = 70


def _seeds() -> Iterable[int]:
    return seeds_for(SOAK_SECONDS, default_count=2)


@pytest.mark.thorough
@pytest.mark.shows(
    "C5", "C6", "C8", "C9", "H2", "H3", "P4", "P6", "P7", "P8", "P11", "P13", "P14", "X2", "X9"
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_is_a_dict_however_those_who_use_it_are_interleaved_and_killed(
    kind: str, crash_points: dict[str, Counter[str]]
) -> None:
    TALLY.clear()
    for seed in _seeds():
        try:
            run_history(kind, seed, count=STEPS)
        except Exception as error:
            error.add_note(f"seed {seed}, {kind!r}")
            raise
    _tell(crash_points, kind, seed)


def _tell(points: dict[str, Counter[str]], kind: str, last_seed: int) -> None:
    names = ("histories", "requests", "reads", "increments", "entries compared", "values compared")
    told = {name: TALLY[name] for name in names}
    told["kills"] = sum(count for name, count in TALLY.items() if name.endswith(": killed"))
    points.setdefault(f"histories of {kind}", Counter()).update(told)
    print(kind, f"until seed {last_seed}:", dict(sorted(TALLY.items())))


@pytest.mark.thorough
@pytest.mark.shows("H1")
@pytest.mark.parametrize("kind", ["simple cow", "simple mor", "ring dual"])
def test_a_table_is_a_dict_though_rounds_of_maintenance_run_beside_those_who_use_it(
    kind: str, crash_points: dict[str, Counter[str]]
) -> None:
    TALLY.clear()
    for seed in _seeds():
        try:
            replay(kind, with_upkeep(drawn(kind, seed, count=STEPS), every=3), is_calm=seed % 3 == 0)
        except Exception as error:
            error.add_note(f"seed {seed}, {kind!r}, with rounds")
            raise
    assert TALLY["maintenance: done"]
    _tell(crash_points, f"{kind}, with rounds", seed)
