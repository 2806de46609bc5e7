"""A write case is a table that every contestant makes for itself: a bulk load, then five upserts of 5 %.

Then come services, by who has them: where there are logs they are compacted, and what that made superfluous is cleaned
away; elsewhere the day that holds most of the orders gets twice as many buckets.

A step is taken by all, one after the other and each time another first, before anybody takes the next: a noisy
minute hits all. What the load and the upserts left behind is compared with the truth, by the reader of whoever
wrote it, and a table of ours by Hudi's reader too: two that agree on a wrong table are rarer than one. Who reads is a
process apart: a JVM that has read a whole table keeps its memory, and would count as one that needs it to write.

Before, everybody takes the same steps with little data: a JVM's first write is mostly its compiler's.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.contestants import (
    BUCKETLAKE,
    DYNAMIC,
    EVALUATED,
    HUDI,
    HUDI_PARTITIONED_RECORD,
    HUDI_RECORD,
    HUDI_RING,
    PARTITIONED_RECORD,
    RECORD,
    RING,
    BenchmarkError,
    Respondent,
)
from benchmarks.data import BATCHES, MERGED, PLAIN, Orders
from benchmarks.meter import Cost, metered
from benchmarks.race import Result, Score, Written, rotated
from benchmarks.truth import Truth

Readers = Callable[[str], AbstractContextManager[Respondent]]
"""By a contestant's name: one like it, that is to read only."""

LOAD = "orders"
"""The batch that is loaded; the others are upserted."""

_OURS = frozenset(c.name for c in (BUCKETLAKE, EVALUATED, RING, RECORD, PARTITIONED_RECORD, DYNAMIC))
_JUDGES = tuple(c.name for c in (HUDI, HUDI_RING, HUDI_RECORD, HUDI_PARTITIONED_RECORD))


@dataclass(frozen=True, slots=True)
class WriteCase:
    name: str
    table_type: str
    contestants: tuple[str, ...]
    services: tuple[str, ...] = ()
    """What is done to the table at the end."""
    servants: tuple[str, ...] = ()
    """Who does it."""
    batches: tuple[str, ...] = BATCHES
    """What is upserted between the load and the services."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """One step of one contestant."""

    cost: Cost
    written: Written


def write_race(
    case: WriteCase,
    *,
    suite: str,
    orders: Orders,
    warm_up: Orders | None,
    folder: Path,
    respondents: Mapping[str, Respondent],
    readers: Readers,
    truths: Mapping[str, Truth],
    warm_ups: int,
    repeats: int,
    say: Callable[[str], None],
) -> tuple[Result, ...]:
    """Let everybody who is here make the table: `warm_ups` times a small one, `repeats` times that of `orders`."""
    here = [name for name in case.contestants if name in respondents]
    loads: dict[str, list[_Taken]] = {name: [] for name in here}
    upserts: dict[str, list[_Taken]] = {name: [] for name in here}
    services: dict[str, dict[str, list[_Taken]]] = {
        service: {name: [] for name in here if name in case.servants} for service in case.services
    }
    for number in range(-warm_ups if warm_up is not None else 0, repeats):
        is_warm_up = number < 0
        tables = {name: folder / as_path(case.name) / as_path(name) for name in here}
        remove(tables.values())
        loaded, ended = truths[PLAIN], truths[MERGED if case.batches else PLAIN]
        for step, batch in enumerate((LOAD, *case.batches)):
            source = warm_up.batch(batch) if warm_up is not None and is_warm_up else orders.batch(batch)
            for name in rotated(here, number + step):
                taken = _take(case, respondents[name], tables[name], source, is_load=batch == LOAD)
                kind = f"{'warm-up' if is_warm_up else f'round {number + 1}'}, {batch}"
                say(f"{case.name}, {kind}: {name} {taken.cost.wall_s:.2f} s, CPU {taken.cost.cpu_s:.2f} s")
                if not is_warm_up:
                    (loads if batch == LOAD else upserts)[name].append(taken)
            if not is_warm_up and batch in (LOAD, *case.batches[-1:]):
                _verify(case, tables, readers, loaded if batch == LOAD else ended)
        for step, service in enumerate(case.services):
            for name in rotated([name for name in here if name in case.servants], number + step):
                served = _serve(service, respondents[name], tables[name], ended)
                say(
                    f"{case.name}, {service}: {name} {served.cost.wall_s:.2f} s, CPU {served.cost.cpu_s:.2f} s"
                )
                if not is_warm_up:
                    services[service][name].append(served)
        if case.services and not is_warm_up:
            _verify(case, tables, readers, ended)
        remove(tables.values())
    return (
        _result(f"bulk load, {case.name}", case, suite, orders, loads),
        *([_result(f"upsert of 5 %, {case.name}", case, suite, orders, upserts)] if case.batches else []),
        *(
            _result(f"{service} after {_words(case)}, {case.name}", case, suite, orders, taken)
            for service, taken in services.items()
            if taken
        ),
    )


def as_path(words: str) -> str:
    """Spell words without blanks and commas, which options in one text of Hudi's do not survive."""
    return re.sub("[^a-z]+", "-", words)


