"""Which blocks count decides what a query sees: a block too many is an aborted write in the result."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile import BlockType, HeaderKey, LogDeletes, LogRecords, encode_block, read_log_files
from bucketlake.storage import LocalStore, MemoryStore, Store
from judges.hudi_blocks import hudi_block

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "_hoodie_record_key", "type": ["null", "string"]},
        {"name": "ts", "type": ["null", "int"]},
    ],
}
SCHEMA = pa.schema([("_hoodie_record_key", pa.string()), ("ts", pa.int64())])


def avro_content(rows: Sequence[dict[str, Any]], schema: dict[str, Any]) -> bytes:
    parts = [struct.pack(">ii", 3, len(rows))]
    for row in rows:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
        parts += (struct.pack(">i", stream.tell()), stream.getvalue())
    return b"".join(parts)


def data(
    instant: str, *keys: str, schema: dict[str, Any] = AVRO, compacted: str | None = None, **header: str
) -> bytes:
    entries = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: json.dumps(schema)}
    entries |= {HeaderKey[name]: text for name, text in header.items()}
    if compacted:
        entries[HeaderKey.COMPACTED_BLOCK_TIMES] = compacted
    rows = [{"_hoodie_record_key": key, "ts": 1} for key in keys]
    return hudi_block(BlockType.AVRO_DATA, entries, avro_content(rows, schema))


def delete(instant: str, key: str, ordering: bytes = b"\x04\x00") -> bytes:
    listed = b"\x02\x02\x02" + key.encode() + b"\x00" + ordering + b"\x00"
    content = struct.pack(">ii", 3, len(listed)) + listed
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: json.dumps(AVRO)}
    return hudi_block(BlockType.DELETE, header, content)


def rollback(instant: str, target: str, command: str = "0") -> bytes:
    return hudi_block(
        BlockType.COMMAND,
        {
            HeaderKey.INSTANT_TIME: instant,
            HeaderKey.TARGET_INSTANT_TIME: target,
            HeaderKey.COMMAND_BLOCK_TYPE: command,
        },
        b"",
    )


def read(
    *files: bytes, store: Store | None = None, schema: pa.Schema = SCHEMA, **options: Any
) -> tuple[LogRecords | LogDeletes, ...]:
    store = store or MemoryStore()
    paths = [f"p/.f_{index}.log.1_0-0-0" for index in range(len(files))]
    for path, content in zip(paths, files, strict=True):
        store.put(path, content)
    return read_log_files(store, paths, schema, ordering_fields=["ts"], table_schema=SCHEMA, **options)


def keys_of(logs: tuple[LogRecords | LogDeletes, ...]) -> list[str]:
    """Show what applies: `a` for a row, `-a` for a delete."""
    shown = []
    for log in logs:
        if isinstance(log, LogDeletes):
            shown += [f"-{key}" for key in log.keys.to_pylist()]
        else:
            shown += log.records.column("_hoodie_record_key").to_pylist()
    return shown


def test_blocks_apply_in_the_order_of_files_and_then_of_the_file() -> None:
    logs = read(data("1", "a", "b") + delete("1", "c"), data("2", "d"))
    assert keys_of(logs) == ["a", "b", "-c", "d"]
    assert [log.instant for log in logs] == ["1", "1", "2"]


def test_no_files_say_nothing() -> None:
    assert read() == ()
    assert read(b"") == ()


def test_rows_have_the_wanted_schema_widened_and_filled() -> None:
    schema = pa.schema([("ts", pa.int64()), ("_hoodie_record_key", pa.string()), ("later", pa.float64())])
    (log,) = read(data("1", "a"), schema=schema)
    assert isinstance(log, LogRecords)
    assert log.records.schema == schema
    assert log.records.to_pylist() == [{"ts": 1, "_hoodie_record_key": "a", "later": None}]


def test_a_partial_block_has_only_the_columns_it_holds() -> None:
    partial = {**AVRO, "fields": AVRO["fields"][:1]}
    (log,) = read(data("1", "a", schema=partial, IS_PARTIAL="true"))
    assert isinstance(log, LogRecords)
    assert log.is_partial
    assert log.records.schema == pa.schema([("_hoodie_record_key", pa.string())])


def test_a_parquet_block_reads_like_an_avro_block() -> None:
    stream = io.BytesIO()
    pq.write_table(
        pa.table({"other": [1.5], "ts": pa.array([1], pa.int32()), "_hoodie_record_key": ["a"]}), stream
    )
    header = {HeaderKey.INSTANT_TIME: "1", HeaderKey.SCHEMA: "not looked at"}
    (log,) = read(hudi_block(BlockType.PARQUET_DATA, header, stream.getvalue()))
    assert isinstance(log, LogRecords)
    assert log.records.equals(pa.table({"_hoodie_record_key": ["a"], "ts": [1]}, schema=SCHEMA))


def test_deletes_carry_the_ordering_of_the_table_s_type() -> None:
    commit_time, event_time = read(delete("1", "a") + delete("1", "b", ordering=b"\x06\x0e"))
    assert isinstance(commit_time, LogDeletes)
    assert isinstance(event_time, LogDeletes)
    assert commit_time.is_commit_time.to_pylist() == [True]
    assert event_time.is_commit_time.to_pylist() == [False]
    assert event_time.ordering is not None
    assert event_time.ordering.type == pa.struct([("ts", pa.int64())])
    assert event_time.ordering.to_pylist() == [{"ts": 7}]


@pytest.mark.shows("S5")
def test_blocks_later_than_the_query_are_left_out() -> None:
    assert keys_of(read(data("1", "a"), data("2", "b"), delete("3", "c"), up_to="2")) == ["a", "b"]


@pytest.mark.shows("S5")
def test_only_the_wanted_instants_are_read() -> None:
    assert keys_of(read(data("1", "a"), data("2", "b"), data("3", "c"), instants={"2", "3"})) == ["b", "c"]


def test_blocks_of_an_uncommitted_write_are_left_out_where_the_timeline_is_asked() -> None:
    committed = {"1", "3"}
    logs = read(data("1", "a") + data("2", "b") + data("3", "c"), is_committed=committed.__contains__)
    assert keys_of(logs) == ["a", "c"]


def test_a_rollback_takes_away_the_blocks_of_its_target_before_it() -> None:
    logs = read(data("1", "a") + data("2", "b") + data("3", "c") + rollback("4", "2"), data("2", "again"))
    assert keys_of(logs) == ["a", "c", "again"]


def test_a_rollback_of_nothing_is_nothing() -> None:
    assert keys_of(read(rollback("4", "2") + data("1", "a"))) == ["a"]


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="command '7'"):
        read(rollback("4", "2", command="7"))


def test_blocks_of_one_instant_apply_where_the_first_of_them_stands() -> None:
    assert keys_of(read(data("1", "a"), data("2", "b"), data("1", "c"))) == ["a", "c", "b"]


def test_a_log_compaction_stands_for_the_blocks_it_was_made_of() -> None:
    logs = read(data("1", "a"), data("2", "b"), data("3", "c"), data("4", "ab", compacted="1,2"))
    assert keys_of(logs) == ["ab", "c"]


def test_a_log_compaction_of_a_log_compaction_stands_for_all() -> None:
    logs = read(
        data("1", "a"),
        data("2", "b"),
        data("3", "ab", compacted="1,2"),
        data("4", "d"),
        data("5", "abd", compacted="3,4"),
        data("6", "e"),
    )
    assert keys_of(logs) == ["abd", "e"]


def test_a_rolled_back_log_compaction_leaves_its_sources() -> None:
    logs = read(data("1", "a"), data("2", "b"), data("3", "ab", compacted="1,2"), rollback("4", "3"))
    assert keys_of(logs) == ["a", "b"]


def test_on_a_disk_a_torn_block_is_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logs = read(data("1", "a") + data("2", "b")[:-3], data("3", "c"), store=LocalStore(tmp_path))
    assert keys_of(logs) == ["a", "c"]
    assert "torn block" in caplog.text


@pytest.mark.parametrize("cut", [3, len(data("2", "b")) - 2])
def test_a_log_that_a_completed_commit_tells_of_has_no_torn_blocks(tmp_path: Path, cut: int) -> None:
    with pytest.raises(CorruptTableError, match=r"\.f_0\.log.*torn"):
        read(
            data("1", "a") + data("2", "b")[:-cut],
            store=LocalStore(tmp_path),
            whole=["p/.f_0.log.1_0-0-0"],
        )


def test_a_torn_block_of_ours_is_damage_whoever_tells_of_it(tmp_path: Path) -> None:
    ours = encode_block(BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: "2"}, b"rows")
    with pytest.raises(CorruptTableError, match="torn"):
        read(data("1", "a") + ours[:-3], store=LocalStore(tmp_path))


def test_on_a_store_that_writes_whole_files_a_torn_block_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match="torn"):
        read(data("1", "a") + data("2", "b")[:-3], store=MemoryStore())


@pytest.mark.parametrize("kind", [BlockType.HFILE_DATA, BlockType.CDC_DATA])
def test_a_block_of_another_kind_is_refused_by_name(kind: BlockType) -> None:
    with pytest.raises(UnsupportedError, match=rf"\.f_0\.log\.1_0-0-0 is of type {kind.name}"):
        read(hudi_block(kind, {HeaderKey.INSTANT_TIME: "1"}, b""))


@pytest.mark.parametrize("kind", [BlockType.AVRO_DATA, BlockType.DELETE])
def test_a_block_without_an_instant_is_an_error(kind: BlockType) -> None:
    with pytest.raises(CorruptTableError, match="without INSTANT_TIME"):
        read(hudi_block(kind, {}, b""))


def test_a_data_block_without_a_schema_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match="without SCHEMA"):
        read(hudi_block(BlockType.AVRO_DATA, {HeaderKey.INSTANT_TIME: "1"}, b""))


def test_a_parquet_block_that_is_none_is_an_error() -> None:
    with pytest.raises(CorruptTableError, match=r"\.f_0\.log.*no Parquet file"):
        read(hudi_block(BlockType.PARQUET_DATA, {HeaderKey.INSTANT_TIME: "1"}, b"PAR1"))


def test_an_ordering_field_may_stand_inside_a_struct() -> None:
    table = pa.schema([("s", pa.struct([("ts", pa.int32())]))])
    store = MemoryStore()
    store.put("f", delete("1", "b", ordering=b"\x06\x0e"))
    (log,) = read_log_files(store, ["f"], SCHEMA, ordering_fields=["s.ts"], table_schema=table)
    assert isinstance(log, LogDeletes)
    assert log.ordering is not None
    assert log.ordering.to_pylist() == [{"s.ts": 7}]
