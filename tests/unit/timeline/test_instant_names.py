"""A timeline file misread is a commit unseen, or a failed write taken for a commit."""

from __future__ import annotations

import pytest

from bucketlake.timeline import Action, InstantName, State, parse_instant_name, render_instant_name

T, C = "20240102030405678", "20240102030409000"
REQUESTED, INFLIGHT, COMPLETED = State

LAYOUT_2 = [
    (f"{T}.commit.requested", Action.COMMIT, REQUESTED, None),
    (f"{T}.inflight", Action.COMMIT, INFLIGHT, None),
    (f"{T}_{C}.commit", Action.COMMIT, COMPLETED, C),
    (f"{T}.deltacommit.requested", Action.DELTA_COMMIT, REQUESTED, None),
    (f"{T}.deltacommit.inflight", Action.DELTA_COMMIT, INFLIGHT, None),
    (f"{T}_{C}.deltacommit", Action.DELTA_COMMIT, COMPLETED, C),
    (f"{T}.replacecommit.requested", Action.REPLACE_COMMIT, REQUESTED, None),
    (f"{T}.replacecommit.inflight", Action.REPLACE_COMMIT, INFLIGHT, None),
    (f"{T}_{C}.replacecommit", Action.REPLACE_COMMIT, COMPLETED, C),
    (f"{T}.clustering.requested", Action.CLUSTERING, REQUESTED, None),
    (f"{T}.clustering.inflight", Action.CLUSTERING, INFLIGHT, None),
    (f"{T}.compaction.requested", Action.COMPACTION, REQUESTED, None),
    (f"{T}.compaction.inflight", Action.COMPACTION, INFLIGHT, None),
    (f"{T}.logcompaction.requested", Action.LOG_COMPACTION, REQUESTED, None),
    (f"{T}.logcompaction.inflight", Action.LOG_COMPACTION, INFLIGHT, None),
    (f"{T}.clean.requested", Action.CLEAN, REQUESTED, None),
    (f"{T}.clean.inflight", Action.CLEAN, INFLIGHT, None),
    (f"{T}_{C}.clean", Action.CLEAN, COMPLETED, C),
    (f"{T}.rollback.requested", Action.ROLLBACK, REQUESTED, None),
    (f"{T}.rollback.inflight", Action.ROLLBACK, INFLIGHT, None),
    (f"{T}_{C}.rollback", Action.ROLLBACK, COMPLETED, C),
    (f"{T}.restore.requested", Action.RESTORE, REQUESTED, None),
    (f"{T}.restore.inflight", Action.RESTORE, INFLIGHT, None),
    (f"{T}_{C}.restore", Action.RESTORE, COMPLETED, C),
    (f"{T}.savepoint.inflight", Action.SAVEPOINT, INFLIGHT, None),
    (f"{T}_{C}.savepoint", Action.SAVEPOINT, COMPLETED, C),
    (f"{T}.indexing.requested", Action.INDEXING, REQUESTED, None),
    (f"{T}.indexing.inflight", Action.INDEXING, INFLIGHT, None),
    (f"{T}_{C}.indexing", Action.INDEXING, COMPLETED, C),
    (f"{T}.schemacommit.requested", Action.SCHEMA_COMMIT, REQUESTED, None),
    (f"{T}_{C}.schemacommit", Action.SCHEMA_COMMIT, COMPLETED, C),
    (f"{T}.commit", Action.COMMIT, COMPLETED, None),  # from before the table was upgraded
    (f"{T}.deltacommit", Action.DELTA_COMMIT, COMPLETED, None),
]


@pytest.mark.parametrize(("name", "action", "state", "completed"), LAYOUT_2)
def test_names_of_layout_2_are_read_and_written(
    name: str, action: Action, state: State, completed: str | None
) -> None:
    parsed = parse_instant_name(name, layout=2)
    assert parsed == InstantName(T, action, state, completed)
    assert render_instant_name(parsed) == name


@pytest.mark.parametrize(
    ("name", "action", "state"),
    [
        (f"{T}.commit", Action.COMMIT, COMPLETED),
        (f"{T}.inflight", Action.COMMIT, INFLIGHT),
        (f"{T}.deltacommit.inflight", Action.DELTA_COMMIT, INFLIGHT),
        (f"{T}.replacecommit.requested", Action.REPLACE_COMMIT, REQUESTED),
        (f"{T}.compaction.requested", Action.COMPACTION, REQUESTED),
        (f"{T}.savepoint", Action.SAVEPOINT, COMPLETED),
        ("20240102030405.commit", Action.COMMIT, COMPLETED),  # from before milliseconds
    ],
)
def test_names_of_layout_1_are_read_and_written(name: str, action: Action, state: State) -> None:
    parsed = parse_instant_name(name, layout=1)
    assert parsed == InstantName(name.split(".")[0], action, state)
    assert render_instant_name(parsed) == name


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        "history",
        f"{T}",
        f"{T}.",
        f"{T}.commit.inflight",  # a commit's inflight file has no action in its name
        f"{T}.requested",
        f"{T}.savepoint.requested",
        f"{T}_{C}.compaction",  # completes as a commit
        f"{T}_{C}.clustering",
        f"{T}_{C}.logcompaction",
        f"{T}_{C}.commit.requested",
        f"{T}.commit.completed",
        f"{T}_{C}.commit.5a3e0c1f-6f0c-4f0e-9d7e-0d1c6d2b9e11",  # being written
        f"{T}_{C}.commit.crc",
        f"{T}_{C}.commit\n",
        f"{T}.unknown",
        f"_{C}.commit",
        f"{T}_.commit",
        f"٣{T}.commit",  # digits, but not ours
        "",
    ],
)
def test_other_names_are_no_instants(name: str) -> None:
    assert parse_instant_name(name, layout=2) is None


@pytest.mark.parametrize("name", [f"{T}_{C}.commit", f"{T}.clustering.requested"])
def test_layout_1_knows_no_completion_times_and_no_clustering(name: str) -> None:
    assert parse_instant_name(name, layout=1) is None


def test_a_rewrite_completes_under_another_name() -> None:
    done = {action: action.when_completed for action in Action if action.when_completed is not action}
    assert done == {
        Action.COMPACTION: Action.COMMIT,
        Action.LOG_COMPACTION: Action.DELTA_COMMIT,
        Action.CLUSTERING: Action.REPLACE_COMMIT,
    }
