"""A stream, batch by batch, without Spark: what is skipped, what is written, and what is said when marks are gone."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from bucketlake import RecordIndex, SimpleBuckets, Table, create_table
from bucketlake.arguments import StreamArguments
from bucketlake.commit.metadata_table import is_listed
from bucketlake.commit.stream import HUDI_KEY, load_seen
from bucketlake.config import TableType
from bucketlake.errors import ConfigError, LayoutMismatchError, NotATableError, ReplayError, SchemaError
from bucketlake.index.told import IndexValue
from bucketlake.layout.names import STREAMS_FOLDER
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services import archive_table
from bucketlake.services.metadata_compaction import DELTA_COMMITS, commits_since_compaction
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.streaming.stream import Stream
from bucketlake.streaming.upkeep import Upkeep
from bucketlake.timeline import read_commit_metadata
from bucketlake.write import ArrowRows, TableSpec, create
from plugins.soak import IS_SOAK
from stand_ins.aging import Bucket
from stand_ins.clicks import (
    SCHEMA,
    STREAM,
    batch,
    check_counted_once,
    commits_of,
    mark_in,
    new_process,
    rows_of,
    table_of,
    truth,
)

MORE_MIB = 100
"""What a process may come to take beyond what it took after a third of many batches."""
MANY = int(os.environ.get("BUCKETLAKE_STREAM_BATCHES", "500" if IS_SOAK else "48"))


def clicks_table(path: Path, *, index: IndexValue | None = None, table_type: str = "mor") -> Table:
    return create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index or SimpleBuckets(2),
        table_type=table_type,
        metadata=index is not None,
    )


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """With batches 0 to 2."""
    made = clicks_table(tmp_path / "t")
    stream = new_process(made.store)
    for number in range(3):
        stream.upsert(batch(number), number)
    return made


def marked(number: int) -> pa.Table:
    """Other rows than those of any batch, by which it shows whether they were written."""
    return batch(number).set_column(3, "batch", pa.array([-1] * 10, pa.int64()))


@pytest.mark.shows("R9")
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_batch_at_the_mark_or_below_is_passed_over(
    number: int, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """<=, not = (Qbeast-io/qbeast-spark#274).

    That an earlier one comes is no restart's doing, so it is said."""
    assert new_process(table.store).upsert(batch(number), number) is None
    check_counted_once(table.store, [0, 1, 2])
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warned) == (number < 2)
    assert all(
        f"batch {number} of the stream clicks is passed over, and so are its rows" in w for w in warned
    )


@pytest.mark.shows("R9")
def test_a_new_checkpoint_is_a_new_stream_whatever_it_is_called(table: Table) -> None:
    """Its batch 0 is written. Hudi's sink, which goes by a name, passes it over: apache/hudi#12368."""
    table.delete([1000])
    other = Stream(store=table.store, id="another", name="clicks")
    assert other.upsert(batch(0), 0) is not None
    assert (mark_in(table.store), mark_in(table.store, "another")) == (2, 0)
    assert 1000 in {row[0] for row in rows_of(table.store)}


@pytest.mark.shows("R9")
def test_there_is_no_way_to_pass_over_a_batch_that_failed() -> None:
    """apache/hudi#7002"""
    assert not [name for name in StreamArguments.__annotations__ if "ignore" in name or "fail" in name]


@pytest.mark.shows("R9")
@pytest.mark.parametrize("number", [1, 2], ids=["older", "newest"])
def test_a_batch_that_comes_again_with_other_rows_is_refused_when_that_is_asked_for(
    number: int, table: Table
) -> None:
    """apache/iceberg#10892"""
    process = new_process(table.store, verify_replay=True)
    assert process.upsert(batch(number), number) is None
    lacking = batch(number).slice(1)
    with pytest.raises(
        ReplayError, match=rf"batch {number} of the stream clicks came again with 9 rows .* 10 rows"
    ):
        process.upsert(lacking, number)
    other_keys = lacking.take([0, *range(9)])
    with pytest.raises(ReplayError, match="came again with 10 rows and the key sum"):
        process.upsert(other_keys, number)
    check_counted_once(table.store, [0, 1, 2])


