"""Who takes part: a name, a sentence, and the process that answers for it."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
JUDGE_PYTHON = Path(os.environ.get("BUCKETLAKE_JUDGE_PYTHON", ROOT / ".venv-judge" / "bin" / "python"))

ANSWER_SECONDS_MAX = 3600
LOG_LINES_SHOWN = 30


class BenchmarkError(Exception):
    """A contestant failed or answered wrongly: there is no number to show."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """One row of a result."""

    name: str
    worker: str
    """The module of `workers` that answers."""
    note: str
    python: Path = Path(sys.executable)


HUDI = Contestant("hudi", "hudi", "Hudi 1.2.0 on Spark 3.5, without its metadata table", JUDGE_PYTHON)
HUDI_AS_IT_COMES = Contestant(
    "hudi as it comes",
    "hudi_as_it_comes",
    "the same with its metadata table, which is Hudi's default",
    JUDGE_PYTHON,
)
BUCKETLAKE = Contestant(
    "bucketlake",
    "bucketlake_on_spark",
    "`Table.read`, and `Table.upsert` of `spark.read.parquet(…)`, on Spark 4.1",
)
EVALUATED = Contestant(
    "bucketlake, evaluated",
    "bucketlake_evaluated",
    "`Table.upsert` of a frame with a filter, which Spark has to evaluate",
)
SOURCE = Contestant(
    "bucketlake source", "bucketlake_source", '`spark.read.format("bucketlake")`, no column pruning'
)
ALONE = Contestant(
    "bucketlake alone",
    "bucketlake_alone",
    "`Table.get`, `Table.to_arrow`, `Table.upsert`: one process, no Spark",
)
HUDI_RING = Contestant(
    "hudi, ring", "hudi_ring", "Hudi's consistent bucket index, without its metadata table", JUDGE_PYTHON
)
HUDI_BLOOM = Contestant(
    "hudi, Bloom", "hudi_bloom", "Hudi's Bloom index, without its metadata table", JUDGE_PYTHON
)
RING = Contestant("bucketlake, ring", "bucketlake_ring", "consistent hashing, on Spark 4.1")
HUDI_RECORD = Contestant(
    "hudi, record-level", "hudi_record", "Hudi's record-level index, in its metadata table", JUDGE_PYTHON
)
RECORD = Contestant(
    "bucketlake, record-level", "bucketlake_record", "the record-level index of the table, on Spark 4.1"
)
HUDI_PARTITIONED_RECORD = Contestant(
    "hudi, record-level, partitions",
    "hudi_partitioned_record",
    "Hudi's record-level index of each partition",
    JUDGE_PYTHON,
)
PARTITIONED_RECORD = Contestant(
    "bucketlake, record-level, partitions",
    "bucketlake_partitioned_record",
    "a record-level index of each partition, on Spark 4.1",
)
DYNAMIC = Contestant("bucketlake, dynamic", "bucketlake_dynamic", "dynamic buckets, on Spark 4.1")
PLAIN_SESSION = Contestant(
    "bucketlake, plain session",
    "bucketlake_plain_session",
    "in a session without `bucketlake.SPARK_SETTINGS`",
)
PAIMON = Contestant("paimon", "paimon", "Paimon 0.9 on Spark 3.5, four buckets in a partition", JUDGE_PYTHON)
PAIMON_DYNAMIC = Contestant(
    "paimon, dynamic", "paimon_dynamic", "Paimon 0.9 on Spark 3.5, dynamic buckets", JUDGE_PYTHON
)
ICEBERG = Contestant("iceberg", "iceberg", "Iceberg 1.12 on Spark 4.1: MERGE on key and partition")
KEPT = Contestant(
    "bucketlake, record-level, kept",
    "bucketlake_kept",
    "the same, and what the index says is kept on a local disk: BUCKETLAKE_INDEX_CACHE",
)
PIPELINED = Contestant(
    "bucketlake, record-level, pipelined",
    "bucketlake_pipelined",
    "as record-level; a batch ends when its commit is decided",
)
DELTA = Contestant("delta", "delta", "Delta 4.4 on Spark 4.1: MERGE on the key, deletion vectors")
PARQUET = Contestant(
    "floor: Spark Parquet", "parquet_on_spark", "Spark 4.1's own reader on the same base files"
)
BASE_FILES = Contestant(
    "floor: base files", "base_files", "DuckDB and pyarrow on the base files; merges nothing"
)

FILES = Contestant(
    "floor: plain files",
    "plain_files",
    "pyarrow rewriting, or appending to, a Parquet file per day and bucket; no transaction",
)

CONTESTANTS = {
    c.name: c
    for c in (
        HUDI,
        HUDI_AS_IT_COMES,
        HUDI_RING,
        HUDI_BLOOM,
        BUCKETLAKE,
        EVALUATED,
        RING,
        HUDI_RECORD,
        RECORD,
        HUDI_PARTITIONED_RECORD,
        PARTITIONED_RECORD,
        DYNAMIC,
        PLAIN_SESSION,
        PAIMON,
        PAIMON_DYNAMIC,
        ICEBERG,
        KEPT,
        PIPELINED,
        DELTA,
        SOURCE,
        ALONE,
        PARQUET,
        BASE_FILES,
        FILES,
    )
}


class Respondent(Protocol):
    """What can be asked and metered."""

    @property
    def process(self) -> int:
        """The root of the process tree that pays."""

    def ask(self, question: str, **arguments: object) -> Any: ...


@dataclass(frozen=True, slots=True)
class Here:
    """A worker inside this process, for tests."""

    worker: object

    @property
    def process(self) -> int:
        return os.getpid()

    def ask(self, question: str, **arguments: object) -> Any:
        """Ask as if through the pipe, which knows no tuples."""
        return json.loads(json.dumps(getattr(self.worker, question)(**json.loads(json.dumps(arguments)))))


class Elsewhere:
    """A worker in a process of its own."""

    def __init__(self, contestant: Contestant, folder: Path) -> None:
        self._contestant = contestant
        self._log = folder / "log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [str(contestant.python), "-m", f"benchmarks.workers.{contestant.worker}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                cwd=ROOT,
                env=_environment(),
                start_new_session=True,  # so that the JVM can be ended with it
            )

    @property
    def process(self) -> int:
        return self._process.pid

    def ask(self, question: str, **arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = json.dumps({"ask": question, "with": arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
        except BrokenPipeError:
            raise self._gone(question) from None
        if not select.select([self._process.stdout], [], [], ANSWER_SECONDS_MAX)[0]:
            raise BenchmarkError(
                f"{self._contestant.name} gave no answer to {question} in {ANSWER_SECONDS_MAX} s.\n"
                f"{self._log_tail()}"
            )
        answered = self._process.stdout.readline()
        if not answered:
            raise self._gone(question)
        answer = json.loads(answered)
        if "failed" in answer:
            raise BenchmarkError(
                f"{self._contestant.name} failed at {question} {arguments}:\n{answer['failed']}"
            )
        return answer["answer"]

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _gone(self, question: str) -> BenchmarkError:
        return BenchmarkError(
            f"{self._contestant.name} ended before it answered {question}.\n{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
        return "\n".join(["The end of its log:", *lines])


@dataclass(frozen=True, slots=True)
class Running:
    """Started contestants and what they run on."""

    respondents: Mapping[str, Respondent]
    versions: Mapping[str, Mapping[str, str]]


@contextmanager
def started(contestants: list[Contestant], *, driver_memory: str) -> Iterator[Running]:
    """Start contestants, and end them with everything they left behind."""
    with ExitStack() as stack:
        respondents: dict[str, Respondent] = {}
        versions: dict[str, Mapping[str, str]] = {}
        for contestant in contestants:
            _check_interpreter(contestant)
            folder = Path(tempfile.mkdtemp(prefix="bucketlake-bench-"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            respondent = Elsewhere(contestant, folder)
            stack.callback(respondent.end)
            versions[contestant.name] = respondent.ask(
                "start", driver_memory=driver_memory, folder=str(folder)
            )
            respondents[contestant.name] = respondent
        yield Running(respondents, versions)


@contextmanager
def another(name: str, *, driver_memory: str) -> Iterator[Respondent]:
    """Start one more of a contestant."""
    with started([CONTESTANTS[name]], driver_memory=driver_memory) as running:
        yield running.respondents[name]


def _check_interpreter(contestant: Contestant) -> None:
    if not contestant.python.exists():
        raise BenchmarkError(
            f"{contestant.name} needs an interpreter with PySpark 3.5; there is none at {contestant.python}. "
            f"Run `make setup-test`, or name one with BUCKETLAKE_JUDGE_PYTHON."
        )


def _environment() -> dict[str, str]:
    """The caller's environment without its own Spark and Python settings: contestants have different ones."""
    foreign = ("SPARK_", "PYSPARK_", "PYTHON")
    own = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return {**own, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
