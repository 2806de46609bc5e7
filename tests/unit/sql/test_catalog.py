"""Names of tables: who gives one first has it, and what they point to survives a move."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from bucketlake.errors import ConfigError, CorruptTableError
from bucketlake.sql.catalog import Catalog


def test_of_two_who_give_a_name_one_wins(tmp_path: Path) -> None:
    first, second = Catalog(str(tmp_path)), Catalog(f"file:{tmp_path}/")
    assert first.add("Orders", "/a") and not second.add("orders", "/b")
    assert second.names() == ("orders",) and second.path_of("ORDERS") == "/a"
    first.remove("orders")
    assert second.names() == () and second.add("orders", "/b")


def test_an_unknown_name_is_told_with_those_there_are(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    with pytest.raises(ConfigError, match="has no table"):
        catalog.path_of("orders")
    catalog.add("b", "/b")
    catalog.add("a", "s3://bucket/a")
    with pytest.raises(ConfigError, match=r"no table 'orders'.*has a, b\. .*CREATE TABLE"):
        catalog.path_of("orders")


def test_a_warehouse_can_be_moved_with_its_tables(tmp_path: Path) -> None:
    Catalog(str(tmp_path / "old")).add("orders", "orders")
    shutil.move(tmp_path / "old", tmp_path / "new")
    assert Catalog(str(tmp_path / "new")).path_of("orders") == str(tmp_path / "new" / "orders")


@pytest.mark.parametrize("name", ["", "1a", "a-b", "../a", "a.b", "a b", "ä", "a" * 129, "a\n"])
def test_names_that_are_no_plain_words_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be named"):
        Catalog(str(tmp_path)).add(name, "/a")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "path": "/a"}', '{"version": 1}', '{"version": 1, "path": 3}']
)
def test_an_entry_that_makes_no_sense_is_an_error(text: str, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.add("orders", "/a")
    (tmp_path / ".bucketlake/tables/orders.json").write_text(text)
    with pytest.raises(CorruptTableError, match=r"orders\.json.*DROP TABLE"):
        catalog.path_of("orders")


def test_options_of_an_object_store_are_for_what_lies_there(tmp_path: Path) -> None:
    options = {"region": "x"}
    catalog = Catalog(str(tmp_path), options)
    assert catalog.options_for("s3://bucket/a") == options
    assert [catalog.options_for(path) for path in ("/a", "file:///a", "a", "memory://a")] == [None] * 4
