"""Results as tables: for a terminal, and for the page docs/benchmarks.md.

Ratios are to Hudi in the same race. CPU comes first: it is what a shared machine does not distort.
"""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.contestants import FILES, HUDI, HUDI_AS_IT_COMES, HUDI_RECORD
from benchmarks.page import filled
from benchmarks.race import Result, Score

COLUMNS = ("contestant", "CPU", "wall", "p95", "memory", "others", "× cheaper", "× faster")
"""The last two are to Hudi: its CPU over theirs, its wall time over theirs."""

WRITE_COLUMNS = (
    "contestant",
    "CPU",
    "wall",
    "rows/s",
    "written",
    "files",
    "memory",
    "others",
    "× cheaper",
    "× faster",
    "× floor",
)
"""The last is their CPU over the floor's."""

_PEERS = (HUDI_AS_IT_COMES.name, HUDI.name, HUDI_RECORD.name)


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run was made with."""

    command: str
    warm_ups: int
    repeats: int
    write_repeats: int
    driver_memory: str
    versions: Mapping[str, Mapping[str, str]]
    """By contestant."""


def print_results(results: Sequence[Result], console: Console) -> None:
    for result in results:
        table = Table(title=_title(result), title_justify="left")
        for number, name in enumerate(_columns(result)):
            table.add_column(name, justify="right" if number else "left", no_wrap=True)
        for cells in _rows(result):
            table.add_row(*cells)
        console.print(table)


def write_page(path: Path, results: Sequence[Result], setting: Setting) -> None:
    """Fill what the page has of these races; it holds what this run measured and nothing older."""
    lines = [
        f"Measured {datetime.date.today().isoformat()} by `{setting.command}`: {setting.warm_ups} rounds to warm up, "
        f"{setting.repeats} of each question, {setting.write_repeats} tables written; {setting.driver_memory} for each "
        f"Spark driver.",
        "",
        _machine(setting),
        "",
        *(line for result in results for line in _markdown(result)),
    ]
    path.write_text(filled(path.read_text(), "warm", lines))


def _markdown(result: Result) -> list[str]:
    columns = _columns(result)
    rule = "|---|" + "---:|" * (len(columns) - 1)
    return [f"**{_title(result)}**", "", _line(columns), rule, *map(_line, _rows(result)), ""]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _title(result: Result) -> str:
    return f"{result.case}: {result.rows:,} orders"


def _columns(result: Result) -> tuple[str, ...]:
    return WRITE_COLUMNS if any(score.written for score in result.scores) else COLUMNS


def _rows(result: Result) -> Iterator[tuple[str, ...]]:
    # Where Hudi takes part twice, it is measured as it comes.
    hudi = next((s for name in _PEERS for s in result.scores if s.contestant == name), None)
    floor = next((score for score in result.scores if score.contestant == FILES.name), None)
    for score in result.scores:
        if score.written:
            yield (
                score.contestant,
                _time(score.cpu_s),
                _time(score.wall_s),
                f"{score.rows_per_s:,.0f}",
                f"{score.bytes_written / 1e6:.1f} MB",
                f"{score.files_written:.0f}",
                f"{score.peak_memory_bytes / 2**30:.1f} GiB",
                f"{score.noise(_cores()):.0%}",
                _ratio(hudi, score, "cpu_s"),
                _ratio(hudi, score, "wall_s"),
                "" if floor is None or score is floor else f"{score.cpu_s / floor.cpu_s:.1f} ×",
            )
            continue
        yield (
            score.contestant,
            _time(score.cpu_s),
            _time(score.wall_s),
            _time(score.p95_ms / 1000) if score.latencies_ms else "",
            f"{score.peak_memory_bytes / 2**30:.1f} GiB",
            f"{score.noise(_cores()):.0%}",
            _ratio(hudi, score, "cpu_s"),
            _ratio(hudi, score, "wall_s"),
        )


def _time(seconds: float) -> str:
    """Three figures, in the unit that reads best.

    >>> _time(0.01234), _time(1.234), _time(123.4)
    ('12.3 ms', '1.23 s', '123 s')
    """
    value, unit = (seconds * 1000, "ms") if seconds < 1 else (seconds, "s")
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {unit}"


def _ratio(hudi: Score | None, score: Score, measure: str) -> str:
    """How many times less than Hudi; below 1 it is more."""
    if hudi is None or score is hudi:
        return ""
    ratio = getattr(hudi, measure) / max(getattr(score, measure), 1e-6)
    return f"{ratio:.{0 if ratio >= 10 else 1 if ratio >= 1 else 2}f} ×"


def _machine(setting: Setting) -> str:
    versions = "; ".join(
        f"{name}: {', '.join(f'{what} {which}' for what, which in found.items())}"
        for name, found in setting.versions.items()
    )
    return (
        f"**Machine.** {_cores()} cores ({_processor()}), {_memory_gib():.0f} GiB memory, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}. {versions}."
    )


def _cores() -> int:
    return os.cpu_count() or 1


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
