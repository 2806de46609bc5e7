"""What is measured. A suite is a module with `cases()`, questions, writes or indexes, named here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.index_race import IndexCase
from benchmarks.race import Case
from benchmarks.suites import dynamic, engines, read, record, secondary, write
from benchmarks.write_race import WriteCase

AnyCase = Case | WriteCase | IndexCase

SUITES: dict[str, Callable[[], Sequence[AnyCase]]] = {
    "read": read.cases,
    "write": write.cases,
    "engines": engines.cases,
    "record": record.cases,
    "dynamic": dynamic.cases,
    "secondary": secondary.cases,
}
