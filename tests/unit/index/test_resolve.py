"""The index of a table: what it says of itself, what a caller may add, and that no row is pruned away."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.errors import ConfigError, CorruptTableError
from bucketlake.index import (
    ConsistentBuckets,
    Index,
    IndexValue,
    NoIndex,
    PartitionBuckets,
    RingIndex,
    RuledIndex,
    SimpleBuckets,
    SimpleIndex,
    hash_pieces,
    resolve_index,
)
from bucketlake.index.partition import CONFIG_FOLDER
from bucketlake.state import TableState, load_state
from bucketlake.storage import LocalStore, MemoryStore

GOLDEN = Path(__file__).parents[2] / "golden"
GoldenTable = Callable[[str], Path]

PROPERTIES = {
    "hoodie.table.name": "t",
    "hoodie.table.type": "MERGE_ON_READ",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.table.recordkey.fields": "k1,k2",
    "hoodie.table.keygenerator.type": "COMPLEX",
}


def empty_table(**more: str) -> TableState:
    store = MemoryStore()
    lines = {**PROPERTIES, **{key.replace("__", "."): value for key, value in more.items()}}
    text = "".join(f"{key}={value}\n" for key, value in lines.items())
    store.put(".hoodie/hoodie.properties", text.encode())
    return load_state(store)


def with_config(state: TableState, expressions: str, default: int) -> TableState:
    body = {"expressions": expressions, "defaultBucketNumber": default, "rule": "regex"}
    state.store.put(f"{CONFIG_FOLDER}/00000000000000.hashing_config", json.dumps(body).encode())
    return state


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / f"{name}.expected.jsonl").read_text("utf-8").splitlines()]


def assert_no_row_is_pruned_away(index: Index, rows: list[dict[str, Any]]) -> None:
    """Hudi says of every row which file it came from: there each key must be found."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        # A base file's name, or (in log records) the file id itself.
        file_id = row["_hoodie_file_name"].partition("_")[0]
        groups[row["_hoodie_partition_path"]][file_id].append(row["_hoodie_record_key"])
    for partition, keys_by_group in groups.items():
        for file_id, keys in keys_by_group.items():
            assert index.stray(partition, file_id, pa.array(keys)) is None
            for key in keys:
                pieces = [hash_pieces(key, index.hash_fields)]
                assert file_id in index.file_groups(partition, list(keys_by_group), pieces)


@pytest.mark.shows("S1", "S4")
@pytest.mark.parametrize(
    ("name", "buckets", "hash_fields"),
    [
        ("cow_simple_bucket", 4, ()),
        ("mor_simple_bucket_avro", 4, ()),
        ("mor_bulk_insert_bucket", 4, ()),
        ("mor_nonpartitioned", 4, ()),
        ("cow_composite_keys", 4, ("k1",)),
        ("cow_complex_single_key", 4, ()),
        ("mor_v6", 4, ()),
        ("mor_v8", 4, ()),
    ],
)
def test_simple_buckets_find_every_row_where_hudi_put_it(
    name: str, buckets: int, hash_fields: tuple[str, ...], golden_table: GoldenTable
) -> None:
    state = load_state(LocalStore(golden_table(name)))
    index = resolve_index(state, SimpleBuckets(buckets, hash_fields))
    assert isinstance(index, SimpleIndex)
    assert_no_row_is_pruned_away(index, rows_of(name))


def test_a_wrong_bucket_count_is_found_out_by_the_keys(golden_table: GoldenTable) -> None:
    index = resolve_index(load_state(LocalStore(golden_table("cow_simple_bucket"))), SimpleBuckets(5))
    with pytest.raises(AssertionError):
        assert_no_row_is_pruned_away(index, rows_of("cow_simple_bucket"))


@pytest.mark.shows("P4", "P10")
def test_partition_rules_find_every_row_where_hudi_put_it(golden_table: GoldenTable) -> None:
    index = resolve_index(load_state(LocalStore(golden_table("mor_partition_bucket"))))
    assert isinstance(index, RuledIndex)
    assert_no_row_is_pruned_away(index, rows_of("mor_partition_bucket"))


@pytest.mark.shows("P10")
def test_rules_that_hudi_did_not_store_are_given_by_the_caller(golden_table: GoldenTable) -> None:
    state = load_state(LocalStore(golden_table("cow_partition_bucket_df")))
    index = resolve_index(state, PartitionBuckets("p1,3", 2))
    assert isinstance(index, RuledIndex)
    assert_no_row_is_pruned_away(index, rows_of("cow_partition_bucket_df"))


@pytest.mark.shows("C2", "C3")
@pytest.mark.parametrize(
    "stage", ["0_before", "1_pending_split", "2_after_split", "3_pending_merge", "4_after_merge"]
)
def test_rings_find_every_row_where_hudi_put_it(stage: str, golden_table: GoldenTable) -> None:
    name = f"mor_consistent_{stage}"
    folder = golden_table(name)
    before = sorted(path for path in folder.rglob("*"))
    index = resolve_index(load_state(LocalStore(folder)))
    assert isinstance(index, RingIndex)
    assert_no_row_is_pruned_away(index, rows_of(name))
    assert sorted(path for path in folder.rglob("*")) == before, "reading writes no marker"


