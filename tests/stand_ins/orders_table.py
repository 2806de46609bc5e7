"""A small merge-on-read table with something to compact and something to clean."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike

import pyarrow as pa

from bucketlake import SimpleBuckets, Table, create_table
from bucketlake.index.told import IndexValue

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])


def orders(keys: Iterable[int], name: str, ts: int) -> pa.Table:
    """Rows of these keys; even ones are in partition p0, odd ones in p1."""
    values = [{"id": n, "name": f"{name} {n}", "ts": ts, "dt": f"p{n % 2}"} for n in keys]
    return pa.Table.from_pylist(values, SCHEMA)


def orders_table(
    uri: str | PathLike[str],
    *,
    table_type: str = "MERGE_ON_READ",
    index: IndexValue | None = None,
    buckets: int = 2,
) -> Table:
    return create_table(
        uri,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index or SimpleBuckets(buckets),
        table_type=table_type,
        name="orders",
    )


def written_table(uri: str | PathLike[str], *, table_type: str = "MERGE_ON_READ", buckets: int = 2) -> Table:
    """A table with base files, updates over them, late rows, and deletes."""
    table = orders_table(uri, table_type=table_type, index=SimpleBuckets(buckets))
    table.upsert(orders(range(12), "first", 10))
    table.upsert(orders(range(4, 16), "second", 20))
    table.upsert(orders(range(2), "late", 5), log_format="avro")
    table.delete([5, 6])
    return table


def rows_of(table: Table, **how: object) -> pa.Table:
    """Everything but the file a row is in, which is what services change."""
    rows = table.to_arrow(meta_columns=True, **how)  # type: ignore[arg-type] # handed on
    return rows.drop_columns(["_hoodie_file_name"]).sort_by([("_hoodie_record_key", "ascending")])
