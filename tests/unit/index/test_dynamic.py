"""Dynamic buckets by themselves: what they may be, where new keys go, and what others leave among them."""

from __future__ import annotations

import itertools
import pickle
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import (
    ConfigError,
    CorruptTableError,
    DynamicBuckets,
    LayoutMismatchError,
    RecordIndex,
    SimpleBuckets,
    Table,
    UnsupportedError,
    create_table,
)
from bucketlake.config import load_properties, update_properties
from bucketlake.index import DynamicIndex, bucket_room, dynamic, resolve_index, shard_of
from bucketlake.index.dynamic import ASSIGNERS_KEY, KEYS_KEY
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.services import check_table
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.state import files_of, load_state
from bucketlake.storage import Store
from bucketlake.write import ArrowRows, Operation, key_changes, run_write, task
from stand_ins.dynamic_check import buckets_of, check_buckets
from stand_ins.record_index_check import check_record_index, entries_of

pytestmark = pytest.mark.shows("D1", "D2", "D3")

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.string())])
TYPES = pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
_names = itertools.count()


def a_table(index: Any, table_type: str = "MERGE_ON_READ", **options: Any) -> Table:
    return create_table(
        f"memory://dynamic-{next(_names)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        **{"maintenance": "off", **options},
    )


def rows(keys: range, ts: int = 1, partition: str = "p") -> pa.Table:
    values = [{"id": f"k{n}", "dt": partition, "ts": ts, "v": f"{ts} {n}"} for n in keys]
    return pa.Table.from_pylist(values, SCHEMA)


def check(store: Store) -> dict[tuple[str, int], int]:
    check_record_index(store)
    report = check_table(store)
    assert report.damage == (), str(report)
    return check_buckets(store)


def numbers_in(store: Store, partition: str = "p") -> set[int]:
    return {bucket for where, bucket in buckets_of(store) if where == partition}


def hash_of(key: str) -> int:
    """As Java has it."""
    hashed = 0
    for sign in key:
        hashed = (31 * hashed + ord(sign)) & 0xFFFFFFFF
    return hashed


class OfTasks(ArrowRows):
    """Rows that are written as by so many cores."""

    def __init__(self, table: pa.Table, cores: int) -> None:
        super().__init__(table)
        self.cores = cores


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (DynamicBuckets(assigners=0), "assigners is 0; expected 1 to 10,000"),
        (DynamicBuckets(assigners=True), "assigners is True"),
        (DynamicBuckets(keys_per_bucket=0), "keys_per_bucket is 0; expected 1 to 1,000,000,000"),
        (DynamicBuckets(keys_per_bucket=2_000_000_000), "keys_per_bucket is 2000000000"),
        (DynamicBuckets(bytes_per_bucket=-1), "bytes_per_bucket is -1"),
        (DynamicBuckets(bytes_per_bucket="128 MB"), "bytes_per_bucket is '128 MB', a str"),  # type: ignore[arg-type] # so
    ],
)
def test_a_value_that_no_table_can_have_is_refused_before_anything_is_written(
    value: DynamicBuckets, says: str, tmp_path: Any
) -> None:
    with pytest.raises(ConfigError, match=says):
        create_table(tmp_path / "t", SCHEMA, key="id", partition="dt", index=value)
    assert not (tmp_path / "t").exists()


@TYPES
def test_keys_stay_where_they_are_whatever_the_parallelism_of_a_run(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=3, keys_per_bucket=10), table_type)
    before: dict[Any, Any] = {}
    for number, cores in enumerate([4, 7, 2, 1, 4, 7]):
        run_write(
            OfTasks(rows(range(15 * number, 15 * number + 40), number), cores), table.store, Operation.UPSERT
        )
        filled = check(table.store)
        assert sum(keys < 10 for keys in filled.values()) <= 3, "another opened though one had room"
        entries = entries_of(table.store)
        assert entries.items() >= before.items(), "a key has moved"
        before = entries
    assert len(before) == 115
    assert numbers_in(table.store) >= {0, 1, 2}


