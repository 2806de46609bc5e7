"""Queries into a table in a real session: stopped, started again, on checkpoints that are not as Spark left them.

What is written and what is passed over, batch by batch, is tried without Spark in `tests/unit/streaming`; processes are
killed in `tests/fault/test_killed_streams.py`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from threading import Event, Thread

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bucketlake import RecordIndex, SimpleBuckets
from bucketlake.index.told import IndexValue
from bucketlake.state import load_state
from bucketlake.streaming.batch_writer import BatchWriter
from spark.faults import Fault
from spark.processes import start_script, wait_for
from spark.stream_cases import faulty_tasks
from spark.stream_jobs import Job, clicks_table
from spark.stream_until_killed import Streamed, as_text
from stand_ins.arriving import files_in, newest_rows, put_file
from stand_ins.clicks import batch, commits_of, rows_of, truth

pytestmark = [pytest.mark.spark, pytest.mark.shows("R9")]


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path) -> Job:
    return Job(spark, tmp_path)


def test_a_query_that_is_stopped_in_the_middle_of_a_batch_goes_on_when_it_is_started_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was under way in this process when it was stopped is waited for, and not written twice."""
    job.arrives(0, 1, 2)
    job.run()
    is_in, may_go_on = Event(), Event()
    write = BatchWriter.__call__

    def held_up(self: BatchWriter, frame: DataFrame, number: int) -> None:
        is_in.set()
        may_go_on.wait(60)
        write(self, frame, number)

    monkeypatch.setattr(BatchWriter, "__call__", held_up)
    job.arrives(3, 4)
    query = job.start()
    assert is_in.wait(60)
    stopping = Thread(target=query.stop)
    stopping.start()
    stopping.join(0.3)
    may_go_on.set()
    stopping.join(60)
    assert not query.isActive
    monkeypatch.setattr(BatchWriter, "__call__", write)
    job.run()
    job.check(0, 1, 2, 3, 4)


def test_a_plain_function_of_batches_writes_again_what_comes_again(job: Job) -> None:
    """At least once, and with ordering columns that leaves the same rows."""

    def write(frame: DataFrame, number: int) -> None:
        del number
        job.table.upsert(frame)

    job.arrives(0, 1)
    job.run(write=write)
    job.rewind(1)
    job.run(write=write)
    assert rows_of(job.table.store) == truth([0, 1])
    assert len(load_state(job.table.store).timeline.writes) == 3
    assert commits_of(job.table.store) == [], "they are of no stream"


def test_a_rewound_checkpoint_sends_batches_that_are_passed_over(job: Job) -> None:
    job.arrives(0, 1, 2)
    job.run()
    job.rewind(2)
    job.arrives(3)
    job.run(verify_replay=True)
    job.check(0, 1, 2, 3)


def test_a_rewound_checkpoint_whose_source_has_changed_is_refused_when_that_is_asked_for(job: Job) -> None:
    """apache/iceberg#10892"""
    job.arrives(0, 1, 2)
    job.run()
    job.rewind(2)
    put_file(job.source, 1, batch(1).slice(1))
    told = job.fails("ReplayError", verify_replay=True)
    assert "batch 1 of the stream" in told and "came again with 9 rows" in told
    job.check(0, 1, 2)
    job.arrives(1)
    job.run(verify_replay=True)
    job.check(0, 1, 2)


def test_of_two_drivers_on_copies_of_a_checkpoint_one_is_told(job: Job, tmp_path: Path) -> None:
    job.arrives(0)
    job.run()
    copied = tmp_path / "copied"
    shutil.copytree(job.checkpoint, copied)
    job.arrives(1, 2)
    other = Streamed(
        name="other",
        uri=job.table.store.uri,
        source=str(job.source),
        checkpoint=str(copied),
        step="begun",
        is_let_go=True,
    )
    process = start_script("stream_until_killed", as_text([other]), str(tmp_path))
    try:
        wait_for(tmp_path / other.flag, seconds_max=120)
        job.run()
        job.check(0, 1, 2)
        (tmp_path / other.go).touch()
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "StreamConflictError" in output and "Two queries run on one checkpoint" in output, output[-4000:]
    job.check(0, 1, 2)