@pytest.mark.shows("R9")
def test_a_batch_that_had_no_rows_and_comes_again_with_some_is_refused_when_that_is_asked_for(
    table: Table,
) -> None:
    process = new_process(table.store, verify_replay=True)
    process.upsert(batch(3).slice(0, 0), 3)
    process.upsert(batch(4), 4)
    assert process.upsert(batch(3).slice(0, 0), 3) is None
    with pytest.raises(ReplayError, match="batch 3 of the stream clicks came again with 10 rows"):
        process.upsert(batch(3), 3)


@pytest.mark.shows("R9")
def test_a_batch_without_rows_commits_nothing(table: Table) -> None:
    process = new_process(table.store)
    for number in (3, 4):
        summary = process.upsert(batch(number).slice(0, 0), number)
        assert summary is not None and summary.instant is None
    check_counted_once(table.store, [0, 1, 2])
    assert load_state(table.store).timeline.pending() == ()
    new_process(table.store).upsert(batch(5), 5)
    check_counted_once(table.store, [0, 1, 2, 5])


@pytest.mark.shows("R9")
def test_a_batch_whose_rows_all_lose_commits_nothing_and_loses_again(tmp_path: Path) -> None:
    made = clicks_table(tmp_path / "t", table_type="cow")
    newer = batch(0).set_column(2, "ts", pa.array([1000] * 10, pa.int64()))
    made.upsert(newer.set_column(4, "_hoodie_is_deleted", pa.array([False] * 10)))
    before = rows_of(made.store)
    for process in (new_process(made.store), new_process(made.store)):
        summary = process.upsert(batch(0), 0)
        assert summary is not None and summary.instant is None and summary.outdated
    new_process(made.store).upsert(batch(30), 1)
    assert set(before) < set(rows_of(made.store))
    with pytest.raises(ReplayError, match="or one whose rows all lost to newer ones"):
        new_process(made.store, verify_replay=True).upsert(batch(0), 0)


@pytest.mark.shows("R9")
def test_a_stream_whose_first_batches_have_no_rows_goes_on_in_another_process(tmp_path: Path) -> None:
    """There is no mark then, and nothing wrong."""
    made = clicks_table(tmp_path / "t")
    new_process(made.store).upsert(batch(0).slice(0, 0), 0)
    new_process(made.store).upsert(batch(1), 1)
    check_counted_once(made.store, [1])


