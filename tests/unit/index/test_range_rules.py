"""Ranges of partition values: a value on the wrong side of a bound would split a partition's layout."""

from __future__ import annotations

import datetime
import pickle
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake import PartitionBuckets, create_table
from bucketlake.errors import ConfigError
from bucketlake.index import BUCKETS_MAX, declare_rules
from bucketlake.index.range_rules import Bound, BoundKind, RangeRules, parse_ranges
from stand_ins.orders_table import SCHEMA, orders

pytestmark = pytest.mark.shows("P12")


@pytest.mark.parametrize(
    ("expressions", "partition", "count"),
    [
        ("[2026-06-01,2026-06-30],64", "2026-06-01", 64),
        ("[2026-06-01,2026-06-30],64", "2026-06-30", 64),
        ("[2026-06-01,2026-06-30],64", "2026-07-01", 2),
        ("[2026-06-01,2026-06-30],64", "dt=2026-06-18", 64),
        ("[2026-06-01,2026-06-30],64", "dt=2026-06-18/hour=23", 64),
        ("[2026-06-01,2026-06-30],64", "2026-06-18-07", 64),
        ("[2026-06-01,2026-06-30],64", "2026/06/18", 64),
        ("[2026-06-01,2026-06-30],64", "year=2026/month=06/day=18", 64),
        ("[2026-06-01,2026-06-30],64", "2026-06-188", 2),
        ("[2026-06-01,2026-06-30],64", "2026-06-31", 2),  # no day
        ("[2026-06-01,2026-06-30],64", "__HIVE_DEFAULT_PARTITION__", 2),
        ("[2026-06-01,2026-06-30],64", "", 2),
        ("[2026-06-01,],64", "9999-01-01", 64),
        ("[,2026-06-01],64", "0001-01-01", 64),
        ("[2026-06-01,],4;[2026-06-18,2026-06-18],8", "2026-06-18", 4),  # the first wins
        ("[2026-06-18,2026-06-18],8;[2026-06-01,],4", "2026-06-18", 8),
        ("[9,10],3", "10", 3),  # as numbers, not as text
        ("[9,10],3", "region=010", 3),
        ("[-5,-1],3", "-3", 3),
        ("[0,9],3", "2026-06-18", 2),
        ("[0,9],3", "9.5", 2),
        ("[0,9],3", "x/5", 2),  # the first column decides
        ("[a,f],3", "eu", 3),
        ("[a,f],3", "us", 2),
        ("[a,f],3", "f", 3),
        (" [ 0 , 9 ] , +3 ; [ 10 , ] , 5 ;", "12", 5),
    ],
)
def test_the_first_range_that_holds_the_value_wins(expressions: str, partition: str, count: int) -> None:
    rules = RangeRules(parse_ranges(expressions), 2)
    assert rules.count_of(partition) == count
    assert rules.explain(partition).count == count


@pytest.mark.parametrize(
    ("expressions", "position", "expected"),
    [
        ("", 0, "a range"),
        ("2026-06-01,3", 0, "a range"),
        ("[0,9],3;x", 8, "a range"),
        ("[0,9]", 5, "a bucket count"),
        ("[0,9]3", 5, "a bucket count"),
        ("[0,9],x", 5, "a bucket count"),
        ("[0,9],0", 6, "from 1 to"),
        ("[0,9],70000", 6, "from 1 to 65536"),
        ("[0,9],3;[9,0],3", 9, "runs upwards"),
        ("[2026-06-30,2026-06-01],3", 1, "runs upwards"),
        ("[b,a],3", 1, "runs upwards"),
        ("[,],3", 1, "a bound"),
        ("[2026-06-01,9],3", 1, "one type (found a date and a number)"),
        ("[2026-06-01,2026-06-31],3", 12, "a day of the calendar (found 2026-06-31)"),
        ("[0,[9],3", 0, "a range"),
    ],
)
def test_a_fault_is_told_with_its_position(expressions: str, position: int, expected: str) -> None:
    with pytest.raises(ConfigError, match=f"at position {position}: .*{re.escape(expected)}"):
        declare_rules(expressions, 2, rule_type="range")


def test_ranges_that_overlap_are_told_where_the_first_one_decides() -> None:
    rules = RangeRules(parse_ranges("[0,9],4;[5,20],8;[7,],3"), 2)
    assert rules.explain("8").reason == "by rule 1: [0,9], before rule 2, 3"
    assert rules.explain("12").reason == "by rule 2: [5,20], before rule 3"


