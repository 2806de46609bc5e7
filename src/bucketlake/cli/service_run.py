"""`bucketlake service run`: the services of a table in a process of their own, once or again and again."""

from __future__ import annotations

import signal
from time import monotonic, sleep
from typing import Annotated, Any

import typer

from bucketlake import spark as on_spark
from bucketlake.arguments import maintenance_for
from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import json_text, prose, say
from bucketlake.cli.services import OnSpark
from bucketlake.errors import ConfigError
from bucketlake.services import Round, Tasks, here
from bucketlake.services.maintenance import rounds, run_maintenance

service = typer.Typer(help="Services in a process of their own.", no_args_is_help=True)
app.add_typer(service, name="service")

EVERY_SECONDS = 60.0
_POLL_SECONDS = 0.1


@service.callback()
def _service() -> None:
    """Let `run` be named, though it is the only one."""


@service.command("run", epilog="Example: bucketlake service run /data/orders --watch --every 60")
def run(
    table: TablePath,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until SIGINT or SIGTERM.")] = False,
    every: Annotated[
        float, typer.Option(metavar="SECONDS", help="Between two rounds; longer after one that failed.")
    ] = EVERY_SECONDS,
    compact_delta_commits: Annotated[
        int | None, typer.Option(metavar="N", help="Compact file groups with so many writes in their logs.")
    ] = None,
    compact_log_bytes: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Or whose logs have so many bytes.")
    ] = None,
    compact_log_ratio: Annotated[
        float | None,
        typer.Option(metavar="X", help="Or whose logs have so many times the bytes of the base file."),
    ] = None,
    compact_hours: Annotated[
        float | None, typer.Option(metavar="HOURS", help="Or whose oldest log is so old.")
    ] = None,
    resize_file_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES", help="Split and merge buckets so that base files have about so many bytes."
        ),
    ] = None,
    clean_commits: Annotated[
        int | None, typer.Option(metavar="N", help="Clean; keep what readers of the last so many writes see.")
    ] = None,
    clean_hours: Annotated[
        float | None, typer.Option(metavar="HOURS", help="Or of the last so many hours.")
    ] = None,
    clean_versions: Annotated[
        int | None, typer.Option(metavar="N", help="Or so many versions of every file group.")
    ] = None,
    archive: Annotated[
        tuple[int, int] | None,
        typer.Option(metavar="MIN MAX", help="Archive all but MIN writes, once there are more than MAX."),
    ] = None,
    spark: OnSpark = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is due.")] = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Compact, clean and archive what is due, in rounds. Prints a line per round.

    It sweeps up after dead writers first. Only the services that you name run. If you name none, a table whose
    maintenance is `inline` or `service` gets what its writers would do.
    """
    keep_min, keep_max = archive or (None, None)
    opened = open_table(table, storage)
    maintenance = maintenance_for(
        opened.properties,
        {
            "compact_delta_commits": compact_delta_commits,
            "compact_log_bytes": compact_log_bytes,
            "compact_log_ratio": compact_log_ratio,
            "compact_hours": compact_hours,
            "resize_file_bytes": resize_file_bytes,
            "clean_commits": clean_commits,
            "clean_hours": clean_hours,
            "clean_versions": clean_versions,
            "archive_min": keep_min,
            "archive_max": keep_max,
        },
    )
    if every < 0:
        raise ConfigError(f"--every is {every}; expected a number of seconds, 0 or more.")
    store = opened.store
    if dry_run:
        plan = opened.plan_maintenance(maintenance)
        say(json_text({"due": plan.work.due}) if as_json else prose(str(plan)))
        return
    tasks: Tasks = here
    if spark:
        tasks = on_spark.services.SessionTasks(on_spark.local.local_session())
    if not watch:
        done = run_maintenance(store, maintenance, tasks=tasks)
        say(_line(1, done, as_json=as_json))
        for failure in done.failures:
            raise failure
        return
    # After the session: Spark sets a handler too.
    with Signals() as ending:
        going = rounds(store, maintenance, every_seconds=every, ending=ending, tasks=tasks)
        for number, done in enumerate(going, 1):
            say(_line(number, done, as_json=as_json))
            if done.hopeless is not None:
                raise done.hopeless


def _line(number: int, done: Round, *, as_json: bool) -> str:
    if not as_json:
        return prose(f"round {number}, {done.seconds:.1f} s: {done}")
    steps = [
        {"service": step.service, "text": step.text, "failed": step.error is not None} for step in done.steps
    ]
    return json_text({"round": number, "seconds": round(done.seconds, 3), "steps": steps})


class Signals:
    """Is set by SIGINT and SIGTERM. A second one of a kind does what it always does."""

    def __init__(self) -> None:
        self._is_set = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float, /) -> None:
        # A flag and short naps: who waits on a lock cannot be woken by a handler that needs the lock.
        deadline = monotonic() + seconds
        while not self._is_set and (left := deadline - monotonic()) > 0:
            sleep(min(left, _POLL_SECONDS))

    def _on_signal(self, number: int, _: object) -> None:
        self._is_set = True
        signal.signal(number, self._before[signal.Signals(number)])