@pytest.mark.shows("R9", "H2")
@pytest.mark.parametrize("is_known", [True, False], ids=["same process", "new process"])
def test_the_mark_goes_back_with_a_rollback(
    is_known: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = clicks_table(tmp_path / "t")
    process = new_process(made.store)
    for number in range(3):
        process.upsert(batch(number), number)
    newest = load_state(made.store).timeline.writes[-1].requested
    made.rollback(newest)
    assert mark_in(made.store) == 1
    process = process if is_known else new_process(made.store)
    process.upsert(batch(2), 2)
    assert "the batches after 1 up to 2 are gone: a rollback or a restore took them back" in caplog.text
    check_counted_once(made.store, [0, 1, 2])
    caplog.clear()
    process.upsert(batch(3), 3)
    assert "are gone" not in caplog.text


@pytest.mark.shows("R9", "H2")
def test_the_mark_goes_back_with_a_restore(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    saved = table.savepoint().instant
    process = new_process(table.store)
    for number in (3, 4, 5):
        process.upsert(batch(number), number)
    table.restore(saved)
    assert mark_in(table.store) == 2
    for number in (3, 4):
        process.upsert(batch(number), number)
    assert caplog.text.count("the batches after 2 up to 5 are gone") == 1
    check_counted_once(table.store, [0, 1, 2, 3, 4])


@pytest.mark.shows("R9", "H2")
def test_who_takes_batches_back_is_told_of_them_beforehand(table: Table) -> None:
    saved = table.savepoint().instant
    for number in (3, 4):
        new_process(table.store).upsert(batch(number), number)
    table.upsert(batch(9))
    Stream(store=table.store, id="another").upsert(batch(5), 0)
    newest = load_state(table.store).timeline.writes[-1].requested
    ours = f"of the stream clicks ({STREAM}): sent again only if its checkpoint is taken back too"
    assert (
        str(table.plan_rollback(newest)).splitlines()[1].startswith("  batch 0 of the stream another: sent")
    )
    assert table.plan_restore(saved).work.batches[0] == f"batches 3 to 4 {ours}"
    assert str(table.restore(saved)).splitlines()[-2] == f"  batches 3 to 4 {ours}"


@pytest.mark.shows("R9")
@pytest.mark.parametrize("lost", ["nothing", "file", "half a file"])
def test_a_mark_is_found_in_the_history(lost: str, table: Table) -> None:
    """A stream pauses while others write, until its last commit is archived; with, and without, its file."""
    for number in range(6):
        table.upsert(batch(20 + number))
    archive_table(table.store, keep_min=2, keep_max=3)
    assert commits_of(table.store) == []
    assert mark_in(table.store) == 2
    path = f"{STREAMS_FOLDER}/{STREAM}"
    if lost == "file":
        table.store.delete(path)
    if lost == "half a file":
        table.store.put(path, table.store.read(path)[:20])
    before = rows_of(table.store)
    process = new_process(table.store, verify_replay=True)
    assert process.upsert(batch(2), 2) is None
    assert process.upsert(batch(0), 0) is None
    with pytest.raises(ReplayError):
        process.upsert(batch(1).slice(1), 1)
    assert rows_of(table.store) == before
    assert process.upsert(batch(3), 3) is not None
    seen = load_seen(table.store, STREAM)
    assert seen is not None and seen.batch == 3


@pytest.mark.shows("R9")
def test_a_mark_that_is_archived_while_it_is_looked_for_is_found(table: Table) -> None:
    """The process knows that nothing was archived when it last looked."""

    class Archived:
        """A store where the commits are archived as soon as somebody has listed the timeline."""

        def __init__(self, inner: Store) -> None:
            self.inner = inner
            self.is_due = False

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def read(self, path: str, **how: int) -> bytes:
            if self.is_due and path.endswith(".deltacommit"):
                self.is_due = False
                archive_table(self.inner, keep_min=2, keep_max=3)
            return self.inner.read(path, **how)

    store = Archived(table.store)
    other = Stream(store=store, id="another", name="other")  # type: ignore[arg-type]
    other.upsert(marked(0), 0)
    for number in range(6):
        table.upsert(batch(20 + number))
    store.is_due = True
    assert other.upsert(marked(0), 0) is None
    assert not store.is_due


@pytest.mark.shows("R9")
@pytest.mark.parametrize("index", [SimpleBuckets(2), RecordIndex()], ids=["simple", "record"])
def test_a_process_that_ends_publishes_its_last_batch(tmp_path: Path, index: IndexValue) -> None:
    made = clicks_table(tmp_path / "t", index=index)
    made.alter(hudi_writes=False)
    program = """
import sys, threading, time
from bucketlake import Table
from bucketlake.streaming import stream as of_streams
from stand_ins.clicks import batch, new_process

at_once = of_streams._in_background
of_streams._in_background = lambda put: at_once(lambda: (time.sleep(1), put()))
stream = new_process(Table.open(sys.argv[1]).store, pipelined=True)

def run():
    for number in range(2):
        stream.upsert(batch(number), number)

called = threading.Thread(target=run, daemon=True)  # as Spark calls it
called.start()
called.join()
"""
    tests = str(Path(__file__).parents[2])
    subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "t")],
        check=True,
        env={**os.environ, "PYTHONPATH": tests},
    )
    check_counted_once(made.store, [0, 1])
    assert load_state(made.store).timeline.pending() == ()


