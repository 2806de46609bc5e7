"""What is measured. A suite is a module with `cases() -> tuple[Case, ...]`, named here."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.race import Case
from benchmarks.suites import read

SUITES: dict[str, Callable[[], tuple[Case, ...]]] = {"read": read.cases}
