"""Reading: a scan of two columns, all rows and all columns, and single rows by key.

On `plain` a table format should cost next to nothing over its Parquet files; on `merged` the logs are decoded
and merged, and the floors, which merge nothing, only say what the base files cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.contestants import ALONE, BASE_FILES, BUCKETLAKE, HUDI, PARQUET, SOURCE, Contestant
from benchmarks.data import MERGED, PLAIN
from benchmarks.race import Case, Entry, Turn, difference
from benchmarks.truth import base_files_of

_FLOORS = (BASE_FILES, PARQUET)
"""They read the base files, and merge nothing."""


def cases() -> tuple[Case, ...]:
    return (
        Case(
            "aggregate, plain", PLAIN, Aggregate(), _entries(PLAIN, HUDI, BUCKETLAKE, SOURCE, ALONE, PARQUET)
        ),
        Case(
            "aggregate, merged",
            MERGED,
            Aggregate(),
            _entries(MERGED, HUDI, BUCKETLAKE, SOURCE, ALONE, PARQUET, BASE_FILES),
        ),
        Case("all columns, plain", PLAIN, Materialise(), _entries(PLAIN, HUDI, BUCKETLAKE, SOURCE, PARQUET)),
        Case(
            "all columns, merged",
            MERGED,
            Materialise(),
            _entries(MERGED, HUDI, BUCKETLAKE, SOURCE, PARQUET, BASE_FILES),
        ),
        *(_lookup(table, with_partition) for table in (PLAIN, MERGED) for with_partition in (True, False)),
    )


def _lookup(table: str, with_partition: bool) -> Case:
    name = f"one key {'and partition' if with_partition else 'alone'}, {table}"
    return Case(name, table, Lookups(with_partition), _entries(table, HUDI, ALONE, BUCKETLAKE, BASE_FILES))


def _entries(table: str, *contestants: Contestant) -> tuple[Entry, ...]:
    return tuple(Entry(c.name, base_files_of(table) if c in _FLOORS else table) for c in contestants)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`SELECT status, sum(amount), count(*) … GROUP BY status`"""

    def ask(self, turn: Turn) -> Any:
        return turn.respondent.ask("aggregate", table=turn.table)

    def check(self, turn: Turn, answer: Any) -> str | None:
        return difference(answer, turn.truth.aggregate)

    def latencies_ms(self, answer: Any) -> tuple[float, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Materialise:
    """Every row and every column, to Spark's `noop` sink or into memory."""

    def ask(self, turn: Turn) -> Any:
        return turn.respondent.ask("materialise", table=turn.table)

    def check(self, turn: Turn, answer: Any) -> str | None:
        """A sink tells nothing, so the same rows are asked for once more, as a fingerprint."""
        if not turn.is_first:
            return None
        return difference(turn.respondent.ask("fingerprint", table=turn.table), turn.truth.fingerprint)

    def latencies_ms(self, answer: Any) -> tuple[float, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Lookups:
    """Twenty keys, shared out to the rounds, so that noise meets them all alike."""

    with_partition: bool

    def ask(self, turn: Turn) -> Any:
        keys = self._keys(turn)
        return turn.respondent.ask("lookups", table=turn.table, keys=keys, with_partition=self.with_partition)

    def check(self, turn: Turn, answer: Any) -> str | None:
        for (order_id, _), (_, rows) in zip(self._keys(turn), answer, strict=True):
            wrong = difference(rows, turn.truth.rows[order_id])
            if wrong:
                return f"{order_id}: {wrong}"
        return None

    def _keys(self, turn: Turn) -> tuple[tuple[str, str], ...]:
        return turn.truth.keys[turn.number % turn.rounds :: turn.rounds]

    def latencies_ms(self, answer: Any) -> tuple[float, ...]:
        return tuple(milliseconds for milliseconds, _ in answer)