@pytest.mark.parametrize(
    ("rules", "type_", "fault"),
    [
        ("[2026-06-01,2026-06-30],64", pa.int64(), "date values, and the partition column 'dt' is int64"),
        ("[0,9],3;[a,b],4", pa.int32(), "rule 2 .* text values"),
        ("[0,9],3", pa.date32(), "number values, and the partition column 'dt' is date32"),
    ],
)
def test_ranges_of_another_type_than_the_partition_make_no_table(
    rules: str, type_: pa.DataType, fault: str
) -> None:
    schema = SCHEMA.set(SCHEMA.get_field_index("dt"), pa.field("dt", type_))
    with pytest.raises(ConfigError, match=fault):
        create_table(
            "memory://range-misfit",
            schema,
            key="id",
            partition="dt",
            index=PartitionBuckets(rules, rule_type="range"),
        )


def test_a_table_with_ranges_is_written_read_rescaled_and_taken_back() -> None:
    value = PartitionBuckets("[p0,p0],3", default=2, rule_type="range")
    table = create_table("memory://ranges", SCHEMA, key="id", partition="dt", ordering="ts", index=value)
    table.upsert(orders(range(40), "first", 1))
    counts = {part.partition: part.buckets for part in table.layout().partitions}
    assert counts == {"p0": 3, "p1": 2}
    plan = table.buckets.plan_add("[p1,p9],5", rule_type="range")
    assert "by rule 1: [p1,p9]" in str(plan)
    done = table.run(plan)
    table.upsert(orders(range(20, 60), "second", 2))
    assert {p.partition: p.buckets for p in table.layout().partitions} == {"p0": 3, "p1": 5}
    assert table.to_arrow().num_rows == 60
    assert not table.fsck().findings
    with pytest.raises(ConfigError, match="have a fault"):
        table.buckets.overwrite("p1,5", rule_type="range")
    assert done.instant


@given(
    st.lists(
        st.tuples(
            st.sampled_from(BoundKind),
            st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 3, 1)),
            st.integers(0, 40),
            st.booleans(),
            st.booleans(),
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(
        st.one_of(
            st.dates(datetime.date(2026, 1, 1), datetime.date(2026, 3, 1)).map(str),
            st.integers(-3, 60).map(str),
            st.sampled_from(["", "a", "b=12", "2026-02-30", "2026/02/03", "d=2026-02-03/x=1", "ü"]),
        ),
        max_size=8,
    ),
)
def test_columns_of_partitions_get_what_each_gets_by_itself(
    drawn: list[tuple[BoundKind, datetime.date, int, bool, bool]], partitions: list[str]
) -> None:
    texts = []
    for count, (kind, day, number, has_low, has_high) in enumerate(drawn, 1):
        low: Bound = {BoundKind.DATE: day, BoundKind.NUMBER: number, BoundKind.TEXT: f"t{number:02d}"}[kind]
        high: Bound = {
            BoundKind.DATE: day + datetime.timedelta(9),
            BoundKind.NUMBER: number + 9,
            BoundKind.TEXT: f"t{number + 9:02d}",
        }[kind]
        texts.append(f"[{low if has_low or not has_high else ''},{high if has_high else ''}],{count}")
    rules = RangeRules(parse_ranges(";".join(texts)), 99)
    assert rules.counts_of(partitions) == [_slow(rules, partition) for partition in partitions]
    assert pickle.loads(pickle.dumps(rules)) == rules
    assert rules.default_count < BUCKETS_MAX


def _slow(rules: RangeRules, partition: str) -> int:
    """The readable twin: one partition, one rule at a time."""
    bare = [part.rpartition("=")[2] for part in partition.split("/")]
    for rule in rules.rules:
        value: Bound | None = bare[0]
        if rule.kind is BoundKind.NUMBER:
            value = int(bare[0]) if re.fullmatch("-?[0-9]{1,18}", bare[0]) else None
        elif rule.kind is BoundKind.DATE:
            text = "-".join(bare[:3]) if re.fullmatch("[0-9]{4}", bare[0]) else bare[0]
            try:
                is_day = len(text) == 10 or not text[10:11].isdigit()
                value = datetime.date.fromisoformat(text[:10]) if is_day else None
            except ValueError:
                value = None
        if value is None:
            continue
        if rule.low is not None and value < rule.low:  # type: ignore[operator] # of one type
            continue
        if rule.high is not None and value > rule.high:  # type: ignore[operator] # of one type
            continue
        return rule.count
    return rules.default_count
