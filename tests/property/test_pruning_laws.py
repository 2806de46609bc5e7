"""Pruning must never lose a row: a pruned read equals an unpruned one, whatever the keys, partitions and filters.

Users of other engines got zero rows when a filter was not on the hash fields, or when keys held separators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bucketlake import ConsistentBuckets, PartitionBuckets, SimpleBuckets, Table
from bucketlake.config import TableProperties, load_properties
from bucketlake.errors import ConfigError
from bucketlake.index import (
    HashingMetadata,
    Index,
    RingIndex,
    RuledIndex,
    Rules,
    SimpleIndex,
    parse_rules,
)
from bucketlake.keygen import KeyGenerator
from bucketlake.read import lookup, make_query, plan_lookup
from bucketlake.read.filters import apply_filters, parse_filters
from bucketlake.state import load_state
from judges.small_tables import properties_of, put_ring, small_table

pytestmark = pytest.mark.shows("S4", "P10", "C2", "C3")

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("sub", pa.int32()),
        ("other", pa.string()),
        ("p_text", pa.string()),
        ("p_number", pa.int64()),
    ]
)

# Texts that have broken parsers of record keys and partition paths: separators, markers, other alphabets.
TEXTS = st.one_of(
    st.sampled_from(
        [
            "a",
            "b",
            "",
            ":",
            ",",
            "a:b",
            "a,b",
            "a,name:b",
            "x,sub:1",
            "name:a",
            "__null__",
            "__empty__",
            "é",
            "😀",
            "0",
        ]
    ),
    st.text(alphabet="ab:,/=% é😀", max_size=4),
)
PLACES = st.sampled_from(["2024-01-01", "2024-02-01", "a=b", "a/b", "é", "50%", "", None])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.one_of(TEXTS, st.none()),
            "sub": st.integers(-3, 3),
            "other": TEXTS,
            "p_text": PLACES,
            "p_number": st.one_of(st.integers(0, 2), st.none()),
        }
    ),
    min_size=1,
    max_size=12,
)


@st.composite
def tables_with_filters(draw: st.DrawFn) -> tuple[Shape, list[dict[str, Any]], list[Any]]:
    """A table and filters on it, most of which some row satisfies: an empty answer shows nothing."""
    shape, rows = draw(shapes()), draw(ROWS)
    filters: list[Any] = []
    for _ in range(draw(st.integers(1, 3))):
        column = draw(st.sampled_from([*shape.key, *shape.partition, *SCHEMA.names]))
        value = draw(st.sampled_from(rows))[column]
        if value is None:
            filters.append((column, draw(st.sampled_from(["is null", "is not null"]))))
            continue
        op = draw(st.sampled_from(["=", "=", "=", "in", "in", "!=", "<=", ">=", "not in"]))
        more = [
            row[column]
            for row in draw(st.lists(st.sampled_from(rows), max_size=2))
            if row[column] is not None
        ]
        filters.append((column, op, [value, *more] if op.endswith("in") else value))
    return shape, rows, filters


@dataclass(frozen=True)
class Shape:
    key: tuple[str, ...]
    hash_fields: tuple[str, ...]
    partition: tuple[str, ...]
    hive_style: bool
    url_encode: bool
    engine: str
    count: int
    rules: str = "2024-01,3;é$,5"

    def index(self, partitions: set[str]) -> Index:
        if self.engine == "simple":
            return SimpleIndex(self.count, self.hash_fields)
        if self.engine == "rules":
            return RuledIndex(Rules(parse_rules(self.rules), self.count), self.hash_fields)
        rings = {p: HashingMetadata.initial(p, self.count) for p in partitions}
        return RingIndex(rings, self.hash_fields)

    def open_arguments(self) -> dict[str, Any]:
        """What a user who knows the writer's options would say."""
        if self.engine == "consistent":
            return {"index": ConsistentBuckets(self.count, self.hash_fields)}
        if self.engine == "rules":
            return {"index": PartitionBuckets(self.rules, self.count, self.hash_fields)}
        return {"index": SimpleBuckets(self.count, self.hash_fields)}


