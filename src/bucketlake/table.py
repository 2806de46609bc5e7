"""The noun a user holds: a table at a path, and what can be asked of it.

A face: every method is a line or two that hands the work to a package below.
Each call sees the table as it is at that moment; a `Table` keeps no timeline.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import pyarrow as pa

from bucketlake import inspection
from bucketlake.config import TableProperties, load_properties
from bucketlake.index import Index, resolve_index
from bucketlake.keygen import KeyGenerator
from bucketlake.read import (
    Key,
    Query,
    RawFilter,
    ReadPlan,
    check_buckets,
    lookup,
    make_query,
    plan_lookup,
    plan_read,
    read_all,
    record_keys_of,
)
from bucketlake.spark import scan
from bucketlake.state import TableState, load_state, table_schema
from bucketlake.storage import Store, open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class QueryArguments(TypedDict, total=False):
    """What may be asked of a read; `make_query` gives the defaults."""

    columns: Sequence[str] | None
    filters: Iterable[RawFilter]
    meta_columns: bool
    read_optimized: bool
    as_of: str | None
    begin: str | None
    end: str | None


class Table:
    """A Hudi table at a path: a folder, or an object store's prefix.

    table = Table.open("/data/orders")
    table.read(spark, columns=["id", "amount"], filters=[("dt", "=", "2026-06-18")])
    """

    def __init__(
        self,
        store: Store,
        properties: TableProperties,
        *,
        buckets: int | None = None,
        hash_fields: Sequence[str] | None = None,
        partition_rules: str | None = None,
    ) -> None:
        self.store = store
        self.properties = properties
        self._index_arguments: Mapping[str, Any] = {
            "buckets": buckets,
            "hash_fields": tuple(hash_fields) if hash_fields is not None else None,
            "rules": partition_rules,
        }
        self._checked_partitions: set[str] = set()

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        buckets: int | None = None,
        hash_fields: Sequence[str] | None = None,
        partition_rules: str | None = None,
    ) -> Table:
        """Open the table at `path`.

        Hudi stores no bucket count with a table. `buckets`, and `hash_fields` or `partition_rules` where Hudi's
        writer had them, let reads by key skip the other buckets; they are checked against the keys in the files,
        and nothing but speed depends on them.
        """
        store = open_store(fspath(path), storage_options)
        properties = load_properties(store)
        return cls(
            store, properties, buckets=buckets, hash_fields=hash_fields, partition_rules=partition_rules
        )

    def __repr__(self) -> str:
        return f"Table({self.store.uri!r})"

    @property
    def schema(self) -> pa.Schema:
        """The columns of the newest commit, without Hudi's meta columns."""
        return table_schema(load_state(self.store))

    def read(self, spark: SparkSession, **query: Unpack[QueryArguments]) -> DataFrame:
        """Read the table as a DataFrame.

        `columns` and `filters` are used to read less; `filters` are `(column, operator, value)` and mean *and*.
        `as_of` sees the table as it was; `begin` and `end` see what changed in (begin, end]; `read_optimized` reads
        base files only.
        """
        return scan(spark, self.plan(**query))

    def to_arrow(self, **query: Unpack[QueryArguments]) -> pa.Table:
        """Read the table into memory, in this process: for small data. Takes what `read` takes."""
        plan = self.plan(**query)
        return pa.Table.from_batches(read_all(plan), plan.context.schema)

    def get(
        self,
        keys: Key | Sequence[Key],
        *,
        partition: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: str | None = None,
    ) -> pa.Table:
        """Fetch the rows with these keys, without a Spark job.

        A key is the key column's value, or a mapping for a key of several columns. `partition` is a partition's path;
        without it every partition is looked into.
        """
        state = load_state(self.store)
        query = make_query(state, columns=columns, as_of=as_of)
        wanted = keys if isinstance(keys, list | tuple | set | frozenset) else [keys]
        generator = KeyGenerator.from_properties(self.properties)
        record_keys = record_keys_of(list(wanted), generator, query.table_schema)
        index = self._index(state, query)
        plan = plan_lookup(state, query, index, record_keys, partition=partition)
        return lookup(self._checked(plan, index), record_keys)

    def query(self, **query: Unpack[QueryArguments]) -> Query:
        """Check a request against the table, reading nothing but its metadata."""
        return make_query(load_state(self.store), **query)

    def plan(self, **query: Unpack[QueryArguments]) -> ReadPlan:
        """Decide what a read would read."""
        state = load_state(self.store)
        checked = make_query(state, **query)
        index = self._index(state, checked)
        return self._checked(plan_read(state, checked, index), index)

    def describe(self) -> inspection.Description:
        """Say what the table is."""
        state = load_state(self.store)
        return inspection.describe(state, self._index(state, None))

    def timeline(self) -> tuple[inspection.TimelineEntry, ...]:
        """List the instants of the active timeline, oldest first."""
        return inspection.timeline(load_state(self.store))

    def layout(self) -> inspection.Layout:
        """Show partitions, buckets, file sizes and skew."""
        state = load_state(self.store)
        return inspection.layout(state, self._index(state, None))

    def _index(self, state: TableState, query: Query | None) -> Index:
        as_of = query.as_of if query is not None else None
        return resolve_index(state, as_of=as_of, **self._index_arguments)

    def _checked(self, plan: ReadPlan, index: Index) -> ReadPlan:
        """Check what the caller said of the buckets against the keys, once per partition."""
        if any(value is not None for value in self._index_arguments.values()):
            check_buckets(plan, index, self._checked_partitions)
        return plan
