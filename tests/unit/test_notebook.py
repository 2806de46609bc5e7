"""What a notebook shows of tables, plans, summaries and checks: short, and no name in a table is markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.notebook import ROWS_SHOWN
from bucketlake.services.fsck import Finding, Kind, Report

EVIL = "<script>alert(1)"


class Page(HTMLParser):
    """Collects the tags and the text, and that tags are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []
        assert self.tags <= {"b", "table", "tr", "th", "td", "pre", "p"}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def shown(value: Any) -> str:
    html = value._repr_html_()
    assert len(html) < 20_000
    return Page(html).text


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    columns = [("id", pa.string()), *((f"c{n}", pa.int64()) for n in range(30))]
    path = tmp_path_factory.mktemp("notebook") / EVIL
    made = create_table(path, pa.schema(columns), key="id", name="orders", table_type="mor", buckets=2)
    made.upsert([{"id": "a"} | {name: 1 for name, _ in columns[1:]}])
    return made


def test_a_table_shows_what_it_is_and_its_first_columns(table: Table) -> None:
    text = shown(table)
    for part in ("orders", EVIL, table.store.uri, "MERGE_ON_READ", "commits 1", "c3 int64"):
        assert part in text
    assert f"and {31 - ROWS_SHOWN} more rows" in text and "c25" not in text


def test_a_table_that_is_gone_says_so(tmp_path: Path) -> None:
    gone = create_table(tmp_path / "t", "id STRING", key="id")
    (tmp_path / "t").rename(tmp_path / "elsewhere")
    assert str(tmp_path / "t") in shown(gone) and "Traceback" not in shown(gone)


def test_a_summary_shows_its_counts(table: Table) -> None:
    row = dict.fromkeys(table.schema.names, 1) | {"id": "b"}
    text = shown(table.upsert([row]))
    assert "rows 1" in text and "upsert in logs" not in text and "1 partitions" in text
    assert "nothing to commit" in shown(table.delete(["nobody"]))


def test_a_plan_shows_that_it_is_not_done_yet(table: Table) -> None:
    plan = table.plan_clustering(by="c1")
    assert "table.run(plan)" in shown(plan) and str(plan).splitlines()[0] in shown(plan)
    assert "Nothing to do" in shown(table.plan_clustering(by="id", min_bytes=1 << 40))


def test_a_check_shows_its_verdict_and_its_first_findings(table: Table) -> None:
    assert "fsck: sound" in shown(table.fsck())
    findings = tuple(Finding(Kind.DUPLICATE_KEY, f"p{n}", EVIL) for n in range(ROWS_SHOWN + 5))
    text = shown(Report(findings=findings, rows=1, file_groups=1, files=1, commits=1, index="-"))
    assert "fsck: 25 findings" in text and EVIL in text and "and 5 more rows" in text