@pytest.mark.shows("R9")
def test_what_is_decided_is_published_before_hudi_may_write(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi's writers would take it for dead, and roll it back. A batch that is under way then does not wait either."""
    left: list[Callable[[], None]] = []
    monkeypatch.setattr("bucketlake.streaming.stream._in_background", left.append)
    table.alter(hudi_writes=False)
    process = new_process(table.store, pipelined=True)
    process.upsert(batch(3), 3)
    assert len(left) == 1 and load_state(table.store).timeline.pending()
    table.alter(hudi_writes=True)
    check_counted_once(table.store, [0, 1, 2, 3])
    with pytest.raises(ConfigError, match="hudi_writes=False"):
        process.upsert(batch(4), 4)
    table.alter(hudi_writes=False)
    run = ArrowRows.run

    def meanwhile(self: ArrowRows, plan: Any) -> Any:
        table.alter(hudi_writes=True)
        return run(self, plan)

    monkeypatch.setattr(ArrowRows, "run", meanwhile)
    process.upsert(batch(4), 4)
    check_counted_once(table.store, [0, 1, 2, 3, 4])
    assert len(left) == 1 and not load_state(table.store).timeline.pending()


@pytest.mark.shows("R9")
def test_the_checkpoint_of_a_stream_into_another_table_is_refused(tmp_path: Path) -> None:
    made = clicks_table(tmp_path / "t")
    with pytest.raises(ConfigError, match=r"has 3 batches behind it, and .* has none of them"):
        new_process(made.store).upsert(batch(3), 3)
    assert load_state(made.store).timeline.instants == ()
    new_process(made.store, accept_checkpoint=True).upsert(batch(3), 3)
    new_process(made.store).upsert(batch(4), 4)
    check_counted_once(made.store, [3, 4])


@pytest.mark.shows("R9")
def test_a_table_that_goes_and_comes_again_under_a_stream_is_not_taken_for_the_same(tmp_path: Path) -> None:
    """Its first batches would be missing, and nothing would be said."""
    made = clicks_table(tmp_path / "t")
    process = new_process(made.store)
    for number in range(3):
        process.upsert(batch(number), number)
    for file in made.store.list("", recursive=True).files:
        made.store.delete(file.path)
    with pytest.raises(NotATableError):
        process.upsert(batch(3), 3)
    clicks_table(tmp_path / "t")
    with pytest.raises(ConfigError, match="or into one that was here before"):
        process.upsert(batch(3), 3)
    assert rows_of(made.store) == []


@pytest.mark.shows("R9")
def test_a_table_that_comes_again_as_one_of_another_type_is_asked_for_its_own_marks(tmp_path: Path) -> None:
    made = clicks_table(tmp_path / "t")
    process = new_process(made.store, accept_checkpoint=True)
    process.upsert(batch(0), 0)
    for file in made.store.list("", recursive=True).files:
        made.store.delete(file.path)
    clicks_table(tmp_path / "t", table_type="cow")
    assert process.upsert(batch(1), 1) is not None
    assert process.upsert(batch(1), 1) is None
    check_counted_once(made.store, [1])


@pytest.mark.shows("R9", "X1")
def test_an_index_that_is_changed_under_a_stream_is_the_one_it_goes_on_with(table: Table) -> None:
    """Unless the stream was told of another."""
    process, told = new_process(table.store), new_process(table.store, told=SimpleBuckets(4))
    table.buckets.overwrite("p0,4")
    with pytest.raises(LayoutMismatchError):
        told.upsert(batch(3), 3)
    process.upsert(batch(3), 3)
    check_counted_once(table.store, [0, 1, 2, 3])


@pytest.mark.shows("R9")
def test_columns_that_change_fail_the_batch_and_nothing_is_committed(table: Table) -> None:
    wider = batch(3).append_column("colour", pa.array(["red"] * 10))
    with pytest.raises(SchemaError, match="colour"):
        new_process(table.store).upsert(wider, 3)
    check_counted_once(table.store, [0, 1, 2])
    new_process(table.store, options={"merge_schema": True}).upsert(wider, 3)
    check_counted_once(table.store, [0, 1, 2, 3])


@pytest.mark.shows("R9")
def test_a_stream_goes_on_where_hudi_ended_and_says_where_it_is_in_hudis_way(table: Table) -> None:
    """By the identifier, in the extra metadata of the commit."""
    stream = Stream(store=table.store, id="another", identifier="spark_0", name="x")
    stream.upsert(batch(0), 0)
    newest = load_state(table.store).timeline.writes[-1]
    assert read_commit_metadata(table.store, newest).extra[HUDI_KEY] == '{"spark_0": "0"}'


def test_a_batch_writer_travels_without_what_it_has_found_out(tmp_path: Path) -> None:
    made = clicks_table(tmp_path / "t")
    writer = made.batch_writer(
        checkpoint=tmp_path / "ck", name="clicks", log_format="avro", verify_replay=True
    )
    writer._run = object()  # type: ignore[assignment] # locks and threads, which cannot travel
    again = cloudpickle.loads(cloudpickle.dumps(writer))
    names = ("told", "checkpoint", "name", "identifier", "verify_replay", "runs_services", "options")
    assert [getattr(again, name) for name in names] == [getattr(writer, name) for name in names]
    assert again.store.uri == writer.store.uri
    assert again._run is None


@pytest.mark.shows("R9", "R10", "H1")
@pytest.mark.parametrize("index", [SimpleBuckets(1), RecordIndex()], ids=["simple", "record"])
def test_many_batches_with_services_beside_them_leave_a_table_that_stays_small(
    index: IndexValue, caplog: pytest.LogCaptureFixture
) -> None:
    """Files, logs and instants are bounded, no batch fails, and the metadata table is compacted too.

    delta-io/delta#761"""
    caplog.set_level(logging.INFO)
    store = clicks_in_memory(index)
    stream, upkeep = new_process(store, options={"maintenance": "off"}), Upkeep(store, runs_rounds=True)
    logs, instants, uncompacted, files, memory = [], [], [], [], []
    for number in range(MANY):
        summary = stream.upsert(batch(number), number)
        assert summary is not None
        upkeep.after_commit(summary.number, None)  # type: ignore[arg-type] # no session: it is done here
        if number % 10 == 9:
            state = load_state(store)
            instants.append(len(state.timeline.instants))
            logs.append(max((len(part.log_files) for part in table_of(store).plan().slices), default=0))
            own = load_metadata_timeline(store, state.properties)
            uncompacted.append(commits_since_compaction(own) if is_listed(state.properties) else 0)
            files.append(len(store.list("", recursive=True).files))
            memory.append(peak_bytes())
    upkeep.join()
    assert rows_of(store) == truth(range(MANY))
    assert mark_in(store) == MANY - 1
    assert table_of(store).fsck().is_sound
    assert max(logs) <= 40, logs
    assert max(instants) <= 90, instants
    assert max(uncompacted) <= 3 * DELTA_COMMITS, uncompacted
    assert "batches are tried again" not in caplog.text
    assert "failed" not in caplog.text
    told = f"logs {logs}, instants {instants}, metadata {uncompacted}, files {files}, peak MiB {memory}"
    print(told)
    if MANY >= 300:
        third = len(files) // 3
        assert max(files[-third:]) <= 1.2 * max(files[third : 2 * third]), told
        assert memory[-1] <= memory[third] + MORE_MIB, told


def clicks_in_memory(index: IndexValue) -> Bucket:
    store = Bucket()
    spec = TableSpec(
        name="clicks",
        schema=SCHEMA,
        key=("id",),
        partition=("dt",),
        ordering=("ts",),
        index=index,
        table_type=TableType.MERGE_ON_READ,
    )
    create(store, spec)
    if isinstance(index, RecordIndex):
        table_of(store).metadata.build()
    return store


def peak_bytes() -> int:
    """The most memory that this process has had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
