"""Which version of the rules counts: the wrong one puts a key in the wrong bucket."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.index import HashingConfig, choose_version, list_versions, load_config
from bucketlake.index.partition import ARCHIVE_FOLDER, CONFIG_FOLDER, RFC_FOLDER, load_chosen
from bucketlake.storage import LocalStore, MemoryStore
from bucketlake.timeline import Action, Instant, State, Timeline

T1, T2, T3, T4 = (f"2024010100000000{n}" for n in range(1, 5))


def instant(requested: str, action: Action, state: State = State.COMPLETED) -> Instant:
    completed = requested if state is State.COMPLETED else None
    return Instant(requested, action, state, completed, "")


def timeline(*instants: Instant) -> Timeline:
    return Timeline(tuple(sorted(instants)))


REPLACED_T2 = timeline(instant(T1, Action.COMMIT), instant(T2, Action.REPLACE_COMMIT))


@pytest.mark.shows("P4")
def test_the_newest_completed_on_the_active_timeline_counts() -> None:
    assert choose_version(["0" * 14, T2], REPLACED_T2) == T2


@pytest.mark.shows("P4")
@pytest.mark.parametrize("state", [State.REQUESTED, State.INFLIGHT])
def test_a_pending_rescale_never_counts(state: State) -> None:
    pending = timeline(instant(T1, Action.COMMIT), instant(T2, Action.REPLACE_COMMIT, state))
    assert choose_version(["0" * 17, T2], pending) == "0" * 17


@pytest.mark.shows("P4")
def test_a_rolled_back_rescale_never_counts_though_its_file_is_there() -> None:
    # Its instant is nowhere on the timeline, and it is not older than the start.
    assert choose_version([T2, T3], REPLACED_T2) == T2
    assert choose_version([T3], REPLACED_T2) is None


@pytest.mark.shows("P4")
def test_without_a_completed_one_the_newest_before_the_start_counts() -> None:
    assert choose_version([T1, T2, T4], timeline(instant(T3, Action.COMMIT))) == T2


def test_a_version_of_another_action_does_not_count() -> None:
    assert choose_version([T2], timeline(instant(T1, Action.COMMIT), instant(T2, Action.COMMIT))) is None


def test_an_empty_timeline_leaves_the_version_of_creation() -> None:
    assert choose_version(["0" * 14, T1], timeline()) == "0" * 14


def test_as_of_leaves_later_versions_out() -> None:
    both = timeline(instant(T1, Action.REPLACE_COMMIT), instant(T3, Action.REPLACE_COMMIT))
    assert choose_version([T1, T3], both, as_of=T2) == T1
    assert choose_version([T1, T3], both, as_of=T3) == T3
    assert choose_version([T3], both, as_of=T2) is None


BODY = b"""{
  "expressions" : "2024-01-01,3;2024-02-.*,8",
  "defaultBucketNumber" : 2,
  "rule" : "regex",
  "version" : 1,
  "instant" : "20261115234457461"
}"""


def test_a_config_is_written_as_it_was_read() -> None:
    config = HashingConfig.parse(BODY, path="x/20261115234457461.hashing_config")
    assert config.default_count == 2
    assert config.render() == BODY


def test_the_spelling_of_the_rfc_is_read_too() -> None:
    for number in (b"7", b'"7"'):
        body = b'{"rule": "regex", "expressions": "a,1", "default_bucket_number": %b}' % number
        config = HashingConfig.parse(body, path="00000000000000000.hashing_config")
        assert (config.default_count, config.instant) == (7, "0" * 17)


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b"{", "JSON"),
        (b"[]", "JSON"),
        (b"\xff", "JSON"),
        (b"", "JSON"),
        (b'{"defaultBucketNumber": 2, "rule": "regex"}', "expressions"),
        (b'{"expressions": "a,1", "rule": "regex"}', "defaultBucketNumber"),
        (b'{"expressions": "a,1", "defaultBucketNumber": "2x"}', "defaultBucketNumber"),
        (b'{"expressions": "a,1", "defaultBucketNumber": "0"}', "defaultBucketNumber"),
        (b'{"expressions": "a,1", "defaultBucketNumber": 0}', "defaultBucketNumber"),
        (b'{"expressions": "a,1", "default_bucket_number": true}', "default_bucket_number"),
        (b'{"expressions": "a,1", "defaultBucketNumber": 2, "rule": 5}', "rule"),
    ],
)
def test_a_broken_config_names_file_and_key(body: bytes, key: str) -> None:
    with pytest.raises(CorruptTableError, match=key) as error:
        HashingConfig.parse(body, path="f/1.hashing_config")
    assert error.value.path == "f/1.hashing_config"


def test_stored_rules_that_no_engine_could_use_are_corruption_and_foreign_ones_unsupported() -> None:
    def config(expressions: str, rule_type: str = "regex") -> HashingConfig:
        return HashingConfig(expressions=expressions, default_count=2, rule_type=rule_type, instant=T1)

    with pytest.raises(CorruptTableError, match="expressions"):
        config("a").rules(path="f")
    with pytest.raises(UnsupportedError):
        config(r"\p{L},1").rules(path="f")
    with pytest.raises(UnsupportedError, match="season"):
        config("a,1", "season").rules(path="f")
    assert config("a,1", "REGEX").rules(path="f").count_of("a") == 1


def test_versions_are_found_in_both_places_and_the_archive_serves_the_past() -> None:
    store = MemoryStore()
    store.put(f"{RFC_FOLDER}/{'0' * 17}.hashing_config", BODY)
    store.put(f"{RFC_FOLDER}/p0/{T1}.hashing_meta", b"")
    store.put(f"{CONFIG_FOLDER}/{T3}.hashing_config", BODY)
    store.put(f"{CONFIG_FOLDER}/{T3}.hashing_config.tmp", BODY)
    store.put(f"{ARCHIVE_FOLDER}/{T1}.hashing_config", BODY)
    versions = list_versions(store)
    assert sorted(versions.active) == ["0" * 17, T3]
    line = timeline(instant(T3, Action.REPLACE_COMMIT))
    assert versions.choose(line) == f"{CONFIG_FOLDER}/{T3}.hashing_config"
    assert versions.choose(line, as_of=T2) == f"{ARCHIVE_FOLDER}/{T1}.hashing_config"


@pytest.mark.shows("P4", "P8")
def test_rules_that_an_archive_moved_after_the_timeline_was_listed_are_found() -> None:
    store = MemoryStore()
    store.put(f"{CONFIG_FOLDER}/{T3}.hashing_config", BODY)
    store.put(f"{ARCHIVE_FOLDER}/{T2}.hashing_config", BODY)
    _, found = load_chosen(store, REPLACED_T2)
    assert found is not None
    assert found[1].instant == T2


def test_a_table_of_another_kind_has_no_versions() -> None:
    assert not list_versions(MemoryStore())


@pytest.mark.shows("P4")
def test_the_config_that_hudi_wrote_last_counts(golden_table: Callable[[str], Path]) -> None:
    store = LocalStore(golden_table("mor_partition_bucket"))
    versions = list_versions(store)
    assert len(versions.active) == 2
    newest = max(versions.active.values())
    config = load_config(store, newest)
    assert config.render() == store.read(newest)