@TYPES
def test_a_bucket_is_rewritten_only_if_it_gets_rows(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=10), table_type)
    table.upsert(rows(range(40)))
    done = table.upsert(rows(range(100, 103)))
    owners = {shard_of(f"k{n}", 2) for n in range(100, 103)}
    assert done.files == len(
        {bucket for bucket in numbers_in(table.store) if bucket % 2 in owners} & newest(table)
    )
    assert done.files <= 4


def newest(table: Table) -> set[int]:
    """The buckets that the newest commit wrote to."""
    index = resolve_index(load_state(table.store))
    assert isinstance(index, DynamicIndex)
    found = table.to_arrow(meta_columns=True).to_pylist()
    last = max(row["_hoodie_commit_time"] for row in found)
    names = {
        row["_hoodie_file_name"].partition("_")[0] for row in found if row["_hoodie_commit_time"] == last
    }
    return {int(name[:8]) for name in names}


@TYPES
def test_room_that_deletes_make_is_filled_again(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=10), table_type)
    table.upsert(rows(range(20)))
    buckets = numbers_in(table.store)
    gone = buckets_of(table.store)["p", 0][:5]
    table.delete(pa.table({"id": gone, "dt": ["p"] * 5}))
    assert check(table.store)["p", 0] == 5
    fresh = [f"n{n}" for n in range(200) if shard_of(f"n{n}", 2) == 0][:5]
    table.upsert([{"id": key, "dt": "p", "ts": 2, "v": "new"} for key in fresh])
    assert check(table.store)["p", 0] == 10
    assert numbers_in(table.store) == buckets


@TYPES
def test_a_key_that_was_deleted_may_live_elsewhere_when_it_comes_again(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=1, keys_per_bucket=4), table_type)
    table.upsert(rows(range(4)))
    table.delete(pa.table({"id": ["k1"], "dt": ["p"]}))
    table.upsert(rows(range(10, 11)))
    table.upsert(rows(range(1, 2), ts=9))
    assert check(table.store) == {("p", 0): 4, ("p", 1): 1}
    assert buckets_of(table.store)["p", 1] == ["k1"]


def test_a_bucket_is_full_by_the_bytes_of_its_base_file_too() -> None:
    table = a_table(DynamicBuckets(assigners=1, bytes_per_bucket=1_000), "COPY_ON_WRITE")
    table.upsert(rows(range(3)))
    table.upsert(rows(range(10, 12)))
    assert check(table.store) == {("p", 0): 3, ("p", 1): 2}, "a base file has more than 1,000 bytes"


@pytest.mark.parametrize("is_compacted", [False, True])
def test_what_logs_have_brought_counts_as_bytes_too(is_compacted: bool) -> None:
    table = a_table(DynamicBuckets(assigners=1, bytes_per_bucket=20_000))
    table.upsert(rows(range(10)))
    if is_compacted:
        table.compact(delta_commits=1)
    for number in range(1, 5):
        table.upsert(rows(range(500 * number, 500 * number + 500), ts=number))
    filled = check(table.store)
    assert len(filled) >= 2, "a bucket that has only logs is never full"
    assert sum(filled.values()) == 2_010
    one_write = a_table(DynamicBuckets(assigners=1, bytes_per_bucket=20_000))
    one_write.upsert(rows(range(500, 2_500)))
    assert max(filled.values()) <= 1.2 * max(check(one_write.store).values())


def test_equal_hashes_go_to_buckets_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "key_hashes", lambda keys: pa.array([7] * len(keys)).to_numpy())
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=5))
    table.upsert(rows(range(40)))
    assert sum(check(table.store).values()) == 40


