"""File names carry the file group and the instant: one misread puts rows in the wrong place."""

from __future__ import annotations

import pytest

from bucketlake.layout import names
from bucketlake.layout.names import (
    BaseFileName,
    LogFileName,
    parse_base_file_name,
    parse_hashing_name,
    parse_log_file_name,
    render_base_file_name,
    render_log_file_name,
)

FILE_ID = "00000003-159a-4953-a3c4-b777b847ae7f"
T = "20240102030405678"


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f"{FILE_ID}-0_1-197-403_{T}.parquet", BaseFileName(f"{FILE_ID}-0", "1-197-403", T)),
        (f"{FILE_ID}_1-0-0_{T}.parquet", BaseFileName(FILE_ID, "1-0-0", T)),  # a bulk insert's file id
        ("a_1_20240102030405.parquet", BaseFileName("a", "1", "20240102030405")),
    ],
)
def test_base_file_names_are_read_and_written(name: str, parsed: BaseFileName) -> None:
    assert parse_base_file_name(name) == parsed
    assert render_base_file_name(parsed) == name


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        (f".{FILE_ID}-0_{T}.log.1_1-205-422", LogFileName(f"{FILE_ID}-0", T, 1, "1-205-422")),
        (f".{FILE_ID}-0_{T}.log.12_1-0-0", LogFileName(f"{FILE_ID}-0", T, 12, "1-0-0")),
        (f".{FILE_ID}-0_{T}.log.1_1-0-0.cdc", LogFileName(f"{FILE_ID}-0", T, 1, "1-0-0", is_cdc=True)),
        (f".{FILE_ID}-0_{T}.log.1", LogFileName(f"{FILE_ID}-0", T, 1)),  # from before write tokens
    ],
)
def test_log_file_names_are_read_and_written(name: str, parsed: LogFileName) -> None:
    assert parse_log_file_name(name) == parsed
    assert render_log_file_name(parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie_partition_metadata",
        ".hoodie_partition_metadata.parquet",
        "part-00000.snappy.parquet",
        f"{FILE_ID}-0_1-0-0_{T}.orc",
        f"{FILE_ID}-0_1-0-0_{T}.parquet.tmp",
        f".{FILE_ID}-0_1-0-0_{T}.parquet.crc",
        f"{FILE_ID}-0_{T}.log.1_1-0-0",
        ".commits_.archive.1_1-0-1",
        f".{FILE_ID}-0_{T}.log.x_1-0-0",
        f".{FILE_ID}-0_{T}.log.1_1-0-0\n",
        "",
    ],
)
def test_other_names_are_no_data_files(name: str) -> None:
    assert parse_base_file_name(name) is None
    assert parse_log_file_name(name) is None


def test_paths_are_where_hudi_looks() -> None:
    assert names.partition_metadata_path("") == ".hoodie_partition_metadata"
    assert names.partition_metadata_path("dt=1") == "dt=1/.hoodie_partition_metadata"
    assert (
        names.marker_path(T, "dt=1/f.parquet", "CREATE") == f".hoodie/.temp/{T}/dt=1/f.parquet.marker.CREATE"
    )
    assert names.heartbeat_path(T) == f".hoodie/.heartbeat/{T}"
    bucket_index = ".hoodie/.bucket_index"
    assert (
        names.hashing_config_path(T)
        == f"{bucket_index}/partition_bucket_index_meta/configs/{T}.hashing_config"
    )
    ring = f"{bucket_index}/consistent_hashing_metadata"
    assert names.hashing_metadata_path("dt=1/hh=2", T) == f"{ring}/dt=1/hh=2/{T}.hashing_meta"
    assert names.hashing_metadata_path("", T) == f"{ring}/{T}.hashing_meta"
    assert names.hashing_commit_path("p0", T) == f"{ring}/p0/{T}.commit"


def test_hashing_names_are_read() -> None:
    assert parse_hashing_name(f"{T}.hashing_config") == (T, "hashing_config")
    assert parse_hashing_name("00000000000000.hashing_meta") == ("00000000000000", "hashing_meta")
    assert parse_hashing_name(f"{T}.commit") == (T, "commit")
    assert parse_hashing_name(f"{T}.hashing_meta.tmp") is None
