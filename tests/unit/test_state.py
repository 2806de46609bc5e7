"""A state is what every query starts from: what it gets wrong, every row gets wrong."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from bucketlake.config import render_java_properties
from bucketlake.errors import ConfigError, CorruptTableError, NotATableError, UnsupportedError
from bucketlake.layout import FileSlice, list_table, slices_of
from bucketlake.state import (
    TableState,
    check_as_of,
    commit_metadata,
    instants_between,
    load_state,
    table_schema,
    view_for,
)
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline import Action, load_history

Golden = Callable[[str], Path]
GOLDEN = Path(__file__).parents[1] / "golden"
WITH_ROWS = sorted(path.name.removesuffix(".expected.jsonl") for path in GOLDEN.glob("*.expected.jsonl"))


def opened(golden_table: Golden, name: str) -> TableState:
    return load_state(LocalStore(golden_table(name)))


def seen(state: TableState, *, as_of: str | None = None) -> dict[tuple[str, str], FileSlice]:
    """What a snapshot reader sees, by file group."""
    is_partitioned = bool(state.properties.partition_fields)
    listed = list_table(state.store, is_partitioned=is_partitioned).files
    view = view_for(state, [file for files in listed.values() for file in files])
    found = [part for p, files in listed.items() for part in slices_of(p, files, view, as_of=as_of)]
    return {(part.partition, part.file_id): part for part in found}


@pytest.mark.parametrize("name", [name for name in WITH_ROWS if "virtual_keys" not in name])
def test_every_row_that_hudi_reads_is_in_a_slice_we_see(golden_table: Golden, name: str) -> None:
    """A row names its base file, or, out of a log, its file group."""
    state = opened(golden_table, name)
    slices = seen(state)
    rows = [json.loads(line) for line in (GOLDEN / f"{name}.expected.jsonl").read_text("utf-8").splitlines()]
    for row in rows:
        assert state.view.is_committed(row["_hoodie_commit_time"])
        file_id, _, rest = row["_hoodie_file_name"].partition("_")
        part = slices[(row.get("_hoodie_partition_path", ""), file_id)]
        if rest:
            assert part.base_file is not None
            assert part.base_file.path.endswith(row["_hoodie_file_name"])
        else:
            assert part.log_files


def test_replaced_file_groups_are_hidden_and_come_back_in_the_past(golden_table: Golden) -> None:
    state = opened(golden_table, "svc_mor")
    (overwrite,) = state.timeline.completed(Action.REPLACE_COMMIT)
    replaced = {group for group, instant in state.view.replaced.items() if instant == overwrite.requested}
    assert replaced
    assert not replaced & set(seen(state))
    assert replaced <= set(seen(state, as_of="20261115234314880"))


def test_a_pending_resize_hides_its_childrens_logs(golden_table: Golden) -> None:
    before = set(seen(opened(golden_table, "mor_consistent_0_before")))
    pending = opened(golden_table, "mor_consistent_1_pending_split")
    listed = list_table(pending.store).files
    on_disk = {(p, file.file_id) for p, files in listed.items() for file in files}
    assert set(seen(pending)) == before
    assert on_disk > before
    after = set(seen(opened(golden_table, "mor_consistent_2_after_split")))
    assert on_disk - before <= after, "the children take over"
    assert len(after & before) < len(before)


def test_files_of_a_failed_write_are_not_seen(golden_table: Golden) -> None:
    state = opened(golden_table, "cow_failed_inflight_markers")
    assert seen(state) == {}
    listed = list_table(state.store).files
    assert any(listed.values()), "or there was nothing to hide"


def test_a_state_travels(golden_table: Golden) -> None:
    state = opened(golden_table, "mor_v8")
    again = pickle.loads(pickle.dumps(state))
    assert (again.properties, again.timeline, again.view) == (state.properties, state.timeline, state.view)


def test_an_empty_folder_is_not_a_table() -> None:
    with pytest.raises(NotATableError):
        load_state(MemoryStore())


# --- tables made here -------------------------------------------------------------------------------------

PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.table.partition.fields": "dt",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.table.keygenerator.type": "SIMPLE",
}
PLAN = {
    "type": "record",
    "name": "HoodieCompactionPlan",
    "fields": [
        {
            "name": "operations",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Operation",
                    "fields": [{"name": name, "type": "string"} for name in ("partitionPath", "fileId")],
                },
            },
        }
    ],
}


def plan(*groups: tuple[str, str]) -> bytes:
    out = io.BytesIO()
    operations = [{"partitionPath": partition, "fileId": file_id} for partition, file_id in groups]
    fastavro.writer(out, fastavro.parse_schema(PLAN), [{"operations": operations}])
    return out.getvalue()


def table(**files: bytes) -> MemoryStore:
    """A table with these files on its timeline."""
    store = MemoryStore()
    store.put(".hoodie/hoodie.properties", render_java_properties(PROPERTIES))
    for name, data in files.items():
        store.put(f".hoodie/timeline/{name}", data)
    return store


COMMIT = json.dumps({"partitionToWriteStats": {}}).encode()


def test_a_pending_compaction_is_read_from_its_plan() -> None:
    store = table(
        **{
            "01_02.deltacommit": COMMIT,
            "05.compaction.requested": plan(("p", "A")),
            "05.compaction.inflight": b"",
            "07_08.deltacommit": COMMIT,
        }
    )
    store.put("p/.hoodie_partition_metadata", b"")
    for name in ("A_1-0-0_01.parquet", "A_1-0-0_05.parquet", ".A_07.log.1_1-0-0"):
        store.put(f"p/{name}", b"")
    state = load_state(store)
    assert state.view.pending_compactions == {("p", "A"): "05"}
    part = seen(state)[("p", "A")]
    assert part.base_file is not None
    assert (part.base_file.instant, [log.instant for log in part.log_files]) == ("01", ["07"])


def test_a_group_in_two_pending_compactions_is_an_error() -> None:
    store = table(
        **{
            "05.compaction.requested": plan(("p", "A")),
            "06.compaction.requested": plan(("p", "A"), ("p", "B")),
        }
    )
    with pytest.raises(CorruptTableError, match=r"06\.compaction\.requested.*file group A.*05"):
        load_state(store)


def replacement(*file_ids: str) -> bytes:
    return json.dumps({"partitionToReplaceFileIds": {"p": file_ids}}).encode()


def test_a_group_replaced_twice_is_gone_since_the_first_time() -> None:
    store = table(**{"03_09.replacecommit": replacement("A"), "04_05.replacecommit": replacement("A", "B")})
    assert load_state(store).view.replaced == {("p", "A"): "03", ("p", "B"): "04"}


def test_a_replacecommit_that_does_not_decode_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match=r"timeline/03_09\.replacecommit"):
        load_state(table(**{"03_09.replacecommit": b"nonsense"}))


class _ArchivingStore(MemoryStore):
    """Loses a file of the timeline between a listing and the reading, once."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        if path.endswith("03_09.replacecommit"):
            self.delete(path)
        return super().read(path, offset=offset, length=length)