@pytest.mark.shows("D7")
def test_keys_of_one_32_bit_hash_are_told_apart() -> None:
    """By that hash the index is cut into shards: so all of them have one assigner."""
    keys = ["".join(pairs) for pairs in itertools.product(("Aa", "BB"), repeat=5)]
    assert len({hash_of(key) for key in keys}) == 1
    table = a_table(DynamicBuckets(assigners=3, keys_per_bucket=10))
    for ts in (1, 2):
        table.upsert([{"id": key, "dt": "p", "ts": ts, "v": key} for key in keys[: 16 * ts]])
    filled = check(table.store)
    assert sum(filled.values()) == 32
    assert len({bucket % 3 for _, bucket in filled}) == 1
    assert sorted(filled.values()) == [2, 10, 10, 10]


@TYPES
def test_a_partition_with_too_many_buckets_is_refused_and_others_are_not(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_room, "BUCKETS_LIMIT", 4)
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=3), table_type)
    table.upsert(rows(range(6)))
    table.upsert(rows(range(6), partition="q"))
    before = {file.path for file in table.store.list("", recursive=True).files}
    with pytest.raises(
        UnsupportedError, match=r"'p'.* more than 4 buckets, of 3 keys.*take more keys and bytes"
    ):
        table.upsert(rows(range(6, 20)))
    left = {file.path for file in table.store.list("", recursive=True).files} - before
    assert not [path for path in left if "/." not in f"/{path}"], "data files"
    assert sum(check(table.store).values()) == 12
    table.upsert(rows(range(6), ts=2))
    table.upsert(rows(range(4), partition="r"))
    assert sum(check(table.store).values()) == 16


@TYPES
def test_an_index_that_knows_more_buckets_than_there_are_is_refused_and_mended(
    table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=5), table_type)
    table.upsert(rows(range(10)))
    with monkeypatch.context() as patch:
        patch.setattr(key_changes, "_leave_replaced", lambda *_, **__: iter(()))
        patch.setattr(key_changes, "compare", lambda *_: None)
        table.overwrite(rows(range(10, 14)))
    before = load_state(table.store).timeline.instants
    with pytest.raises(
        CorruptTableError, match=r"places the key 'k\d' there.*no such file group.*plan_repair"
    ):
        table.upsert(rows(range(8, 12), ts=3))
    assert load_state(table.store).timeline.instants == before
    assert {row["id"] for row in table.to_arrow().to_pylist()} == {f"k{n}" for n in range(10, 14)}
    assert check_table(table.store).damage
    table.repair()
    table.upsert(rows(range(8, 12), ts=3))
    assert sum(check(table.store).values()) == 6


@TYPES
def test_a_table_without_partitions_has_dynamic_buckets(table_type: str) -> None:
    table = create_table(
        f"memory://dynamic-{next(_names)}",
        SCHEMA,
        key="id",
        index=DynamicBuckets(assigners=2, keys_per_bucket=5),
        table_type=table_type,
    )
    for number in range(4):
        table.upsert(rows(range(6 * number, 6 * number + 12)))
    filled = check(table.store)
    assert sum(filled.values()) == 30
    assert sum(keys < 5 for keys in filled.values()) <= 2


@TYPES
def test_numbers_come_again_after_a_partition_is_dropped_and_ids_do_not(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=5), table_type, maintenance="off")
    ids: Counter[str] = Counter()
    for number in range(3):
        table.upsert(rows(range(10), ts=10 * number))
        check(table.store)
        ids.update({file_id for _, file_id in entries_of(table.store).values()})
        table.overwrite(rows(range(5, 20), ts=10 * number))
        check(table.store)
        ids.update({file_id for _, file_id in entries_of(table.store).values()})
        table.delete_partitions(["p"])
        assert entries_of(table.store) == {}
        table.clean(retain_commits=1)
    table.archive(keep_min=2, keep_max=3)
    table.upsert(rows(range(10), ts=99))
    ids.update({file_id for _, file_id in entries_of(table.store).values()})
    assert set(ids.values()) == {1}
    assert numbers_in(table.store) >= {0, 1}


