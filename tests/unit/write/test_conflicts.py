"""Two writers at once: a conflict that is missed loses rows, one that is imagined costs a rewrite."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.errors import CommitConflictError
from bucketlake.timeline import CommitMetadata, WriteStat
from bucketlake.write import ArrowRows, Operation
from bucketlake.write.conflicts import Footprint, find_conflict, footprint_of
from bucketlake.write.job import run_write
from bucketlake.write.state import WriteState
from bucketlake.write.task import GroupWritten

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])
A, B = ("dt=1", "00000001"), ("dt=1", "00000002")


def rows_of(*rows: tuple[str, str, int, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def rows_in(table: Table) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.to_arrow(meta_columns=False).to_pylist())


def a_stat(partition: str, file_id: str, *, is_log: bool) -> WriteStat:
    return WriteStat(
        partition=partition,
        file_id=file_id,
        path=f"{partition}/{file_id}",
        previous_instant=None,
        written=1,
        inserted=1,
        updated=0,
        deleted=0,
        errors=0,
        written_bytes=1,
        size_bytes=1,
        log_files=("log",) if is_log else (),
    )


@pytest.mark.parametrize(
    ("ours", "other", "by_rows", "by_commit"),
    [
        (Footprint(rewritten=frozenset({A})), Footprint(rewritten=frozenset({A})), True, True),
        (Footprint(rewritten=frozenset({A})), Footprint(rewritten=frozenset({B})), False, False),
        (Footprint(rewritten=frozenset({A})), Footprint(appended=frozenset({A})), True, True),
        (Footprint(appended=frozenset({A})), Footprint(appended=frozenset({A})), False, True),
        (Footprint(appended=frozenset({A})), Footprint(appended=frozenset({B})), False, False),
        (Footprint(appended=frozenset({A})), Footprint(replaced_partitions=frozenset({"dt=1"})), True, True),
        (
            Footprint(appended=frozenset({A})),
            Footprint(replaced_partitions=frozenset({"dt=2"})),
            False,
            False,
        ),
        (Footprint(is_whole_table=True), Footprint(), True, True),
        (Footprint(schema=SCHEMA), Footprint(schema=SCHEMA), False, False),
        (Footprint(schema=SCHEMA), Footprint(schema=SCHEMA.remove(3)), True, True),
        (Footprint(schema=SCHEMA), Footprint(), False, False),
    ],
)
def test_who_is_in_whose_way(ours: Footprint, other: Footprint, by_rows: bool, by_commit: bool) -> None:
    for left, right in ((ours, other), (other, ours)):
        assert (find_conflict(left, [("x", right)], logs_commute=True) == "x") is by_rows
        assert (find_conflict(left, [("x", right)], logs_commute=False) == "x") is by_commit


def test_a_footprint_knows_groups_by_their_bucket() -> None:
    first = footprint_of(
        CommitMetadata(
            operation="UPSERT",
            write_stats=(
                a_stat("p", "00000001-159a-4953-a3c4-b777b847ae7f-0", is_log=False),
                a_stat("p", "00000002-159a-4953-a3c4-b777b847ae7f-0", is_log=True),
            ),
        )
    )
    assert first == Footprint(frozenset({("p", "00000001")}), frozenset({("p", "00000002")}))
    replacing = CommitMetadata(
        operation="INSERT_OVERWRITE", write_stats=(), replaced={"p": ("00000007-aaaa-0",), "q": ("x",)}
    )
    assert footprint_of(replacing).replaced_partitions == {"p", "q"}
    assert footprint_of(replacing).rewritten == {("p", "00000007"), ("q", "x")}
    compaction = CommitMetadata(
        operation="COMPACT", write_stats=(a_stat("p", "00000001-a", is_log=False),), is_compaction=True
    )
    assert footprint_of(compaction) == Footprint()


class Overtaken(ArrowRows):
    """Rows whose tasks are done when another writer comes and commits, a number of times."""

    def __init__(self, rows: pa.Table, table: Table, other: pa.Table, times: int = 1) -> None:
        super().__init__(rows)
        self.runs = 0
        self._overtake = lambda: table.upsert(other)
        self._times = times

    def run(self, plan: WriteState) -> tuple[object, tuple[GroupWritten, ...]]:  # type: ignore[override] # as ours
        done = super().run(plan)
        self.runs += 1
        if self.runs <= self._times:
            self._overtake()
        return done


def a_table(name: str, *, table_type: str = "COPY_ON_WRITE", ordering: str | tuple[()] = "ts") -> Table:
    return create_table(
        None,
        f"memory://{name}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        buckets=1,
        table_type=table_type,
    )


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("seeded", [False, True])
def test_a_write_that_was_overtaken_in_its_bucket_is_run_again(table_type: str, seeded: bool) -> None:
    table = a_table(f"overtaken-{table_type}-{seeded}", table_type=table_type, ordering=())
    if seeded:
        table.upsert(rows_of(("a", "x", 1, 0)))
    rows = Overtaken(
        rows_of(("a", "x", 1, 1), ("b", "x", 1, 1)), table, rows_of(("a", "x", 1, 2), ("c", "x", 1, 2))
    )
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 2
    assert rows_in(table) == [("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "x", 1, 2)]
    assert len(table.layout().partitions) == 1


def test_writes_to_different_buckets_do_not_meet() -> None:
    table = a_table("different")
    rows = Overtaken(rows_of(("a", "x", 1, 1)), table, rows_of(("a", "y", 1, 2)))
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 1
    assert rows_in(table) == [("a", "x", 1, 1), ("a", "y", 1, 2)]


def test_logs_of_one_bucket_may_both_commit_where_rows_say_which_is_newer() -> None:
    table = a_table("both-append", table_type="MERGE_ON_READ")
    table.upsert(rows_of(("a", "x", 1, 0)))
    rows = Overtaken(rows_of(("a", "x", 3, 3)), table, rows_of(("a", "x", 2, 2), ("b", "x", 2, 2)))
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 1
    assert rows_in(table) == [("a", "x", 3, 3), ("b", "x", 2, 2)]


def test_a_write_that_is_always_overtaken_gives_up_and_leaves_nothing() -> None:
    table = a_table("starved")
    rows = Overtaken(rows_of(("z", "x", 1, 1)), table, rows_of(("a", "x", 1, 2)), times=1_000)
    with pytest.raises(CommitConflictError, match="came in between"):
        run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 6
    assert rows_in(table) == [("a", "x", 1, 2)]
    assert not [i for i in table.timeline() if i.state != "completed"]


def test_a_column_that_was_added_meanwhile_is_not_forgotten() -> None:
    table = a_table("evolving")
    wider = rows_of(("a", "y", 1, 2)).append_column("note", pa.array(["n"]))
    rows = Overtaken(rows_of(("a", "x", 1, 1)).append_column("more", pa.array([7])), table, wider)
    with pytest.raises(Exception, match="note"):
        run_write(rows, table.store, Operation.UPSERT)
    assert table.schema.names == [*SCHEMA.names, "note"]


@pytest.mark.parametrize("kind", ["memory", "disk"])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_many_writers_lose_nothing(kind: str, table_type: str, tmp_path: Path) -> None:
    path = f"memory://many-{table_type}" if kind == "memory" else str(tmp_path / "t")
    create_table(
        None, path, SCHEMA, key="id", partition="dt", ordering="ts", buckets=2, table_type=table_type
    )

    def work(writer: int) -> None:
        for batch in range(5):
            own = [(f"w{writer}-{batch}-{n}", f"d{n % 2}", 1, writer) for n in range(4)]
            shared = [("shared", "d0", 10 * batch + writer, writer)]
            while True:
                try:
                    Table.open(path).upsert(rows_of(*own, *shared))
                except CommitConflictError:
                    continue
                break

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    found = rows_in(Table.open(path))
    assert len(found) == 4 * 5 * 4 + 1
    assert ("shared", "d0", 43, 3) in found
