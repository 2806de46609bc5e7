"""What `benchmarks.limits` measured, as the tables of docs/limits.md and as charts.

A table stands between two markers of its name (`page.filled`). The charts lie in docs/plots.

What a batch would take with 100,000,000 keys is a model of the measured parts: a straight line, by least squares,
through the medians of the measured tables, of which the largest must have a tenth of those keys. It is drawn over what
grows with the table: the blocks of the index that a batch of so many random keys touches, or, where all of the index is
kept, its keys. Where what is kept is larger than what the process remembers of files, the line of the cold batches is
taken.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.page import filled
from benchmarks.plots import Line, Panel, Point, chart

PAGE = Path(__file__).parents[1] / "docs" / "limits.md"
MODELLED = 100_000_000
_FURTHEST = 10
"""So many times the largest measured table is as far as a model reaches."""
_NONE = "–"
_KEPT_BYTES = 10
"""Of a key."""
_REMEMBERED_BYTES = 256 << 20

Results = Mapping[str, Any]
Case = tuple[str, str]
"""An index, and how much of it is kept."""

_RECORD = "record-level index"
_BUCKETS: Case = ("buckets", "nothing")
_NAMES: dict[Case, str] = {
    (_RECORD, "nothing"): "record-level index, nothing kept",
    (_RECORD, "a tenth"): "a tenth kept",
    (_RECORD, "all"): "all kept",
    ("dynamic buckets", "all"): "dynamic buckets, all kept",
    _BUCKETS: "buckets",
}


def write_page(results: Results, docs: Path) -> None:
    """Fill the tables of the page, and draw the charts."""
    page = docs / "limits.md"
    text = page.read_text()
    for name, lines in _tables(results).items():
        text = filled(text, name, lines)
    page.write_text(text)
    plots = docs / "plots"
    plots.mkdir(exist_ok=True)
    for name, drawn in _charts(results).items():
        (plots / f"{name}.svg").write_text(drawn)


def _tables(results: Results) -> dict[str, list[str]]:
    rows = sorted({one["rows"] for one in results["batches"]})
    setting = [
        f"Measured {results['date']} on {results['machine']}; {results['seconds']:g} s for each case, "
        f"{results['memory']} remembered of files."
    ]
    return {
        "setting": setting,
        "beside": _beside(results, rows),
        "throughput": _throughput(results, rows),
        "warm": _latencies(results, rows, "warm"),
        "cold": _latencies(results, rows, "cold"),
        "look-ups": _look_ups(results),
        "tables": _made(results),
    }


def _beside(results: Results, rows: Sequence[int]) -> list[str]:
    """Say how many times the seconds of buckets the others take."""
    others = [case for case in _NAMES if case != _BUCKETS]
    lines = _head(["keys", "rows of a batch", *(_NAMES[case] for case in others)])
    for keys in (*_keys(results), MODELLED):
        for count in rows:
            plain = _median_or_model(results, _BUCKETS, keys, count, "warm")
            seconds = [_median_or_model(results, case, keys, count, "warm") for case in others]
            cells = [
                _NONE if s is None or not plain else f"{_about(keys)}{_spelled(s / plain)} ×" for s in seconds
            ]
            lines.append(_line([_millions(keys), f"{count:,}", *cells]))
    return lines


def _throughput(results: Results, rows: Sequence[int]) -> list[str]:
    lines = _head(["keys", "rows of a batch", *_NAMES.values()])
    for keys in (*_keys(results), MODELLED):
        for count in rows:
            seconds = [_median_or_model(results, case, keys, count, "warm") for case in _NAMES]
            cells = [_NONE if s is None else f"{_about(keys)}{count / s:,.0f}" for s in seconds]
            lines.append(_line([_millions(keys), f"{count:,}", *cells]))
    return lines


def _latencies(results: Results, rows: Sequence[int], state: str) -> list[str]:
    lines = _head(["keys", "rows of a batch", *_NAMES.values()])
    for keys in (*_keys(results), MODELLED):
        for count in rows:
            cells = []
            for case in _NAMES:
                measured = _seconds(results, case, keys, count, state)
                if measured:
                    cells.append(f"{_spelled(_p(measured, 0.5))}, {_spelled(_p(measured, 0.99))}")
                else:
                    told = _modelled(results, case, keys, count, state)
                    cells.append(_NONE if told is None else f"{_about(keys)}{_spelled(told)}")
            lines.append(_line([_millions(keys), f"{count:,}", *cells]))
    return lines


def _look_ups(results: Results) -> list[str]:
    asked = list(dict.fromkeys(one["asked"] for one in results["look_ups"]))
    kinds = list(dict.fromkeys((one["kept"], one["state"]) for one in results["look_ups"]))
    names = [name if name.startswith("one") else f"{name} key{'' if name == '1' else 's'}" for name in asked]
    lines = _head(["keys", "kept", "", *names])
    for keys in _keys(results):
        for kept, state in kinds:
            cells = []
            for name in asked:
                [found] = [
                    one["milliseconds"]
                    for one in results["look_ups"]
                    if (one["keys"], one["kept"], one["state"], one["asked"]) == (keys, kept, state, name)
                ]
                cells.append(f"{_spelled(_p(found, 0.5))}, {_spelled(_p(found, 0.99))}")
            lines.append(_line([_millions(keys), kept, state, *cells]))
    return lines


def _made(results: Results) -> list[str]:
    lines = _head(["keys", "", "load, s", "index, MB", "bytes per key", "compaction of the index, s"])
    for one in results["made"]:
        has_index = one["index_bytes"] > 0
        cells = [
            f"{one['index_bytes'] / 1e6:,.1f}" if has_index else "",
            f"{one['index_bytes'] / one['keys']:.1f}" if has_index else "",
            _spelled(one["compaction_seconds"]) if has_index else "",
        ]
        lines.append(_line([_millions(one["keys"]), one["index"], _spelled(one["load_seconds"]), *cells]))
    return lines


def _charts(results: Results) -> dict[str, str]:
    rows = sorted({one["rows"] for one in results["batches"]})
    keys = _keys(results)

    def panels(of: Any) -> list[Panel]:
        return [
            Panel(
                f"batches of {count:,} rows",
                tuple(
                    Line(name, points, _points(results, case, [MODELLED], count, of, beyond=True))
                    for case, name in _NAMES.items()
                    if (points := _points(results, case, keys, count, of))
                ),
            )
            for count in rows
        ]

    throughput = panels(lambda count, seconds: count / seconds)
    latency = panels(lambda _, seconds: seconds)
    return {
        "limits-throughput": chart("Rows a second, warm", throughput, x="keys in the table", y="rows/s"),
        "limits-latency": chart("Seconds of a batch, warm, p50", latency, x="keys in the table", y="s"),
    }


def _points(
    results: Results, case: Case, keys: Sequence[int], rows: int, of: Any, *, beyond: bool = False
) -> tuple[Point, ...]:
    points = []
    for count in keys:
        measured = _seconds(results, case, count, rows, "warm")
        seconds = (
            _modelled(results, case, count, rows, "warm")
            if beyond
            else _p(measured, 0.5)
            if measured
            else None
        )
        if seconds is not None:
            points.append((float(count), float(of(rows, seconds))))
    return tuple(points)


def _median_or_model(results: Results, case: Case, keys: int, rows: int, state: str) -> float | None:
    measured = _seconds(results, case, keys, rows, state)
    return _p(measured, 0.5) if measured else _modelled(results, case, keys, rows, state)


def _modelled(results: Results, case: Case, keys: int, rows: int, state: str) -> float | None:
    """Say what a batch would take; None if too little was measured."""
    _, kept = case
    if kept == "all" and _KEPT_BYTES * keys > _REMEMBERED_BYTES:
        state = "cold"
    measured = {count: _seconds(results, case, count, rows, state) for count in _keys(results)}
    points = {count: _p(seconds, 0.5) for count, seconds in measured.items() if seconds}
    if len(points) < 2 or max(points) * _FURTHEST < keys:
        return None
    grows = [_grows(results, case, count, rows) for count in points]
    slope, start = np.polyfit(grows, list(points.values()), 1)
    if slope <= 0:  # it does not grow
        return float(np.mean(list(points.values())))
    return max(float(start + slope * _grows(results, case, keys, rows)), max(points.values()))


def _grows(results: Results, case: Case, keys: int, rows: int) -> float:
    """Count what a batch meets more of in a larger table."""
    index, kept = case
    if kept == "all" or index != _RECORD:
        return float(keys)
    per_block = np.median([one["keys"] / one["blocks"] for one in results["made"] if one["index"] == index])
    blocks = max(1.0, keys / per_block)
    return float(blocks * -np.expm1(rows * np.log1p(-1 / blocks))) if blocks > 1 else 1.0


def _seconds(results: Results, case: Case, keys: int, rows: int, state: str) -> list[float]:
    wanted = (*case, keys, rows, state)
    return [
        seconds
        for one in results["batches"]
        if (one["index"], one["kept"], one["keys"], one["rows"], one["state"]) == wanted
        for seconds in one["seconds"]
    ]


def _keys(results: Results) -> list[int]:
    return sorted({one["keys"] for one in results["batches"]})


def _p(values: Sequence[float], share: float) -> float:
    ascending = sorted(values)
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def _about(keys: int) -> str:
    return "~ " if keys == MODELLED else ""


def _spelled(value: float) -> str:
    """Spell a number with two figures, or with all that it has before the point.

    >>> [_spelled(value) for value in (0.0123, 0.5, 3.21, 123.4, 2345.6)]
    ['0.012', '0.50', '3.2', '123', '2,346']
    """
    if value >= 10:
        return f"{value:,.0f}"
    digits = 1 if value >= 1 else 2 if value >= 0.1 else 3
    return f"{value:.{digits}f}"


def _millions(keys: int) -> str:
    return f"{keys / 1e6:g} M"


def _head(names: Sequence[str]) -> list[str]:
    return [_line(names), "|" + "---|" * len(names)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
