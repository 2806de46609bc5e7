"""Tables that Hudi makes at random must read as Hudi reads them, in every kind of query.

A failing seed is replayed with BUCKETLAKE_SEEDS=17, and a soak runs with BUCKETLAKE_SEEDS=0-500.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bucketlake import Table
from judges.random_tables import BuiltTable, Query, QueryKind
from judges.rows import assert_same_rows, exact_rows
from plugins.soak import seeds

pytestmark = [pytest.mark.interop, pytest.mark.spark, pytest.mark.shows("S5", "C2")]


@pytest.mark.parametrize("seed", seeds(default_count=8))
def test_a_random_table_reads_as_hudi_reads_it(
    seed: int, random_table: Callable[[int], BuiltTable], spark: SparkSession
) -> None:
    built = random_table(seed)
    print(f"seed {seed}: {built.description}")
    table = Table.open(built.path)
    if not built.instants:  # Hudi refused the very first write, and cannot read what is left; we can
        assert table.to_arrow().num_rows == 0
        return
    for query in built.queries():
        left_out = columns_hudi_garbles(built, query)
        found = table.to_arrow(**arguments(query))
        try:
            assert_same_rows(found, built.expected(query), without=left_out)
        except AssertionError as difference:
            raise AssertionError(f"seed {seed}, {query}: {difference}") from None
    by_spark = table.read(spark).toArrow()
    assert_same_rows(exact_rows(by_spark), exact_rows(table.to_arrow()))


def arguments(query: Query) -> dict[str, Any]:
    """Say a query in bucketlake's words."""
    match query.kind:
        case QueryKind.SNAPSHOT:
            return {}
        case QueryKind.AS_OF:
            return {"as_of": query.as_of}
        case QueryKind.READ_OPTIMIZED:
            return {"read_optimized": True}
        case QueryKind.INCREMENTAL:
            return {"begin": query.after, "end": query.until}


def columns_hudi_garbles(built: BuiltTable, query: Query) -> tuple[str, ...]:
    """Hudi 1.2.0 forgets to unescape partition values in incremental reads; its snapshot reads do not."""
    if query.kind is QueryKind.INCREMENTAL and built.description.url_encode:
        return built.description.partition_columns
    return ()
