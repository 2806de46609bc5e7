"""A batch of a stream is known by its number, wherever its commit has gone to."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake import RecordIndex, SimpleBuckets, Table
from bucketlake.commit.operation import Operation
from bucketlake.commit.stream import (
    HUDI_KEY,
    STREAM_KEY,
    Batch,
    Mark,
    Marks,
    Seen,
    batches_in,
    keep_seen,
    load_seen,
    mark_of,
    take_back_unfinished,
)
from bucketlake.commit.transaction import begin
from bucketlake.errors import StreamConflictError
from bucketlake.layout.names import heartbeat_path
from bucketlake.state import load_state
from bucketlake.storage import MemoryStore
from bucketlake.timeline import CommitMetadata, load_timeline, read_commit_metadata
from bucketlake.write import ArrowRows, CommitSummary, WriteOptions, run_write
from stand_ins.orders_table import orders, orders_table

pytestmark = pytest.mark.shows("R9")

STREAM, OTHER = "2f9d7a3e-0d0b-4b4e-9d3c-1f1f6f0a7c11", "aaaaaaaa-0d0b-4b4e-9d3c-1f1f6f0a7c11"


def write(table: Table, number: int, *, stream: str = STREAM, identifier: str = "") -> CommitSummary:
    batch = Batch(stream=stream, number=number, name="orders", identifier=identifier)
    rows = orders(range(number, number + 4), f"batch {number}", 10 + number)
    return run_write(ArrowRows(rows), table.store, Operation.UPSERT, WriteOptions(batch=batch))


def found(table: Table, *, stream: str = STREAM, identifier: str = "") -> int | None:
    marks = Marks(table.store, table.properties)
    mark = marks.find(
        Batch(stream=stream, number=99, identifier=identifier), load_timeline(table.store, table.properties)
    )
    return None if mark is None else mark.batch


def test_a_commit_says_which_batch_it_is_to_us_and_to_hudis_sink() -> None:
    table = orders_table("memory://marks-said")
    summary = write(table, 3)
    (commit,) = load_state(table.store).timeline.writes
    extra = read_commit_metadata(table.store, commit).extra
    told = json.loads(extra[STREAM_KEY])
    assert (told["stream"], told["name"], told["batch"], told["rows"]) == (STREAM, "orders", 3, 4)
    assert json.loads(extra[HUDI_KEY]) == {STREAM: "3"}
    assert told["inserted"] == summary.inserted == 4


def test_the_newest_batch_is_found_and_every_stream_has_its_own() -> None:
    table = orders_table("memory://marks-found")
    assert found(table) is None
    for number in range(3):
        write(table, number)
    write(table, 7, stream=OTHER)
    table.upsert(orders(range(40, 44), "no stream", 5))
    assert (found(table), found(table, stream=OTHER)) == (2, 7)


@pytest.mark.parametrize("number", [1, 2])
def test_a_batch_at_the_mark_or_below_is_never_committed_again(number: int) -> None:
    table = orders_table(f"memory://marks-below-{number}")
    for one in range(3):
        write(table, one)
    before = load_state(table.store).timeline
    with pytest.raises(StreamConflictError, match=f"batch {number} of the stream orders"):
        write(table, number)
    assert load_state(table.store).timeline == before, "nothing was begun"


def test_a_name_is_no_identity_but_hudis_own_mark_counts_under_it() -> None:
    ours = Batch(stream=STREAM, number=4, identifier="orders")
    of_another = Batch(stream=OTHER, number=4, identifier="orders").marks({})
    assert mark_of(of_another, "1", ours) is None, "its checkpoint was deleted, this is a new stream"
    assert mark_of({HUDI_KEY: '{"orders": "12"}'}, "1", ours) == Mark(batch=12, instant="1")
    assert mark_of({HUDI_KEY: '{"default_single_writer": "12"}'}, "1", ours) is None
    assert mark_of({HUDI_KEY: "no json"}, "1", ours) is None


def test_who_takes_commits_back_is_told_of_batches_that_hudi_wrote() -> None:
    texts = ('{"spark_0": "12", "broken": "x"}', "no json", "[1]", "null")
    commits = [CommitMetadata(operation="UPSERT", write_stats=(), extra={HUDI_KEY: text}) for text in texts]
    assert batches_in(commits) == (
        "batch 12 of Hudi's stream spark_0: sent again only if its checkpoint is taken back too",
    )


def test_a_mark_goes_back_with_a_rollback_and_with_a_restore() -> None:
    table = orders_table("memory://marks-undone", table_type="COPY_ON_WRITE")
    write(table, 0)
    table.savepoint()
    summary = [write(table, number) for number in (1, 2)][-1]
    assert summary.instant is not None
    table.rollback(summary.instant)
    assert found(table) == 1
    table.restore(table.savepoints()[0].instant)
    assert found(table) == 0
    write(table, 1)
    assert found(table) == 1


@pytest.mark.parametrize("has_file", [True, False])
def test_a_mark_is_found_in_the_history_when_others_have_written_since(
    tmp_path: Path, has_file: bool
) -> None:
    table = orders_table(tmp_path / "t", table_type="COPY_ON_WRITE")
    last = [write(table, number) for number in range(3)][-1]
    if has_file:
        assert last.instant is not None
        keep_seen(table.store, Seen(stream=STREAM, name="", batch=2, instant=last.instant))
    for turn in range(4):
        table.upsert(orders(range(4), "others", 50 + turn))
    table.archive(keep_min=1, keep_max=2)
    writes = [i.requested for i in load_timeline(table.store, table.properties).writes]
    assert last.instant not in writes
    assert found(table) == 2
    assert found(table, stream=OTHER) is None


def test_the_file_of_a_stream_alone_says_nothing() -> None:
    table = orders_table("memory://marks-file")
    keep_seen(table.store, Seen(stream=STREAM, name="", batch=9, instant="20260101000000000"))
    assert found(table) is None
    assert load_seen(table.store, STREAM) == Seen(
        stream=STREAM, name="", batch=9, instant="20260101000000000"
    )
    table.store.put(f".hoodie/.bucketlake/streams/{STREAM}", b"torn {")
    assert load_seen(table.store, STREAM) is None


def test_what_a_stream_had_begun_is_taken_back_at_once_and_nothing_else() -> None:
    table = orders_table("memory://marks-unfinished")
    mine, _ = begin(table.store, operation=Operation.UPSERT, batch=Batch(stream=STREAM, number=0))
    others, _ = begin(table.store, operation=Operation.UPSERT, batch=Batch(stream=OTHER, number=0))
    plain, _ = begin(table.store, operation=Operation.UPSERT)
    assert take_back_unfinished(table.store, table.properties, STREAM) == (mine.instant,)
    pending = {i.requested for i in load_timeline(table.store, table.properties).pending()}
    assert pending == {others.instant, plain.instant}
    with pytest.raises(FileNotFoundError):
        table.store.stat(heartbeat_path(mine.instant))
    assert take_back_unfinished(table.store, table.properties, STREAM) == ()


@pytest.mark.parametrize("index", [SimpleBuckets(2), RecordIndex()], ids=["buckets", "record index"])
def test_of_two_queries_on_one_checkpoint_only_one_commits_a_batch(
    index: SimpleBuckets | RecordIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = orders_table(f"memory://marks-twice-{type(index).__name__}", index=index)
    write(table, 0)
    run = ArrowRows.run

    def beside(self: ArrowRows, plan: object) -> object:
        monkeypatch.setattr(ArrowRows, "run", run)
        write(table, 1)  # the other query is quicker
        return run(self, plan)  # type: ignore[arg-type] # as it was given

    monkeypatch.setattr(ArrowRows, "run", beside)
    with pytest.raises(StreamConflictError, match="Two queries run on one checkpoint"):
        write(table, 1)
    assert found(table) == 1
    assert not load_timeline(table.store, table.properties).pending()
    assert table.fsck().is_sound


def test_a_batch_that_is_decided_is_published_by_whoever_comes_next() -> None:
    table = orders_table("memory://marks-later", index=RecordIndex())
    write(table, 0)
    left: list[Callable[[], None]] = []
    batch = Batch(stream=STREAM, number=1)
    rows = ArrowRows(orders(range(10, 14), "decided", 20))
    done = run_write(rows, table.store, Operation.UPSERT, WriteOptions(batch=batch, later=left.append))
    assert [i.requested for i in load_timeline(table.store, table.properties).pending()] == [done.instant]
    assert table.to_arrow().num_rows == 4, "readers do not see it yet"
    assert take_back_unfinished(table.store, table.properties, STREAM) == ()
    after = write(table, 2)  # looks up keys that the decided batch has brought
    assert found(table) == 2 and after.instant is not None
    (publish,) = left
    publish()  # somebody has done it
    assert not load_timeline(table.store, table.properties).pending()
    assert table.to_arrow().num_rows == 10
    assert table.fsck().is_sound
    assert not MemoryStore("marks-later").list(".hoodie/.heartbeat").files
