"""A type of rules is what a program has registered, never what a table names."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import pytest

from bucketlake import PartitionBuckets, create_table, register_rule_type
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index import BUCKETS_MAX, declare_rules, read_rules, rule_types
from bucketlake.storage import LocalStore
from bucketlake.testing.invariants import check_invariants
from stand_ins.orders_table import SCHEMA, orders

pytestmark = pytest.mark.shows("P12")


class ByLength:
    """`N`: partitions whose path is longer than N have as many buckets as it is long."""

    def __init__(self, expressions: str) -> None:
        if not expressions.isdigit():
            raise ConfigError(f"{expressions!r} is no number")
        self.longest = int(expressions)

    def count_of(self, partition: str) -> int | None:
        return len(partition) if len(partition) > self.longest else None


class ManyByLength(ByLength):
    def counts_of(self, partitions: Sequence[str]) -> list[int | None]:
        return [self.count_of(partition) for partition in partitions]


@pytest.fixture(autouse=True)
def fresh_types() -> Iterator[None]:
    yield
    rule_types._parsers.clear()


@pytest.mark.parametrize("kind", [ByLength, ManyByLength])
def test_a_registered_type_decides_and_the_default_fills_in(kind: type[ByLength]) -> None:
    register_rule_type("length", kind)
    rules = declare_rules("2", 4, rule_type="length")
    assert rules.counts_of(["a", "abc", "abcd"]) == [4, 3, 4]
    assert [rules.count_of(p) for p in ("a", "abc")] == [4, 3]
    assert str(rules.explain("abc")) == "abc: 3 buckets, by length: 2; otherwise 4"
    assert "the default" in str(rules.explain("a"))
    assert pickle.loads(pickle.dumps(rules)) == rules


def test_a_type_that_nobody_registered_is_refused_by_name() -> None:
    with pytest.raises(
        UnsupportedError, match=r"'os.system', and bucketlake supports regex.*register_rule_type"
    ):
        read_rules("os.system", "x", 4, subject="the rule type in a file")


def test_a_type_is_registered_once_and_never_over_regex() -> None:
    register_rule_type("length", ByLength)
    register_rule_type("length", ByLength)
    with pytest.raises(ConfigError, match="registered already"):
        register_rule_type("length", ManyByLength)
    for name in ("regex", "", "Length", "a b"):
        with pytest.raises(ConfigError, match="cannot be named"):
            register_rule_type(name, ByLength)


@pytest.mark.parametrize("count", [0, -1, BUCKETS_MAX + 1])
def test_a_count_that_no_partition_can_have_is_refused(count: int) -> None:
    class Wrong:
        def count_of(self, partition: str) -> int | None:
            return count

    register_rule_type("wrong", lambda _: Wrong())
    with pytest.raises(ConfigError, match=f"gives partition 'p' {count} buckets"):
        declare_rules("x", 4, rule_type="wrong").count_of("p")


def test_a_table_with_rules_of_ones_own_is_written_and_read_where_the_type_is_known(tmp_path: object) -> None:
    register_rule_type("length", ByLength)
    path = f"{tmp_path}/orders"
    table = create_table(
        path, SCHEMA, key="id", partition="dt", ordering="ts", index=PartitionBuckets("1", rule_type="length")
    )
    table.upsert(orders(range(30), "first", 1))
    table.upsert(orders(range(10, 40), "second", 2))
    check_invariants(table)
    assert table.to_arrow().num_rows == 40
    assert {part.buckets for part in table.layout().partitions} == {2}
    rule_types._parsers.clear()
    assert table.to_arrow().num_rows == 40, "it is read all the same, without pruning"
    with pytest.raises(UnsupportedError, match="'length'"):
        table.upsert(orders(range(1), "third", 3))
    assert isinstance(table.store, LocalStore)
