"""The two parts of the suite: tests that start a JVM, for Spark or the judge, and all others.

The others run in as many processes as there are cores. A test that starts a JVM keeps both cores of a small machine
busy by itself, and one session and one judge serve all of them.
"""

from __future__ import annotations

import pytest

JVM_MARKS = ("spark", "interop")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--part",
        choices=["jvm", "no-jvm"],
        help="run only the tests that start a JVM, for Spark or the judge, or only the others",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part = config.getoption("--part")
    if part is None:
        return
    chosen = [item for item in items if _starts_a_jvm(item) == (part == "jvm")]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def _starts_a_jvm(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in JVM_MARKS)