@pytest.mark.shows("C2")
def test_a_ring_of_the_past_is_the_ring_of_that_time(golden_table: GoldenTable) -> None:
    state = load_state(LocalStore(golden_table("mor_consistent_4_after_merge")))
    past = load_state(LocalStore(golden_table("mor_consistent_0_before")))
    then = past.timeline.instants[-1].requested
    old, first = resolve_index(state, as_of=then), resolve_index(past)
    assert isinstance(old, RingIndex)
    assert isinstance(first, RingIndex)
    assert dict(old.rings) == dict(first.rings)
    assert dict(old.rings) != dict(resolve_index(state).rings)  # type: ignore[attr-defined] # checked above


def test_a_table_that_says_nothing_has_no_index() -> None:
    assert resolve_index(empty_table()) == NoIndex(("k1", "k2"))


def test_generated_keys_have_no_index_and_no_buckets() -> None:
    state = empty_table(hoodie__table__recordkey__fields="")
    assert isinstance(resolve_index(state), NoIndex)
    with pytest.raises(ConfigError, match="record key"):
        resolve_index(state, SimpleBuckets(4))


def test_a_persisted_count_and_persisted_hash_fields_are_used() -> None:
    state = empty_table(
        hoodie__bucket__index__num__buckets="6",
        hoodie__bucket__index__hash__field="k2",
        hoodie__index__type="BUCKET",
    )
    assert resolve_index(state) == SimpleIndex(6, ("k2",))
    assert resolve_index(state, SimpleBuckets(6, ("k2",))) == SimpleIndex(6, ("k2",))


def test_a_table_of_another_index_is_not_read_by_a_leftover_count() -> None:
    state = empty_table(hoodie__bucket__index__num__buckets="6", hoodie__index__type="BLOOM")
    assert isinstance(resolve_index(state), NoIndex)


@pytest.mark.parametrize(
    ("said", "both"),
    [
        (SimpleBuckets(5), ("6", "5")),
        (SimpleBuckets(6, ("k1",)), ("k2", "k1")),
        (ConsistentBuckets(6, ("k1",)), ("k2", "k1")),
    ],
)
def test_an_option_that_contradicts_the_table_is_refused_with_both_values(
    said: IndexValue, both: tuple[str, str]
) -> None:
    state = empty_table(
        hoodie__bucket__index__num__buckets="6",
        hoodie__bucket__index__hash__field="k2",
        hoodie__index__type="BUCKET",
    )
    with pytest.raises(ConfigError) as error:
        resolve_index(state, said)
    assert all(repr(value) in str(error.value) for value in both)


@pytest.mark.parametrize(
    ("said", "both"), [(SimpleBuckets(5), ("2", "5")), (PartitionBuckets("b,1", 2), ("a,3", "b,1"))]
)
def test_an_option_that_contradicts_stored_rules_is_refused_with_both_values(
    said: IndexValue, both: tuple[str, str]
) -> None:
    state = with_config(empty_table(), "a,3", 2)
    assert isinstance(resolve_index(state, PartitionBuckets("a,3", 2)), RuledIndex)
    with pytest.raises(ConfigError) as error:
        resolve_index(state, said)
    assert all(repr(value) in str(error.value) for value in both)


def test_buckets_for_a_table_with_rings_are_refused(golden_table: GoldenTable) -> None:
    state = load_state(LocalStore(golden_table("mor_consistent_0_before")))
    with pytest.raises(ConfigError, match="consistent hashing"):
        resolve_index(state, SimpleBuckets(4))


def test_stored_rules_we_cannot_read_give_no_index_and_the_reason() -> None:
    index = resolve_index(with_config(empty_table(), r"\p{L},3", 2))
    assert isinstance(index, NoIndex)
    assert r"\p" in index.reason


def test_stored_rules_that_are_broken_are_corruption() -> None:
    with pytest.raises(CorruptTableError, match="expressions"):
        resolve_index(with_config(empty_table(), "nothing", 2))


def test_a_time_before_all_rules_has_no_index_unless_the_caller_knows(golden_table: GoldenTable) -> None:
    state = load_state(LocalStore(golden_table("mor_partition_bucket")))
    assert isinstance(resolve_index(state, as_of="20000101000000000"), NoIndex)
    assert resolve_index(state, SimpleBuckets(2), as_of="20000101000000000") == SimpleIndex(2, ("id",))


def test_hash_fields_that_are_none_of_the_key_are_refused() -> None:
    with pytest.raises(ConfigError, match="nope is not among the record key fields k1, k2"):
        resolve_index(empty_table(), SimpleBuckets(2, ("nope",)))
