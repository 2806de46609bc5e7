"""The two parts of the suite: tests that start a JVM, for Spark or the judge, and all others.

Both run in several processes. The others are dealt out one by one. Of those with a JVM, all of `tests/interop` go to
one process, because a judge becomes quick only after minutes; the rest go file by file to whoever is free.

A soak has both parts in one run. There, too, all of `tests/interop` go to one process; so do those that kill processes:
two of these at a time would be too much for two cores. The others are dealt out one by one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from plugins.soak import IS_SOAK

_INTEROP = "tests/interop/"
_KILLS = ("tests/fault/test_killed_processes.py", "tests/fault/test_killed_streams.py")
_FAULTS = Path(__file__).parents[1] / "fault"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=["jvm", "no-jvm"],
        help="run only the tests that start a JVM, for Spark or the judge, or only the others",
    )


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_FAULTS):
            item.add_marker(pytest.mark.thorough)
    part = config.getoption("--part")
    if part is None:
        return
    with_jvm = [item for item in items if _starts_a_jvm(item)]
    without = [item for item in items if not _starts_a_jvm(item)]
    chosen, left_out = (with_jvm, without) if part == "jvm" else (without, with_jvm)
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def _starts_a_jvm(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("spark", "interop"))


class OneJudge(LoadScopeScheduling):
    """Deals out files, and those of `tests/interop` as if they were one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return _INTEROP if file.startswith(_INTEROP) else file


class Soak(OneJudge):
    """Deals out tests one by one, but for those of the judge, and those that kill processes."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        if scope in _KILLS:
            return "kills"
        return scope if scope == _INTEROP else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling | None:
    if config.getoption("--part") == "jvm":
        return OneJudge(config, log)
    return Soak(config, log) if IS_SOAK else None
