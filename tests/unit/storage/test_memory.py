"""A memory store is one dict per name, and does not pretend to exist in other processes."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys

import pytest

from bucketlake.errors import UnsupportedError
from bucketlake.storage import MemoryStore, open_store


def test_stores_of_one_name_share_their_files() -> None:
    MemoryStore("shared").put("a", b"x")
    gc.collect()
    assert open_store("memory://shared").read("a") == b"x"


def test_stores_without_a_name_do_not() -> None:
    first, second = MemoryStore(), MemoryStore()
    first.put("a", b"x")
    assert second.list("").files == ()
    assert first.uri != second.uri


def test_another_process_is_refused() -> None:
    pickled = pickle.dumps(MemoryStore("elsewhere"))
    code = f"import pickle; pickle.loads({pickled!r})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "memory of another process" in result.stderr


def test_the_refusal_is_an_unsupported_error(monkeypatch: pytest.MonkeyPatch) -> None:
    pickled = pickle.dumps(MemoryStore("elsewhere"))
    monkeypatch.setattr("bucketlake.storage.memory._PROCESS_TOKEN", "another")
    with pytest.raises(UnsupportedError, match="disk or an object store"):
        pickle.loads(pickled)
