"""Line charts as SVG, by hand: both axes logarithmic, some panels side by side, one legend.

A chart shows its measured points; what a model says beyond them is dashed, and its points are hollow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Told apart by people who see few colours, too."""

_WIDTH, _HEIGHT = 300, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 14, 46, 46
_LEGEND_LINE, _LEGEND_COLUMNS = 20, 3
_TEXT = "#333333"
_GRID = "#dddddd"


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: tuple[Point, ...]
    beyond: tuple[Point, ...] = ()
    """What a model says."""


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    lines: tuple[Line, ...]


def chart(title: str, panels: Sequence[Panel], *, x: str, y: str) -> str:
    """Draw panels with the same axes. All values are above zero."""
    points = [p for panel in panels for line in panel.lines for p in (*line.points, *line.beyond)]
    across = _axis([p[0] for p in points])
    up = _axis([p[1] for p in points])
    names = list(dict.fromkeys(line.name for panel in panels for line in panel.lines))
    width = len(panels) * _WIDTH
    legend_lines = math.ceil(len(names) / _LEGEND_COLUMNS)
    height = _HEIGHT + legend_lines * _LEGEND_LINE + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="{_TEXT}">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(_LEFT, 16, title, size=13, weight="bold"),
    ]
    for number, panel in enumerate(panels):
        parts.append(f'<g transform="translate({number * _WIDTH},0)">')
        parts += _frame(panel.title, across, up, x=x, y=y if number == 0 else "")
        for line in panel.lines:
            parts += _drawn(line, COLOURS[names.index(line.name) % len(COLOURS)], across, up)
        parts.append("</g>")
    for number, name in enumerate(names):
        at_x = _LEFT + number % _LEGEND_COLUMNS * (width - _LEFT) / _LEGEND_COLUMNS
        at_y = _HEIGHT + 10 + number // _LEGEND_COLUMNS * _LEGEND_LINE
        colour = COLOURS[number % len(COLOURS)]
        parts.append(_stroke([(at_x, at_y - 4), (at_x + 22, at_y - 4)], colour))
        parts.append(_text(at_x + 28, at_y, name))
    return "\n".join([*parts, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    ticks: tuple[float, ...]

    def part(self, value: float) -> float:
        """Say where a value is, from 0 to 1."""
        return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))


def _axis(values: Sequence[float]) -> _Axis:
    """Make an axis that goes a little beyond what it shows, with ticks at 1, 2 and 5 of each ten, or at 1."""
    low, high = min(values) / 1.3, max(values) * 1.3
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**ten for ten in tens for step in (1, 2, 5)]
    inside = [tick for tick in ticks if low <= tick <= high]
    if len(inside) > 7:
        inside = [tick for tick in inside if str(tick).strip("0.").startswith("1")]
    return _Axis(low, high, tuple(inside))


def _frame(title: str, across: _Axis, up: _Axis, *, x: str, y: str) -> list[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [_text(_LEFT, 36, title, weight="bold")]
    for tick in across.ticks:
        at = _at((tick, up.low), across, up)[0]
        parts.append(_stroke([(at, _TOP), (at, bottom)], _GRID, width=1))
        parts.append(_text(at, bottom + 15, _short(tick), anchor="middle"))
    for tick in up.ticks:
        at = _at((across.low, tick), across, up)[1]
        parts.append(_stroke([(_LEFT, at), (right, at)], _GRID, width=1))
        parts.append(_text(_LEFT - 6, at + 4, _short(tick), anchor="end"))
    parts.append(_text((_LEFT + right) / 2, bottom + 32, x, anchor="middle"))
    if y:
        middle = (_TOP + bottom) / 2
        parts.append(
            f'<text x="14" y="{middle:g}" text-anchor="middle" transform="rotate(-90 14 {middle:g})">{escape(y)}</text>'
        )
    return parts


def _drawn(line: Line, colour: str, across: _Axis, up: _Axis) -> list[str]:
    measured = [_at(point, across, up) for point in line.points]
    beyond = [_at(point, across, up) for point in line.beyond]
    parts = [_stroke(measured, colour)] if len(measured) > 1 else []
    if beyond:
        parts.append(_stroke([*measured[-1:], *beyond], colour, dashed=True))
    for points, fill in ((measured, colour), (beyond, "white")):
        parts += [
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{fill}" stroke="{colour}" stroke-width="1.5"/>'
            for px, py in points
        ]
    return parts


def _at(point: Point, across: _Axis, up: _Axis) -> Point:
    wide, high = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return _LEFT + across.part(point[0]) * wide, _TOP + (1 - up.part(point[1])) * high


def _stroke(points: Sequence[Point], colour: str, *, width: float = 2, dashed: bool = False) -> str:
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dash}/>'


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", size: int = 11, weight: str = "normal"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">'
        f"{escape(text)}</text>"
    )


def _short(value: float) -> str:
    """Spell a round number in few signs.

    >>> [_short(value) for value in (0.02, 5.0, 1_000.0, 200_000.0, 5e6)]
    ['0.02', '5', '1 k', '200 k', '5 M']
    """
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
