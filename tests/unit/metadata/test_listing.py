"""What is listed by a metadata table is what counts, whatever else lies there; damage is never taken for a listing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import BucketlakeError
from bucketlake.layout import DataFile
from bucketlake.metadata.listing import list_by_metadata, slice_of
from bucketlake.metadata.step import Step
from bucketlake.state import load_state
from bucketlake.storage import FileStat, MemoryStore
from bucketlake.timeline import timeline_of
from bucketlake.write import TableSpec, create
from stand_ins.aging import copy_of
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import SCHEMA, orders

pytestmark = pytest.mark.shows("M3", "M4")

SHARD = "files-0000-0"


def files_named(*names: str) -> list[FileStat]:
    return [FileStat(f".hoodie/metadata/files/{name}", 1, 0, "") for name in names]


def step_of(table: list[str], metadata: list[str]) -> Step:
    def timeline(names: list[str]):  # type: ignore[no-untyped-def] # a timeline
        return timeline_of([FileStat(f".hoodie/timeline/{name}", 1, 0, "") for name in names], layout=2)

    return Step(timeline(table), timeline(metadata))


def time(second: int) -> str:
    return f"202401020304{second:02}000"


def log(second: int) -> str:
    return f".{SHARD}_{time(second)}.log.1_0-0-0"


def base(second: int) -> str:
    return f"{SHARD}_0-0-0_{time(second)}.hfile"


def chosen(files: list[FileStat], step: Step) -> list[str]:
    shard = slice_of(files, step, file_id=SHARD)
    assert not shard.lost
    found = [*([shard.base] if shard.base else []), *shard.logs]
    return [file.path.rpartition("/")[2] for file in found]


def done(first: int, last: int, action: str = "deltacommit") -> str:
    return f"{time(first)}_{time(last)}.{action}"


def test_logs_of_an_instant_that_is_pending_in_the_table_do_not_count() -> None:
    table = [done(1, 3), f"{time(4)}.deltacommit.requested", f"{time(4)}.deltacommit.inflight"]
    metadata = [done(1, 2), done(4, 5)]
    assert chosen(files_named(log(1), log(4)), step_of(table, metadata)) == [log(1)]


def test_logs_of_a_write_count_while_a_savepoint_of_it_is_pending() -> None:
    table = [done(1, 3), f"{time(1)}.savepoint.inflight"]
    assert chosen(files_named(log(1)), step_of(table, [done(1, 2)])) == [log(1)]


def test_logs_of_an_instant_that_the_metadata_table_has_not_completed_do_not_count() -> None:
    metadata = [done(1, 2), f"{time(4)}.deltacommit.inflight"]
    assert chosen(files_named(log(1), log(4)), step_of([done(1, 3)], metadata)) == [log(1)]


def test_a_base_file_of_a_compaction_that_is_not_completed_does_not_count() -> None:
    files = files_named(base(1), log(2), base(5), log(6))
    metadata = [done(1, 1), done(2, 3), f"{time(5)}.compaction.requested", done(6, 7)]
    table = [done(2, 4), done(6, 8)]
    assert chosen(files, step_of(table, metadata)) == [base(1), log(2), log(6)]
    metadata += [done(5, 8, "commit")]
    assert chosen(files, step_of(table, metadata)) == [base(5), log(6)]


def test_what_was_requested_before_a_compaction_and_completed_after_it_counts() -> None:
    files = files_named(log(4), base(5))
    metadata = [done(4, 7), done(5, 6, "commit")]
    assert chosen(files, step_of([done(4, 8)], metadata)) == [base(5), log(4)]


def test_an_instant_whose_log_is_not_there_is_told() -> None:
    step = step_of([done(1, 3), done(4, 6)], [done(1, 2), done(4, 5)])
    assert slice_of(files_named(log(1)), step, file_id=SHARD).lost == (time(4),)


@pytest.fixture(scope="module")
def made() -> MemoryStore:
    store = MemoryStore()
    spec = TableSpec(name="orders", schema=SCHEMA, key=("id",), partition=("dt",), ordering=("ts",))
    create(store, spec)
    table = Table(store, load_properties(store))
    table.upsert(orders(range(6), "a", 1))
    build_metadata(store)
    table.upsert(orders(range(3, 9), "b", 2))
    return store


def listed(store: MemoryStore) -> dict[str, tuple[DataFile, ...]] | None:
    state = load_state(store)
    return list_by_metadata(store, state.properties, state.timeline, None)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_that_were_changed_are_refused_or_change_nothing(
    made: MemoryStore, data: st.DataObject
) -> None:
    store = copy_of(made)
    expected = listed(store)
    assert expected is not None
    paths = [f.path for f in store.list(".hoodie/metadata/files").files if f.path.endswith((".hfile", "0-1"))]
    path = data.draw(st.sampled_from(paths))
    content = bytearray(store.read(path))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    store.put(path, bytes(content))
    try:
        found = listed(store)
    except BucketlakeError:
        return
    assert found in (expected, None)


def test_a_partition_that_does_not_exist_is_listed_as_told_and_one_that_lacks_is_not_made_up(
    made: MemoryStore,
) -> None:
    state = load_state(made)
    assert list_by_metadata(made, state.properties, state.timeline, ["p0", "p9"]) == {
        "p0": (listed(made) or {})["p0"]
    }
    assert check_metadata(made)


def test_a_table_that_does_not_list_its_metadata_table_is_listed_by_folders(made: MemoryStore) -> None:
    store = copy_of(made)
    update_properties(store, {"hoodie.table.metadata.partitions": None})
    assert listed(store) is None
    assert Table(store, load_properties(store)).to_arrow().num_rows == 9
