"""Every log file that Hudi wrote must read, and the kernel must read it as fastavro does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.logfile import (
    Block,
    BlockType,
    HeaderKey,
    LogDeletes,
    LogRecords,
    avro_columns,
    avro_rows,
    decode_blocks,
    read_log_files,
)
from bucketlake.logfile.deletes import delete_records
from bucketlake.schema import avro_to_arrow
from bucketlake.storage import LocalStore

GOLDEN = Path(__file__).parents[2] / "golden"
TABLES = sorted(archive.name.removesuffix(".tar.gz") for archive in GOLDEN.glob("*.tar.gz"))


def blocks(table: Path) -> Iterator[tuple[str, Block]]:
    for path in sorted(table.rglob(".*.log.*")):
        for block in decode_blocks(path.read_bytes(), path=path.name):
            yield path.name, block


@pytest.mark.parametrize("name", TABLES)
def test_every_block_decodes_and_columns_equal_rows(name: str, golden_table: Callable[[str], Path]) -> None:
    for path, block in blocks(golden_table(name)):
        assert block.type is not BlockType.CORRUPT
        if block.type is BlockType.AVRO_DATA:
            schema = block.header[HeaderKey.SCHEMA]
            columns = avro_columns.decode_records(block.content, schema, None, path=path)
            rows = avro_rows.decode_records(block.content, schema, None, path=path)
            assert columns.schema == rows.schema
            assert columns.equals(rows)
        elif block.type is BlockType.DELETE:
            deletes = delete_records(block.content, path=path)
            assert deletes.field("recordKey").to_pylist() == [
                key for key, _, _ in avro_rows.decode_delete_rows(block.content)
            ]


def test_the_golden_tables_have_every_kind_of_block_we_read(golden_table: Callable[[str], Path]) -> None:
    """If this fails, the test above shows less than it says."""
    kinds = Counter(block.type for name in TABLES for _, block in blocks(golden_table(name)))
    assert min(kinds[BlockType.AVRO_DATA], kinds[BlockType.DELETE], kinds[BlockType.PARQUET_DATA]) > 0


def read_table(folder: Path, ordering: list[str]) -> list[LogRecords | LogDeletes]:
    store = LocalStore(folder)
    logs: list[LogRecords | LogDeletes] = []
    paths = [
        path for path in sorted(folder.rglob(".*.log.*")) if ".hoodie" not in path.relative_to(folder).parts
    ]
    for path in paths:
        headers = [block.header for block in decode_blocks(path.read_bytes(), path=path.name)]
        schema = avro_to_arrow(headers[0][HeaderKey.SCHEMA], path=path.name)
        logs += read_log_files(
            store,
            [path.relative_to(folder).as_posix()],
            schema,
            ordering_fields=ordering,
            table_schema=schema,
        )
    return logs


def test_avro_and_parquet_blocks_of_all_types_hold_the_same_rows(golden_table: Callable[[str], Path]) -> None:
    avro = read_table(golden_table("mor_all_types"), ["ts"])
    parquet = read_table(golden_table("mor_all_types_parquet_log"), ["ts"])
    assert len(avro) == len(parquet) > 0
    for left, right in zip(avro, parquet, strict=True):
        assert isinstance(left, LogRecords)
        assert isinstance(right, LogRecords)
        assert left.records.schema == right.records.schema
        names = [name for name in left.records.column_names if not name.startswith("_hoodie_")]
        assert left.records.select(names).equals(right.records.select(names))


def test_rows_of_all_types_are_the_rows_hudi_reads(golden_table: Callable[[str], Path]) -> None:
    """Every row of this table was upserted again, so its newest version is in the logs."""
    lines = (GOLDEN / "mor_all_types.expected.jsonl").read_text().splitlines()
    expected = {row["_hoodie_record_key"]: row for row in map(json.loads, lines)}
    found = {
        row["_hoodie_record_key"]: row
        for log in read_table(golden_table("mor_all_types"), ["ts"])
        if isinstance(log, LogRecords)
        for row in log.records.to_pylist()
    }
    assert found
    for key, row in found.items():
        for name, value in row.items():
            if isinstance(value, (str, int, bool)) or value is None:
                assert expected[key].get(name) == value, name


def test_deletes_of_two_ordering_fields_have_both_values(golden_table: Callable[[str], Path]) -> None:
    deletes = [
        log
        for log in read_table(golden_table("mor_multi_ordering"), ["ts", "seq"])
        if isinstance(log, LogDeletes)
    ]
    assert [
        (log.keys.to_pylist(), log.ordering.to_pylist()) for log in deletes if log.ordering is not None
    ] == [
        (["2"], [{"ts": 100, "seq": 6}]),
        (["3"], [{"ts": 100, "seq": 4}]),
    ]


def test_a_partial_update_holds_the_columns_it_sets(golden_table: Callable[[str], Path]) -> None:
    partial = [
        log for log in read_table(golden_table("mor_partial_update"), ["ts"]) if isinstance(log, LogRecords)
    ]
    assert partial
    assert all(log.is_partial for log in partial)
    assert all(isinstance(log.records, pa.Table) and log.records.num_rows for log in partial)
