"""Whatever rules follow each other, on whatever partitions, a rescale moves rows and changes none: all are found."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketlake import Table, create_table
from bucketlake.index import declare_rules
from bucketlake.services.rescale import rescale_table
from bucketlake.storage import MemoryStore
from bucketlake.testing.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])
DAYS = ["2026-01", "2026-02", "2027-01"]

rules = st.lists(
    st.tuples(st.sampled_from(["2026", "^2027-", "01$", "-0[12]", "-02$|^2027"]), st.integers(1, 12)),
    min_size=1,
    max_size=3,
).map(lambda parts: ";".join(f"{expression},{count}" for expression, count in parts))


@pytest.mark.shows("P6", "P10", "P14")
@settings(max_examples=max(8, settings().max_examples // 10), deadline=None)
@given(
    changes=st.lists(st.tuples(rules, st.integers(1, 9), st.sampled_from([1, 2_000, 1 << 28])), max_size=3),
    is_logged=st.booleans(),
    asked=st.integers(0, 39),
)
def test_after_any_rescales_a_pruned_read_is_an_unpruned_one(
    changes: list[tuple[str, int, int]], is_logged: bool, asked: int
) -> None:
    path = MemoryStore().uri
    kind = "MERGE_ON_READ" if is_logged else "COPY_ON_WRITE"
    options = {"key": "id", "partition": "dt", "ordering": "ts", "buckets": 2, "table_type": kind}
    table = create_table(path, SCHEMA, **options)
    for number, (expressions, default, budget_bytes) in enumerate(changes):
        rows = [{"id": f"k{n}", "dt": DAYS[n % 3], "ts": number} for n in range(number, 40)]
        table.upsert(pa.Table.from_pylist(rows, SCHEMA))
        wanted = declare_rules(expressions, default)
        rescale_table(table.store, wanted, budget_bytes=budget_bytes)
        table = Table.open(path)
        for part in table.layout().partitions:
            assert part.buckets == wanted.count_of(part.partition)
        everything = {row["id"]: row["ts"] for row in table.to_arrow(columns=["id", "ts"]).to_pylist()}
        assert everything == {f"k{n}": min(n, number) for n in range(40)}
        for filters in (
            [("id", "=", f"k{asked}")],
            [("id", "in", ["k1", f"k{asked}"]), ("dt", "=", DAYS[1])],
        ):
            found = table.to_arrow(columns=["id", "dt", "ts"], filters=filters).to_pylist()
            keys = {"k1", f"k{asked}"} if len(filters) > 1 else {f"k{asked}"}
            expected = {k for k in keys if len(filters) == 1 or DAYS[int(k[1:]) % 3] == DAYS[1]}
            assert {row["id"]: row["ts"] for row in found} == {k: everything[k] for k in expected}
    check_invariants(table)
