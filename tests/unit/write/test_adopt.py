"""A table adopted with the wrong count would take every key a second time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake import ConsistentBuckets, DynamicBuckets, PartitionBuckets, RecordIndex, SimpleBuckets, Table
from bucketlake.config import BucketEngine, load_properties, update_properties
from bucketlake.errors import ConfigError, LayoutMismatchError, UnsupportedError
from bucketlake.index import SimpleIndex
from bucketlake.index.fingerprint import is_adopted, writing_index
from bucketlake.plans import plan_adoption
from bucketlake.services import check_table
from bucketlake.state import load_state
from bucketlake.storage import LocalStore
from bucketlake.timeline import encode_commit_metadata, load_timeline, read_commit_metadata
from stand_ins.dynamic_check import check_buckets

Golden = Callable[[str], Path]


@pytest.fixture
def copied(golden_table: Golden, tmp_path: Path) -> Callable[[str], LocalStore]:
    """Return a copy of a golden table, to be written."""

    def copy(name: str) -> LocalStore:
        shutil.copytree(golden_table(name), tmp_path / name)
        return LocalStore(tmp_path / name)

    return copy


@pytest.mark.shows("S6", "X1")
@pytest.mark.parametrize(
    ("name", "fields", "rows"),
    [
        ("cow_simple_bucket", (), 12),
        ("mor_simple_bucket_avro", (), 10),
        ("mor_simple_bucket_parquet_log", ("id",), 12),
        ("mor_nonpartitioned", (), 13),
        ("cow_composite_keys", ("k1",), 8),
        ("cow_complex_single_key", (), 12),
        ("mor_bulk_insert_bucket", (), 12),
    ],
)
def test_a_table_of_hudi_is_adopted_and_says_its_layout_from_then_on(
    copied: Callable[[str], LocalStore], name: str, fields: tuple[str, ...], rows: int
) -> None:
    store = copied(name)
    before = load_properties(store)
    assert not is_adopted(before)
    seen: list[tuple[int, int]] = []
    index = SimpleBuckets(4, fields)
    planned = plan_adoption(store, index, on_progress=lambda *step: seen.append(step))
    plan = planned.run(store)
    assert plan.rows == rows
    assert seen[0] == (0, plan.file_groups)
    assert seen[-1] == (plan.file_groups, plan.file_groups)
    assert "agree with simple buckets: 4 per partition" in str(plan)
    state = load_state(store)
    assert is_adopted(state.properties)
    assert writing_index(state) == SimpleIndex(4, tuple(fields or before.record_key_fields))
    assert before.raw.items() <= state.properties.raw.items()
    assert plan_adoption(store, index).run(store) == plan, "again is no harm"


@pytest.mark.shows("S6")
@pytest.mark.parametrize("wrong", [5, 7, 8, 256])
def test_a_wrong_count_is_refused_with_the_key_and_the_right_one(golden_table: Golden, wrong: int) -> None:
    store = LocalStore(golden_table("cow_simple_bucket"))
    before = store.read(".hoodie/hoodie.properties")
    with pytest.raises(
        LayoutMismatchError, match=r"record key '\d+' .* file group 0000.* agree with 4 buckets: buckets=4"
    ):
        Table.adopt(store.root, buckets=wrong)
    assert store.read(".hoodie/hoodie.properties") == before


@pytest.mark.shows("S6")
@pytest.mark.parametrize("name", ["cow_partition_bucket_df", "mor_partition_bucket_before"])
def test_no_count_is_advised_where_partitions_have_counts_of_their_own(
    golden_table: Golden, name: str
) -> None:
    for wrong in (SimpleBuckets(3), SimpleBuckets(4), PartitionBuckets("nowhere,3", default=2)):
        with pytest.raises(LayoutMismatchError) as refused:
            Table.adopt(golden_table(name), index=wrong)
        assert "No one count fits all partitions" in str(refused.value)
        assert "PartitionBuckets(rules, default=N)" in str(refused.value)


@pytest.mark.parametrize("name", ["mor_partition_bucket", "mor_consistent_2_after_split"])
def test_a_table_whose_files_say_its_buckets_is_never_to_be_given_a_count(
    golden_table: Golden, name: str
) -> None:
    for wrong in (SimpleBuckets(3), RecordIndex(), DynamicBuckets(), ConsistentBuckets(3)):
        with pytest.raises(LayoutMismatchError) as refused:
            Table.adopt(golden_table(name), index=wrong)
        assert "buckets=N" not in str(refused.value)


def test_a_count_below_the_highest_bucket_is_refused(golden_table: Golden) -> None:
    store = LocalStore(golden_table("cow_simple_bucket"))
    with pytest.raises(LayoutMismatchError, match="is none of 2 buckets"):
        Table.adopt(store.root, buckets=2)


@pytest.mark.shows("S6")
def test_wrong_hash_fields_are_refused(golden_table: Golden) -> None:
    store = LocalStore(golden_table("cow_composite_keys"))
    with pytest.raises(LayoutMismatchError, match="lies in the file group"):
        Table.adopt(store.root, buckets=4)
    with pytest.raises(ConfigError, match="not among the record key fields"):
        Table.adopt(store.root, index=SimpleBuckets(4, ("name",)))


@pytest.mark.parametrize("buckets", [0, -1, 1 << 20])
def test_a_count_that_is_none_is_refused(golden_table: Golden, buckets: int) -> None:
    with pytest.raises(ConfigError, match="expected 1 to 65536 buckets"):
        Table.adopt(golden_table("cow_simple_bucket"), buckets=buckets)


def test_another_count_than_the_one_kept_is_refused(copied: Callable[[str], LocalStore]) -> None:
    store = copied("cow_simple_bucket")
    Table.adopt(store.root, buckets=4)
    with pytest.raises(LayoutMismatchError, match=r"has simple buckets: 4 .* index= says simple buckets: 8"):
        Table.adopt(store.root, buckets=8)


@pytest.mark.shows("S6", "C2")
@pytest.mark.parametrize(
    "name", ["0_before", "1_pending_split", "2_after_split", "3_pending_merge", "4_after_merge"]
)
def test_a_table_with_rings_is_adopted_by_them(copied: Callable[[str], LocalStore], name: str) -> None:
    store = copied(f"mor_consistent_{name}")
    with pytest.raises(LayoutMismatchError, match="its rings began with 4"):
        Table.adopt(store.root, index=ConsistentBuckets(2))
    assert (
        str(plan_adoption(store, None).run(store).index)
        == "consistent hashing: 4 buckets at first, hashed from id"
    )
    properties = load_properties(store)
    assert properties.bucket_engine == BucketEngine.CONSISTENT_HASHING
    assert properties.bucket_count == 4


def test_a_table_without_buckets_is_not_adopted(golden_table: Golden) -> None:
    for buckets in (4, None):
        with pytest.raises(UnsupportedError, match=r"none with buckets: p\d/.* is no bucket.* Copy its rows"):
            Table.adopt(golden_table("mor_simple_index_positions"), buckets=buckets)


@pytest.mark.shows("S6")
@pytest.mark.parametrize("name", ["mor_v6", "mor_v8"])
@pytest.mark.parametrize("buckets", [4, 7, None])
def test_a_version_that_cannot_be_written_is_refused_before_its_keys_are_looked_at(
    golden_table: Golden, name: str, buckets: int | None
) -> None:
    seen: list[object] = []
    index = None if buckets is None else SimpleBuckets(buckets)
    with pytest.raises(UnsupportedError, match=r"the table version .* Upgrade the table with Hudi"):
        plan_adoption(LocalStore(golden_table(name)), index, on_progress=lambda *step: seen.append(step))
    assert seen == []


def test_a_table_is_adopted_whatever_its_metadata_table_is_like(copied: Callable[[str], LocalStore]) -> None:
    """What writes say of it comes later, and may be another thing by then."""
    store = copied("cow_simple_bucket")
    update_properties(store, {"hoodie.table.metadata.partitions": "files,column_stats"})
    plan_adoption(store, SimpleBuckets(4)).run(store)
    assert is_adopted(load_properties(store))


@pytest.mark.shows("S6")
def test_two_file_groups_of_one_bucket_are_refused(copied: Callable[[str], LocalStore]) -> None:
    store = copied("cow_simple_bucket")
    path = next(path for path in sorted(store.root.glob("p0/*.parquet")))
    twin = path.with_name(path.name.replace(path.name[9:13], "ffff", 1))
    shutil.copy(path, twin)
    with pytest.raises(LayoutMismatchError, match="are both of bucket"):
        Table.adopt(store.root, buckets=4)


@pytest.mark.shows("S6")
def test_keys_that_we_would_spell_otherwise_are_refused(copied: Callable[[str], LocalStore]) -> None:
    store = copied("cow_complex_single_key")
    update_properties(store, {"hoodie.table.keygenerator.type": "SIMPLE"})
    with pytest.raises(LayoutMismatchError, match=r"'id:\d+' .* would get the key '\d+'"):
        Table.adopt(store.root, buckets=4)
    assert not is_adopted(load_properties(store))


@pytest.mark.shows("S6")
def test_one_stray_key_among_many_is_found(copied: Callable[[str], LocalStore]) -> None:
    """Every key is looked at, not some."""
    store = copied("cow_simple_bucket")
    path = max(store.root.glob("p0/00000003-*.parquet"), key=lambda file: file.name.rpartition("_")[2])
    rows = pq.read_table(path)
    last = rows.num_rows - 1
    keys = rows.column("_hoodie_record_key").to_pylist()
    ids = rows.column("id").to_pylist()
    keys[last], ids[last] = "1", 1  # its bucket is 0
    rows = rows.set_column(2, "_hoodie_record_key", pa.array(keys)).set_column(
        rows.column_names.index("id"), "id", pa.array(ids, pa.int32())
    )
    pq.write_table(rows, path)
    tell_size(store, path)
    with pytest.raises(LayoutMismatchError, match="record key '1' of partition 'p0'"):
        Table.adopt(store.root, buckets=4)


def tell_size(store: LocalStore, file: Path) -> None:
    """Let the commit that wrote a file say the size that it has now."""
    for instant in load_timeline(store, load_properties(store)).writes:
        metadata = read_commit_metadata(store, instant)
        stats = tuple(
            replace(stat, size_bytes=file.stat().st_size) if stat.path.endswith(file.name) else stat
            for stat in metadata.write_stats
        )
        store.put(
            instant.path, encode_commit_metadata(replace(metadata, write_stats=stats), action=instant.action)
        )


@pytest.mark.shows("D1", "R3")
def test_a_table_that_hudi_finds_keys_in_by_partitions_gets_dynamic_buckets(
    copied: Callable[[str], LocalStore],
) -> None:
    store = copied("mor_partitioned_rli")
    index = DynamicBuckets(assigners=3, keys_per_bucket=4)
    before = {row["id"]: row for row in Table.open(store.root).to_arrow().to_pylist()}
    plan = Table.adopt(store.root, index=index).store
    assert "dynamic buckets: 3 assigners" in str(plan_adoption(store, index).run(store)), plan
    table = Table.adopt(store.root)
    taken = next(iter(before.values()))
    rows = [taken | {"id": number} for number in (taken["id"], *range(9_000, 9_010))]
    table.upsert(pa.Table.from_pylist(rows, schema=table.schema))
    assert {row["id"] for row in table.to_arrow().to_pylist()} == before.keys() | set(range(9_000, 9_010))
    filled = check_buckets(store)
    # Hudi has made one shard: so the first assigner acts alone, and file groups of Hudi's get no new keys.
    assert sorted(keys for (_, bucket), keys in filled.items() if bucket >= 0) == [2, 4, 4]
    assert {bucket for _, bucket in filled} == {-1, 0, 3, 6}
    assert check_table(store).damage == ()


@pytest.mark.shows("D1")
@pytest.mark.parametrize("name", ["cow_global_rli", "cow_simple_bucket"])
def test_a_table_that_finds_keys_otherwise_gets_no_dynamic_buckets(
    copied: Callable[[str], LocalStore], name: str
) -> None:
    with pytest.raises(LayoutMismatchError, match="dynamic buckets: 8 assigners"):
        Table.adopt(copied(name).root, index=DynamicBuckets())
