"""A worker between two tasks must cost little, and lose nothing."""

from __future__ import annotations

import gc
import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pyarrow as pa
import pytest

from bucketlake.spark import settle_worker


def test_a_settled_worker_holds_no_zip_open_and_still_imports_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("first_in_zip.py", "value = 1")
        made.writestr("second_in_zip.py", "value = 2")
    monkeypatch.syspath_prepend(str(archive))
    importlib.import_module("first_in_zip")
    settle_worker()
    assert not any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    assert importlib.import_module("second_in_zip").value == 2


def test_a_settled_workers_modules_are_out_of_the_collectors_sight_and_its_memory_stays() -> None:
    settle_worker()
    assert gc.get_freeze_count() > 10_000
    assert pa.default_memory_pool().backend_name == "system"
    gc.unfreeze()
