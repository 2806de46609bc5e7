"""The record-level index by itself: its value, its shards, the keys that it takes, and files of dead attempts."""

from __future__ import annotations

import itertools
import pickle
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import (
    CommitConflictError,
    ConcurrentWriteError,
    ConfigError,
    LayoutMismatchError,
    RecordIndex,
    Table,
    create_table,
)
from bucketlake.commit.metadata_table import delist_index
from bucketlake.config import update_properties
from bucketlake.index import RecordLevelIndex, resolve_index, shard_of
from bucketlake.layout.names import WRITE_TOKEN, LogFileName, render_log_file_name
from bucketlake.metadata.places import INDEX_BUILT, RECORD_INDEX, folder_of
from bucketlake.metadata.record_shard import encode_entry_log
from bucketlake.state import load_state
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import orders, orders_table
from stand_ins.record_index_check import check_record_index

_names = itertools.count()
KINDS = pytest.mark.parametrize(
    "index", [RecordIndex(shards=3), RecordIndex(per_partition=True, shards=3)], ids=["table", "partitions"]
)


def a_table(index: RecordIndex, table_type: str = "MERGE_ON_READ") -> Table:
    return orders_table(f"memory://record-level-{next(_names)}", index=index, table_type=table_type)


def index_of(table: Table) -> RecordLevelIndex:
    found = resolve_index(load_state(table.store))
    assert isinstance(found, RecordLevelIndex)
    return found


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (RecordIndex(shards=0), "shards is 0; expected 1 to 10,000"),
        (RecordIndex(shards=10_001), "shards is 10001"),
        (RecordIndex(shards=True), "shards is True"),
        (RecordIndex(shards="4"), "shards is '4', a str"),  # type: ignore[arg-type] # that is the point
        (RecordIndex(per_partition="yes"), "per_partition is 'yes'"),  # type: ignore[arg-type]
        (RecordIndex(per_partition=True, update_partition=False), "update_partition=False goes with"),
    ],
)
def test_a_value_that_no_index_can_be_is_refused_before_anything_is_written(
    value: RecordIndex, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        a_table(value)


def test_a_table_says_itself_which_index_it_has() -> None:
    table = a_table(RecordIndex(shards=3))
    assert Table.open(table.store.uri, index=RecordIndex(shards=3))
    assert Table.open(table.store.uri, index=RecordIndex())
    with pytest.raises(LayoutMismatchError, match="of each partition"):
        Table.open(table.store.uri, index=RecordIndex(per_partition=True))
    with pytest.raises(LayoutMismatchError, match="simple buckets"):
        Table.open(table.store.uri, buckets=4)


@pytest.mark.shows("R4")
@KINDS
def test_a_key_is_in_the_shard_that_hudis_hash_says(index: RecordIndex) -> None:
    table = a_table(index)
    table.upsert(orders(range(40), "a", 1))
    found = index_of(table)
    keys = pa.array([str(n) for n in range(40)])
    partitions = pa.array([f"p{n % 2}" for n in range(40)])
    shards = found.shard_of(partitions, keys).tolist()
    starts = {"p0": 0, "p1": 3} if index.per_partition else {"p0": 0, "p1": 0}
    assert shards == [
        starts[p] + shard_of(k, 3) for p, k in zip(partitions.to_pylist(), keys.to_pylist(), strict=True)
    ]


@pytest.mark.shows("R2")
def test_partitions_that_are_new_have_shards_beyond_all_others() -> None:
    found = index_of(a_table(RecordIndex(per_partition=True, shards=5)))
    partitions = pa.array([f"p{n}" for n in range(500)])
    keys = pa.array(["k"] * 500)
    shards = found.shard_of(partitions, keys)
    assert (shards >= 1 << 31).all() and (shards < 1 << 32).all()
    assert (shards == found.shard_of(partitions, keys)).all()


@KINDS
def test_what_travels_to_tasks_is_pinned_to_what_the_driver_saw(index: RecordIndex) -> None:
    table = a_table(index)
    table.upsert(orders(range(4), "a", 1))
    sent = pickle.dumps(index_of(table))
    table.upsert(orders(range(4, 8), "a", 1))
    there: RecordLevelIndex = pickle.loads(sent)
    entries = [key for shard in range(there.shards_there) for key in there.entries(shard)["key"].to_pylist()]
    assert sorted(entries) == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (["x" * 32_768], "32,768 bytes.*at most 32,767"),
        (["ｆｕｌｌ", "😀"], r"U\+E000 to U\+FFFF"),
    ],
)
def test_keys_that_the_index_cannot_have_are_refused_and_nothing_is_written(
    keys: list[str], says: str
) -> None:
    table = create_table(
        f"memory://record-level-{next(_names)}", "id STRING, v STRING", key="id", index=RecordIndex()
    )
    table.upsert([{"id": "a", "v": "1"}])
    with pytest.raises(ConfigError, match=says):
        table.upsert([{"id": key, "v": "2"} for key in keys])
    assert table.to_arrow(columns=["id"]).to_pylist() == [{"id": "a"}]
    table.upsert([{"id": "x" * 32_767, "v": "2"}, {"id": "日本 😀", "v": "3"}])
    assert table.get("日本 😀").num_rows == table.get("x" * 32_767).num_rows == 1
    check_record_index(table.store)


