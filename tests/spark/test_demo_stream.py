"""`make demo-stream`: a driver that is killed in a batch, and all rows there once."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples/demo_stream.py"


@pytest.mark.spark
@pytest.mark.shows("R9")
def test_the_demo_of_streams_kills_its_driver_and_verifies_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("demo_stream", DEMO)
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    smaller = {"BATCHES": 6, "BATCH_ROWS": 200, "KILLED_AT": 2, "SECONDS_BETWEEN": 0.5}
    for name, value in smaller.items():
        monkeypatch.setattr(demo, name, value)
    monkeypatch.setattr(demo, "console", demo.Console())
    demo.stream_orders(tmp_path)
    shown = capsys.readouterr().out
    assert "in the middle of batch" in shown
    assert shown.count("all equal") == 2
