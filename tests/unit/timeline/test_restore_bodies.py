"""Savepoints and restores must read the same to Hudi, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.config import load_properties
from bucketlake.storage import LocalStore
from bucketlake.timeline import (
    Action,
    decode_body,
    encode_restore_metadata,
    encode_restore_plan,
    encode_rollback_metadata,
    encode_savepoint,
    load_timeline,
    read_body,
    read_plan,
    read_restore_plan,
    read_savepoint_metadata,
)
from bucketlake.timeline.metadata import RollbackMetadata

ROOT = "/tables/made-by-hudi/cow_savepoint_restore"


@pytest.fixture
def store(golden_table: Callable[[str], Path]) -> LocalStore:
    return LocalStore(golden_table("cow_savepoint_restore"))


def test_a_savepoint_of_hudi_is_written_again_as_it_was(store: LocalStore) -> None:
    (savepoint,) = load_timeline(store, load_properties(store)).completed(Action.SAVEPOINT)
    body = encode_savepoint(read_savepoint_metadata(store, savepoint))
    assert decode_body(body, path="") == read_body(store, savepoint)


def test_a_restore_of_hudi_is_written_again_as_it_was(store: LocalStore) -> None:
    (restore,) = load_timeline(store, load_properties(store)).completed(Action.RESTORE)
    plan = read_restore_plan(store, restore)
    assert decode_body(encode_restore_plan(plan), path="") == read_plan(store, restore)
    theirs = read_body(store, restore)
    rollbacks = {}
    for instant, (rollback,) in theirs["hoodieRestoreMetadata"].items():
        deleted = {
            partition: tuple(path.rpartition("/")[2] for path in told["successDeleteFiles"])
            for partition, told in rollback["partitionMetadata"].items()
        }
        rollbacks[instant] = encode_rollback_metadata(
            RollbackMetadata(
                rolled_back=(instant,), files_deleted=rollback["totalFilesDeleted"], deleted=deleted
            ),
            action=Action.COMMIT,
            started=rollback["startRollbackTime"],
            taken_ms=rollback["timeTakenInMillis"],
            root=ROOT,
        )
    ours = encode_restore_metadata(
        plan, rollbacks=rollbacks, started=theirs["startRestoreTime"], taken_ms=theirs["timeTakenInMillis"]
    )
    assert decode_body(ours, path="") == theirs
