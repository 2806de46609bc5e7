"""`make demo` is what people try first."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

DEMO = Path(__file__).parents[2] / "examples/demo.py"


@pytest.mark.spark
def test_the_demo_verifies_every_row(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    for name, smaller in {"ORDERS": 1_000, "BATCHES": 2, "BATCH_ROWS": 100, "CANCELLED": 50}.items():
        monkeypatch.setattr(demo, name, smaller)
    monkeypatch.setattr(demo, "console", demo.Console())
    demo.orders_table(spark, str(tmp_path / "orders"))
    demo.hudis_table(str(tmp_path))
    shown = capsys.readouterr().out
    assert shown.count("all equal") == 3
    assert "summaries" in shown
