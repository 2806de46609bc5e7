"""Two bars on one line would be a mess: ours gives way to Spark's, unless somebody asks for it."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from bucketlake.spark import progress


def classic(**settings: str) -> Any:
    conf = SimpleNamespace(get={name.replace("_", "."): value for name, value in settings.items()}.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(getConf=lambda: conf))


CONNECT = SimpleNamespace()
"""A session of Spark Connect has no context."""


@pytest.mark.parametrize(
    ("session", "of_connect", "show", "is_ours"),
    [
        (classic(spark_ui_showConsoleProgress="true"), None, None, False),
        (classic(spark_ui_showConsoleProgress="true"), None, True, True),
        (classic(spark_ui_showConsoleProgress="false"), None, None, True),
        (classic(), "1", None, True),
        (CONNECT, "1", None, False),
        (CONNECT, "0", None, True),
        (CONNECT, None, None, True),
        (CONNECT, None, False, False),
    ],
)
def test_a_bar_of_ours_is_shown_on_a_terminal_where_spark_shows_none(
    session: Any, of_connect: str | None, show: bool | None, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Bar:
        def __init__(self, title: str) -> None:
            shown.append(title)

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *_: object) -> None: ...

    def silent(*_: object) -> Any:
        yield

    monkeypatch.setattr(progress, "_Bar", Bar)
    monkeypatch.setattr(progress, "_polled", silent)
    monkeypatch.setattr(progress, "_called_back", silent)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.delenv("SPARK_CONNECT_PROGRESS_BAR_ENABLED", raising=False)
    if of_connect is not None:
        monkeypatch.setenv("SPARK_CONNECT_PROGRESS_BAR_ENABLED", of_connect)
    with progress.watched(session, "upsert", show=show):
        pass
    assert bool(shown) is is_ours