def test_an_instant_archived_while_we_read_is_no_fault() -> None:
    store = _ArchivingStore()
    store.put(".hoodie/hoodie.properties", render_java_properties(PROPERTIES))
    store.put(".hoodie/timeline/03_09.replacecommit", replacement("A"))
    store.put(".hoodie/timeline/10_11.commit", COMMIT)
    assert [i.requested for i in load_state(store).timeline.instants] == ["10"]


def test_savepoints_at_the_front_leave_room_for_holes() -> None:
    names = ["01_02.commit", "01_03.savepoint", "05_06.commit", "05_07.savepoint", "09_10.commit"]
    store = table(**dict.fromkeys(names, COMMIT))
    assert load_state(store).view.holes_end == "09"
    store.delete(".hoodie/timeline/01_03.savepoint")
    assert load_state(store).view.holes_end is None


# --- schema -----------------------------------------------------------------------------------------------


def test_the_schema_is_the_newest_commits(golden_table: Golden) -> None:
    state = opened(golden_table, "mor_simple_bucket_avro")
    now = table_schema(state)
    assert now.names[:1] == ["id"]
    assert "_hoodie_is_deleted" in now.names
    first = state.timeline.writes[0].requested
    then = table_schema(state, as_of=first)
    assert now.names == [*then.names, "_hoodie_is_deleted"]
    assert table_schema(state, as_of="0" * 17) == now, "before the timeline: the newest, as for Hudi"