@pytest.mark.parametrize("said", [DynamicBuckets(assigners=4), RecordIndex(per_partition=True)])
def test_a_table_is_not_taken_for_another(said: Any) -> None:
    table = a_table(DynamicBuckets(assigners=2))
    with pytest.raises(LayoutMismatchError, match="has dynamic buckets: 2 assigners"):
        Table.open(table.store.uri, index=said)
    Table.open(table.store.uri, index=DynamicBuckets(assigners=2)).upsert(rows(range(3)))


@pytest.mark.parametrize("key", [ASSIGNERS_KEY, KEYS_KEY])
@pytest.mark.parametrize("text", ["0", "many", None])
def test_a_table_that_has_lost_a_number_is_not_written_by_a_guess(key: str, text: str | None) -> None:
    table = a_table(DynamicBuckets(assigners=2))
    table.upsert(rows(range(3)))
    update_properties(table.store, {key: text})
    with pytest.raises(CorruptTableError, match=f"{key}.*Put back what there was"):
        Table(table.store, load_properties(table.store)).upsert(rows(range(3, 6)))


# ------------------------------------------------------------------------------------------- what others leave in them


def made_dynamic(table: Table, index: DynamicBuckets) -> Table:
    """Make a table with a record-level index one with dynamic buckets: so it is as if another had written to it."""
    update_properties(table.store, dict(index.settings()))
    return Table(table.store, load_properties(table.store))


@TYPES
def test_file_groups_without_numbers_are_read_and_updated_and_get_no_new_keys(table_type: str) -> None:
    table = a_table(RecordIndex(per_partition=True), table_type)
    table.upsert(rows(range(10)))
    foreign = set(entries_of(table.store).values())
    table = made_dynamic(table, DynamicBuckets(assigners=4, keys_per_bucket=6))
    table.upsert(rows(range(5, 25), ts=2))
    filled = check(table.store)
    assert filled["p", -1] == 10
    places = entries_of(table.store)
    assert {places[f"k{n}", "p"] for n in range(10)} == foreign
    # Hudi gives a partition one shard: of it, only the first assigner acts.
    assert numbers_in(table.store) == {-1, 0, 4, 8}
    table.delete(pa.table({"id": [f"k{n}" for n in range(8)], "dt": ["p"] * 8}))
    table.upsert(rows(range(8), ts=3))
    assert check(table.store)["p", -1] == 2
    table.upsert(rows(range(30), partition="q"))
    assert {bucket % 4 for bucket in numbers_in(table.store, "q")} == {0, 1, 2, 3}


def test_an_index_with_more_shards_than_assigners_fills_the_same_buckets() -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=10))
    table.upsert(rows(range(35)))
    before = check(table.store)
    table.metadata.grow_record_index(5)
    table = Table(table.store, load_properties(table.store))
    for number in range(1, 4):
        table.upsert(rows(range(35 * number, 35 * number + 35)))
        check_record_index(table.store)
        assert check_table(table.store).damage == ()
    filled = {bucket: len(keys) for bucket, keys in buckets_of(table.store).items()}
    assert set(before) <= set(filled)
    assert all(keys <= 10 for keys in filled.values())
    assert sum(keys < 10 for keys in filled.values()) <= 2
    table.upsert(rows(range(200), ts=9))
    assert check_record_index(table.store) == 200


def test_an_index_that_travels_to_tasks_sees_what_it_saw() -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=10))
    table.upsert(rows(range(5)))
    index = resolve_index(load_state(table.store))
    assert isinstance(index, DynamicIndex)
    travelled = pickle.loads(pickle.dumps(index))
    table.upsert(rows(range(5, 50)))
    assert travelled.shards_there == 2
    where, _ = travelled.look_up(0, None, pa.array(["k9", "k30"]))
    assert where.null_count == 2


