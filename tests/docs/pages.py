"""The code blocks of a page of the docs, in their order; a test runs them as a reader would.

    ```python          run in one namespace, the page's own; `spark` is there
    ```pycon           run as a doctest
    ```sql             each statement run by `bucketlake.sql`
    ```console         each line that begins with `$ bucketlake` run as a command
    <!-- setup … -->   Python that the page does not show: the rows that a reader would have

All paths below `/data` and `/tmp` are moved to a folder of the test's. A block of another language is no code of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)\n(?P<code>.*?)^(?P=indent)```$|^<!-- setup\n(?P<setup>.*?)^-->$",
    re.DOTALL | re.MULTILINE,
)
_FOLDER = re.compile(r"(?<![\w/])/(?:data|tmp)/")
LANGUAGES = ("python", "pycon", "sql", "console")


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of code, and the line of the page that it begins in."""

    language: str
    code: str
    line: int


def pages() -> list[Path]:
    """Return every page that shows code which we run."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [file for file in files if any(True for _ in blocks(file.read_text()))]


def blocks(text: str) -> Iterator[Block]:
    """Find the blocks of a page.

    >>> list(blocks("<!-- setup\\na = 1\\n-->\\n```python\\nprint(a)\\n```\\n"))
    [Block(language='python', code='a = 1\\n', line=2), Block(language='python', code='print(a)\\n', line=5)]
    """
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start()) + 2
        if found["setup"] is not None:
            yield Block("python", found["setup"], line)
        elif found["language"] in LANGUAGES:
            indent = found["indent"]
            code = "".join(one.removeprefix(indent) for one in found["code"].splitlines(keepends=True))
            yield Block(found["language"], code, line)


def moved(code: str, folder: Path) -> str:
    """Move the paths in a block to a folder.

    >>> moved("'/data/orders', s3://data/x", Path("/elsewhere"))
    "'/elsewhere/orders', s3://data/x"
    """
    return _FOLDER.sub(f"{folder}/", code)
