"""Of several reasons not to write to a table, the one comes first after which the others need not be read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bucketlake.commit.writable import check_kind, check_writable
from bucketlake.config import update_properties
from bucketlake.errors import UnsupportedError
from bucketlake.metadata.index_definitions import define, definitions
from bucketlake.state import load_state
from bucketlake.storage import LocalStore

Golden = Callable[[str], Path]

# What Hudi writes into the properties of such tables, in the order in which we refuse them.
REASONS: Mapping[str, tuple[str, str]] = {
    "no meta fields": (
        "hoodie.populate.meta.fields=false",
        "hoodie.populate.meta.fields of .* Copy its rows",
    ),
    "generated keys": ("hoodie.table.recordkey.fields=", "its keys were generated.* Copy its rows"),
    "operations": ("hoodie.allow.operation.metadata.field=true", "_hoodie_operation. Copy its rows"),
    "dropped columns": (
        "hoodie.datasource.write.drop.partition.columns=true",
        "lack the partition .* Copy its",
    ),
    "version": ("hoodie.table.version=8", "the table version .* is 8.* Upgrade the table with Hudi"),
    "change data": ("hoodie.table.cdc.enabled=true", "hoodie.table.cdc.enabled .* Turn it off"),
    "metadata table": ("hoodie.table.metadata.partitions=column_stats,files", "`bucketlake metadata delist "),
}
CHANGEABLE = ("version", "change data", "metadata table")


@pytest.fixture
def table_with(golden_table: Golden, tmp_path: Path) -> Callable[..., LocalStore]:
    """Return a copy of a golden table to which things that we cannot write are true."""

    def make(name: str, *reasons: str) -> LocalStore:
        store = LocalStore(shutil.copytree(golden_table(name), tmp_path / name))
        words = (REASONS[reason][0].partition("=") for reason in reasons)
        update_properties(store, {key: value for key, _, value in words})
        return store

    return make


@pytest.mark.parametrize("first", range(len(REASONS)))
def test_a_reason_is_given_before_those_that_are_easier_to_do_away_with(
    table_with: Callable[..., LocalStore], first: int
) -> None:
    names = list(REASONS)[first:]
    store = table_with("cow_simple_bucket", *names)
    with pytest.raises(UnsupportedError, match=REASONS[names[0]][1]):
        check_writable(load_state(store))


@pytest.mark.shows("M2")
@pytest.mark.parametrize("reason", CHANGEABLE)
def test_that_a_table_has_no_buckets_is_said_before_anything_that_can_be_changed(
    table_with: Callable[..., LocalStore], reason: str
) -> None:
    store = table_with("mor_simple_index_positions", reason)
    with pytest.raises(UnsupportedError, match=r"none with buckets.* Copy its rows"):
        check_writable(load_state(store))


@pytest.mark.parametrize("name", ["cow_global_rli", "mor_partitioned_rli", "cow_secondary_index"])
def test_a_table_with_a_record_level_index_of_hudi_can_be_written_once_it_is_adopted(
    golden_table: Golden, name: str
) -> None:
    check_writable(load_state(LocalStore(golden_table(name))))


def test_one_with_a_secondary_index_of_an_older_version_hears_of_that(
    golden_table: Golden, tmp_path: Path
) -> None:
    store = LocalStore(shutil.copytree(golden_table("cow_secondary_index"), tmp_path / "older"))
    told = definitions(store)["secondary_index_idx_city"]
    define(store, "secondary_index_idx_city", {**told, "version": "V1"})
    with pytest.raises(UnsupportedError, match="secondary_index_idx_city too"):
        check_writable(load_state(store))


def test_the_metadata_table_is_no_reason_where_nothing_is_to_be_written(
    table_with: Callable[..., LocalStore],
) -> None:
    check_kind(load_state(table_with("cow_simple_bucket", "metadata table")))
