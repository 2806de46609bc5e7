"""A bar for the tasks of a Spark job, shown when a person is watching.

A classic session tells by its status tracker, asked by a thread of ours for
the jobs of a group; Spark Connect calls back. Both count tasks; who wants
more opens Spark's own pages. Whatever goes wrong with the bar, the work that
it shows goes on.

Spark has a bar of its own, on by default in scripts and notebooks. Two bars would
write over each other on one line, so ours is shown beside it only if asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_POLL_SECONDS = 0.25
_GROUP = "spark.jobGroup.id"
_SPARKS_BAR = "spark.ui.showConsoleProgress"
_BAR_OF_CONNECT = "SPARK_CONNECT_PROGRESS_BAR_ENABLED"


@contextmanager
def watched(session: SparkSession, title: str, *, show: bool | None = None) -> Iterator[None]:
    """Show a bar while the block runs jobs. `show` None: if standard error is a terminal without Spark's own bar."""
    if not ((sys.stderr.isatty() and not _spark_shows_one(session)) if show is None else show):
        yield
        return
    with _Bar(title) as bar:
        try:
            context = session.sparkContext
        except (PySparkException, AttributeError):
            context = None
        yield from _called_back(session, bar) if context is None else _polled(context, title, bar)


def _spark_shows_one(session: SparkSession) -> bool:
    """Whether Spark draws a bar of its own: from the JVM, or from the client of Spark Connect."""
    try:
        return str(session.sparkContext.getConf().get(_SPARKS_BAR)).lower() == "true"
    except (PySparkException, AttributeError):
        return os.environ.get(_BAR_OF_CONNECT) == "1"


def _polled(context: Any, title: str, bar: _Bar) -> Iterator[None]:
    # The caller may have a group, to cancel his jobs by: then ours stay in it.
    callers = context.getLocalProperty(_GROUP)
    group = callers or f"bucketlake-{title}-{id(bar)}"
    tracker, ended = context.statusTracker(), Event()
    earlier = frozenset(tracker.getJobIdsForGroup(group))

    def look() -> None:
        ids = [job for job in tracker.getJobIdsForGroup(group) if job not in earlier]
        jobs = [tracker.getJobInfo(job) for job in ids]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        bar.show((stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None)

    def poll() -> None:
        while not ended.wait(_POLL_SECONDS):
            with suppress(Exception):
                look()

    thread = Thread(target=poll, name="bucketlake progress", daemon=True)
    context.setLocalProperty(_GROUP, group)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        context.setLocalProperty(_GROUP, callers)


def _called_back(session: SparkSession, bar: _Bar) -> Iterator[None]:
    def handler(stages: Iterable[Any] | None, **_: Any) -> None:
        bar.show((stage.num_completed_tasks, stage.num_tasks) for stage in stages or ())

    session.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.removeProgressHandler(handler)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Be silent from now on. Rich would send standard output to nowhere, and end the process."""
        self.quiet = True


class _Bar:
    """Tasks done of tasks known, on standard error."""

    def __init__(self, title: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("tasks"),
            TimeElapsedColumn(),
            console=_Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> _Bar:
        with suppress(Exception):
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(Exception):
            self._progress.stop()

    def show(self, stages: Iterable[tuple[int, int]]) -> None:
        counts = list(stages)
        if counts:
            done, known = (sum(column) for column in zip(*counts, strict=True))
            with suppress(Exception):
                self._progress.update(self._task, completed=done, total=known)