def test_shards_of_a_new_partition_are_as_many_as_the_assigners() -> None:
    table = a_table(DynamicBuckets(assigners=5))
    table.upsert(rows(range(1)))
    files = table.store.list(folder_of(RECORD_INDEX)).files
    shards = {file.path.rpartition("/")[2].partition("_")[0] for file in files if "-p-" in file.path}
    assert len(shards) == 5


# --------------------------------------------------------------------------------------------------- what people see


def mixed_table(table_type: str = "MERGE_ON_READ") -> Table:
    """Buckets that are full, one that is not, and a file group of another writer, in p; one bucket in q."""
    table = a_table(RecordIndex(per_partition=True), table_type)
    table.upsert(rows(range(3)))
    table = made_dynamic(table, DynamicBuckets(assigners=2, keys_per_bucket=4))
    table.upsert(rows(range(3, 13)))
    table.upsert(rows(range(1, 2), partition="q"))
    return table


@pytest.mark.shows("D8", "D5")
@TYPES
def test_the_index_is_read_for_one_partition(table_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mixed_table(table_type)
    table.upsert(rows(range(3, 6), ts=7))
    table.delete(pa.table({"id": ["k4"], "dt": ["p"]}))
    read: list[str] = []
    reading = type(table.store).read

    def noted(store: Any, path: str, *args: Any) -> Any:
        read.append(path)
        return reading(store, path, *args)

    monkeypatch.setattr(type(table.store), "read", noted)
    found = table.locations("p")
    assert not [path for path in read if "record-index-q" in path]
    assert found.schema.names == ["key", "file_id", "bucket"]
    expected = {
        (key, file_id) for (key, where), (_, file_id) in entries_of(table.store).items() if where == "p"
    }
    assert {(row["key"], row["file_id"]) for row in found.to_pylist()} == expected
    numbers = Counter(found["bucket"].to_pylist())
    assert numbers.keys() == {None, 0, 2, 4}
    assert numbers.total() == 12


def test_a_partition_that_is_not_there_has_no_locations() -> None:
    table = mixed_table()
    with pytest.raises(ConfigError, match="has no partition 'r'"):
        table.locations("r")
    with pytest.raises(ConfigError, match="partition is 7"):
        table.locations(7)  # type: ignore[call-overload] # that is the point


def test_a_table_that_works_places_out_has_no_locations_until_they_are_recorded() -> None:
    table = a_table(SimpleBuckets(2), "COPY_ON_WRITE")
    table.upsert(rows(range(6)))
    with pytest.raises(UnsupportedError, match=r"metadata.build\(record_index=True\)"):
        table.locations("p")
    table.metadata.build(record_index=True)
    found = Table(table.store, load_properties(table.store)).locations("p")
    assert {row["key"] for row in found.to_pylist()} == {f"k{n}" for n in range(6)}


@TYPES
def test_a_layout_shows_how_full_buckets_are_and_whose(table_type: str) -> None:
    table = mixed_table(table_type)
    table.upsert(rows(range(13, 14)))
    (p, q) = table.layout().partitions
    fills = {fill.bucket: (fill.owner, fill.keys, fill.is_full) for fill in p.fills.values()}
    assert fills == {0: (0, 4, True), 2: (0, 4, True), 4: (0, 3, False)}
    assert len(p.slices) == 4
    assert [(fill.bucket, fill.keys) for fill in q.fills.values()] == [(shard_of("k1", 2), 1)]


@TYPES
def test_a_layout_and_an_explanation_show_how_buckets_have_grown(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=1, keys_per_bucket=10), table_type)
    for batch in (range(6), range(4, 14), range(14, 15)):
        table.upsert(rows(batch))
    table.delete(["k0"])
    (part,) = table.layout().partitions
    assert {part.fills[i].bucket: [step.keys for step in steps] for i, steps in part.growth.items()} == {
        0: [6, 4, -1],
        1: [4, 1],
    }
    completed = [entry.completed for entry in table.timeline()]
    assert [step.completed for steps in part.growth.values() for step in steps if step.keys < 0] == [
        completed[-1]
    ]
    said = table.explain("k14", partition=part.partition).more["growth"]
    assert said == f"+4 at {completed[1]}, +1 at {completed[2]}"


