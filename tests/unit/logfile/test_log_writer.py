"""A log file must say what was meant to Hudi and to us: these bytes are all that is left of a write."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.logfile import (
    Block,
    BlockType,
    Deletes,
    HeaderKey,
    LogDeletes,
    LogFacts,
    LogFormat,
    LogRecords,
    decode_blocks,
    encode_block,
    encode_log_file,
    log_file_facts,
    read_log_files,
)
from bucketlake.logfile.avro_columns import decode_records
from bucketlake.logfile.avro_encoder import encode_records
from bucketlake.logfile.avro_rows import decode_delete_rows
from bucketlake.logfile.deletes import encode_deletes
from bucketlake.schema import META_COLUMNS, arrow_to_avro, with_meta_columns
from bucketlake.storage import MemoryStore
from bucketlake.testing.tables import tables

GOLDEN = Path(__file__).parents[2] / "golden"
TABLES = sorted(archive.name.removesuffix(".tar.gz") for archive in GOLDEN.glob("mor_*.tar.gz"))
INSTANT = "20260101000000000"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
FORMATS = st.sampled_from(LogFormat)


def with_meta(rows: pa.Table, keys: list[str]) -> pa.Table:
    meta = {
        name: pa.array(keys if name == "_hoodie_record_key" else [name] * len(keys), pa.string())
        for name in META_COLUMNS
    }
    return pa.table([*meta.values(), *rows.columns], with_meta_columns(rows.schema))


def read(data: bytes, schema: pa.Schema, **ordering: pa.DataType) -> tuple[LogRecords | LogDeletes, ...]:
    store = MemoryStore()
    store.put("f.log.1", data)
    table_schema = pa.schema([*schema, *(pa.field(*item) for item in ordering.items())])
    return read_log_files(
        store, ["f.log.1"], schema, ordering_fields=list(ordering), table_schema=table_schema
    )


@given(tables(), FORMATS, st.integers(50, 400), st.data())
def test_rows_and_deletes_are_read_as_they_were_written(
    rows: pa.Table, block_format: LogFormat, block_bytes: int, data: st.DataObject
) -> None:
    keys = data.draw(st.lists(TEXT, min_size=rows.num_rows, max_size=rows.num_rows))
    gone = data.draw(st.lists(TEXT, min_size=0 if keys else 1, max_size=4))
    records = with_meta(rows, keys)
    written, told = encode_log_file(
        instant=INSTANT,
        avro_schema=arrow_to_avro(records.schema, table="t"),
        records=records,
        deletes=Deletes(pa.array(gone, pa.string()), "p", None) if gone else None,
        block_format=block_format,
        block_bytes=block_bytes,
    )

    logs = read(written, records.schema)
    found = [log for log in logs if isinstance(log, LogRecords)]
    assert {log.instant for log in logs} == {INSTANT}
    assert pa.concat_tables([records.schema.empty_table(), *(log.records for log in found)]).equals(records)
    deleted = [log for log in logs if isinstance(log, LogDeletes)]
    assert [key for log in deleted for key in log.keys.to_pylist()] == gone

    everything = sorted((*keys, *gone), key=str.encode)
    assert (
        told
        == log_file_facts(written, path="f")
        == LogFacts(
            rows=len(keys),
            deletes=len(gone),
            key_hash_sum=sum(xxhash.xxh64_intdigest(key.encode()) for key in everything) % 2**64,
            min_key=everything[0],
            max_key=everything[-1],
        )
    )


def test_extra_words_go_into_the_footer_of_parquet_blocks() -> None:
    records = with_meta(pa.table({"n": [1]}), ["a"])
    written, _ = encode_log_file(
        instant=INSTANT,
        avro_schema=arrow_to_avro(records.schema, table="t"),
        records=records,
        deletes=None,
        block_format=LogFormat.PARQUET,
        extra={"bucketlake.attempt": "7"},
    )
    assert b"bucketlake.attempt" in written
    (block,) = decode_blocks(written, path="f")
    assert block.type is BlockType.PARQUET_DATA
    assert block.header[HeaderKey.INSTANT_TIME] == INSTANT


def test_constant_columns_may_come_dictionary_encoded() -> None:
    records = with_meta(pa.table({"n": [1, 2]}), ["a", "b"])
    encoded = records.set_column(0, META_COLUMNS[0], records.column(0).dictionary_encode())
    for block_format in LogFormat:
        written, _ = encode_log_file(
            instant=INSTANT,
            avro_schema=arrow_to_avro(records.schema, table="t"),
            records=encoded,
            deletes=None,
            block_format=block_format,
        )
        (log,) = read(written, records.schema)
        assert isinstance(log, LogRecords)
        assert log.records.equals(records)


ONE_DAY = datetime.date(2026, 1, 2)
DAYS = (ONE_DAY - datetime.date(1970, 1, 1)).days


# Hudi's readers compare these with a row's own value: an Integer for a date, a Long for a timestamp.
@pytest.mark.parametrize(
    ("value", "kind", "wrapped"),
    [
        (7, pa.int16(), ("IntWrapper", 7)),
        (7, pa.int32(), ("IntWrapper", 7)),
        (0, pa.int64(), ("LongWrapper", 0)),
        (1.5, pa.float32(), ("FloatWrapper", 1.5)),
        (1.5, pa.float64(), ("DoubleWrapper", 1.5)),
        (True, pa.bool_(), ("BooleanWrapper", True)),
        ("x", pa.string(), ("StringWrapper", "x")),
        (b"x", pa.binary(), ("BytesWrapper", b"x")),
        (ONE_DAY, pa.date32(), ("IntWrapper", DAYS)),
        (datetime.datetime(1970, 1, 1, 0, 0, 1), pa.timestamp("us"), ("LongWrapper", 1_000_000)),
        (decimal.Decimal("1.50"), pa.decimal128(10, 2), ("DecimalWrapper", (15 * 10**14).to_bytes(7))),
        (
            decimal.Decimal("-0.01"),
            pa.decimal128(10, 2),
            ("DecimalWrapper", (-(10**13)).to_bytes(6, signed=True)),
        ),
        (None, pa.int64(), None),
    ],
    ids=str,
)
def test_an_ordering_value_is_wrapped_by_its_type(value: Any, kind: pa.DataType, wrapped: Any) -> None:
    one = pa.StructArray.from_arrays([pa.array([value], kind)], names=["o"])
    assert decode_delete_rows(memoryview(encode_deletes(Deletes(pa.array(["k"]), "p", one)))) == [
        ("k", "p", wrapped)
    ]
    two = pa.StructArray.from_arrays([pa.array([value], kind), pa.array(["z"])], names=["o", "p"])
    assert decode_delete_rows(memoryview(encode_deletes(Deletes(pa.array(["k"]), "p", two)))) == [
        ("k", "p", ("ArrayWrapper", [wrapped, ("StringWrapper", "z")]))
    ]


def test_a_delete_by_commit_time_is_the_int_zero() -> None:
    content = memoryview(encode_deletes(Deletes(pa.array(["a", "b"]), "", None)))
    assert decode_delete_rows(content) == [("a", "", ("IntWrapper", 0)), ("b", "", ("IntWrapper", 0))]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (decimal.Decimal("0." + "1" * 16), pa.decimal128(20, 16)),
        (decimal.Decimal("1" * 16), pa.decimal128(20, 0)),
        ([1], pa.list_(pa.int32())),
    ],
    ids=str,
)
def test_an_ordering_value_no_delete_can_carry_is_refused(value: Any, kind: pa.DataType) -> None:
    ordering = pa.StructArray.from_arrays([pa.array([value], kind)], names=["ts"])
    with pytest.raises(UnsupportedError, match="ordering field 'ts'"):
        encode_deletes(Deletes(pa.array(["k"]), "p", ordering))


def test_facts_of_another_s_log_file_are_refused() -> None:
    rollback = encode_block(BlockType.COMMAND, {HeaderKey.INSTANT_TIME: INSTANT}, b"")
    with pytest.raises(CorruptTableError, match="of type COMMAND"):
        log_file_facts(rollback, path="f")


def golden_blocks(folder: Path) -> Iterator[Block]:
    for path in sorted(folder.rglob(".*.log.*")):
        if ".hoodie" not in path.relative_to(folder).parts and path.suffix != ".crc":
            yield from decode_blocks(path.read_bytes(), path=str(path))


@pytest.mark.parametrize("name", TABLES)
def test_what_hudi_wrote_is_written_the_same_by_us(name: str, golden_table: Callable[[str], Path]) -> None:
    for block in golden_blocks(golden_table(name)):
        if block.type is BlockType.AVRO_DATA:
            schema = block.header[HeaderKey.SCHEMA]
            rows = decode_records(block.content, schema, None, path=name)
            assert encode_records(pa.Table.from_batches([rows]), schema) == block.content
        elif block.type is BlockType.DELETE:
            deletes = decode_delete_rows(block.content)
            partitions = {partition for _, partition, _ in deletes}
            values = {value and value[0] for _, _, value in deletes}
            if len(partitions) == 1 and values in ({"IntWrapper"}, {"LongWrapper"}):
                assert rewritten(deletes) == block.content


def rewritten(deletes: list[tuple[str, str | None, Any]]) -> bytes:
    keys = pa.array([key for key, _, _ in deletes])
    partition = deletes[0][1]
    assert partition is not None
    kind = pa.int32() if deletes[0][2][0] == "IntWrapper" else pa.int64()
    values = pa.array([value for _, _, (_, value) in deletes], kind)
    return encode_deletes(Deletes(keys, partition, pa.StructArray.from_arrays([values], names=["o"])))


def test_the_golden_tables_have_rows_and_both_kinds_of_deletes(golden_table: Callable[[str], Path]) -> None:
    blocks = [block for name in TABLES for block in golden_blocks(golden_table(name))]
    assert sum(block.type is BlockType.AVRO_DATA for block in blocks) > 20
    wrappers = {
        value and value[0]
        for block in blocks
        if block.type is BlockType.DELETE
        for _, _, value in decode_delete_rows(block.content)
    }
    assert {"IntWrapper", "LongWrapper"} <= wrappers
