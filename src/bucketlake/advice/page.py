"""Advice as a person reads it: text with bars, a short table for notebooks, values for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from bucketlake.advice.choice import Verdict, spelled
from bucketlake.advice.figures import Bar, Engine, Figures
from bucketlake.advice.rates import MEASURED
from bucketlake.index import ConsistentBuckets, PartitionBuckets, SimpleBuckets
from bucketlake.storage import render_bytes

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Headings, and rows of cells."""

DEARER = 3
MANY = 500
SMALL_BYTES = 1 << 20
"""So many partitions that are so small are too many."""

_BLOCKS = "▁▂▃▄▅▆▇█"
_BAR = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAdvice:
    """Which index suits the keys, and what every engine would make of them; prints, and shows in a notebook."""

    rows_given: int
    """Versions of a row too."""
    rows: int
    """That a table would have: one for each key in each partition."""
    keys: int
    keys_in_several: int
    """Keys that several partitions have."""
    partitions: int
    partition_rows: tuple[int, int, int]
    """Of the smallest partition, of a typical one, of the largest."""
    row_bytes: float
    """What a row takes in a base file, about."""
    every: int
    """One key of so many was replayed."""
    batch_rows: int
    engines: tuple[Engine, ...]
    verdict: Verdict
    key: tuple[str, ...]
    partition: tuple[str, ...]
    columns: str
    """DDL; empty if it cannot be said in DDL."""
    has: str = ""
    """The index of a table that is there."""
    is_kept: bool = False
    """Whether the verdict is that one."""

    @property
    def chosen(self) -> Engine:
        """The engine of the verdict."""
        return next(engine for engine in self.engines if engine.index == self.verdict.index)

    @property
    def python(self) -> str:
        """The call that makes such a table."""
        words = ['"PATH"', f'"{self.columns}"' if self.columns else "schema", f"key={_names(self.key)}"]
        if self.partition:
            words.append(f"partition={_names(self.partition)}")
        words.append(f"index={spelled(self.verdict.index)}")
        if isinstance(self.verdict.index, ConsistentBuckets):
            words.append('table_type="MERGE_ON_READ"')
        return f"create_table({', '.join(words)})"

    @property
    def sql(self) -> str:
        """The statement that does the same."""
        merge_on_read = isinstance(self.verdict.index, ConsistentBuckets)
        by = f" PARTITIONED BY ({', '.join(self.partition)})" if self.partition else ""
        properties = [
            f"primaryKey = '{','.join(self.key)}'",
            f"index = '{spelled(self.verdict.index)}'",
            *(["type = 'mor'"] if merge_on_read else []),
        ]
        return (
            f"CREATE TABLE NAME ({self.columns or 'COLUMNS'}) USING bucketlake{by} "
            f"TBLPROPERTIES ({', '.join(properties)})"
        )

    @property
    def sentence(self) -> str:
        """The verdict."""
        index = spelled(self.verdict.index)
        if self.is_kept:
            return f"Keep {index}: {self.verdict.why}"
        return f"Take {index}: {self.verdict.why}"

    def as_json(self) -> dict[str, Any]:
        """Return all of it in numbers, lists and texts."""
        found = {
            name: getattr(self, name)
            for name in (
                "rows_given",
                "rows",
                "keys",
                "keys_in_several",
                "partitions",
                "row_bytes",
                "batch_rows",
                "has",
            )
        }
        return {
            **found,
            "partition_rows": list(self.partition_rows),
            "sampled_one_of": self.every,
            "rates_measured": MEASURED,
            "engines": [
                {
                    "index": spelled(engine.index),
                    "now": asdict(engine.now),
                    "grown": [asdict(one) for one in engine.grown],
                }
                for engine in self.engines
            ],
            "verdict": {
                "index": spelled(self.verdict.index),
                "sentence": self.sentence,
                "python": self.python,
                "sql": self.sql,
            },
        }

    def __str__(self) -> str:
        lines = [*self.facts, "", *_aligned(*self.overview), ""]
        if self.growth[1]:
            lines += [*_aligned(*self.growth), ""]
        return "\n".join([*lines, *self.ending])

    @property
    def overview(self) -> Table:
        """The engines with the rows that there are."""
        return HEADINGS, [_cells(engine.index, engine.now) for engine in self.engines]

    @property
    def growth(self) -> Table:
        """The engines with more rows."""
        return GROWTH_HEADINGS, [row for engine in self.engines for row in _growth_cells(engine)]

    @property
    def ending(self) -> list[str]:
        """The sizes of the engine that is advised, the verdict, and what to copy."""
        title = f"File groups of {spelled(self.verdict.index)}, by size:"
        return [
            title,
            *_bars(self.chosen.now.histogram),
            "",
            self.sentence,
            *self._of_type(),
            *self._to_copy(),
        ]

    @property
    def facts(self) -> list[str]:
        """What the keys are, and what the columns of the tables mean."""
        least, typical, most = self.partition_rows
        parts = (
            f"in {self.partitions:,} partitions of {least:,} to {most:,} rows, typically {typical:,}"
            if self.partitions > 1
            else "in one partition"
        )
        lines = [f"{self.rows:,} rows {parts}; about {self.row_bytes:.0f} bytes each in a file"]
        if self.every > 1:
            lines.append(
                f"A sample: one of {self.every} keys of {self.rows_given:,} rows was replayed, and counts for all."
            )
        if self.rows_given > self.rows and self.every == 1:
            lines.append(f"{self.rows_given - self.rows:,} more rows are older versions of these.")
        if self.keys_in_several:
            lines.append(f"{self.keys_in_several:,} of {self.keys:,} keys are in several partitions.")
        if self.partitions >= MANY and typical * self.row_bytes < SMALL_BYTES:
            lines.append(
                f"Half of the partitions have less than {render_bytes(typical * self.row_bytes + 1)}. A batch pays for "
                f"each file that it touches: coarser partitions, such as months for days, would cost less."
            )
        if self.has:
            lines.append(f"The table has {self.has}.")
        lines.append(
            f"cow, mor: CPU seconds of a batch of {self.batch_rows:,} rows, half new, with keys from anywhere; copy-on-"
            f"write, merge-on-read. read: all rows, some columns. key: look-up of one key. By rates of {MEASURED}."
        )
        return lines

    def _of_type(self) -> list[str]:
        """Say what the type of the table would change, where it is not decided yet."""
        written, logged = self.chosen.now.copy_on_write, self.chosen.now.merge_on_read
        if self.has or isinstance(self.verdict.index, ConsistentBuckets):
            return []
        if written.seconds < DEARER * logged.seconds:
            return []
        return [
            f"A batch takes {_seconds(written.seconds)} as copy-on-write, and {_seconds(logged.seconds)} as merge-on-"
            f"read, which makes reads dearer until logs are compacted. For many small batches: "
            f'table_type="MERGE_ON_READ".'
        ]

    def _to_copy(self) -> list[str]:
        if self.is_kept:
            return []
        if self.has:
            return [
                "",
                "The counts of a table are changed while writers go on: bucketlake buckets --help. Another kind of "
                "index needs a new table: new.bulk_insert(old.read(spark)).",
                "",
                self.python,
            ]
        return ["", self.python, "", self.sql]

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in HEADINGS)
        body = "".join(
            f"<tr{_MARKED if engine is self.chosen else ''}>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in _cells(engine.index, engine.now))
            + "</tr>"
            for engine in self.engines
        )
        facts = "<br>".join(map(escape, self.facts))
        return (
            f"<p><b>{escape(self.sentence)}</b></p><pre>{escape(self.python)}</pre>"
            f"<table><tr>{head}</tr>{body}</table><p>{facts}</p>"
        )


