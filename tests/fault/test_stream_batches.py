"""A batch of a stream may be cut off at any operation on the store; who sends it again finds each record counted once.

The stream is driven without Spark: what Spark does after a crash is to send the batch again, with its number, to a
process that knows nothing of the one before. All heartbeats are fresh then.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import DynamicBuckets, RecordIndex, SimpleBuckets
from bucketlake.commit import markers, recovery
from bucketlake.commit.heartbeat import list_heartbeats
from bucketlake.commit.locks import OBJECT_LOCK_PATH, table_lock
from bucketlake.commit.publishing import read_inflight
from bucketlake.config import load_properties
from bucketlake.errors import BucketlakeError, ConflictError, StreamConflictError
from bucketlake.index.told import IndexValue
from bucketlake.layout.names import CLAIM_FOLDER, MAINTENANCE_LEASE
from bucketlake.services import Kind, check_table
from bucketlake.state import load_state
from bucketlake.storage import Store, open_store
from bucketlake.streaming.stream import Stream
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import Action
from bucketlake.timeline.clock import system_ms
from bucketlake.write import TableSpec, create, job
from plugins.soak import IS_SOAK, shuffled, within
from servers.s3 import S3Server
from stand_ins.aging import OLD_MS, Bucket, age, copy_of
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

TAKES_ALL = os.environ.get("BUCKETLAKE_MOMENTS") == "all"
MOMENTS_MAX = 12
"""Of one kind of fault on one engine, in a run that is no soak."""
SOAK_SECONDS = 20.0

Points = dict[str, Counter[str]]


@dataclass(frozen=True)
class Engine:
    index: IndexValue
    table_type: str
    partition: tuple[str, ...] = ("dt",)


ENGINES = {
    "simple mor": Engine(SimpleBuckets(2), "MERGE_ON_READ"),
    "record cow": Engine(RecordIndex(), "COPY_ON_WRITE"),
    "dynamic mor": Engine(DynamicBuckets(assigners=2), "MERGE_ON_READ"),
}
every_engine = pytest.mark.parametrize("engine", ENGINES)


@cache
def streamed(engine: str) -> Bucket:
    """A table that has two batches of the stream."""
    store = Bucket()
    create_in(store, engine)
    stream = new_process(store)
    for number in (0, 1):
        assert stream.upsert(batch(number), number) is not None
    return store


def create_in(store: Store, engine: str) -> None:
    kind = ENGINES[engine]
    spec = TableSpec(
        name="clicks",
        schema=SCHEMA,
        key=("id",),
        partition=kind.partition,
        ordering=("ts",),
        index=kind.index,
        table_type=kind.table_type,
    )
    create(store, spec)
    if not isinstance(kind.index, SimpleBuckets):
        table_of(store).metadata.build()


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "sleep", lambda seconds: None)
    monkeypatch.setattr("bucketlake.streaming.stream.PAUSES", ())
    # What holds a lock in these tests is dead, or waits for the one that wants it.
    monkeypatch.setitem(table_lock.__wrapped__.__kwdefaults__, "wait_seconds", 0.05)  # type: ignore[attr-defined]


def operations_of(store: Store, act: Callable[[Store], object]) -> list[str]:
    counting = FaultyStore(store)
    act(counting)
    return counting.operations


def write_next(store: Store) -> None:
    new_process(store).upsert(batch(2), 2)


def cut_offs(operations: list[str]) -> list[dict[str, Any]]:
    """Every way to be killed: before an operation has an effect, or after; one that only looks has one."""
    return [
        {"fails_at": number, "took_effect": took_effect, "is_dead": is_dead}
        for number, operation in enumerate(operations, 1)
        for took_effect in (
            (False, True) if operation.split()[0] not in {"list", "stat", "read"} else (False,)
        )
        for is_dead in (True, False)
    ]


def some_of(
    moments: list[Any], engine: str, kind: str, points: Points, at_most: int = MOMENTS_MAX
) -> Iterable[Any]:
    chosen: Iterable[Any] = moments
    if not TAKES_ALL and not IS_SOAK:
        offset = len(engine) % 3
        chosen = [moments[(n * (len(moments) - offset)) // at_most + offset] for n in range(at_most)]
    elif IS_SOAK and not TAKES_ALL:
        chosen = within(SOAK_SECONDS, shuffled(moments, f"{kind} {engine}"))
    for moment in chosen:
        yield moment
        points.setdefault(kind, Counter())[engine] += 1


def unlocked(store: Store) -> None:
    """Let the locks of a dead process run out, and nothing else: its heartbeat and its markers stay fresh."""
    for path in (OBJECT_LOCK_PATH, MAINTENANCE_LEASE):
        with suppress(FileNotFoundError):
            lock = json.loads(store.read(path))
            store.put(path, json.dumps({**lock, "validUntil": system_ms() - OLD_MS}).encode())


def check_nothing_is_left(store: Store) -> None:
    assert load_state(store).timeline.pending() == ()
    assert list_heartbeats(store) == {}
    for folder in (".hoodie/.temp", ".hoodie/.bucketlake/pieces"):
        assert store.list(folder, recursive=True).files == (), folder


@pytest.mark.shows("R9", "X2")
@every_engine
def test_cut_off_anywhere_and_sent_again_each_record_counts_once(engine: str, crash_points: Points) -> None:
    operations = operations_of(copy_of(streamed(engine)), write_next)
    for fault in some_of(cut_offs(operations), engine, "batch cut off, sent again", crash_points):
        store = copy_of(streamed(engine))
        with suppress(InjectedError, ConflictError):
            write_next(FaultyStore(store, **fault))
        try:
            unlocked(store)
            assert rows_of(store) in (truth([0, 1]), truth([0, 1, 2])), (
                "readers before anybody sends it again"
            )
            process = new_process(store)
            process.upsert(batch(2), 2)
            check_counted_once(store, [0, 1, 2])
            assert process.upsert(batch(2), 2) is None, "whoever sends it once more"
            assert process.upsert(batch(3), 3) is not None
            check_counted_once(store, [0, 1, 2, 3])
            for _ in range(2):  # the second finds the markers of what the first took back
                age(store)
                recovery.recover(store, load_properties(store))
            check_nothing_is_left(store)
        except Exception as error:
            error.add_note(f"{engine}: {fault}: {operations[fault['fails_at'] - 1]}")
            raise


@pytest.mark.shows("R9", "X2")
@every_engine
def test_cut_off_twice_in_a_row_each_record_counts_once(engine: str, crash_points: Points) -> None:
    """The process that sends it again is killed too: while it finishes, takes back, or writes."""
    operations = operations_of(copy_of(streamed(engine)), write_next)
    files = [
        n
        for n, what in enumerate(operations, 1)
        if "/.hoodie/" not in what and what.endswith((".parquet", ".1"))
    ]
    claim = next(n for n, what in enumerate(operations, 1) if f"put_new {CLAIM_FOLDER}" in what)
    firsts = {
        "no file": next(n for n, what in enumerate(operations, 1) if what.endswith(".inflight")) + 1,
        "files": (files[-1] if files else claim) + 1,
        "claim": claim + 1,
    }
    for name, number in firsts.items():

        def left(number: int = number) -> Bucket:
            store = copy_of(streamed(engine))
            with pytest.raises(InjectedError):
                write_next(FaultyStore(store, fails_at=number, is_dead=True))
            unlocked(store)
            return store

        again = operations_of(left(), write_next)
        moments = [fault for fault in cut_offs(again) if fault["is_dead"]]
        for fault in some_of(
            moments, engine, f"batch cut off twice, first at {name}", crash_points, MOMENTS_MAX // 3
        ):
            store = left()
            with suppress(InjectedError, ConflictError):
                write_next(FaultyStore(store, **fault))
            try:
                unlocked(store)
                new_process(store).upsert(batch(2), 2)
                check_counted_once(store, [0, 1, 2])
            except Exception as error:
                error.add_note(f"{engine}, first {name}: {fault}: {again[fault['fails_at'] - 1]}")
                raise


@pytest.mark.shows("R9", "X2")
@every_engine
def test_held_up_while_its_successor_writes_the_batch_each_record_counts_once(
    engine: str, crash_points: Points
) -> None:
    """A process that was given up wakes up after another has written the batch. One of them is told."""
    operations = operations_of(copy_of(streamed(engine)), write_next)
    outcomes: Counter[str] = Counter()

    def successor(store: Store) -> None:
        assert isinstance(store, Bucket)
        unlocked(store)
        try:
            outcomes["skipped" if new_process(store).upsert(batch(2), 2) is None else "written"] += 1
        except BucketlakeError as error:
            outcomes[type(error).__name__] += 1

    moments = list(range(1, len(operations) + 1))
    for number in some_of(moments, engine, "batch held up, successor writes it", crash_points, 9):
        store = copy_of(streamed(engine))
        held_up = FaultyStore(store, fails_at=number, meanwhile=successor)
        # Another process, as far as turns go.
        stream = Stream(store=Renamed(held_up), id=STREAM, checkpoint="ck", name="clicks")
        try:
            stream.upsert(batch(2), 2)
        except BucketlakeError as error:
            outcomes[f"late {type(error).__name__}"] += 1
        try:
            unlocked(store)
            new_process(store).upsert(batch(2), 2)
            check_counted_once(store, [0, 1, 2])
        except Exception as error:
            error.add_note(f"{engine} held up at {number}: {operations[number - 1]}; {dict(outcomes)}")
            raise
    assert outcomes["written"] and outcomes["late StreamConflictError"], outcomes


class Renamed:
    """A store by another name."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.uri = f"{inner.uri}#held-up"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.shows("R9", "X2")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS], ids=["full", "read-only"])