EXPRESSIONS = ["2024-01", "^2024", "01$", "p_text=a", "é$", "[a0]", "(a|b)=", "a.b", "50%", ".*", "1$|^0"]
RULES = st.lists(st.tuples(st.sampled_from(EXPRESSIONS), st.integers(1, 9)), min_size=1, max_size=4).map(
    lambda rules: ";".join(f"{expression},{count}" for expression, count in rules)
)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    key = draw(st.sampled_from([("name",), ("sub",), ("name", "sub"), ("sub", "name"), ("name", "other")]))
    return Shape(
        key=key,
        hash_fields=draw(st.sampled_from([key, key[:1], key[-1:]])),
        partition=draw(st.sampled_from([(), ("p_text",), ("p_number",), ("p_text", "p_number")])),
        hive_style=draw(st.booleans()),
        url_encode=draw(st.booleans()),
        engine=draw(st.sampled_from(["simple", "rules", "consistent"])),
        count=draw(st.integers(1, 7)),
        rules=draw(RULES),
    )


def made_table(shape: Shape, rows: list[dict[str, Any]]) -> tuple[Table, Table]:
    """Return the same table opened with what its writer knew, and with nothing."""
    raw = properties_of(
        SCHEMA,
        key=shape.key,
        partition=shape.partition,
        **{
            "hoodie.datasource.write.hive_style_partitioning": str(shape.hive_style).lower(),
            "hoodie.datasource.write.partitionpath.urlencode": str(shape.url_encode).lower(),
        },
    )
    table = pa.Table.from_pylist(rows, SCHEMA)
    keys = KeyGenerator.from_properties(TableProperties.parse(raw, path="test"))
    partitions = set(keys.partition_paths(table).to_pylist())
    store = small_table(raw, table, shape.index(partitions))
    if shape.engine == "consistent":
        for partition in partitions:
            put_ring(store, HashingMetadata.initial(partition, shape.count))
    properties = load_properties(store)
    return Table(store, properties, **shape.open_arguments()), Table(store, properties)


def all_have_keys(shape: Shape, rows: list[dict[str, Any]]) -> bool:
    """A row whose key is null or empty cannot be written."""
    return all(any(row[name] not in (None, "") for name in shape.key) for row in rows)


@settings(max_examples=2 * settings().max_examples)
@given(tables_with_filters())
def test_a_pruned_read_is_an_unpruned_one(case: tuple[Shape, list[dict[str, Any]], list[Any]]) -> None:
    shape, rows, filters = case
    assume(all_have_keys(shape, rows))
    pruned, plain = made_table(shape, rows)
    everything = plain.to_arrow()
    conditions = parse_filters(filters, everything.schema)
    expected = [
        row for batch in everything.to_batches() for row in apply_filters(batch, conditions).to_pylist()
    ]
    found = pruned.to_arrow(filters=filters).to_pylist()
    assert numbers(found) == numbers(expected)


@given(shapes(), ROWS, st.integers(0, 11))
def test_every_row_is_found_by_its_key(shape: Shape, rows: list[dict[str, Any]], chosen: int) -> None:
    assume(all_have_keys(shape, rows))
    pruned, plain = made_table(shape, rows)
    wanted = {name: rows[chosen % len(rows)][name] for name in shape.key}
    everything = plain.to_arrow().to_pylist()
    expected = [row for row in everything if all(row[name] == value for name, value in wanted.items())]
    found = pruned.get(wanted, meta_columns=True).to_pylist()
    assert numbers(found) == numbers(expected)


