"""The two parts of the suite: tests that start a JVM, for Spark or the judge, and all others.

Both run in several processes. The others are dealt out one by one. Of those with a JVM, all that ask the judge go to
one process, because a judge becomes quick only after minutes; the rest go file by file to whoever is free.
"""

from __future__ import annotations

from pathlib import Path

import pytest

_JUDGE, _SPARK = "interop", "spark"
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
    with_jvm = [item for item in items if _has(item, _JUDGE) or _has(item, _SPARK)]
    without = [item for item in items if not (_has(item, _JUDGE) or _has(item, _SPARK))]
    chosen, left_out = (with_jvm, without) if part == "jvm" else (without, with_jvm)
    for item in with_jvm:
        item.add_marker(pytest.mark.xdist_group(_JUDGE if _has(item, _JUDGE) else item.path.name))
    config.hook.pytest_deselected(items=left_out)
    items[:] = chosen


def _has(item: pytest.Item, mark: str) -> bool:
    return item.get_closest_marker(mark) is not None
