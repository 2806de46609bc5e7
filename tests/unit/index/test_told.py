"""What a caller says of an index is checked, and never contradicts the table: a wrong one would write keys twice."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import pytest

from bucketlake import (
    ConsistentBuckets,
    ExtendibleBuckets,
    PartitionBuckets,
    SimpleBuckets,
    Table,
    create_table,
)
from bucketlake.errors import ConfigError, LayoutMismatchError
from bucketlake.index.hints import is_hint, refuse_hints
from bucketlake.index.told import IndexValue, index_of_text, told
from bucketlake.state import load_state
from stand_ins.orders_table import SCHEMA, orders

_numbers = itertools.count()
VALUES: list[IndexValue] = [
    SimpleBuckets(2),
    PartitionBuckets("p0,3", default=2),
    ConsistentBuckets(2),
    ConsistentBuckets(2, virtual_logs=True),
    ExtendibleBuckets(2),
]


def made(index: IndexValue | None = None, **more: Any) -> Table:
    return create_table(
        f"memory://told-{next(_numbers)}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type="MERGE_ON_READ",
        **more,
    )


def test_buckets_is_short_for_simple_buckets_and_four_is_what_nobody_says() -> None:
    assert told(None, 8) == SimpleBuckets(8)
    assert told() is None
    assert made(buckets=8).describe().index == made(SimpleBuckets(8)).describe().index
    assert "4 per partition" in made().describe().index


@pytest.mark.parametrize(
    ("index", "buckets", "words"),
    [
        (SimpleBuckets(4), 4, r"index is simple buckets: 4 per partition and buckets is 4: .*Give one"),
        (4, None, r"index is 4, an int; expected SimpleBuckets\(4\), PartitionBuckets"),
        ("simple", None, "index is 'simple', a str; expected SimpleBuckets"),
        (SimpleBuckets, None, "expected SimpleBuckets"),
        (None, 0, "buckets is 0; expected 1 to 65536 buckets per partition"),
        (None, "4", "buckets is '4', a str; expected a whole number"),
        (SimpleBuckets(True), None, "count is True, a bool; expected a whole number"),
        (SimpleBuckets(70_000), None, "count is 70000; expected 1 to 65536"),
        (PartitionBuckets("p,1", default=0), None, "default is 0; expected 1 to"),
        (PartitionBuckets(["p,1"]), None, r"rules is \['p,1'\], a list; expected a text"),  # type: ignore[arg-type]
        (PartitionBuckets(""), None, "rules is '', a str; expected a text"),
        (PartitionBuckets("p,1", rule_type=5), None, "rule_type is 5"),  # type: ignore[arg-type]
        (ConsistentBuckets(4, virtual_logs="no"), None, "virtual_logs is 'no', a str; expected True"),  # type: ignore[arg-type]
        (SimpleBuckets(4, hash_fields=5), None, "hash_fields is 5, an int; expected names"),  # type: ignore[arg-type]
        (SimpleBuckets(4, hash_fields=["id", 5]), None, "hash_fields is"),  # type: ignore[arg-type, list-item]
    ],
)
def test_a_value_that_makes_no_sense_is_refused(index: Any, buckets: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        made(index, buckets=buckets)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("partition_rules", r"Write instead: index=PartitionBuckets\("),
        ("rule_type", r"PartitionBuckets\(rules, default=4, rule_type="),
        ("hash_fields", r"index=SimpleBuckets\(4, hash_fields="),
        ("engine", r"ConsistentBuckets\(4\)"),
        ("virtual_logs", r"index=ConsistentBuckets\(4, virtual_logs=True\)"),
        ("bukets", "there is no argument 'bukets' here; expected "),
    ],
)
def test_an_argument_that_is_gone_is_refused_with_what_to_write_instead(name: str, words: str) -> None:
    table = made()
    for call in (made, *(_told_of(table, how) for how in (Table.open, Table.adopt))):
        with pytest.raises(ConfigError, match=words):
            call(**{name: "x"})
    with pytest.raises(ConfigError, match=words):
        Table(table.store, table.properties, **{name: "x"})  # type: ignore[arg-type]


def _told_of(table: Table, how: Any) -> Any:
    return lambda **more: how(table.store.uri, **more)


@pytest.mark.shows("X1")
@pytest.mark.parametrize("own", VALUES, ids=str)
@pytest.mark.parametrize("other", VALUES, ids=str)
def test_a_table_is_opened_with_its_own_index_and_with_no_other(own: IndexValue, other: IndexValue) -> None:
    table = made(own)
    table.upsert(orders(range(8), "first", 1))
    if own == other or (own == ConsistentBuckets(2, virtual_logs=True) and other == ConsistentBuckets(2)):
        opened = Table.open(table.store.uri, index=other)
        opened.upsert(orders(range(8), "second", 2))
        assert opened.get(3).num_rows == 1
        return
    with pytest.raises(LayoutMismatchError) as refusal:
        Table.open(table.store.uri, index=other).upsert(orders(range(8), "second", 2))
    assert str(other) in str(refusal.value)
    assert "has " in str(refusal.value)


def test_an_index_that_a_table_of_hudis_cannot_have_is_not_adopted(golden_table: Any) -> None:
    simple, ring = golden_table("cow_simple_bucket"), golden_table("mor_consistent_0_before")
    with pytest.raises(LayoutMismatchError, match="no rings among its files, and index= says consistent"):
        Table.adopt(simple, index=ConsistentBuckets(4))
    with pytest.raises(LayoutMismatchError, match="an engine that Hudi has, and this is none"):
        Table.adopt(simple, index=ExtendibleBuckets(4))
    with pytest.raises(LayoutMismatchError, match="rings of consistent hashing, and index= says simple"):
        Table.adopt(ring, buckets=4)
    with pytest.raises(ConfigError, match="virtual_logs=False"):
        Table.adopt(ring, index=ConsistentBuckets(4, virtual_logs=True))
    with pytest.raises(ConfigError, match="rule_type is 'odd'; expected 'regex'"):
        Table.adopt(simple, index=PartitionBuckets("p,4", rule_type="odd"))


def test_a_plan_of_an_adoption_checks_every_key_and_keeps_nothing(golden_table: Any, tmp_path: Any) -> None:
    path = shutil.copytree(golden_table("cow_simple_bucket"), tmp_path / "t")
    table = Table.open(path)
    with pytest.raises(LayoutMismatchError, match="agree with 4 buckets"):
        table.plan_adopt(buckets=7)
    plan = table.plan_adopt(buckets=4)
    assert "agree with simple buckets: 4 per partition" in str(plan)
    assert Table.open(path).properties.bucket_count is None
    table.run(plan)
    assert table.properties.bucket_count == 4
    assert Table.open(path).properties.bucket_count == 4


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_is_read_from_the_text_that_python_has_for_it(value: IndexValue) -> None:
    assert index_of_text(repr(value)) == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("4", r"index is '4'; expected SimpleBuckets\(4\).*it is no name with arguments"),
        ("OddBuckets(4)", "there is no index 'OddBuckets'"),
        ("SimpleBuckets(4", "was never closed"),
        ("SimpleBuckets(n)", "malformed node"),
        ("SimpleBuckets(odd=4)", "unexpected keyword argument 'odd'"),
        ("SimpleBuckets(0)", "count is 0; expected 1 to"),
        ("ConsistentBuckets(4, rules='p,1')", "unexpected keyword argument 'rules'"),
        ("__import__('os')", "there is no index '__import__'"),
    ],
)
def test_a_text_that_is_no_value_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        index_of_text(text)


@pytest.mark.shows("P2")
def test_options_of_a_write_in_hudis_words_may_repeat_what_the_table_has() -> None:
    ruled = load_state(made(PartitionBuckets("p0,3", default=2)).store)
    refuse_hints(
        {
            "hoodie.index.type": "BUCKET",
            "hoodie.index.bucket.engine": "simple_hashing",
            "hoodie.bucket.index.num.buckets": "2",
            "hoodie.bucket.index.hash.field": "id",
            "hoodie.bucket.index.partition.expressions": " p0 ,3;",
            "hoodie.bucket.index.partition.rule": "regex",
        },
        ruled,
    )
    refuse_hints({"hoodie.bucket.index.num.buckets": "2"}, load_state(made(ConsistentBuckets(2)).store))


@pytest.mark.shows("P2")
@pytest.mark.parametrize(
    ("index", "name", "value", "words"),
    [
        (SimpleBuckets(2), "hoodie.bucket.index.num.buckets", "8", "has '2' .*this write says '8'"),
        (SimpleBuckets(2), "hoodie.bucket.index.partition.expressions", "p,1", "has '' .*says 'p,1'"),
        (SimpleBuckets(2), "hoodie.index.bucket.engine", "CONSISTENT_HASHING", "has 'SIMPLE' .*says 'CONS"),
        (SimpleBuckets(2), "hoodie.bucket.index.hash.field", "ts", "has 'id' .*says 'ts'"),
        (SimpleBuckets(2), "bucketlake.resize.virtual", "true", "has 'false' .*says 'true'"),
        (PartitionBuckets("p0,3", 2), "hoodie.bucket.index.num.buckets", "3", "has '2' .*says '3'"),
        (PartitionBuckets("p0,3", 2), "hoodie.bucket.index.partition.expressions", "p0,4", "'p0,3'.*'p0,4'"),
        (
            PartitionBuckets("p0,3", 2),
            "hoodie.bucket.index.partition.rule.type",
            "range",
            "'regex' .*'range'",
        ),
        (ConsistentBuckets(2), "hoodie.index.type", "BLOOM", "has 'BUCKET' .*says 'BLOOM'"),
    ],
)
def test_options_of_a_write_that_differ_are_refused_with_both_values(
    index: IndexValue, name: str, value: str, words: str
) -> None:
    assert is_hint(name)
    with pytest.raises(LayoutMismatchError, match=words):
        refuse_hints({name: value}, load_state(made(index).store))


def test_an_option_of_the_index_that_we_do_not_have_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown option 'hoodie.bucket.index.max.num.buckets'.*expected one"
    ):
        refuse_hints({"hoodie.bucket.index.max.num.buckets": "8"}, load_state(made().store))