@every_engine
def test_a_store_that_takes_no_more_files_fails_the_batch_and_the_next_process_writes_it(
    engine: str, code: int, crash_points: Points
) -> None:
    operations = operations_of(copy_of(streamed(engine)), write_next)
    changes = [n for n, what in enumerate(operations, 1) if what.split()[0] not in {"list", "stat", "read"}]
    kind = f"batch refused ({errno.errorcode[code]})"
    for number in some_of(changes, engine, kind, crash_points, 4):
        store = copy_of(streamed(engine))
        try:
            write_next(FaultyStore(store, fails_at=number, refuses=code))
        except OSError as error:
            assert error.errno == code
        unlocked(store)
        try:
            assert rows_of(store) in (truth([0, 1]), truth([0, 1, 2]))
            new_process(store).upsert(batch(2), 2)
            check_counted_once(store, [0, 1, 2])
        except Exception as error:
            error.add_note(f"{engine} refused from {number}: {operations[number - 1]}")
            raise


@pytest.mark.shows("R9")
@every_engine
def test_what_was_prepared_does_not_count_and_what_was_claimed_is_finished(engine: str) -> None:
    """What is stored is taken back; once it is claimed it is published, and then counts: apache/hudi#7375."""
    operations = operations_of(copy_of(streamed(engine)), write_next)
    claim = next(n for n, what in enumerate(operations, 1) if f"put_new {CLAIM_FOLDER}" in what)
    for took_effect in (False, True):
        store = copy_of(streamed(engine))
        with pytest.raises(InjectedError):
            write_next(FaultyStore(store, fails_at=claim, took_effect=took_effect, is_dead=True))
        unlocked(store)
        (left,) = [i for i in load_state(store).timeline.pending() if i.action is not Action.ROLLBACK]
        body = read_inflight(store, load_properties(store), left.requested, left.action)
        assert body, "the body of the commit is stored"
        assert mark_in(store) == 1
        assert rows_of(store) == truth([0, 1])
        done = new_process(store).upsert(batch(2), 2)
        assert (done is None) == took_effect, "what was decided is published, and not written again"
        assert (left.requested in {i.requested for i in load_state(store).timeline.writes}) == took_effect
        check_counted_once(store, [0, 1, 2])