_MARKED = ' style="font-weight:bold"'
HEADINGS = (
    "index",
    "files",
    "smallest",
    "median",
    "largest",
    "skew",
    "sizes",
    "memory",
    "cow",
    "mor",
    "read",
    "key",
)
GROWTH_HEADINGS = ("as it grows", "files", "largest", "memory", "cow", "mor", "read", "key", "what to do")
TEXTS = {"index", "as it grows", "what to do", "sizes"}


def _names(names: Sequence[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return quoted[0] if len(quoted) == 1 else f"[{', '.join(quoted)}]"


def _cells(index: Any, found: Figures) -> tuple[str, ...]:
    return (
        spelled(index),
        f"{found.file_groups:,}",
        render_bytes(found.smallest_bytes),
        render_bytes(found.median_bytes),
        render_bytes(found.largest_bytes),
        f"{found.skew:.1f}",
        _spark_line(found.histogram),
        render_bytes(found.memory_bytes),
        f"{_seconds(found.copy_on_write.seconds)}, {render_bytes(found.copy_on_write.size_bytes)}",
        f"{_seconds(found.merge_on_read.seconds)}, {render_bytes(found.merge_on_read.size_bytes)}",
        _seconds(found.read_seconds),
        _seconds(found.key_seconds),
    )


def _growth_cells(engine: Engine) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    before = engine.now.file_groups
    for one in engine.grown:
        opens = not isinstance(engine.index, SimpleBuckets | PartitionBuckets)
        more = one.file_groups - before
        by_itself = f"nothing: {more:,} more open by themselves" if opens and more > 0 else "nothing"
        rows.append(
            (
                f"{spelled(engine.index)} × {one.factor:g}",
                f"{one.file_groups:,}",
                render_bytes(one.largest_bytes),
                render_bytes(one.memory_bytes),
                _seconds(one.copy_on_write.seconds),
                _seconds(one.merge_on_read.seconds),
                _seconds(one.read_seconds),
                _seconds(one.key_seconds),
                one.needs or by_itself,
            )
        )
    return rows


def _seconds(seconds: float) -> str:
    """Spell a time in two digits.

    >>> [_seconds(one) for one in (0.0123, 0.5, 2.25, 31.0)]
    ['12 ms', '0.50 s', '2.2 s', '31 s']
    """
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def _spark_line(bars: Sequence[Bar]) -> str:
    most = max(bar.groups for bar in bars)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[-(-bar.groups * top // most)] if bar.groups else " " for bar in bars).strip()


def _bars(bars: Sequence[Bar]) -> list[str]:
    most = max(bar.groups for bar in bars)
    names = [f"{render_bytes(bar.from_bytes)} to {render_bytes(bar.to_bytes)}" for bar in bars]
    width = max(map(len, names))
    return [
        f"  {name:>{width}}  {'█' * -(-bar.groups * _BAR // most)} {bar.groups:,}"
        for name, bar in zip(names, bars, strict=True)
    ]


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.ljust(width) if name in TEXTS else cell.rjust(width)
            for name, cell, width in zip(headings, cells, widths, strict=True)
        )
        return "  ".join(padded).rstrip()

    return [line(headings), "  ".join("─" * width for width in widths), *map(line, rows)]