@pytest.mark.parametrize("name", WITH_ROWS)
def test_the_schema_has_every_column_of_every_row(golden_table: Golden, name: str) -> None:
    columns = set(table_schema(opened(golden_table, name)).names)
    for line in (GOLDEN / f"{name}.expected.jsonl").read_text("utf-8").splitlines():
        row = {
            key for key in json.loads(line) if not key.startswith("_hoodie_") or key == "_hoodie_is_deleted"
        }
        assert row <= columns


def _without_schema(golden_table: Golden, tmp_path: Path) -> TableState:
    folder = tmp_path / "t"
    shutil.copytree(golden_table("mor_v6"), folder)
    for commit in (folder / ".hoodie").glob("*.deltacommit"):
        body = json.loads(commit.read_text("utf-8"))
        del body["extraMetadata"]["schema"]
        commit.write_text(json.dumps(body), "utf-8")
    return load_state(LocalStore(folder))


def test_without_a_schema_in_any_commit_the_properties_say_it(golden_table: Golden, tmp_path: Path) -> None:
    state = _without_schema(golden_table, tmp_path)
    avro = '{"type":"record","name":"r","fields":[{"name":"id","type":["null","int"]}]}'
    state = replace(state, properties=replace(state.properties, create_schema=avro))
    assert table_schema(state) == pa.schema([("id", pa.int32())])


def test_else_a_base_file_does(golden_table: Golden, tmp_path: Path) -> None:
    expected = table_schema(opened(golden_table, "mor_v6"))
    assert table_schema(_without_schema(golden_table, tmp_path)).names == expected.names


def test_a_table_that_nobody_has_written_to_has_no_columns_yet() -> None:
    assert table_schema(load_state(table())) == pa.schema([])


def test_partition_columns_that_are_not_in_the_files_come_last(golden_table: Golden) -> None:
    state = opened(golden_table, "mor_v8")
    properties = replace(
        state.properties, drop_partition_columns=True, partition_fields=("dt", "region:simple")
    )
    dropped = table_schema(replace(state, properties=properties))
    assert dropped.names == [*table_schema(state).names, "region"]
    assert dropped.field("region").type == pa.string()


# --- incremental ------------------------------------------------------------------------------------------


@pytest.mark.shows("S5")
def test_a_range_is_open_at_its_begin_and_closed_at_its_end(golden_table: Golden) -> None:
    state = opened(golden_table, "mor_v8")
    writes = state.timeline.writes
    first, second, third = (instant.completed for instant in writes)

    def between(begin: str | None, end: str | None) -> list[int]:
        return [writes.index(instant) for instant, _ in instants_between(state, begin, end)]

    assert between(None, None) == [0, 1, 2]
    assert between(first, third) == [1, 2]
    assert between(first, second) == [1]
    assert between(third, None) == []
    assert between("0" * 17, "9" * 17) == [0, 1, 2]