def test_a_key_is_explained_by_its_assigner_and_its_bucket() -> None:
    table = mixed_table()
    by_key = {row["key"]: row["bucket"] for row in table.locations("p").to_pylist()}
    said = table.explain("k9", partition="p").more
    assert said["assigner"] == "0 of 2"
    assert said["bucket"] == str(by_key["k9"])
    assert table.explain("k1", partition="p").more["bucket"] == "none: a file group of another writer"
    unknown = table.explain("k99", partition="q").more
    assert unknown["assigner"] == f"{shard_of('k99', 2)} of 2"
    assert "bucket" not in unknown


@TYPES
def test_clustering_joins_no_buckets_and_leaves_their_numbers(table_type: str) -> None:
    table = a_table(DynamicBuckets(assigners=2, keys_per_bucket=10), table_type)
    table.upsert(rows(range(35)))
    before = {bucket: set(keys) for bucket, keys in buckets_of(table.store).items()}
    ids = {file_id for _, file_id in entries_of(table.store).values()}
    table.cluster(by="ts")
    check(table.store)
    assert {bucket: set(keys) for bucket, keys in buckets_of(table.store).items()} == before
    assert not ids & {file_id for _, file_id in entries_of(table.store).values()}
    table.upsert(rows(range(35, 50)))
    assert sum(check(table.store).values()) == 50


def test_what_archived_commits_say_of_their_logs_counts_too() -> None:
    table = a_table(DynamicBuckets(assigners=1, keys_per_bucket=100))
    for number in range(6):
        table.upsert(rows(range(10 * number, 10 * number + 15), ts=number))
    compact_metadata(table.store)
    table.archive(keep_min=2, keep_max=3)
    state = load_state(table.store)
    (group,) = files_of(state)["p"][:1]
    assert len(state.timeline.writes) < 6
    assert group.instant not in {write.requested for write in state.timeline.writes}
    assert check(table.store) == {("p", 0): 65}
    table.upsert(rows(range(100, 150)))
    assert check(table.store) == {("p", 0): 100, ("p", 1): 15}


@pytest.mark.parametrize("is_archived", [False, True])
def test_a_row_that_is_older_than_a_delete_in_the_logs_stays_away(
    is_archived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    reading = task.read_stored

    def noted(store: Any, part: Any, *args: Any, **how: Any) -> Any:
        looked.append(part.file_id)
        return reading(store, part, *args, **how)

    monkeypatch.setattr(task, "read_stored", noted)
    table = create_table(
        f"memory://dynamic-{next(_names)}",
        SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_())),
        key="id",
        partition="dt",
        ordering="ts",
        index=DynamicBuckets(assigners=1),
        table_type="MERGE_ON_READ",
        maintenance="off",
    )

    def upsert(keys: range, ts: int, *, is_deleted: bool = False) -> None:
        made = rows(keys, ts)
        table.upsert(made.append_column("_hoodie_is_deleted", pa.array([is_deleted] * len(made))))

    upsert(range(5), 1)
    upsert(range(3, 8), 2)
    upsert(range(6, 10), 3)
    assert not looked, "no log has a delete, and a key that is new cannot lose"
    upsert(range(1, 3), 9, is_deleted=True)
    if is_archived:
        for number in range(4):
            upsert(range(3, 4), 10 + number)
        compact_metadata(table.store)
        table.archive(keep_min=2, keep_max=3)
    upsert(range(3), 5)
    assert looked
    check(table.store)
    assert {row["id"] for row in table.to_arrow(columns=["id"]).to_pylist()} == {
        f"k{n}" for n in (0, *range(3, 10))
    }
    upsert(range(1, 3), 10)
    assert sum(check(table.store).values()) == 10
