"""What a report advises is what an operator does next."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any

from bucketlake import RecordIndex, Table, create_table
from bucketlake.storage import Store


def made(path: str, **more: Any) -> Table:
    return create_table(path, "id STRING, city STRING, ts BIGINT", key="id", ordering="ts", **more)


def advice(table: Table) -> dict[str, str]:
    return {one.what: one.command for one in table.report().facts.advice}


def test_a_healthy_table_needs_nothing() -> None:
    table = made("memory://report-healthy")
    table.upsert([{"id": "a", "city": "Ulm", "ts": 1}])
    assert advice(table) == {}
    assert "Nothing to do." in str(table.report())


def test_fewer_buckets_are_advised_only_where_there_can_be_fewer() -> None:
    rows = [{"id": str(number), "city": f"c{number // 2}", "ts": 1} for number in range(140)]
    told = {}
    for buckets in (1, 16):
        table = made(f"memory://report-small-{buckets}", partition="city", buckets=buckets)
        table.upsert(rows)
        told[buckets] = advice(table)
    assert told[1] == {} and list(told[16]) == ["Take fewer buckets"]


def test_what_was_cut_off_is_told() -> None:
    table = made("memory://report-pending")
    table.upsert([{"id": "a", "city": "Ulm", "ts": 1}])
    (instant,) = table.timeline()
    store: Store = table.store
    store.put(f".hoodie/timeline/{int(instant.requested) + 1}.commit.requested", b"")
    assert any("1 pending instant" in what for what in advice(table))


def test_a_metadata_table_that_lags_is_to_be_built_anew() -> None:
    table = made("memory://report-lags", metadata=True)
    table.upsert([{"id": "a", "city": "Ulm", "ts": 1}])
    newest = max(
        f.path for f in table.store.list(".hoodie/metadata/.hoodie/timeline").files if "deltacommit" in f.path
    )
    table.store.delete(newest)
    assert advice(table) == {
        "Build the metadata table anew": "bucketlake metadata rebuild memory://report-lags"
    }


def test_the_page_and_the_json_say_the_same(run: Any, tmp_path: Path) -> None:
    table = made(str(tmp_path / "orders"), index=RecordIndex(shards=2))
    table.upsert([{"id": "a", "city": "Ulm", "ts": 1}])
    table.create_index("by_city", on="city")
    code, out, _ = run("report", tmp_path / "orders", "-o", tmp_path / "report.html")
    assert code == 0
    assert str(tmp_path / "report.html") in out
    page = (tmp_path / "report.html").read_text()
    told = json.loads(page.partition("const told = ")[2].partition(";\n")[0])
    assert told == json.loads(run("report", tmp_path / "orders", "--json")[1]) | {"made": told["made"]}
    assert [name for name, _, is_fine in told["health"] if is_fine] == [
        "metadata table",
        "secondary index by_city",
    ]
    assert "src=http" not in page and "href=http" not in page
    shown = table.report()._repr_html_()
    assert unescape(shown.partition('srcdoc="')[2].partition('" style')[0]).startswith("<!doctype html>")
