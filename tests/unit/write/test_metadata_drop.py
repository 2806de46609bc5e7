"""A metadata table that is half gone hides rows from Hudi: it is listed and whole, or not listed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake import Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.operation import Operation
from bucketlake.commit.transaction import begin
from bucketlake.commit.writable import check_writable
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import ConcurrentWriteError, CorruptTableError
from bucketlake.layout.names import INDEX_DEFINITIONS_PATH, METADATA_TABLE_FOLDER
from bucketlake.state import load_state
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.write.metadata_drop import (
    DropMetadataTable,
    plan_drop_metadata_table,
    run_drop_metadata_table,
)
from judges.rows import assert_same_rows
from stand_ins.transactions import new_table

Golden = Callable[[str], Path]


def in_memory(folder: Path) -> MemoryStore:
    store = MemoryStore()
    for file in folder.rglob("*"):
        if file.is_file():
            store.put(file.relative_to(folder).as_posix(), file)
    return store


@pytest.mark.parametrize("name", ["cow_global_rli", "mor_partitioned_rli", "cow_secondary_index", "svc_mor"])
def test_the_metadata_table_goes_and_every_row_stays(golden_table: Golden, tmp_path: Path, name: str) -> None:
    shutil.copytree(golden_table(name), tmp_path / name)
    store = LocalStore(tmp_path / name)
    rows = Table.open(tmp_path / name).to_arrow()
    plan = plan_drop_metadata_table(load_state(store))
    assert plan.partitions
    assert not plan.is_empty
    text = str(plan)
    assert "files" in text and f"{plan.size_bytes:,} bytes" in text
    before = {file.path for file in store.list("", recursive=True).files}
    run_drop_metadata_table(plan, store)
    after = {file.path for file in store.list("", recursive=True).files}
    assert before - after == {file.path for file in plan.files}
    assert not [path for path in after if path.startswith(METADATA_TABLE_FOLDER)]
    state = load_state(store)
    assert state.properties.metadata_partitions == ()
    assert INDEX_DEFINITIONS_PATH not in after
    check_writable(state)
    assert_same_rows(Table.open(tmp_path / name).to_arrow(), rows)
    assert plan_drop_metadata_table(state).is_empty


def test_a_table_without_one_has_nothing_to_drop(golden_table: Golden) -> None:
    for name in ("cow_simple_bucket", "cow_savepoint_restore"):
        plan = plan_drop_metadata_table(load_state(LocalStore(golden_table(name))))
        assert plan == DropMetadataTable(table=plan.table)
        assert "has no metadata table" in str(plan)


@pytest.mark.parametrize("took_effect", [False, True])
def test_cut_off_anywhere_it_is_whole_and_listed_or_not_listed(
    golden_table: Golden, took_effect: bool
) -> None:
    folder = golden_table("cow_global_rli")
    counting = FaultyStore(in_memory(folder))
    plan = plan_drop_metadata_table(load_state(counting.inner))
    run_drop_metadata_table(plan, counting)
    interesting = [n for n, what in enumerate(counting.operations, 1) if "metadata/" not in what]
    for number in [*interesting, len(counting.operations) // 2, len(counting.operations)]:
        store = in_memory(folder)
        with pytest.raises(InjectedError):
            run_drop_metadata_table(
                plan, FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True)
            )
        left = {file.path for file in store.list("", recursive=True).files}
        if load_properties(store).metadata_partitions:
            assert {file.path for file in plan.files} <= left
        again = plan_drop_metadata_table(load_state(store))
        run_drop_metadata_table(again, store)
        assert plan_drop_metadata_table(load_state(store)).is_empty


def test_definitions_of_something_else_stay() -> None:
    store = new_table()
    update_properties(
        store,
        {
            "hoodie.table.metadata.partitions": "files",
            "hoodie.table.index.defs.path": INDEX_DEFINITIONS_PATH,
        },
    )
    store.put(INDEX_DEFINITIONS_PATH, b'{"indexDefinitions": {"of_another_kind": {}}}')
    run_drop_metadata_table(plan_drop_metadata_table(load_state(store)), store)
    assert store.read(INDEX_DEFINITIONS_PATH)
    assert "hoodie.table.index.defs.path" in load_properties(store).raw


def test_definitions_that_cannot_be_read_are_named() -> None:
    store = new_table()
    update_properties(store, {"hoodie.table.metadata.partitions": "files"})
    store.put(INDEX_DEFINITIONS_PATH, b"[]")
    with pytest.raises(CorruptTableError, match="index_defs"):
        plan_drop_metadata_table(load_state(store))


def test_a_plan_for_leftovers_delists_what_was_built_since() -> None:
    store = new_table()
    store.put(f"{METADATA_TABLE_FOLDER}/.hoodie/hoodie.properties", b"left")
    plan = plan_drop_metadata_table(load_state(store))
    assert not plan.partitions
    build_metadata(store)
    run_drop_metadata_table(plan, store)
    assert load_properties(store).metadata_partitions == ()


def test_it_does_not_go_under_the_hands_of_a_writer() -> None:
    store = new_table()
    begin(store, operation=Operation.UPSERT)
    update_properties(store, {"hoodie.table.metadata.partitions": "files"})
    with pytest.raises(ConcurrentWriteError):
        run_drop_metadata_table(plan_drop_metadata_table(load_state(store)), store)
    assert load_properties(store).metadata_partitions == ("files",)
