"""The metadata table as a user meets it: made with a table, built, built anew, delisted, dropped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.commit.metadata_build import committed_files
from bucketlake.commit.metadata_table import DELISTINGS
from bucketlake.config import load_properties, update_properties
from bucketlake.errors import ConfigError, CorruptTableError, UnsupportedError
from bucketlake.layout.names import METADATA_TABLE_FOLDER
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.metadata.places import WANTED
from bucketlake.metadata.step import look_at_step
from bucketlake.state import load_state
from bucketlake.timeline import Action, CommitMetadata, encode_commit_metadata, encode_compaction_plan
from bucketlake.timeline.metadata import CompactionPlan

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])
LISTED = "hoodie.table.metadata.partitions"


def rows(first: int, count: int, ts: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "dt": [f"d{n % 3}" for n in numbers], "ts": [ts] * count}, SCHEMA
    )


def made(folder: Path, *, metadata: bool = True, table_type: str = "MERGE_ON_READ") -> Table:
    return create_table(
        folder,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=2,
        table_type=table_type,
        metadata=metadata,
    )


def assert_kept(table: Table) -> None:
    """The metadata table is listed, in step, and lists what committed writes have put into the folders."""
    state = load_state(table.store)
    assert str(look_at_step(table.store, state.properties)) == "in step"
    listed = list_by_metadata(table.store, state.properties, state.timeline, None)
    assert listed is not None
    found = {p: {f.path.rpartition("/")[2]: f.size_bytes for f in files} for p, files in listed.items()}
    assert found == committed_files(state)


@pytest.mark.shows("M1")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_table_has_a_metadata_table_from_the_start_and_keeps_it(tmp_path: Path, table_type: str) -> None:
    table = made(tmp_path, table_type=table_type)
    assert table.properties.metadata_partitions == ("files",)
    assert_kept(table)
    for number in range(4):
        table.upsert(rows(number * 5, 20, number))
        assert_kept(table)
    table.delete([{"id": "k7"}], partition="d1")
    table.overwrite(rows(0, 4, 9))
    assert_kept(table)
    table.delete_partitions(["d2"])
    table.clean(retain_commits=1)
    assert_kept(table)
    assert table.to_arrow().num_rows > 0


@pytest.mark.shows("M1")
def test_a_table_that_has_none_gets_one_and_its_plan_says_what_is_listed(tmp_path: Path) -> None:
    table = made(tmp_path, metadata=False)
    table.upsert(rows(0, 30, 1))
    plan = table.metadata.plan_build()
    assert "list 6 files" in str(plan) and "3 partitions" in str(plan)
    done = table.run(plan)
    assert done is not None and "6 files in 3 partitions" in str(done)
    assert_kept(table)
    assert table.metadata.build() is None
    assert table.metadata.plan_build().is_empty
    Table.open(tmp_path).upsert(rows(10, 30, 2))
    assert_kept(table)


def test_what_is_dropped_stays_dropped_and_may_be_built_again(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows(0, 30, 1))
    assert not table.metadata.plan_drop().is_empty
    table.metadata.drop()
    assert load_properties(table.store).metadata_partitions == ()
    assert not table.store.list(METADATA_TABLE_FOLDER, recursive=True).files
    table.upsert(rows(0, 40, 2))
    assert load_properties(table.store).metadata_partitions == ()
    table.metadata.build()
    assert_kept(table)


@pytest.mark.shows("M4")
def test_one_that_lags_is_not_read_by_and_not_written_on_until_it_is_built_anew(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows(0, 30, 1))
    table.upsert(rows(30, 30, 2))
    last = load_state(table.store).timeline.writes[-1].requested
    for file in table.store.list(METADATA_TABLE_FOLDER, recursive=True).files:
        if last in file.path:
            table.store.delete(file.path)
    assert Table.open(tmp_path).to_arrow().num_rows == 60
    with pytest.raises(CorruptTableError, match=f"lacks the deltacommit of {last}.*metadata rebuild"):
        table.upsert(rows(0, 5, 3))
    assert "delist files" in str(table.metadata.plan_rebuild())
    table.metadata.rebuild()
    assert_kept(table)
    table.upsert(rows(0, 5, 3))
    assert_kept(table)


@pytest.mark.shows("M2")
def test_parts_that_are_not_kept_are_named_and_delisted_when_the_caller_says_so(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows(0, 30, 1))
    update_properties(table.store, {LISTED: "bloom_filters,files"})
    table.store.put(f"{METADATA_TABLE_FOLDER}/bloom_filters/left", b"x")
    with pytest.raises(UnsupportedError, match=r"bloom_filters,files.*metadata delist"):
        table.upsert(rows(0, 5, 2))
    assert table.metadata.plan_delist().partitions == ("bloom_filters",)
    assert table.metadata.delist().partitions == ("bloom_filters",)
    assert load_properties(table.store).raw[DELISTINGS] == "1"
    assert not table.store.list(f"{METADATA_TABLE_FOLDER}/bloom_filters").files
    table.upsert(rows(0, 5, 2))
    assert_kept(table)
    assert table.metadata.delist().partitions == ()
    assert table.metadata.status().delistings == 1


@pytest.mark.shows("M2")
def test_a_table_may_say_that_every_write_delists_them(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.alter(on_unmaintained="delist")
    update_properties(table.store, {LISTED: "bloom_filters,files"})
    table.upsert(rows(0, 5, 2))
    assert load_properties(table.store).metadata_partitions == ("files",)
    with pytest.raises(ConfigError, match="'drop'; expected one of refuse, delist"):
        table.alter(on_unmaintained="drop")


@pytest.mark.shows("M1", "H2")
def test_a_rollback_behind_a_compaction_of_it_builds_it_anew(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.upsert(rows(0, 30, 1))
    table.upsert(rows(30, 30, 2))
    last = load_state(table.store).timeline.writes[-1]
    compact_as_hudi_does(table)
    table.rollback(last.requested)
    assert table.to_arrow().num_rows == 30
    assert WANTED not in load_properties(table.store).raw
    assert_kept(table)
    table.upsert(rows(30, 30, 3))
    assert_kept(table)


def compact_as_hudi_does(table: Table) -> None:
    """Put a completed compaction on the metadata table's timeline; what its base file has is of no matter here."""
    folder = f"{METADATA_TABLE_FOLDER}/.hoodie/timeline"
    empty = encode_commit_metadata(
        CommitMetadata(operation="COMPACT", write_stats=(), is_compaction=True), action=Action.COMPACTION
    )
    table.store.put(
        f"{folder}/29990101000000000.compaction.requested",
        encode_compaction_plan(CompactionPlan(operations=())),
    )
    table.store.put(f"{folder}/29990101000000000_29990101000000001.commit", empty)


