"""What the pages show must work: a reader copies it."""

from __future__ import annotations

import doctest
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import bucketlake
from bucketlake.cli import main as command_line
from bucketlake.storage.memory_budget import DEFAULT_BYTES
from docs.pages import ROOT, Block, blocks, moved, pages

PAGES = pages()


@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_every_block_of_a_page_runs(
    page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BUCKETLAKE_INDEX_CACHE_FOLDER", str(tmp_path / "index-cache"))
    # Each page has a catalog of its own: names that it gives mean nothing on the next one.
    monkeypatch.setattr(bucketlake, "sql", partial(bucketlake.sql, warehouse=tmp_path / "warehouse"))
    names: dict[str, Any] = {"spark": spark, "__name__": "docs"}
    try:
        for block in blocks(page.read_text()):
            _run(block, names, spark, page, tmp_path)
    finally:
        for query in spark.streams.active:
            query.stop()
        bucketlake.set_memory_budget(DEFAULT_BYTES)
        bucketlake.set_index_cache(0)


def _run(block: Block, names: dict[str, Any], spark: SparkSession, page: Path, folder: Path) -> None:
    code = moved(block.code, folder)
    match block.language:
        case "python":
            # Padded, so that a failure names the line of the page.
            exec(compile("\n" * (block.line - 1) + code, str(page), "exec"), names)
        case "pycon":
            example = doctest.DocTestParser().get_doctest(code, {}, page.name, str(page), block.line)
            assert doctest.DocTestRunner().run(example).failed == 0
        case "sql":
            for statement in filter(
                None, (one.strip() for one in re.split(r";\s*(?:--[^\n]*)?\n", f"{code}\n"))
            ):
                bucketlake.sql(spark, statement)
        case _:
            for line in code.splitlines():
                if line.startswith("$ bucketlake "):
                    _command(line.removeprefix("$ bucketlake "), f"{page.name}:{block.line}")


def _command(words: str, place: str) -> None:
    arguments = shlex.split(words.partition("  #")[0], comments=False)
    try:
        command_line(arguments)
    except SystemExit as ended:
        assert ended.code in (None, 0), f"{place}: bucketlake {words} ended with {ended.code}"


def test_the_readme_is_a_shop_window() -> None:
    text = re.sub(r"<!--.*?-->|```.*?```", "", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    words = len(re.findall(r"[\w’'.-]+", re.sub(r"\]\([^)]*\)|[|#*`]", " ", text)))
    assert words <= 700, f"{words} words; about 600 is what a visitor reads"