@pytest.mark.shows("R9")
def test_a_dead_stream_does_not_hold_up_its_successor_and_no_other_stream_is_taken_for_dead() -> None:
    """Only what is of the stream itself is taken back while its heartbeat is fresh."""
    store = copy_of(streamed("simple mor"))
    operations = operations_of(copy_of(store), write_next)
    claim = next(n for n, what in enumerate(operations, 1) if f"put_new {CLAIM_FOLDER}" in what)
    with pytest.raises(InjectedError):
        write_next(FaultyStore(store, fails_at=claim, is_dead=True))
    unlocked(store)
    (left,) = load_state(store).timeline.pending()
    other = Stream(store=store, id="another-stream", name="clicks")
    rows = batch(7).set_column(3, "batch", pa.array([700] * 10, pa.int64()))
    other.upsert(rows, 0)
    assert left.requested in {i.requested for i in load_state(store).timeline.pending()}, "it may be alive"
    new_process(store).upsert(batch(2), 2)
    assert load_state(store).timeline.pending() == ()
    assert (mark_in(store), mark_in(store, "another-stream")) == (2, 0)


@pytest.mark.s3
@pytest.mark.shows("R9", "X2")
def test_cut_off_on_s3_and_sent_again_each_record_counts_once(
    s3_server: S3Server, tmp_path: Path, crash_points: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = "simple mor"
    operations = operations_of(copy_of(streamed(engine)), write_next)
    monkeypatch.setattr(markers, "KEPT_MS", 0)
    kind = "batch cut off on S3, sent again"
    for number, fault in enumerate(some_of(cut_offs(operations), engine, kind, crash_points, 10)):
        store = open_store(f"s3://{s3_server.bucket}/{tmp_path.name}-{number}", s3_server.options)
        for file in streamed(engine).list("", recursive=True).files:
            store.put(file.path, streamed(engine).read(file.path))
        with suppress(InjectedError, ConflictError):
            write_next(FaultyStore(store, **fault))
        store.delete(".hoodie/.locks/table_lock.json")  # a dead process's lock runs out
        try:
            new_process(store).upsert(batch(2), 2)
            assert rows_of(store) == truth([0, 1, 2])
            assert commits_of(store) == [0, 1, 2]
            wrong = [
                f for f in check_table(store).findings if f.kind not in (Kind.UNFINISHED, Kind.LEFT_MARKERS)
            ]
            assert not wrong, wrong
        except Exception as error:
            error.add_note(f"{fault}: {operations[fault['fails_at'] - 1]}")
            raise


@pytest.mark.shows("R9")
def test_a_process_that_wakes_up_after_its_successor_is_told_that_there_are_two() -> None:
    """It had found its batch to be new, and another has committed that one, and a later one."""
    store = copy_of(streamed("simple mor"))
    operations = operations_of(copy_of(store), write_next)
    begins = next(n for n, what in enumerate(operations, 1) if what.endswith(".inflight"))

    def successor(inner: Store) -> None:
        process = new_process(inner)
        for number in (2, 3):
            process.upsert(batch(number), number)

    held_up = FaultyStore(store, fails_at=begins, meanwhile=successor)
    stream = Stream(store=Renamed(held_up), id=STREAM, name="clicks")
    with pytest.raises(
        StreamConflictError, match="batch 2 of the stream clicks cannot be committed: batch 3 of"
    ):
        stream.upsert(batch(2), 2)
    check_counted_once(store, [0, 1, 2, 3])
