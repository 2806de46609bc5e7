"""A delta commit is a pure function of what an instant says of itself: the same bytes, whoever makes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.layout.names import split_path
from bucketlake.metadata.change import Change, change_of, tells_of
from bucketlake.metadata.delta import delta_commit, first_commit, records_of
from bucketlake.metadata.files import ALL_PARTITIONS, FileEntry
from bucketlake.metadata.listing import _decoded_log
from bucketlake.timeline import (
    Action,
    CleanerPlan,
    CommitMetadata,
    WriteStat,
    decode_commit_metadata,
    encode_clean_metadata,
    encode_commit_metadata,
)

T = "20240102030405678"
NAMES = st.text("abc.-_=/é", min_size=1, max_size=6)
CHANGES = st.builds(
    lambda added, removed, dropped: Change(
        added=added, removed=removed, dropped=frozenset(dropped) - added.keys()
    ),
    st.dictionaries(
        NAMES | st.just(""), st.dictionaries(NAMES, st.integers(1, 10**12), max_size=3), max_size=3
    ),
    st.dictionaries(NAMES, st.lists(NAMES, max_size=3).map(tuple), max_size=3),
    st.frozensets(NAMES, max_size=2),
)


@given(CHANGES)
def test_the_same_change_gives_the_same_bytes_and_they_say_it(change: Change) -> None:
    upside_down = Change(
        added={p: dict(reversed(files.items())) for p, files in reversed(change.added.items())},
        removed=dict(reversed(change.removed.items())),
        dropped=change.dropped,
    )
    made = delta_commit(T, change)
    assert made == delta_commit(T, upside_down)
    [(path, data)] = made.files.items()
    assert _decoded_log(data, path) == records_of(change)
    [stat] = decode_commit_metadata(made.body, path="x").write_stats
    assert (stat.path, stat.size_bytes) == (f"files/{split_path(path)[1]}", len(data))


def test_a_change_says_which_partitions_it_touches_though_none_is_new() -> None:
    assert records_of(Change()) == {ALL_PARTITIONS: {}}
    change = Change(added={"": {"f": 3}}, removed={"p": ("g",)}, dropped=frozenset({"q"}))
    assert records_of(change) == {
        ALL_PARTITIONS: {".": FileEntry(0), "q": FileEntry(0, is_deleted=True)},
        ".": {"f": FileEntry(3)},
        "p": {"g": FileEntry(0, is_deleted=True)},
    }


def test_the_first_commit_is_the_same_however_its_files_were_found() -> None:
    one = first_commit("0" * 17, {"p": {"a": 1, "b": 2}, "q": {}}, completed="20261118201708970")
    assert one == first_commit("0" * 17, {"q": {}, "p": {"b": 2, "a": 1}}, completed="20261118201708970")
    assert sorted(path.rpartition(".")[2] for path in one.files) == ["1_0-0-0", "hfile"]


@pytest.mark.parametrize("action", list(Action))
def test_what_changes_files_is_told(action: Action) -> None:
    silent = {Action.SAVEPOINT, Action.ROLLBACK, Action.RESTORE, Action.INDEXING, Action.SCHEMA_COMMIT}
    if action in {Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT, Action.CLEAN}:
        assert tells_of(action)
    if action in silent:
        assert not tells_of(action)


def stat_of(path: str, size_bytes: int) -> WriteStat:
    partition, name = split_path(path)
    return WriteStat(
        partition=partition, file_id=name, path=path, previous_instant=None, written=1, inserted=1, updated=0,
        deleted=0, errors=0, written_bytes=size_bytes, size_bytes=size_bytes,
    )  # fmt: skip


@pytest.mark.parametrize("action", [Action.COMMIT, Action.DELTA_COMMIT, Action.REPLACE_COMMIT])
def test_what_a_write_has_written_is_added_and_what_it_replaced_stays(action: Action) -> None:
    metadata = CommitMetadata(
        operation="UPSERT",
        write_stats=(stat_of("p/a", 5), stat_of("p/b", 6), stat_of("c", 7)),
        replaced={"p": ("old",)} if action is Action.REPLACE_COMMIT else {},
    )
    body = encode_commit_metadata(metadata, action=action)
    assert change_of(action, body, path="x") == Change(added={"p": {"a": 5, "b": 6}, "": {"c": 7}})


def test_what_a_clean_has_deleted_is_removed_and_empty_partitions_go() -> None:
    plan = CleanerPlan(
        policy="KEEP_LATEST_COMMITS", earliest_kept=T, earliest_action=Action.COMMIT, last_completed=T,
        files={"p": ("a", "held"), "q": ("b",)}, partitions=("q",),
    )  # fmt: skip
    body = encode_clean_metadata(plan, started=T, taken_ms=0, spared={"p": ("held",)})
    expected = Change(removed={"p": ("a",), "q": ("b",)}, dropped=frozenset({"q"}))
    assert change_of(Action.CLEAN, body, path="x") == expected
