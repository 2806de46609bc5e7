"""Pages that are made from the code say what the code does now, and the site needs no network."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from bucketlake.sql.create import _SPELLINGS as PROPERTIES
from bucketlake.sql.procedures import PROCEDURES

ROOT = Path(__file__).parents[2]


def _tool(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_options_is_up_to_date() -> None:
    options = _tool("options")
    assert options.PAGE.read_text() == options.page(), "run: make pages"


def test_every_table_property_and_variable_says_what_it_is() -> None:
    assert _tool("options").unexplained() == [], "a docstring begins with: A table property: ..."


def test_every_keyword_says_what_it_does() -> None:
    options = _tool("options")
    types = [name for _, _, file, name in options.CALLS if file == "arguments.py"]
    assert {name: options.undocumented("arguments.py", name) for name in types} == {
        name: [] for name in types
    }


def test_the_list_of_commands_is_up_to_date() -> None:
    commands = _tool("commands")
    text = commands.PAGE.read_text()
    assert text == commands.page(text), "run: make pages"


def test_the_page_of_sql_names_every_property_and_procedure() -> None:
    text = (ROOT / "docs/sql.md").read_text()
    procedures = [name for name in PROCEDURES if not name.split(".")[-1].startswith("plan_")]
    assert [name for name in [*PROPERTIES, *procedures] if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    "html",
    [
        '<link rel="stylesheet" href="https://fonts.example/css">',
        '<img alt="" src="//cdn.example/plot.png">',
        '<pre class="mermaid"><code>graph</code></pre>',
    ],
)
def test_a_page_that_needs_the_network_is_not_built(html: str) -> None:
    site = _tool("offline_site")
    with pytest.raises(site.PluginError, match=r"index\.md would fetch"):
        site.on_post_page(html, type("Page", (), {"file": type("File", (), {"src_uri": "index.md"})}))


def test_links_to_click_are_no_matter() -> None:
    assert _tool("offline_site").fetched('<a href="https://hudi.apache.org">Hudi</a>') == []