def _log_of(instant: str, shard: str = "record-index-0000-0") -> str:
    name = render_log_file_name(LogFileName(shard, instant, 2, WRITE_TOKEN))
    return f"{folder_of(RECORD_INDEX)}/{name}"


class Leaving(ArrowRows):
    """Rows of which an attempt that failed has left an index file, or lost one."""

    def __init__(self, rows: pa.Table, act: Any) -> None:
        super().__init__(rows)
        self._act = act

    def run(self, plan: Any) -> Any:
        done = super().run(plan)
        self._act(plan)
        return done


@pytest.mark.shows("X3")
def test_an_index_file_that_a_dead_attempt_left_goes_before_it_could_count() -> None:
    table = a_table(RecordIndex(shards=1))
    table.upsert(orders(range(4), "a", 1))
    seen: list[str] = []

    def leave(plan: Any) -> None:
        seen.append(_log_of(plan.instant))
        table.store.put(seen[-1], encode_entry_log(plan.instant, None, pa.array(["0", "1"])))

    run_write(Leaving(orders([2, 9], "b", 2), leave), table.store, Operation.UPSERT)
    assert seen[0] not in {file.path for file in table.store.list(folder_of(RECORD_INDEX)).files}
    assert check_record_index(table.store) == 5


def test_a_write_whose_index_file_is_gone_is_run_again() -> None:
    table = a_table(RecordIndex(shards=1))
    runs: list[str] = []

    def lose(plan: Any) -> None:
        runs.append(plan.instant)
        if len(runs) == 1:
            for file in table.store.list(folder_of(RECORD_INDEX)).files:
                if plan.instant in file.path:
                    table.store.delete(file.path)

    run_write(Leaving(orders([1, 2], "a", 1), lose), table.store, Operation.UPSERT)
    assert len(runs) == 2
    assert check_record_index(table.store) == 2


def test_a_write_that_loses_its_index_files_every_time_says_so() -> None:
    table = a_table(RecordIndex(shards=1))

    def lose(plan: Any) -> None:
        for file in table.store.list(folder_of(RECORD_INDEX)).files:
            if plan.instant in file.path:
                table.store.delete(file.path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketlake.write.job.ATTEMPTS", 2)
        with pytest.raises(CommitConflictError, match="in which it recorded keys, is gone"):
            run_write(Leaving(orders([1, 2], "a", 1), lose), table.store, Operation.UPSERT)
    assert table.to_arrow().num_rows == 0


def test_a_write_waits_for_an_index_that_is_being_built(monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(RecordIndex(shards=1))
    table.upsert(orders([1], "a", 1))
    delist_index(table.store)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            table.metadata.build()

    monkeypatch.setattr("bucketlake.write.job.sleep", sleep)
    table.upsert(orders([1, 2], "b", 2))
    assert len(waits) == 3
    assert check_record_index(table.store) == 2


def test_a_write_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    table = a_table(RecordIndex(shards=1))
    table.upsert(orders([1], "a", 1))
    delist_index(table.store)
    waits: list[float] = []
    monkeypatch.setattr("bucketlake.write.job.sleep", waits.append)
    with pytest.raises(ConcurrentWriteError, match=r"delisted to be built anew.*metadata build"):
        table.upsert(orders([1, 2], "b", 2))
    assert 30 < len(waits) < 120


def test_a_write_whose_index_is_built_anew_while_it_looks_keys_up_is_run_again() -> None:
    table = a_table(RecordIndex(shards=1))
    table.upsert(orders(range(4), "a", 1))
    runs: list[str] = []

    class Late(ArrowRows):
        def run(self, plan: Any) -> Any:
            runs.append(plan.instant)
            if len(runs) == 1:
                table.metadata.rebuild()
            return super().run(plan)

    run_write(Late(orders([1, 9], "b", 2)), table.store, Operation.UPSERT)
    assert len(runs) == 2
    assert check_record_index(table.store) == 5


def test_an_index_that_is_delisted_under_a_service_is_not_taken_for_lost() -> None:
    table = a_table(RecordIndex(shards=1))
    table.upsert(orders(range(4), "a", 1))
    index = index_of(table)
    delist_index(table.store)
    for file in table.store.list(folder_of(RECORD_INDEX)).files:
        table.store.delete(file.path)
    with pytest.raises(
        CommitConflictError, match=r"was delisted, or has got other shards, since.*Run it again"
    ):
        index.check_there(["a"])


def test_an_index_that_was_built_anew_meanwhile_is_not_taken_for_lost() -> None:
    table = a_table(RecordIndex(shards=1))
    table.upsert(orders(range(4), "a", 1))
    index = index_of(table)
    update_properties(table.store, {INDEX_BUILT: "later"})
    for file in table.store.list(folder_of(RECORD_INDEX)).files:
        table.store.delete(file.path)
    with pytest.raises(CommitConflictError, match=r"delisted, or has got other shards.*Run it again"):
        index.check_there(["a"])
