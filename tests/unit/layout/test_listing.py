"""A partition not found is rows not read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.errors import CorruptTableError
from bucketlake.layout import BaseFile, LogFile, list_files, list_table, parse_data_file
from bucketlake.storage import LocalStore, MemoryStore

MARK = ".hoodie_partition_metadata"


def store_with(*paths: str) -> MemoryStore:
    store = MemoryStore()
    for path in paths:
        store.put(path, b"x")
    return store


@pytest.mark.parametrize(
    ("paths", "partitions"),
    [
        ([], ()),
        ([f"p0/{MARK}", f"p1/{MARK}"], ("p0", "p1")),
        ([f"2024/01/02/{MARK}", f"2024/01/03/{MARK}"], ("2024/01/02", "2024/01/03")),
        ([f"p0/{MARK}.parquet"], ("p0",)),
        ([MARK, "a_1-0-0_1.parquet"], ("",)),
        ([MARK, f"p0/{MARK}"], ("", "p0")),
        (["p0/x.parquet", "p1/README"], ()),  # folders that no file calls a partition
        (["a_1-0-0_1.parquet", f"p0/{MARK}"], ("p0",)),
        ([f"p0/{MARK}", f"p0/deeper/{MARK}"], ("p0",)),
        ([f".hoodie/metadata/files/{MARK}", f"p0/.hoodie/x/{MARK}", f"p0/y/{MARK}"], ("p0/y",)),
        ([f"dt=a%2Fb c/{MARK}"], ("dt=a%2Fb c",)),
    ],
)
def test_a_folder_is_a_partition_if_a_file_in_it_says_so(
    paths: list[str], partitions: tuple[str, ...]
) -> None:
    assert tuple(list_table(store_with(*paths)).files) == partitions


def test_a_table_without_partitions_is_its_root() -> None:
    assert tuple(list_table(store_with("p0/" + MARK), is_partitioned=False).files) == ("",)


def test_a_folder_of_data_files_whose_mark_was_lost_is_a_partition_still() -> None:
    store = store_with("p0/a_1-0-0_1.parquet", f"p0/deeper/{MARK}", "p1/.b_2.log.1_1-0-0", f"p2/{MARK}")
    listed = list_table(store)
    assert list(listed.files) == ["p0", "p0/deeper", "p1", "p2"]
    assert listed.unmarked == {"p0", "p1"}


def test_many_partitions_are_found() -> None:
    paths = [f"dt={day:03d}/hh={hour}/{MARK}" for day in range(100) for hour in range(3)]
    assert len(list_table(store_with(*paths)).files) == 300


def test_data_files_are_listed_and_others_passed_over() -> None:
    store = store_with(
        f"p/{MARK}",
        f"p/{MARK}.parquet",
        "p/a-0_1-0-0_05.parquet",
        "p/.a-0_07.log.2_1-0-1",
        "p/.a-0_07.log.2_1-0-1.cdc",
        "p/README",
        "p/part-0.parquet",
        "p/deeper/b-0_1-0-0_05.parquet",
        "q/c-0_1-0-0_05.parquet",
    )
    assert list_files(store, ["p", "r"]) == {
        "p": (
            LogFile("p/.a-0_07.log.2_1-0-1", "a-0", "07", 2, "1-0-1", 1),
            BaseFile("p/a-0_1-0-0_05.parquet", "a-0", "1-0-0", "05", 1),
        ),
        "r": (),
    }


def test_the_root_of_a_table_without_partitions_is_listed() -> None:
    store = store_with(MARK, "a-0_1-0-0_05.parquet", ".hoodie/hoodie.properties")
    assert [file.path for file in list_files(store, [""])[""]] == ["a-0_1-0-0_05.parquet"]


@pytest.mark.parametrize("path", ["", "p/x.parquet", "p/.a-0_07.log.2_1-0-1.cdc"])
def test_a_path_that_must_be_a_data_file_is_checked(path: str) -> None:
    assert parse_data_file("p/a-0_1-0-0_05.parquet", size_bytes=3).instant == "05"
    with pytest.raises(CorruptTableError, match="fileId"):
        parse_data_file(path, size_bytes=3)


def test_partitions_of_hudis_tables_are_found(golden_table: Callable[[str], Path]) -> None:
    def partitions(name: str) -> tuple[str, ...]:
        return tuple(list_table(LocalStore(golden_table(name))).files)

    assert partitions("mor_v6") == ("p0", "p1")
    assert partitions("mor_nonpartitioned") == ("",)
    assert all(p.startswith("dt=") and "/hh=" in p for p in partitions("cow_composite_keys"))
