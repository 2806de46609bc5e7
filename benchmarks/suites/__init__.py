"""What is measured. A suite is a module with `cases()`, questions or writes, named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.race import Case
from benchmarks.suites import engines, read, record, write
from benchmarks.write_race import WriteCase

SUITES: dict[str, Callable[[], Sequence[Case | WriteCase]]] = {
    "read": read.cases,
    "write": write.cases,
    "engines": engines.cases,
    "record": record.cases,
}
