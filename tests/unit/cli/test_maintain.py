"""Commands that change a table say what they did, and do nothing unless told."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bucketlake.cli import main
from bucketlake.config import load_properties
from bucketlake.storage import LocalStore

Golden = Callable[[str], Path]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; return exit code, stdout and stderr."""

    def command(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        printed = capsys.readouterr()
        return int(stop.value.code or 0), printed.out, printed.err

    return command


@pytest.fixture
def copied(golden_table: Golden, tmp_path: Path) -> Callable[[str], Path]:
    def copy(name: str) -> Path:
        return Path(shutil.copytree(golden_table(name), tmp_path / name))

    return copy


def test_adopt_keeps_the_layout_with_the_table(run: Any, copied: Callable[[str], Path]) -> None:
    folder = copied("cow_composite_keys")
    code, out, err = run("adopt", folder, "--index", "SimpleBuckets(4, hash_fields=('k1',))", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["index"], found["rows"]) == ("simple buckets: 4 per partition, hashed from k1", 8)
    assert load_properties(LocalStore(folder)).bucket_count == 4
    assert "field:value" in run("adopt", folder, "--index", "SimpleBuckets(4, hash_fields=('k1',))")[1]


def test_a_wrong_count_exits_with_2_and_names_the_right_one(run: Any, golden_table: Golden) -> None:
    code, out, err = run("adopt", golden_table("cow_simple_bucket"), "--buckets", 7)
    assert (code, out) == (2, "")
    assert "agree with 4 buckets" in " ".join(err.split())


def test_metadata_drop_says_first_and_does_on_demand(run: Any, copied: Callable[[str], Path]) -> None:
    folder = copied("cow_secondary_index")
    code, out, _ = run("metadata", "drop", folder)
    assert code == 0
    assert "record_index" in out and "--yes" in out
    assert (folder / ".hoodie/metadata").is_dir()
    done = json.loads(run("metadata", "drop", folder, "--yes", "--json")[1])
    assert done["done"] is True
    assert done["files"] > 10 and done["size_bytes"] > 1000
    assert not [file for file in (folder / ".hoodie/metadata").rglob("*") if file.is_file()]
    assert json.loads(run("metadata", "drop", folder, "--yes", "--json")[1])["done"] is False
    assert "there is none" in run("metadata", "drop", folder)[1]
