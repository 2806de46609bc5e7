"""A table is a dict, whoever does what to it in whatever order: see `stand_ins/table_machine.py`."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from stand_ins.table_machine import IS_SOAK, TALLY, TableMachine


@pytest.mark.shows("X2", "X9")
def test_a_table_is_a_dict_however_those_who_use_it_are_interleaved_and_killed() -> None:
    TALLY.clear()
    run_state_machine_as_test(
        TableMachine,
        settings=hypothesis.settings(
            max_examples=hypothesis.settings.default.max_examples if IS_SOAK else 80,
            stateful_step_count=40 if IS_SOAK else 24,
            # To shrink takes minutes: a soak has them, and prints what replays a failure; so does any run.
            phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if IS_SOAK else [])],
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(dict(TALLY))
    assert TALLY["killed"] and TALLY["refused"]
