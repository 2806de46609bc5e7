"""Services beside a stream: in a thread of their own, so that no batch waits for a compaction.

After every fifteenth commit a round of what is due is begun, unless the last one is still running. Its Spark jobs go to
a pool of their own, if the session shares its cores fairly (`spark.scheduler.mode=FAIR`); if it does not, a batch would
wait behind them, so the round does its work in this process, beside the tasks.

A stream may be quicker than its services. Then first a warning is logged, and later batches wait for the services.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from threading import Lock, Thread
from time import monotonic, sleep

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bucketlake import spark as on_spark
from bucketlake.config import MaintenanceMode, load_properties, maintenance_mode
from bucketlake.services import Tasks, here, run_maintenance
from bucketlake.services.backlog import backlog
from bucketlake.services.upkeep import EVERY, maintenance_of
from bucketlake.state import touched_lately
from bucketlake.storage import Store

POOL = "bucketlake-services"
"""The pool of Spark's fair scheduler that services run in."""
WARNED_TIMES, WAITED_TIMES = 4.0, 8.0
"""So many times what makes a compaction due: from then on a warning is logged, or the next batch waits. With a round
after every fifteenth commit, and groups due after ten, it is 2.5 when all goes well."""
WAIT_SECONDS_MAX = 60.0
"""No batch waits longer: it may be that nobody compacts."""
_LOOK_SECONDS = 2.0

_log = logging.getLogger("bucketlake.stream")


@dataclass(slots=True)
class Upkeep:
    """What is done for one table while a stream writes to it."""

    store: Store
    runs_rounds: bool
    """Whether rounds are run here; else back-pressure is all that is looked at."""
    behind: float | None = None
    """How many times what makes a compaction due there was, when that was last looked at."""
    _thread: Thread | None = None
    _guard: Lock = field(default_factory=Lock)

    def after_commit(self, number: int, session: SparkSession) -> None:
        """Do what is due after the commit of this number; nothing here fails the batch, which is committed."""
        if number and number % EVERY:
            return
        try:
            if self.runs_rounds and maintenance_mode(load_properties(self.store)) is MaintenanceMode.INLINE:
                self._begin_round(session)
            self._wait_if_behind()
        except Exception as fault:
            _log.warning("%s: what is due was not looked for: %s", self.store.uri, fault)

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def join(self) -> None:
        """Wait for the round that is running."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _begin_round(self, session: SparkSession) -> None:
        with self._guard:
            if self.is_running:
                return
            self._thread = Thread(target=self._run, args=(session,), name="services of a stream", daemon=True)
            self._thread.start()

    def _run(self, session: SparkSession) -> None:
        try:
            policy = maintenance_of(load_properties(self.store))
            done = run_maintenance(self.store, policy, tasks=_tasks_of(session), look_at=touched_lately)
            if done.steps:
                _log.info("%s: services beside the stream: %s; %.1f s", self.store.uri, done, done.seconds)
        except Exception as fault:
            _log.warning("%s: services beside the stream failed: %s", self.store.uri, fault)

    def _wait_if_behind(self) -> None:
        behind = backlog(self.store)
        self.behind = behind.times
        if behind.times < WARNED_TIMES:
            return
        _log.warning(
            "%s: services are behind: %s. Batches wait at %g times. Run `bucketlake service run` beside the stream, or "
            "give it more cores.",
            self.store.uri,
            behind,
            WAITED_TIMES,
        )
        until = monotonic() + WAIT_SECONDS_MAX
        while behind.times >= WAITED_TIMES and monotonic() < until:
            sleep(_LOOK_SECONDS)
            behind = backlog(self.store)
            self.behind = behind.times


def _tasks_of(session: SparkSession) -> Tasks:
    """Let Spark run the tasks where it shares its cores fairly, and else this process."""
    try:
        context = session.sparkContext
        if context.getConf().get("spark.scheduler.mode", "FIFO").upper() != "FAIR":
            return here
        # Local to this thread, and the jobs that it starts.
        context.setLocalProperty("spark.scheduler.pool", POOL)
    except (PySparkException, AttributeError):  # Spark Connect has no pools to choose
        return here
    return on_spark.services.SessionTasks(session, progress=False)
