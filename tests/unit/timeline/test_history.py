"""The archived timeline: instants that left the active one, with their completion times."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.storage import LocalStore
from bucketlake.timeline import (
    Action,
    decode_body,
    load_history,
    read_archived_body,
    read_archived_commit,
    read_archived_plan,
)

HISTORY = ".hoodie/timeline/history"


@pytest.fixture
def archived(golden_table: Callable[[str], Path], tmp_path: Path) -> tuple[LocalStore, TableProperties]:
    """A private copy of a table whose timeline Hudi archived in five steps."""
    shutil.copytree(golden_table("svc_mor"), tmp_path / "t")
    store = LocalStore(tmp_path / "t")
    return store, load_properties(store)


Archived = tuple[LocalStore, TableProperties]


def test_archived_instants_are_read_in_order(archived: Archived) -> None:
    history = load_history(*archived)
    requested = [a.requested for a in history]
    assert requested == sorted(requested)
    assert requested[0] == "20261115233738553"
    assert requested[-1] == "20261115234313307"
    assert all(a.completed >= a.requested for a in history)
    assert {Action.COMMIT, Action.DELTA_COMMIT, Action.CLEAN} <= {a.action for a in history}


def test_the_part_since_an_instant_is_the_end_of_the_whole(archived: Archived) -> None:
    whole = load_history(*archived)
    since = whole[len(whole) // 2].requested
    assert load_history(*archived, since=since) == tuple(a for a in whole if a.requested >= since)
    assert load_history(*archived, since="3") == ()


def test_bodies_are_read_when_asked_for(archived: Archived) -> None:
    store, _ = archived
    for instant in load_history(*archived):
        assert decode_body(read_archived_body(store, instant), path="p")
        if instant.action is Action.DELTA_COMMIT:
            assert read_archived_commit(store, instant).operation is not None
    (clean, *_) = [a for a in load_history(*archived) if a.action is Action.CLEAN]
    assert "policy" in decode_body(read_archived_plan(store, clean), path="p")


def test_a_table_that_never_archived_has_no_history(golden_table: Callable[[str], Path]) -> None:
    store = LocalStore(golden_table("mor_v8"))
    assert load_history(store, load_properties(store)) == ()


@pytest.mark.parametrize("version", [None, b"", b"nonsense", b"99"])
def test_the_highest_manifest_counts_when_the_version_is_lost(
    archived: Archived, version: bytes | None
) -> None:
    store, _ = archived
    whole = load_history(*archived)
    store.delete(f"{HISTORY}/_version_")
    if version is not None:
        store.put(f"{HISTORY}/_version_", version)
    assert load_history(*archived) == whole


def test_the_version_chooses_the_manifest(archived: Archived) -> None:
    store, _ = archived
    whole = load_history(*archived)
    store.put(f"{HISTORY}/_version_", b"3")
    assert 0 < len(load_history(*archived)) < len(whole)


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"files": [{}]}', b'{"files": 3}'])
def test_a_broken_manifest_is_an_error_that_names_it(archived: Archived, text: bytes) -> None:
    archived[0].put(f"{HISTORY}/manifest_5", text)
    with pytest.raises(CorruptTableError, match="manifest_5"):
        load_history(*archived)


def test_a_manifest_can_not_lead_elsewhere(archived: Archived) -> None:
    evil = {"files": [{"fileName": "../../../secret.parquet", "fileLen": 1}]}
    archived[0].put(f"{HISTORY}/manifest_5", json.dumps(evil).encode())
    with pytest.raises(CorruptTableError, match="secret"):
        load_history(*archived)


@pytest.mark.parametrize("data", [None, b"", b"PAR1 not really PAR1"])
def test_a_lost_or_broken_history_file_is_an_error_that_names_it(
    archived: Archived, data: bytes | None
) -> None:
    store, _ = archived
    path = load_history(*archived)[0].instant.path
    store.delete(path)
    if data is not None:
        store.put(path, data)
    with pytest.raises(CorruptTableError) as caught:
        load_history(*archived)
    assert caught.value.path == path


def test_the_archive_of_version_6_is_not_read_and_says_so(golden_table: Callable[[str], Path]) -> None:
    store = LocalStore(golden_table("mor_v6"))
    with pytest.raises(UnsupportedError, match="archived timeline"):
        load_history(store, load_properties(store))