def _words(case: WriteCase) -> str:
    return "five upserts" if case.batches else "a load"


def _take(case: WriteCase, respondent: Respondent, table: Path, rows: Path, *, is_load: bool) -> _Taken:
    before = files_of(table)
    if is_load:
        ask = partial(respondent.ask, "load", table=str(table), rows=str(rows), table_type=case.table_type)
    else:
        ask = partial(respondent.ask, "upsert", table=str(table), rows=str(rows), table_type=case.table_type)
    cost = metered(respondent.process, ask).cost
    return _Taken(cost, written_between(before, files_of(table), rows=pq.read_metadata(rows).num_rows))


def _serve(service: str, respondent: Respondent, table: Path, truth: Truth) -> _Taken:
    before = files_of(table)
    cost = metered(respondent.process, partial(respondent.ask, service, table=str(table))).cost
    return _Taken(cost, written_between(before, files_of(table), rows=truth.fingerprint[0]))


def written_between(
    before: Mapping[Path, tuple[int, int]], after: Mapping[Path, tuple[int, int]], *, rows: int
) -> Written:
    new = [entry for path, entry in after.items() if before.get(path) != entry]
    return Written(rows=rows, files=len(new), size_bytes=sum(size for size, _ in new))


def files_of(table: Path) -> dict[Path, tuple[int, int]]:
    """List size and time of every file, Hadoop's checksums left out: they are no part of a table."""
    return {
        path: (status.st_size, status.st_mtime_ns)
        for path in table.rglob("*")
        if path.suffix != ".crc" and path.is_file()
        for status in [path.stat()]
    }


def _verify(case: WriteCase, tables: Mapping[str, Path], readers: Readers, truth: Truth) -> None:
    judge = next((judge for judge in _JUDGES if judge in tables), None)
    for reader in tables:
        with readers(reader) as respondent:
            for writer, table in tables.items():
                if writer != reader and not (reader == judge and writer in _OURS):
                    continue
                found = respondent.ask("fingerprint", table=str(table))
                if found != truth.fingerprint:
                    raise BenchmarkError(
                        f"{writer} wrote {case.name} wrongly, as {reader} reads it: "
                        f"found {found!r}, expected {truth.fingerprint!r}"
                    )


def remove(tables: Iterable[Path]) -> None:
    for table in tables:
        shutil.rmtree(table, ignore_errors=True)


def _result(
    name: str, case: WriteCase, suite: str, orders: Orders, taken: Mapping[str, Sequence[_Taken]]
) -> Result:
    scores = tuple(
        Score(
            contestant,
            costs=tuple(step.cost for step in steps),
            latencies_ms=(),
            written=tuple(step.written for step in steps),
        )
        for contestant, steps in taken.items()
    )
    return Result(suite, name, case.name, orders.rows, scores)
