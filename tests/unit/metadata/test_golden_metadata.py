"""What we list through the metadata tables that Hudi made is what lies in the folders, with its size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake import Table
from bucketlake.layout.names import parse_index_base_file_name, parse_log_file_name, split_path
from bucketlake.metadata.files import ALL_PARTITIONS
from bucketlake.metadata.listing import _base_records, list_by_metadata, log_records
from bucketlake.metadata.places import FILES, folder_of
from bucketlake.state import load_state
from stand_ins.metadata_check import check_metadata

Golden = Callable[[str], Path]
WITH_METADATA = ("cow_global_rli", "cow_secondary_index", "mor_partitioned_rli", "svc_mor", "svc_mor_b")
ALL = sorted(
    path.name.removesuffix(".tar.gz") for path in (Path(__file__).parents[2] / "golden").glob("*.tar.gz")
)


@pytest.mark.shows("M3")
@pytest.mark.parametrize("name", ALL)
def test_hudis_metadata_table_lists_what_is_in_the_folders(golden_table: Golden, name: str) -> None:
    store = Table.open(golden_table(name)).store
    assert check_metadata(store, is_hudis=True) == (name in WITH_METADATA)


@pytest.mark.shows("M3")
@pytest.mark.parametrize("name", WITH_METADATA)
def test_every_file_of_hudis_listing_can_be_read(golden_table: Golden, name: str) -> None:
    state = load_state(Table.open(golden_table(name)).store)
    said = []
    for file in state.store.list(folder_of(FILES)).files:
        path = split_path(file.path)[1]
        if parse_index_base_file_name(path):
            said.append(_base_records(state.store, file, None))
        elif parse_log_file_name(path):
            said.append(log_records(state.store, file))
    assert any(ALL_PARTITIONS in records for records in said)
    listed = list_by_metadata(state.store, state.properties, state.timeline, None)
    assert listed
    for partition in listed:
        one = list_by_metadata(state.store, state.properties, state.timeline, [partition, "no such"])
        assert one == {partition: listed[partition]}
