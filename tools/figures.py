"""The figures of the README, from the table of a cold session in docs/benchmarks.md: one run, one machine, one day.

python tools/figures.py    writes the table into README.md, and docs/plots/cold.svg
"""

from __future__ import annotations

from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
README, PAGE, PLOT = ROOT / "README.md", ROOT / "docs/benchmarks.md", ROOT / "docs/plots/cold.svg"
START, END = "<!-- figures: start -->", "<!-- figures: end -->"

CONTESTANTS = {
    "bucketlake": "bucketlake",
    "bucketlake alone": "bucketlake, no Spark",
    "hudi as it comes": "Hudi",
    "paimon": "Paimon",
    "iceberg": "Iceberg",
    "delta": "Delta",
}
STEPS = {
    "load": "load 1,000,000 rows",
    "upsert": "first upsert of 5 %",
    "later": "later upserts of 5 %",
    "scan": "scan, with logs",
    "compact": "compaction",
    "scan, compacted": "scan, compacted",
}
PLOTTED = ("load", "upsert", "later")

Figures = dict[str, dict[str, float]]
"""By contestant and step, CPU seconds."""


def read_page(page: str) -> tuple[str, Figures]:
    """Return when and where the table was measured, and what it says of merge-on-read tables."""
    _, _, rest = page.partition("<!-- cold: start -->")
    lines = [line for line in rest.partition("<!-- cold: end -->")[0].splitlines() if line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    heads, found = rows[0], {}
    for row in rows[2:]:
        name, _, table_type = row[0].rpartition(", ")
        if table_type == "merge-on-read" and name in CONTESTANTS:
            cells = dict(zip(heads, row, strict=True))
            found[name] = {step: float(cells[step].split()[0]) for step in STEPS if cells[step]}
    return lines[0], {name: found[name] for name in CONTESTANTS if name in found}


def table(measured: str, figures: Figures) -> str:
    """Draw the README's table."""
    heads = ["", *(CONTESTANTS[name] for name in figures)]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * len(figures)}"]
    for step, title in STEPS.items():
        cells = [f"{of[step]:.3g}" if step in of else "–" for of in figures.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(
        [
            "CPU seconds of a new process that takes each step once, on a merge-on-read table of 20 daily partitions. "
            f"{measured}",
            "",
            "![CPU seconds of a load and of upserts](docs/plots/cold.svg)",
            "",
            *lines,
        ]
    )


def readme_with(readme: str, text: str) -> str:
    before, _, rest = readme.partition(START)
    return f"{before}{START}\n{text}\n{END}{rest.partition(END)[2]}"


_COLOURS = ("#0072b2", "#d55e00", "#009e73")
_LEFT, _BAR, _GAP, _WIDTH = 150, 14, 14, 640


def plot(figures: Figures) -> str:
    """Draw the steps of each contestant as bars."""
    longest = max(of[step] for of in figures.values() for step in PLOTTED)
    each = len(PLOTTED) * _BAR + _GAP
    height = len(figures) * each + 50
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12" fill="#333333"><rect width="{_WIDTH}" height="{height}" '
        f'fill="white"/>'
    ]
    for number, step in enumerate(PLOTTED):
        x = _LEFT + number * 160
        parts.append(f'<rect x="{x}" y="8" width="12" height="12" fill="{_COLOURS[number]}"/>')
        parts.append(f'<text x="{x + 18}" y="18">{escape(STEPS[step])}</text>')
    for place, (name, of) in enumerate(figures.items()):
        top = 34 + place * each
        middle = top + len(PLOTTED) * _BAR / 2 + 4
        parts.append(
            f'<text x="{_LEFT - 8}" y="{middle:g}" text-anchor="end">{escape(CONTESTANTS[name])}</text>'
        )
        for number, step in enumerate(PLOTTED):
            wide = (_WIDTH - _LEFT - 60) * of[step] / longest
            y = top + number * _BAR
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{wide:.1f}" height="{_BAR - 2}" fill="{_COLOURS[number]}"/>'
                f'<text x="{_LEFT + wide + 5:.1f}" y="{y + _BAR - 3}">{of[step]:.3g} s</text>'
            )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    measured, figures = read_page(PAGE.read_text())
    README.write_text(readme_with(README.read_text(), table(measured, figures)))
    PLOT.write_text(plot(figures))


if __name__ == "__main__":
    main()
