"""A table whose partitions have counts by rules: made with them, written by them, and never by others."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, PartitionBuckets, SimpleBuckets, Table, create_table
from bucketlake.commit.transaction import abort, begin, commit
from bucketlake.errors import (
    CommitConflictError,
    ConfigError,
    CorruptTableError,
    LayoutMismatchError,
    NotATableError,
    UnsupportedError,
)
from bucketlake.index import (
    INITIAL_INSTANT,
    HashingConfig,
    RuledIndex,
)
from bucketlake.index.fingerprint import RULE_TYPE_KEY, writing_index
from bucketlake.layout.names import hashing_config_path
from bucketlake.state import load_state
from bucketlake.storage import LocalStore, MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import CommitMetadata
from bucketlake.write import ArrowRows, Operation, TableSpec, WriteOptions, create, run_write
from bucketlake.write.append import append_rows, begin_append, complete_append
from bucketlake.write.state import plan_write
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.transactions import clock

Golden = Callable[[str], Path]
_numbers = itertools.count()

RULES = "p0$,5;p[1-9],3"


def made(**more: object) -> Table:
    arguments: dict[str, object] = {
        "index": PartitionBuckets(RULES, default=2),
        "table_type": "MERGE_ON_READ",
        **more,
    }
    uri = f"memory://rules-{next(_numbers)}"
    return create_table(uri, SCHEMA, key="id", partition="dt", ordering="ts", **arguments)  # type: ignore[arg-type]


def names(table: Table) -> dict[int, str]:
    rows = table.to_arrow().to_pylist()
    assert len(rows) == len({row["id"] for row in rows}), "a key is there twice"
    return {row["id"]: row["name"] for row in rows}


def rescale(store: Store, rules: str, default: int) -> str:
    """What a rescale of a table without rows in the partitions concerned leaves: a version and a replacecommit."""
    transaction, _ = begin(store, operation=Operation.INSERT_OVERWRITE, clock=clock())
    config = HashingConfig(expressions=rules, default_count=default, instant=transaction.instant)
    store.put(hashing_config_path(config.instant), config.render())
    commit(transaction, CommitMetadata(operation="INSERT_OVERWRITE", write_stats=()), clock=clock())
    return transaction.instant


@pytest.mark.shows("P1", "P3")
def test_a_new_table_has_its_rules_as_hudi_spells_them() -> None:
    table = made()
    assert table.store.read(hashing_config_path(INITIAL_INSTANT)).decode() == (
        '{\n  "expressions" : "p0$,5;p[1-9],3",\n  "defaultBucketNumber" : 2,\n  "rule" : "regex",\n'
        '  "version" : 1,\n  "instant" : "00000000000000000"\n}'
    )
    assert table.properties.raw[RULE_TYPE_KEY] == "regex"
    index = writing_index(load_state(table.store))
    assert isinstance(index, RuledIndex)
    assert index.version == INITIAL_INSTANT
    assert [index.bucket_count(p) for p in ("p0", "p1", "x")] == [5, 3, 2]


@pytest.mark.shows("P1")
@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"index": PartitionBuckets("a,0")}, "position 2"),
        ({"index": PartitionBuckets("a,70000")}, "1 to 65536"),
        ({"index": PartitionBuckets("(a,3")}, "position 0"),
        ({"index": PartitionBuckets("a")}, "position 1"),
        ({"partition": ()}, "no partition columns"),
    ],
)
def test_rules_that_make_no_sense_make_no_table(spec: dict[str, object], fault: str) -> None:
    store = MemoryStore()
    words: dict[str, object] = {
        "name": "t", "schema": SCHEMA, "key": ("id",), "partition": ("dt",), "index": PartitionBuckets(RULES), **spec
    }  # fmt: skip
    with pytest.raises(ConfigError, match=fault):
        create(store, TableSpec(**words))  # type: ignore[arg-type]
    assert not store.list("", recursive=True).files


@pytest.mark.shows("P12")
def test_an_unknown_rule_type_makes_no_table() -> None:
    with pytest.raises(UnsupportedError, match="'season', and bucketlake supports regex, range"):
        made(index=PartitionBuckets(RULES, rule_type="season"))


@pytest.mark.shows("P3")
def test_a_table_never_is_without_its_rules_wherever_its_maker_was_cut_off() -> None:
    spec = TableSpec(
        name="t", schema=SCHEMA, key=("id",), partition=("dt",), index=PartitionBuckets(RULES, default=2)
    )
    simple = TableSpec(name="t", schema=SCHEMA, key=("id",), partition=("dt",), index=SimpleBuckets(7))
    for step in itertools.count(1):
        store = MemoryStore()
        faulty = FaultyStore(store, fails_at=step, is_dead=True, took_effect=True)
        with suppress(InjectedError):
            create(faulty, spec)
        try:
            index = writing_index(load_state(store))
        except NotATableError:
            create(store, simple)
            index = writing_index(load_state(store))
            assert index.bucket_count("p0") == 7, "what the other left behind is none of ours"
        else:
            assert index.bucket_count("p0") == 5
        if len(faulty.operations) < step:
            break


@pytest.mark.shows("P1", "P4")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_every_operation_keeps_to_the_counts(table_type: str) -> None:
    table = made(table_type=table_type)
    table.bulk_insert(orders(range(40), "first", 1))
    table.upsert(orders(range(20, 60), "second", 2))
    table.delete([3, 4])
    check_invariants(table)
    expected = {n: f"first {n}" for n in range(20)} | {n: f"second {n}" for n in range(20, 60)}
    del expected[3], expected[4]
    assert names(table) == expected
    assert {part.partition: part.buckets for part in table.layout().partitions} == {"p0": 5, "p1": 3}
    assert {part.partition: len(part.slices) for part in table.layout().partitions} == {"p0": 5, "p1": 3}
    table.overwrite(orders(range(1, 9, 2), "third", 3))
    check_invariants(table)
    assert names(table) == {n: v for n, v in expected.items() if n % 2 == 0} | {
        n: f"third {n}" for n in range(1, 9, 2)
    }
    if table_type == "MERGE_ON_READ":
        append = begin_append(table.store, SCHEMA, WriteOptions())
        complete_append(append, [append_rows(append, orders(range(70, 90), "fourth", 4), task=0)])
        check_invariants(table)
        assert table.get(71).to_pylist()[0]["name"] == "fourth 71"
    assert table.fsck().is_sound


@pytest.mark.shows("P2")
@pytest.mark.parametrize(
    ("told", "message"),
    [
        (
            {"index": PartitionBuckets("p0,5", 2)},
            r"expressions: the table says 'p0\$,5;p\[1-9\],3', and this write 'p0,5'",
        ),
        ({"index": PartitionBuckets("p0(", 2)}, r"this write 'p0\('"),
        ({"index": PartitionBuckets(RULES, 9)}, "num.buckets: the table says '2', and this write '9'"),
        (
            {"index": PartitionBuckets(RULES, 2, ("ts",))},
            "hash.field: the table says 'id', and this write 'ts'",
        ),
        ({"buckets": 2}, "has partition-level buckets, by rules.*index= says simple buckets: 2 per"),
        (
            {"index": ConsistentBuckets(2)},
            "has partition-level buckets, by rules.*index= says consistent hashing: 2 buckets",
        ),
    ],
)
def test_run_time_options_that_differ_are_refused_with_both_values(
    told: dict[str, object], message: str
) -> None:
    table = made()
    table.upsert(orders(range(4), "a", 1))
    with pytest.raises(LayoutMismatchError, match=message):
        Table(table.store, table.properties, **told).upsert(orders(range(4), "b", 2))  # type: ignore[arg-type]
    same = Table(table.store, table.properties, index=PartitionBuckets(" p0$ ,5;p[1-9],3;", 2))
    same.upsert(orders(range(4), "c", 3))
    assert names(table) == {n: f"c {n}" for n in range(4)}


@pytest.mark.shows("P2")
def test_rules_for_a_table_that_has_none_are_refused() -> None:
    table = made(index=SimpleBuckets(2))
    with pytest.raises(
        LayoutMismatchError, match=r"has simple buckets: 2 .*index= says partition-level.* p0,5"
    ):
        Table(table.store, table.properties, index=PartitionBuckets("p0,5", 2))


@pytest.mark.shows("P3")
def test_a_table_that_lost_its_rules_is_no_table_of_simple_buckets() -> None:
    table = made()
    table.store.delete(hashing_config_path(INITIAL_INSTANT))
    with pytest.raises(CorruptTableError, match=r"Put the \.hashing_config files back"):
        table.upsert(orders(range(4), "a", 1))


@pytest.mark.shows("P4")
def test_the_plan_names_the_version_it_is_by() -> None:
    table = made()
    transaction, state = begin(table.store, operation=Operation.UPSERT, clock=clock())
    plan = plan_write(
        state, writing_index(state), {}, instant=transaction.instant, operation=Operation.UPSERT, schema=SCHEMA,
        cores=1, log_format=WriteOptions().log_format,
    )  # fmt: skip
    assert plan.layout_version == transaction.layout_version == INITIAL_INSTANT
    abort(transaction)
    version = rescale(table.store, "p0,4", 2)
    assert begin(table.store, operation=Operation.UPSERT, clock=clock())[0].layout_version == version


@pytest.mark.shows("P14")
def test_a_write_that_began_under_older_rules_is_refused_and_run_again_under_the_new() -> None:
    table = made()
    table.upsert(orders(range(1, 9, 2), "odd", 1))

    class Overtaken(ArrowRows):
        runs = 0

        def run(self, plan):  # type: ignore[no-untyped-def]
            self.runs += 1
            if self.runs == 1:
                rescale(table.store, "p0,9;p1,3", 2)
            return super().run(plan)

    rows = Overtaken(orders(range(0, 40, 2), "even", 2))
    run_write(rows, table.store, Operation.UPSERT)
    assert rows.runs == 2
    assert {part.partition: part.buckets for part in table.layout().partitions} == {"p0": 9, "p1": 3}
    check_invariants(table)
    assert len(names(table)) == 24

    transaction, _ = begin(table.store, operation=Operation.UPSERT, clock=clock())
    rescale(table.store, "p0,9;p1,3", 4)
    with pytest.raises(
        CommitConflictError, match=r"change of the bucket rules, from .* to .*, came in between"
    ):
        commit(transaction, CommitMetadata(operation="UPSERT", write_stats=()), clock=clock())
    abort(transaction)


@pytest.mark.shows("P14")
def test_so_is_one_that_began_while_the_table_had_simple_buckets() -> None:
    table = made(index=SimpleBuckets(2))
    transaction, _ = begin(table.store, operation=Operation.UPSERT, clock=clock())
    rescale(table.store, "p0,9", 2)
    with pytest.raises(CommitConflictError, match="from none to"):
        commit(transaction, CommitMetadata(operation="UPSERT", write_stats=()), clock=clock())


@pytest.mark.shows("P7")
def test_a_pending_rescale_changes_nothing() -> None:
    table = made()
    pending, _ = begin(table.store, operation=Operation.INSERT_OVERWRITE, clock=clock())
    config = HashingConfig(expressions="p0,9", default_count=1, instant=pending.instant)
    table.store.put(hashing_config_path(config.instant), config.render())
    table.upsert(orders(range(20), "a", 1))
    assert {part.buckets for part in table.layout().partitions} == {5, 3}


def test_file_groups_that_contradict_the_rules_are_named_with_the_way_to_mend_them() -> None:
    table = made()
    table.upsert(orders(range(40), "a", 1))
    rescale(table.store, "p0,2;p1,3", 2)  # without rewriting p0
    with pytest.raises(CorruptTableError, match=r"p0: .*buckets below 2 \(by rule 1: p0; .*with overwrite"):
        table.upsert(orders(range(2), "b", 2))
    assert any("To mend it" in finding.text for finding in table.fsck().findings)
    table.overwrite(table.to_arrow().filter(pa.compute.equal(table.to_arrow()["dt"], "p0")))
    table.upsert(orders(range(2), "b", 2))
    assert len(names(table)) == 40
    check_invariants(table)


@pytest.mark.shows("S6", "P11", "X1")
@pytest.mark.parametrize(
    ("name", "buckets", "rules", "counts"),
    [
        ("mor_partition_bucket", None, None, {"dt=2024-01-01": 3, "dt=2024-02-01": 8, "dt=2024-03-01": 5}),
        ("mor_partition_bucket", 2, "2024-03-01,5;2024-01-01,3;2024-02-.*,8", {"dt=2024-03-01": 5}),
        ("mor_partition_bucket_before", 2, "2024-01-0[12],4;2024-02-.*,8", {"dt=2024-01-01": 4}),
        ("cow_partition_bucket_df", 2, "p1,3", {"p0": 2, "p1": 3}),
    ],
)
def test_a_table_that_hudi_made_is_adopted_with_its_rules_and_upserted_on(
    golden_table: Golden,
    tmp_path: Path,
    name: str,
    buckets: int | None,
    rules: str | None,
    counts: dict[str, int],
) -> None:
    shutil.copytree(golden_table(name), tmp_path / name)
    table = Table.adopt(
        tmp_path / name, index=PartitionBuckets(rules, buckets) if rules and buckets else None
    )
    before = table.to_arrow()
    table.upsert(before.set_column(before.column_names.index("name"), "name", [["ours"] * before.num_rows]))
    assert set(names(table).values()) == {"ours"}
    assert len(names(table)) == before.num_rows
    check_invariants(table)
    found = {part.partition: part.buckets for part in table.layout().partitions}
    assert counts.items() <= found.items()
    again = Table.adopt(tmp_path / name)
    assert again.describe().index == table.describe().index


@pytest.mark.shows("S6")
@pytest.mark.parametrize(
    ("name", "told", "fault"),
    [
        ("cow_partition_bucket_df", {}, "does not say how many buckets"),
        ("cow_partition_bucket_df", {"buckets": 2}, "is none of 2 buckets"),
        ("cow_partition_bucket_df", {"index": PartitionBuckets("p1,4", 2)}, "partition.expressions"),
        ("cow_partition_bucket_df", {"index": PartitionBuckets("p1,0", 2)}, "position 3"),
        ("mor_partition_bucket", {"buckets": 4}, "has bucket rules of its own.*says simple buckets: 4"),
        ("mor_partition_bucket", {"index": PartitionBuckets("x,4", 2)}, "and the option 'x,4'"),
    ],
)
def test_wrong_rules_are_refused_and_nothing_is_kept(
    golden_table: Golden, name: str, told: dict[str, object], fault: str
) -> None:
    store = LocalStore(golden_table(name))
    before = sorted(file.path for file in store.list("", recursive=True).files)
    properties = store.read(".hoodie/hoodie.properties")
    with pytest.raises(ConfigError, match=fault):
        Table.adopt(golden_table(name), **told)  # type: ignore[arg-type]
    assert sorted(file.path for file in store.list("", recursive=True).files) == before
    assert store.read(".hoodie/hoodie.properties") == properties


def test_explain_follows_a_key_to_its_file_group() -> None:
    table = made()
    table.upsert(orders(range(40), "a", 1))
    last = table.upsert(orders([8], "b", 2)).instant
    found = table.explain(8, partition="p0")
    assert (found.record_key, found.pieces, found.hash) == ("8", ("8",), 31 + ord("8"))
    assert (found.count, found.bucket, found.slot) == (5, 87 % 5, f"{87 % 5:08d}")
    assert (found.rule, found.rules_version) == ("by rule 1: p0$", INITIAL_INSTANT)
    (group,) = found.file_groups
    assert group.startswith(f"{87 % 5:08d}-")
    assert found.commits[0].requested == last
    assert len(found.commits) == 2
    assert "mod 5 = 2" in str(found)
    assert table.explain(8, partition="x").file_groups == ()
    assert "the default" in str(table.explain(8, partition="x"))
    with pytest.raises(ConfigError, match="name it by its path"):
        table.explain(8)


@pytest.mark.parametrize(
    ("name", "arguments", "partition", "expected"),
    [
        ("mor_simple_bucket_avro", {"buckets": 4}, "p0", "mod 4 ="),
        ("mor_simple_bucket_avro", {}, "p0", "none: "),
        ("mor_consistent_0_before", {}, "p0", "consistent hashing"),
        ("mor_nonpartitioned", {"buckets": 4}, None, "mod 4 ="),
    ],
)
def test_explain_says_what_it_can_of_other_tables(
    golden_table: Golden, name: str, arguments: dict[str, int], partition: str | None, expected: str
) -> None:
    table = Table.open(golden_table(name), **arguments)  # type: ignore[arg-type]
    row = table.to_arrow(meta_columns=True).to_pylist()[0]
    partition = None if partition is None else row["_hoodie_partition_path"]
    found = table.explain(row["id"], partition=partition)
    assert expected in str(found)
    assert row["_hoodie_file_name"].partition("_")[0] in found.file_groups
    assert found.commits