def test_a_checkpoint_that_was_deleted_begins_a_new_stream_whose_batch_0_is_written(job: Job) -> None:
    """apache/hudi#12368"""
    job.arrives(0, 1)
    job.run(name="clicks")
    shutil.rmtree(job.checkpoint)
    job.table.delete([1000])
    job.run(name="clicks")
    assert rows_of(job.table.store) == truth([0, 1])
    assert commits_of(job.table.store) == [0, 1, 0, 1]
    assert len(job.table.stream_status()) == 2


def test_a_checkpoint_that_goes_under_a_writer_begins_a_new_stream(job: Job, tmp_path: Path) -> None:
    """The same writer is given to both queries."""
    writer = job.table.batch_writer(checkpoint=job.checkpoint)
    job.arrives(0, 1)
    for _ in range(2):
        job.run(write=writer)
        shutil.rmtree(job.checkpoint)
    assert commits_of(job.table.store) == [0, 1, 0, 1]
    assert rows_of(job.table.store) == truth([0, 1])


def test_a_null_in_the_key_fails_the_query_until_the_source_is_mended(job: Job) -> None:
    job.arrives(0, 1)
    broken = batch(1).set_column(0, "id", pa.array([None, *batch(1)["id"].to_pylist()[1:]], pa.int64()))
    put_file(job.source, 1, broken)
    for _ in range(2):  # it is not passed over
        assert "id" in job.fails("null")
        job.check(0)
    job.arrives(1, 2)
    job.run()
    job.check(0, 1, 2)


def test_a_python_worker_that_is_killed_fails_the_query_and_the_next_start_goes_on(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session of one process Spark tries no task twice."""
    # Workers load the class of the fault by its name.
    monkeypatch.setitem(job.spark.sparkContext.environment, "PYTHONPATH", str(Path(__file__).parents[1]))
    job.arrives(0)
    job.run()
    job.arrives(1, 2)
    fault = Fault(folder=job.folder / "fault", step="data", waits=True)
    with faulty_tasks(fault):
        query = job.start()
        wait_for(fault.happened)
        os.kill(fault.pids[0], signal.SIGKILL)
        with pytest.raises(StreamingQueryException, match="Python worker exited unexpectedly"):
            query.awaitTermination(60)
    assert rows_of(job.table.store) == truth([0])
    job.run()
    job.check(0, 1, 2)


def test_a_table_that_is_dropped_under_a_stream_fails_its_next_batch(job: Job) -> None:
    job.arrives(0)
    query = job.start()
    query.processAllAvailable()
    job.check(0)
    shutil.rmtree(job.table.store.uri.removeprefix("file://"))
    job.arrives(1)
    with pytest.raises(StreamingQueryException, match="NotATableError"):
        query.awaitTermination(60)
    clicks_table(Path(job.table.store.uri.removeprefix("file://")))
    told = job.fails("ConfigError")
    assert "1 batches behind it" in told and "start the query with a new checkpoint" in told.lower()
    assert rows_of(job.table.store) == []
    shutil.rmtree(job.checkpoint)
    job.run()
    job.check(0, 1)


@pytest.mark.parametrize("index", [SimpleBuckets(2), RecordIndex()], ids=["buckets", "record index"])
def test_two_streams_of_one_application_into_one_table_each_count_once_beside_a_writer(
    spark: SparkSession, tmp_path: Path, index: IndexValue
) -> None:
    """Their batches have the same numbers and come at the same time: apache/iceberg#16008
    and delta-io/delta#1421. Rows of a writer that is no stream come between them."""
    table = clicks_table(tmp_path / "table", index=index)
    jobs = [Job(spark, tmp_path / name, table=table) for name in ("even", "odd")]
    for first, job in enumerate(jobs):
        for number in range(3):
            rows = batch(2 * number + first)
            # They overtake each other, and an index does not know how new a deletion was.
            put_file(job.source, number, rows.filter(pc.invert(rows["_hoodie_is_deleted"])))
    beside = batch(6).filter(pc.invert(batch(6)["_hoodie_is_deleted"]))
    (tmp_path / "beside").mkdir()
    put_file(tmp_path / "beside", 0, beside)
    expected = newest_rows(
        [path for name in ("even/source", "odd/source", "beside") for path in files_in(tmp_path / name)]
    )
    for _ in range(2):  # and once more, as other runs of the same queries
        queries = [job.start(trigger="available now") for job in jobs]
        table.upsert(beside)
        assert all(query.awaitTermination(120) for query in queries)
        assert rows_of(table.store) == expected
        assert sorted(commits_of(table.store)) == [0, 0, 1, 1, 2, 2]
        assert table.fsck().is_sound


def test_one_query_into_two_tables_counts_once_in_each(job: Job, tmp_path: Path) -> None:
    """The query's number alone is no identity: the batch fails when one table has it, and the other has not."""
    second = clicks_table(tmp_path / "second")
    writers = [table.batch_writer(checkpoint=job.checkpoint) for table in (job.table, second)]
    breaks = [True]

    def write_both(frame: DataFrame, number: int) -> None:
        writers[0](frame, number)
        if number == 1 and breaks and breaks.pop():
            raise RuntimeError("between the two")
        writers[1](frame, number)

    job.arrives(0, 1, 2)
    job.fails("between the two", write=write_both)
    assert [commits_of(table.store) for table in (job.table, second)] == [[0, 1], [0]]
    job.run(write=write_both)
    for table in (job.table, second):
        assert rows_of(table.store) == truth([0, 1, 2])
        assert commits_of(table.store) == [0, 1, 2]


def test_rows_that_are_not_the_same_twice_are_each_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """Keys that are drawn when they are looked at (SPARK-28650, SPARK-47329).

    `test_bad_frames.py` shows what happens if it is seen that they changed."""
    table = clicks_table(tmp_path / "table")
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 50).load()
    drawn = numbers.select(
        F.floor(F.rand() * 1_000_000_000).cast("long").alias("id"),
        F.lit("p0").alias("dt"),
        F.col("value").alias("ts"),
        F.lit(0).cast("long").alias("batch"),
        F.lit(False).alias("_hoodie_is_deleted"),
    )
    query = table.upsert_stream(drawn, checkpoint=tmp_path / "ck", trigger="once")
    assert query.awaitTermination(60)
    found = [row[2] for row in rows_of(table.store)]
    assert sorted(found) == list(range(50)), "every row once, whatever its key came to be"


