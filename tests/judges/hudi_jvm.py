"""Apache Hudi 1.2.0 on the JVM, as a judge: it writes tables for us to read and reads every table as the truth.

The judge needs Java and an interpreter with PySpark 3.5 (`make setup-test` creates `.venv-judge`; another one is
named by `BUCKETLAKE_JUDGE_PYTHON`). Spark fetches Hudi's bundle from Maven once and keeps it.

One process serves a whole test run, because a JVM takes seconds to start and seconds more to become quick. It starts
with the first question and ends with this interpreter. Rows cross in both directions as Parquet files.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PROJECT_ROOT = Path(__file__).resolve().parents[2]
SERVER = Path(__file__).with_name("hudi_jvm_server.py")

START_SECONDS_MAX = 240
"""The first start of all downloads some 80 MB."""
ANSWER_SECONDS_MAX = 180

LOG_LINES_SHOWN = 40


class JudgeError(Exception):
    """Hudi refused, or the judge could not be asked."""


class JudgeMissing(JudgeError):
    """This machine has no interpreter or no Java for the judge."""


class HudiJvm:
    """Questions to Hudi on the JVM. Paths are local folders; options are Hudi's own."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._folder = Path(tempfile.mkdtemp(prefix="hudi-judge-"))
        self._exchanged = 0
        atexit.register(self.stop)

    def ping(self) -> dict[str, str]:
        """Start the judge if need be; return its versions."""
        answer: dict[str, str] = self._ask("ping")
        return answer

    def write(
        self,
        path: Path,
        rows: pa.Table,
        options: Mapping[str, str],
        *,
        operation: str = "upsert",
        mode: str = "append",
    ) -> None:
        """Write `rows` with the DataFrame writer.

        Arrow says the types: a timestamp with a zone is Spark's `timestamp`, one without is `timestamp_ntz`, and a
        field that is not nullable becomes a required column.
        """
        source = self._exchange_path()
        pq.write_table(rows, source)
        required = [field.name for field in rows.schema if not field.nullable]
        options = {**options, "hoodie.datasource.write.operation": operation}
        self._ask("write", path=str(path), rows=str(source), required=required, options=options, mode=mode)
        source.unlink()

    def stream(self, path: Path, source: Path, checkpoint: Path, options: Mapping[str, str]) -> list[int]:
        """Run Hudi's streaming sink over the Parquet files of a folder, each a batch; return the batches' numbers."""
        numbers: list[int] = self._ask(
            "stream", path=str(path), source=str(source), checkpoint=str(checkpoint), options=dict(options)
        )
        return numbers

    def read(self, path: Path, options: Mapping[str, str] | None = None) -> pa.Table:
        """Return the rows of a query, meta columns included, in no particular order."""
        target = self._exchange_path()
        self._ask("read", path=str(path), options=dict(options or {}), target=str(target))
        rows = pq.read_table(target, partitioning=None).replace_schema_metadata(None)
        shutil.rmtree(target)
        return rows

    def rows_json(self, path: Path, options: Mapping[str, str] | None = None) -> list[str]:
        """Return each row of a query as the line of JSON that Spark makes of it."""
        lines: list[str] = self._ask("rows", path=str(path), options=dict(options or {}))
        return lines

    def sql(self, *statements: str, settings: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
        """Run SQL in a fresh session with `settings`; return the rows of the last statement."""
        lines = self._ask("sql", statements=list(statements), settings=dict(settings or {}))
        return [json.loads(line) for line in lines]

    def java(self, class_name: str, method: str, *arguments: object) -> Any:
        """Call a static method of a Java class, for test vectors."""
        return self._ask("java", class_name=class_name, method=method, arguments=list(arguments))

    def hfile_keys(self, path: Path) -> list[str]:
        """Return the keys of an HFile as Hudi's reader scans it."""
        keys: list[str] = self._ask("hfile_keys", path=str(path))
        return keys

    def hfile_found(self, path: Path, keys: Sequence[str]) -> list[bool]:
        """Say which of the ascending keys Hudi's reader finds in an HFile."""
        found: list[bool] = self._ask("hfile_found", path=str(path), keys=list(keys))
        return found

    def hfile_values(self, path: Path, keys: Sequence[str]) -> list[bytes]:
        """Return the values of ascending keys, which are in the HFile; ask for few."""
        return [bytes.fromhex(text) for text in self._ask("hfile_values", path=str(path), keys=list(keys))]

    def hfile_write(self, path: Path, records: Mapping[str, bytes], *, codec: str, block_bytes: int) -> None:
        """Write an HFile with Hudi's writer, in the order given."""
        texts = {key: value.hex() for key, value in records.items()}
        self._ask("hfile_write", path=str(path), records=texts, codec=codec, block_bytes=block_bytes)

    def stop(self) -> None:
        """End the judge and everything it left on disk; a later question starts another."""
        self._kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, command: str, **arguments: object) -> Any:
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._receive(ANSWER_SECONDS_MAX, f"{command} {arguments}")

    def _receive(self, seconds_max: float, question: str) -> Any:
        try:
            line = self._answers.get(timeout=seconds_max)
        except queue.Empty:
            self._kill()
            raise JudgeError(
                f"the JVM gave no answer in {seconds_max} s and was ended. Asked: {question}\n{self._log_tail()}"
            ) from None
        if line is None:
            self._kill()
            raise JudgeError(f"the JVM ended. Asked: {question}\n{self._log_tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise JudgeError(answer["error"])
        return answer["ok"]

    def _start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        with self._log_path.open("w") as log:
            self._process = subprocess.Popen(
                [str(_judge_python()), str(SERVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                env=_environment(),
                cwd=self._folder,
                start_new_session=True,  # so that the JVM, a grandchild, can be ended with it
            )
        self._answers = queue.Queue()
        threading.Thread(target=_pump, args=(self._process, self._answers), daemon=True).start()
        self._receive(START_SECONDS_MAX, "to start")

    def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _exchange_path(self) -> Path:
        self._exchanged += 1
        self._folder.mkdir(exist_ok=True)
        return self._folder / f"{self._exchanged:06d}.parquet"

    @property
    def _log_path(self) -> Path:
        return self._folder / "judge.log"

    def _log_tail(self) -> str:
        if not self._log_path.exists():
            return "(no log)"
        lines = self._log_path.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join(["The end of its log:", *lines])


def _judge_python() -> Path:
    python = Path(os.environ.get("BUCKETLAKE_JUDGE_PYTHON", PROJECT_ROOT / ".venv-judge" / "bin" / "python"))
    if not python.exists():
        raise JudgeMissing(
            f"the JVM judge needs an interpreter with PySpark 3.5, and there is none at {python}. "
            f"Run `make setup-test`, or name one with BUCKETLAKE_JUDGE_PYTHON."
        )
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise JudgeMissing("the JVM judge needs Java 17, and there is neither `java` on PATH nor JAVA_HOME.")
    return python


def _environment() -> dict[str, str]:
    """The caller's environment without its own Spark, which is another version."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    return {**own, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", "PYTHONUNBUFFERED": "1"}


def _pump(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    """Move answers to a queue, which unlike a pipe can be waited on with a time limit."""
    assert process.stdout is not None
    with suppress(ValueError):  # closed by `_kill` while we waited
        for line in process.stdout:
            answers.put(line)
    answers.put(None)


QUIET = {
    "hoodie.index.bloom.num_entries": "20",  # the default sizes every base file's filter for 60 000 keys
    "hoodie.bloom.index.filter.dynamic.max.entries": "100",
    "hoodie.clean.automatic": "false",
    "hoodie.compact.inline": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.metadata.enable": "false",
}
"""What only costs a test time, switched off."""


def options_for(
    name: str,
    *,
    table_type: str = "COPY_ON_WRITE",
    key: str = "id",
    partition: str = "dt",
    ordering: str | None = "ts",
    index: str = "BUCKET",
    buckets: int = 4,
    more: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the write options of a small table."""
    options = {
        **QUIET,
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": key,
        "hoodie.datasource.write.partitionpath.field": partition,
        "hoodie.index.type": index,
    }
    if ordering is not None:
        options["hoodie.table.ordering.fields"] = ordering
    if index == "BUCKET":
        options["hoodie.bucket.index.num.buckets"] = str(buckets)
    return {**options, **(more or {})}
