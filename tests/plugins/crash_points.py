"""Counts the moments at which something was made to fail, and what histories tried; tells them at the end of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

_POINTS = pytest.StashKey[dict[str, Counter[str]]]()
_NAME = "crash_points"


@pytest.fixture(scope="session")
def crash_points(pytestconfig: pytest.Config) -> dict[str, Counter[str]]:
    """Kind of fault -> operation -> how many moments were tried."""
    return pytestconfig.stash[_POINTS]


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_POINTS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        points = session.config.stash[_POINTS]
        session.config.workeroutput[_NAME] = {kind: dict(counts) for kind, counts in points.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker counted. One that crashed has nothing to tell."""
    points = node.config.stash[_POINTS]
    for kind, counts in getattr(node, "workeroutput", {}).get(_NAME, {}).items():
        points.setdefault(kind, Counter()).update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for kind, points in sorted(config.stash[_POINTS].items()):
        told = ", ".join(f"{name} {count}" for name, count in points.items())
        counted = (
            ""
            if kind.startswith(("killed", "histories"))
            else f"{points.total():,} moments of {len(points)} operations: "
        )
        terminalreporter.write_line(f"{kind}: {counted}{told}")
