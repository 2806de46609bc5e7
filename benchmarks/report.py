"""Results as tables: for a terminal, and as the page docs/benchmarks.md.

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

from benchmarks.contestants import CONTESTANTS, FILES, HUDI, HUDI_AS_IT_COMES, HUDI_RECORD
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

PAGE = """\
# Benchmarks

Made by `{command}` on {date}; not edited by hand.

{machine}

**Data.** Orders with nine columns (a random key of 18 characters, a note of 60) in 20 daily partitions, one
of which holds 40 %. Hudi 1.2.0 wrote the tables that are read: simple bucket index, four buckets per
partition, zstd, no metadata table. `plain` is copy-on-write after a bulk insert. `merged` is merge-on-read
after a bulk insert and five upserts of 5 % each (half changes, half new orders, 2 % of the changes late), not
compacted: Avro log blocks over base files.

**Method.** Every contestant is a process of its own with two cores (Spark: `local[2]`, {driver_memory}
driver, equal settings). {warm_ups} warm-up rounds, then {repeats} rounds, contestants in turn, so that noise
hits all; medians are shown. CPU is that of the whole process tree, JVM and Python workers included; memory
is the most it had, shared pages counted once. Each question opens the table, lists, plans and reads anew.
A lookup fetches a
row by its key, {lookups} keys in all: mean CPU, median wall and 95th percentile of one lookup. Every answer
was compared with the truth that DuckDB computes from the inputs. `others` is the share of the machine that
other processes took meanwhile. `× cheaper` is Hudi's CPU time over the contestant's, `× faster` the same of
wall time, both within one race, on a local disk with a warm page cache: they say nothing about clusters or
object stores.

**Writing.** Everybody makes the same table, with the same buckets and codec, from the same Parquet files: a bulk
load of all orders, then the five upserts; then the logs are compacted and the files that this made superfluous
cleaned away. Hudi takes part twice: as it comes, with its metadata table, against which `×` is told, and without
one. A step is taken by all in turn before the next.
Tables of {warm_up_rows:,} orders are written to warm up ({warm_ups}), then those of the full size
({write_repeats}); the load is the median of these, the upsert the median of all their batches. `written` and
`files` are what a step left new or changed in the table's folder, without Hadoop's checksums. `× floor` is
CPU over the floor's. The table is compared with the truth after the load and at the end, by processes that only
read, ours by Hudi's reader too.

| contestant | what it is |
|---|---|
{contestants}

{tables}"""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a run was made with."""

    command: str
    warm_ups: int
    repeats: int
    write_repeats: int
    warm_up_rows: int
    driver_memory: str
    lookups: int
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
    """Write the page; it holds what this run measured and nothing older."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = {score.contestant for result in results for score in result.scores}
    path.write_text(
        PAGE.format(
            command=setting.command,
            date=datetime.date.today().isoformat(),
            machine=_machine(setting),
            driver_memory=setting.driver_memory,
            warm_ups=setting.warm_ups,
            repeats=setting.repeats,
            write_repeats=setting.write_repeats,
            warm_up_rows=setting.warm_up_rows,
            lookups=setting.lookups,
            contestants="\n".join(
                f"| {c.name} | {c.note} |" for c in CONTESTANTS.values() if c.name in shown
            ),
            tables="\n".join(_markdown(result) for result in results),
        )
    )


def _markdown(result: Result) -> str:
    columns = _columns(result)
    lines = [f"## {_title(result)}", "", _line(columns), "|---|" + "---:|" * (len(columns) - 1)]
    return "\n".join([*lines, *map(_line, _rows(result)), ""])


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