@pytest.mark.shows("S5")
def test_instants_are_told_by_completion_not_by_request() -> None:
    store = table(
        **{"01_09.deltacommit": COMMIT, "02_03.deltacommit": COMMIT, "04.deltacommit.inflight": b""}
    )
    found = instants_between(load_state(store), "03", None)
    assert [(instant.requested, instant.completed) for instant, _ in found] == [("01", "09")]
    found = instants_between(load_state(store), None, None)
    assert [instant.requested for instant, _ in found] == ["02", "01"], "in order of completion"


def test_archived_instants_are_found_in_the_history(golden_table: Golden) -> None:
    state = opened(golden_table, "svc_mor")
    history = load_history(state.store, state.properties)
    archived_writes = [a for a in history if a.instant.is_write]
    found = instants_between(state, None, None)
    assert len(found) == len(archived_writes) + len(state.timeline.writes)
    completed = [instant.completed for instant, _ in found]
    assert completed == sorted(completed, key=str)
    assert all(metadata.write_stats for _, metadata in found)
    last_archived = archived_writes[-1]
    after = instants_between(state, last_archived.completed, None)
    assert [instant for instant, _ in after] == [
        i for i in state.timeline.writes if (i.completed or "") > last_archived.completed
    ]
    assert commit_metadata(state, last_archived) == dict(found)[last_archived.instant]


def test_the_history_is_left_alone_for_a_range_well_within_the_timeline(
    golden_table: Golden, tmp_path: Path
) -> None:
    folder = tmp_path / "t"
    shutil.copytree(golden_table("svc_mor"), folder)
    shutil.rmtree(folder / ".hoodie/timeline/history")
    (folder / ".hoodie/timeline/history").mkdir()
    (folder / ".hoodie/timeline/history/manifest_5").write_text("nonsense")
    state = load_state(LocalStore(folder))
    assert instants_between(state, "20991231000000000", None) == ()
    with pytest.raises(CorruptTableError, match="manifest_5"):
        instants_between(state, "20200101000000000", None)


def test_version_6_goes_by_requested_time(golden_table: Golden) -> None:
    state = opened(golden_table, "mor_v6")
    first, second, third = state.timeline.writes
    found = instants_between(state, first.requested, third.requested)
    assert [instant for instant, _ in found] == [second, third]
    assert [instant for instant, _ in instants_between(state, None, None)] == [first, second, third]


def _version_6(**files: bytes) -> TableState:
    store = MemoryStore()
    properties = PROPERTIES | {"hoodie.table.version": "6", "hoodie.timeline.layout.version": "1"}
    store.put(".hoodie/hoodie.properties", render_java_properties(properties))
    for name, data in files.items():
        store.put(f".hoodie/{name}", data)
    return load_state(store)


def test_version_6_does_not_reach_into_its_archive() -> None:
    state = _version_6(
        **{"05.commit": COMMIT, "07.commit": COMMIT, "archived/.commits_.archive.1_1-0-1": b"x"}
    )
    assert [instant.requested for instant, _ in instants_between(state, "05", None)] == ["07"]
    with pytest.raises(UnsupportedError, match="Begin at 05 or later"):
        instants_between(state, "04", None)


def test_version_6_does_not_step_over_a_pending_write() -> None:
    state = _version_6(**{"05.commit": COMMIT, "06.inflight": b"", "07.commit": COMMIT})
    assert [instant.requested for instant, _ in instants_between(state, "04", "06")] == ["05"]
    with pytest.raises(UnsupportedError, match="06, which is still pending"):
        instants_between(state, "04", "07")


# --- time travel ------------------------------------------------------------------------------------------


def test_a_time_before_the_last_clean_is_refused(golden_table: Golden) -> None:
    state = opened(golden_table, "svc_mor")
    check_as_of(state, "20261115234314880")
    with pytest.raises(ConfigError, match="kept files from 20261115234314880 on"):
        check_as_of(state, "20261115234314879")


def test_a_table_never_cleaned_can_be_read_at_any_time(golden_table: Golden) -> None:
    check_as_of(opened(golden_table, "mor_v8"), "0" * 17)