def only_for_spark(spark: SparkSession, folder: Path) -> str:
    """Name a folder by a scheme that only Spark's file systems know."""
    lake = folder.parent.name.replace("_", "-")  # a file system is kept by its name
    spark.conf.set(f"fs.viewfs.mounttable.{lake}.link./checkpoints", folder.as_uri())
    return f"viewfs://{lake}/checkpoints"


def test_a_checkpoint_where_only_spark_can_read_is_read_by_spark(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    checkpoint = f"{only_for_spark(spark, folder)}/clicks"
    job.arrives(0, 1)
    job.run(checkpoint=checkpoint)
    job.arrives(2)
    job.run(checkpoint=checkpoint)
    job.check(0, 1, 2)
    (told,) = job.table.stream_status()
    assert told.stream == json.loads((folder / "clicks" / "metadata").read_text())["id"]


def test_a_folder_that_is_no_checkpoint_is_refused_wherever_it_is(
    spark: SparkSession, job: Job, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoints"
    (folder / "empty").mkdir(parents=True)
    uri = only_for_spark(spark, folder)
    (folder / "other").mkdir()
    (folder / "other" / "metadata").write_text("of something else\n")
    (folder / "damaged").mkdir()
    (folder / "damaged" / "metadata").write_bytes(b"\xff\xfe")
    job.arrives(0)

    def refused(checkpoint: str) -> str:
        return job.fails("ConfigError", write=job.table.batch_writer(checkpoint=checkpoint))

    for root in (str(folder), uri):
        assert "is no checkpoint: it has no file metadata" in refused(f"{root}/empty")
        assert "holds 'of something else" in refused(f"{root}/other")
    assert "could not be read" in refused(str(folder / "damaged"))
    assert "could not be read" in refused("nosuchscheme://lake/checkpoints/clicks")
    assert commits_of(job.table.store) == []
