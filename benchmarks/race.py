"""A case is one question to several contestants. A race asks it and keeps the costs.

Contestants answer in turn, round after round, and each round begins with another of them: a noisy minute hits
all, and ratios within a race are worth more than seconds between races. Every answer of every round, warm-ups
included, is compared with the truth; a wrong one ends the benchmark.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from benchmarks.contestants import BenchmarkError, Respondent
from benchmarks.meter import Cost, metered
from benchmarks.truth import Truth

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turn:
    """One contestant in one round."""

    respondent: Respondent
    table: str
    truth: Truth
    number: int
    """Of the round; warm-ups come before 0."""
    rounds: int
    is_first: bool


class Question(Protocol):
    """What is asked, and how an answer is checked."""

    def ask(self, turn: Turn) -> Any:
        """Get the answer; this is what is metered."""

    def check(self, turn: Turn, answer: Any) -> str | None:
        """Say what is wrong with the answer, or nothing."""

    def latencies_ms(self, answer: Any) -> tuple[float, ...]:
        """The times of single lookups; empty if the question has none."""


def difference(found: object, expected: object) -> str | None:
    """Say how an answer is wrong, or nothing."""
    return None if found == expected else f"found {found!r}, expected {expected!r}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A contestant in a case."""

    contestant: str
    truth: str
    """Whose rows it must return: a floor that merges nothing returns those of the base files."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    table: str
    question: Question
    entries: tuple[Entry, ...]

    @property
    def contestants(self) -> tuple[str, ...]:
        return tuple(entry.contestant for entry in self.entries)


@dataclass(frozen=True, slots=True)
class Written:
    """What a write put into a table's folder."""

    rows: int
    """That were handed to it."""
    files: int
    """New or changed; of a file that came and went nothing is known."""
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Score:
    """What one contestant paid for one case."""

    contestant: str
    costs: tuple[Cost, ...]
    """One for each round."""
    latencies_ms: tuple[float, ...]
    """One for each lookup of all rounds; empty if the case has none."""
    written: tuple[Written, ...] = ()
    """One for each write; empty if the case reads."""

    @property
    def cpu_s(self) -> float:
        """Median of the rounds, or the mean of all lookups: rounds look up different keys."""
        if self.latencies_ms:
            return sum(cost.cpu_s for cost in self.costs) / len(self.latencies_ms)
        return statistics.median(cost.cpu_s for cost in self.costs)

    @property
    def wall_s(self) -> float:
        if self.latencies_ms:
            return statistics.median(self.latencies_ms) / 1000
        return statistics.median(cost.wall_s for cost in self.costs)

    @property
    def p95_ms(self) -> float:
        """The value that 5 % of the lookups exceed."""
        ordered = sorted(self.latencies_ms)
        return ordered[max(0, -(-len(ordered) * 95 // 100) - 1)]

    @property
    def peak_memory_bytes(self) -> int:
        return max(cost.peak_memory_bytes for cost in self.costs)

    @property
    def rows_per_s(self) -> float:
        return statistics.median(w.rows for w in self.written) / self.wall_s

    @property
    def files_written(self) -> float:
        return statistics.median(w.files for w in self.written)

    @property
    def bytes_written(self) -> float:
        return statistics.median(w.size_bytes for w in self.written)

    def noise(self, cores: int) -> float:
        """The share of the machine that others took while this contestant was asked."""
        wall_s = sum(cost.wall_s for cost in self.costs)
        return sum(cost.others_cpu_s for cost in self.costs) / (wall_s * cores)


@dataclass(frozen=True, slots=True)
class Result:
    """A case that was run."""

    suite: str
    case: str
    table: str
    rows: int
    scores: tuple[Score, ...]


def race(
    case: Case,
    *,
    suite: str,
    rows: int,
    tables: Mapping[str, Path],
    respondents: Mapping[str, Respondent],
    truths: Mapping[str, Truth],
    warm_ups: int,
    repeats: int,
    say: Callable[[str], None],
) -> Result:
    """Ask everybody who is here, `warm_ups` times for nothing and `repeats` times for the record.

    `tables` has the table that each reads, by its name.
    """
    entries = [entry for entry in case.entries if entry.contestant in respondents]
    costs: dict[str, list[Cost]] = {entry.contestant: [] for entry in entries}
    latencies: dict[str, list[float]] = {entry.contestant: [] for entry in entries}
    for number in range(-warm_ups, repeats):
        for entry in rotated(entries, number):
            turn = Turn(
                respondents[entry.contestant],
                str(tables[entry.contestant]),
                truths[entry.truth],
                number=number,
                rounds=repeats,
                is_first=number == -warm_ups,
            )
            asked = metered(turn.respondent.process, partial(case.question.ask, turn))
            wrong = case.question.check(turn, asked.answer)
            if wrong:
                raise BenchmarkError(f"{entry.contestant} answered {case.name} wrongly: {wrong}")
            kind = "warm-up" if number < 0 else f"round {number + 1}"
            cost = asked.cost
            say(f"{case.name}, {kind}: {entry.contestant} {cost.wall_s:.2f} s, CPU {cost.cpu_s:.2f} s")
            if number >= 0:
                costs[entry.contestant].append(cost)
                latencies[entry.contestant] += case.question.latencies_ms(asked.answer)
    scores = tuple(Score(name, tuple(costs[name]), tuple(latencies[name])) for name in costs)
    return Result(suite, case.name, case.table, rows, scores)


def rotated(entries: Sequence[T], number: int) -> list[T]:
    """Begin with another entry for each number."""
    first = number % len(entries) if entries else 0
    return [*entries[first:], *entries[:first]]