def numbers(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(row["_hoodie_commit_seqno"] for row in rows)


def test_pruning_by_key_reads_one_file_group_of_each_partition() -> None:
    rows = [
        {"name": f"k{n}", "sub": n, "other": "", "p_text": f"2024-0{1 + n % 2}-01", "p_number": 0}
        for n in range(64)
    ]
    shape = Shape(("name",), ("name",), ("p_text",), False, False, "simple", 4)
    table, _ = made_table(shape, rows)
    assert len(table.plan().slices) == 8
    assert len(table.plan(filters=[("name", "=", "k7")]).slices) == 2
    assert len(table.plan(filters=[("name", "=", "k7"), ("p_text", "=", "2024-02-01")]).slices) == 1
    assert len(table.plan(filters=[("name", "in", ["k7", "k8"]), ("p_text", "=", "2024-02-01")]).slices) <= 2
    assert len(table.plan(filters=[("sub", "=", 7)]).slices) == 8, (
        "a filter on another column prunes no bucket"
    )
    assert len(table.plan(filters=[("name", ">", "k7")]).slices) == 8


def test_another_key_field_that_holds_separators_does_not_hide_its_row() -> None:
    """`name:a,other:x,name:b` hashes from two pieces: a filter on the hash field alone cannot tell its bucket."""
    row = {"name": "a", "sub": 1, "p_text": "d", "p_number": 0}
    rows = [{**row, "other": "x,name:b"}, *({**row, "other": f"k{n}"} for n in range(20))]
    for count in range(2, 8):
        shape = Shape(("name", "other"), ("name",), ("p_text",), False, False, "simple", count)
        assert made_table(shape, rows)[0].to_arrow(filters=[("name", "=", "a")]).num_rows == 21


def test_a_partition_whose_path_cannot_be_read_back_is_kept() -> None:
    rows = [{"name": "a", "sub": 1, "other": "", "p_text": "a/b", "p_number": 0}]
    shape = Shape(("name",), ("name",), ("p_text", "p_number"), False, False, "simple", 4)
    assert made_table(shape, rows)[0].to_arrow(filters=[("p_text", "=", "a/b")]).num_rows == 1


def test_a_wrong_bucket_count_is_found_out_before_rows_are_missed() -> None:
    rows = [{"name": f"k{n}", "sub": n, "other": "", "p_text": "d", "p_number": 0} for n in range(64)]
    table, _ = made_table(Shape(("name",), ("name",), ("p_text",), False, False, "simple", 4), rows)
    wrong = Table(table.store, table.properties, buckets=8)
    with pytest.raises(ConfigError, match="Reading by key would miss rows"):
        wrong.to_arrow(filters=[("name", "=", "k7")])
    assert wrong.to_arrow().num_rows == 64, "nothing but pruning depends on the count"


def looked_up(table: Table, index: Index, key: str) -> list[dict[str, Any]]:
    """Look a record key up by an index that nobody has checked."""
    state = load_state(table.store)
    plan = plan_lookup(state, make_query(state), index, pa.array([key]), partition=None)
    return lookup(plan, pa.array([key]), unproven=index).to_pylist()


@given(ROWS, st.integers(1, 12), st.integers(1, 12), st.sampled_from(["name", "sub"]), st.integers(0, 11))
def test_a_lookup_by_any_bucket_count_finds_every_row_or_says_why_not(
    rows: list[dict[str, Any]], stored: int, told: int, hashed: str, chosen: int
) -> None:
    shape = Shape(("name", "sub"), ("name",), ("p_text",), False, False, "simple", stored)
    assume(all_have_keys(shape, rows))
    table, plain = made_table(shape, rows)
    everything = plain.to_arrow().to_pylist()
    key = everything[chosen % len(rows)]["_hoodie_record_key"]
    try:
        found = looked_up(table, SimpleIndex(told, (hashed,)), key)
    except ConfigError as error:
        assert (told, hashed) != (stored, "name"), f"what the writer was given was refused: {error}"
    else:
        assert numbers(found) == numbers([row for row in everything if row["_hoodie_record_key"] == key])


def test_a_lookup_checks_the_count_by_the_keys_it_meets_and_opens_no_other_file() -> None:
    rows = [{"name": f"k{n}", "sub": n, "other": "", "p_text": "d", "p_number": 0} for n in range(999)]
    table, _ = made_table(Shape(("name",), ("name",), ("p_text",), False, False, "simple", 4), rows)
    plan = table.plan(filters=[("name", "=", "k7")])
    for file_slice in plan.left_out:
        assert file_slice.base_file is not None
        table.store.put(file_slice.base_file.path, b"no Parquet")
    right = SimpleIndex(4, ("name",))
    assert [row["sub"] for row in looked_up(table, right, "k7")] == [7]
    others = (SimpleIndex(count, ("name",)) for count in range(5, 99))
    wrong = next(o for o in others if o.slot_of("d", ("k7",)) == right.slot_of("d", ("k7",)))
    with pytest.raises(ConfigError, match="Reading by key would miss rows"):
        looked_up(table, wrong, "k7")


def test_a_slice_with_few_keys_is_no_witness_by_itself() -> None:
    """One key of a wrong count is in its place by chance; then keys of other slices are asked too."""
    rows = [{"name": f"k{n}", "sub": n, "other": "", "p_text": "d", "p_number": 0} for n in range(12)]
    table, _ = made_table(Shape(("name",), ("name",), ("p_text",), False, False, "simple", 6), rows)
    refused = 0
    for n in range(12):
        try:
            found = looked_up(table, SimpleIndex(12, ("name",)), f"k{n}")
        except ConfigError:
            refused += 1
        else:
            assert [row["sub"] for row in found] == [n]
    assert refused == 12