@pytest.mark.shows("H4")
def test_the_commands_do_the_same(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    table = made(tmp_path, metadata=False)
    table.upsert(rows(0, 30, 1))
    code, said, _ = run("metadata", "build", str(tmp_path), "--dry-run")
    assert code == 0 and "list 6 files" in said
    assert load_properties(table.store).metadata_partitions == ()
    code, said, _ = run("metadata", "build", str(tmp_path))
    assert code == 0 and "6 files in 3 partitions" in said
    assert_kept(table)
    code, said, _ = run("metadata", "status", str(tmp_path))
    assert code == 0 and "in step" in said and "files (1 shard)" in said
    code, said, _ = run("metadata", "rebuild", str(tmp_path))
    assert code == 0
    assert_kept(table)
    code, said, _ = run("metadata", "delist", str(tmp_path))
    assert code == 0 and "lists nothing that is not kept" in said
    code, said, _ = run("metadata", "drop", str(tmp_path), "--yes")
    assert code == 0
    assert load_properties(table.store).metadata_partitions == ()


def test_a_table_of_the_command_line_may_have_one(
    tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    place = str(tmp_path / "orders")
    code, _, _ = run("create", place, "--key", "id", "--schema", "id STRING, v INT", "--metadata")
    assert code == 0
    assert Table.open(place).properties.metadata_partitions == ("files",)
    _, said, _ = run("metadata", "status", place)
    assert "since then 1 delta commit, at most 1 log in a shard" in said
    _, said, _ = run("describe", place)
    assert "None" not in said
    code, _, said = run("metadata", "bild", place)
    assert code == 2 and "Did you mean 'build', 'rebuild'? See" in said


@pytest.mark.shows("M2")
@pytest.mark.parametrize("act", ["build", "rebuild"])
def test_nothing_is_built_while_hudi_builds_a_part_of_it(tmp_path: Path, act: str) -> None:
    table = made(tmp_path / "t", metadata=act == "rebuild")
    table.upsert(rows(0, 3, 1))
    update_properties(table.store, {"hoodie.table.metadata.partitions.inflight": "record_index"})
    before = load_properties(table.store).raw
    with pytest.raises(UnsupportedError, match=r"record_index.*Wait until Hudi.*metadata drop"):
        getattr(table.metadata, act)()
    assert load_properties(table.store).raw == before
    table.metadata.drop()
    table.metadata.build()
    assert_kept(table)
