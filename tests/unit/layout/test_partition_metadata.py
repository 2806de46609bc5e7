"""Without this file Hudi sees no row of a partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.config import parse_java_properties
from bucketlake.layout.names import claim_path, marker_path, parse_claim_number, parse_marker
from bucketlake.layout.partition_metadata import created_by, partition_depth, render_partition_metadata


@pytest.mark.parametrize(
    ("table", "partition"),
    [("cow_simple_bucket", "p0"), ("cow_composite_keys", None), ("mor_nonpartitioned", "")],
)
def test_it_says_what_hudis_says(
    golden_table: Callable[[str], Path], table: str, partition: str | None
) -> None:
    root = golden_table(table)
    if partition is None:
        partition = next(root.glob("*/*/.hoodie_partition_metadata")).parent.relative_to(root).as_posix()
    theirs = (root / partition / ".hoodie_partition_metadata").read_bytes()
    instant = created_by(theirs, path="x")
    assert instant is not None
    ours = render_partition_metadata(instant, partition_depth(partition))
    assert parse_java_properties(ours, path="x") == parse_java_properties(theirs, path="x")


def test_a_file_that_names_no_write_was_made_by_none() -> None:
    assert created_by(b"#partition metadata\n", path="x") is None


def test_claims_and_markers_are_read_back() -> None:
    assert parse_claim_number(claim_path(17).rpartition("/")[2]) == 17
    marker = marker_path("1", "ü=1/a.parquet", "MERGE")
    assert parse_marker(marker.removeprefix(".hoodie/.temp/1/")) == "ü=1/a.parquet"
    assert parse_marker("a.parquet") is None
