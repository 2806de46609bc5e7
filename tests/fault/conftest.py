"""Counts the moments at which something was made to fail, and tells them at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

_points: dict[str, Counter[str]] = {}


@pytest.fixture(scope="session")
def crash_points() -> dict[str, Counter[str]]:
    """Kind of fault -> operation -> how many moments were tried."""
    return _points


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for kind, points in sorted(_points.items()):
        told = ", ".join(f"{name} {count}" for name, count in points.items())
        counted = (
            "" if kind.startswith("killed") else f"{points.total():,} moments of {len(points)} operations: "
        )
        terminalreporter.write_line(f"{kind}: {counted}{told}")
