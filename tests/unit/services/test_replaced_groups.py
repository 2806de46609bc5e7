"""File groups that were replaced stay hidden, whatever is cleaned and archived: else old rows come back."""

from __future__ import annotations

import pytest

from bucketlake import Table
from bucketlake.services import Retention, archive_table, clean_table
from bucketlake.state import load_state
from bucketlake.testing.invariants import check_invariants
from stand_ins.replacements import KINDS, TYPES, replace_while, rows_of, table_for


def newest(table: Table) -> dict[int, int]:
    found = table.to_arrow(columns=["id", "ts"]).to_pylist()
    assert len(found) == len({row["id"] for row in found}), "a key is there twice"
    return {row["id"]: row["ts"] for row in found}


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_brings_no_replaced_file_group_back(kind: str, table_type: str) -> None:
    """A savepoint that was made while the replacement was pending keeps the old files there."""
    table = table_for(kind, table_type)
    table.upsert(rows_of(range(20), ts=1))

    def meanwhile() -> None:
        table.upsert(rows_of(range(1, 20, 2), ts=2))
        table.savepoint()

    assert replace_while(table, kind, meanwhile) is not None
    table = Table.open(table.store.uri)
    for ts in range(3, 6):
        table.upsert(rows_of(range(20), ts=ts))
    clean_table(table.store, retain=Retention(commits=1))
    archived = archive_table(table.store, keep_min=1, keep_max=2)
    assert newest(table) == dict.fromkeys(range(20), 5)
    assert "which a savepoint protects" in str(archived)
    table.delete_savepoint(*load_state(table.store).timeline.savepoints)
    clean_table(table.store, retain=Retention(commits=1))
    archive_table(table.store, keep_min=1, keep_max=2)
    assert newest(table) == dict.fromkeys(range(20), 5)
    assert len(load_state(table.store).timeline.writes) == 1, "nothing holds it up any more"
    check_invariants(table)


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_files_that_no_clean_has_deleted_keep_the_replacecommit_on_the_timeline(
    kind: str, table_type: str
) -> None:
    """The last clean was made for a savepoint that is gone since: what it spared is still there."""
    table = table_for(kind, table_type)
    table.upsert(rows_of(range(20), ts=1))

    def meanwhile() -> None:
        table.upsert(rows_of(range(1, 20, 2), ts=2))
        table.savepoint()

    replaced = replace_while(table, kind, meanwhile)
    table = Table.open(table.store.uri)
    for ts in range(3, 6):
        table.upsert(rows_of(range(20), ts=ts))
    clean_table(table.store, retain=Retention(commits=1))
    table.delete_savepoint(*load_state(table.store).timeline.savepoints)
    archive_table(table.store, keep_min=1, keep_max=2)
    assert newest(table) == dict.fromkeys(range(20), 5)
    assert replaced in {i.requested for i in load_state(table.store).timeline.writes}
    clean_table(table.store, retain=Retention(commits=1))
    archive_table(table.store, keep_min=1, keep_max=2)
    assert newest(table) == dict.fromkeys(range(20), 5)
    assert replaced not in {i.requested for i in load_state(table.store).timeline.writes}
    check_invariants(table)


@pytest.mark.shows("H2", "C6")
def test_rows_that_a_savepoint_only_refers_to_outlive_the_resize() -> None:
    """Beside a resize with virtual logs the rows are in the new file groups, and a restore brings them back."""
    kind = "resize with virtual logs"
    table = table_for(kind, "MERGE_ON_READ")
    table.upsert(rows_of(range(20), ts=1))

    def meanwhile() -> None:
        table.upsert(rows_of(range(20), ts=2))
        table.savepoint()

    instant = replace_while(table, kind, meanwhile)
    table = Table.open(table.store.uri)

    def logs_beside() -> set[str]:
        files = table.store.list("", recursive=True).files
        return {file.path for file in files if f"_{instant}.log." in file.path}

    referred_to = logs_beside()
    assert referred_to
    for ts in (3, 4):
        table.compact()
        table.upsert(rows_of(range(20), ts=ts))
        clean_table(table.store, retain=Retention(commits=1))
        clean_table(table.store, retain=Retention(versions=1))
    assert logs_beside() == referred_to
    table.delete_savepoint(*load_state(table.store).timeline.savepoints)
    clean_table(table.store, retain=Retention(commits=1))
    assert logs_beside() == set()
    check_invariants(table)
