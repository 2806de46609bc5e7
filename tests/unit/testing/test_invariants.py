"""A check that never fails proves nothing: each invariant, broken."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bucketlake import Table, create_table
from bucketlake.config import update_properties
from bucketlake.layout.names import parse_base_file_name, partition_metadata_path, split_path
from bucketlake.storage import MemoryStore
from bucketlake.testing.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])


def rows(*ids: str, day: str = "a") -> pa.Table:
    return pa.table({"id": ids, "ts": [1] * len(ids), "dt": [day] * len(ids)}, SCHEMA)


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Table:
    made = create_table(
        f"memory://{request.node.name}", SCHEMA, key="id", partition="dt", ordering="ts", buckets=2
    )
    made.upsert(rows("1", "2", "3", "4"))
    made.upsert(rows("1", "5"))
    return made


def base_files(table: Table, *, newest: bool = True) -> list[str]:
    instants = sorted({instant_of(path) for path in _bases(table)})
    wanted = instants[-1] if newest else instants[0]
    return [path for path in _bases(table) if instant_of(path) == wanted]


def instant_of(path: str) -> str:
    name = parse_base_file_name(split_path(path)[1])
    assert name is not None
    return name.instant


def _bases(table: Table) -> list[str]:
    files = table.store.list("", recursive=True).files
    return [file.path for file in files if parse_base_file_name(split_path(file.path)[1])]


def rewritten(data: bytes, change: Callable[[pa.Table], pa.Table], **pairs: str) -> bytes:
    """The same Parquet file with other rows, and what its footer says."""
    file = pq.ParquetFile(io.BytesIO(data))
    found = change(file.read())
    kept = dict(file.metadata.metadata) | {key.replace("__", "."): text for key, text in pairs.items()}
    sink = io.BytesIO()
    pq.write_table(found.replace_schema_metadata(kept), sink, store_schema=False)
    return sink.getvalue()


def test_a_sound_table_passes(table: Table) -> None:
    check_invariants(table)


def test_a_file_that_is_missing_is_noticed(table: Table) -> None:
    table.store.delete(base_files(table)[0])
    with pytest.raises(AssertionError, match="a file on the timeline that is not there"):
        check_invariants(table)


def test_a_file_that_nobody_committed_is_noticed(table: Table) -> None:
    path = base_files(table)[0]
    stray = path.replace(instant_of(path), "29990101000000000")
    table.store.put(stray, table.store.read(path))
    with pytest.raises(AssertionError, match="a hidden file of no completed write"):
        check_invariants(table)


def test_a_second_file_of_a_commit_is_noticed(table: Table) -> None:
    path = base_files(table)[0]
    table.store.put(re.sub("_1-0-1_", "_2-0-1_", path), table.store.read(path))
    with pytest.raises(AssertionError, match="a visible file that no commit names"):
        check_invariants(table)


def test_a_partition_without_its_metadata_is_noticed(table: Table) -> None:
    table.store.delete(partition_metadata_path("a"))
    with pytest.raises(AssertionError, match="a partition that is not marked as one: a"):
        check_invariants(table)


def test_a_file_that_says_something_else_than_it_holds_is_noticed(table: Table) -> None:
    path = base_files(table)[0]
    data = rewritten(table.store.read(path), lambda found: found.slice(1))
    table.store.put(path, data)
    with pytest.raises(AssertionError):
        check_invariants(table)


def test_rows_in_the_wrong_bucket_are_noticed(table: Table) -> None:
    assert isinstance(table.store, MemoryStore)
    first, second = sorted(base_files(table, newest=False))
    data = table.store.read(first)
    table.store.put(first, table.store.read(second))
    table.store.put(second, data)
    with pytest.raises(AssertionError):
        check_invariants(table)


def test_a_changed_bucket_count_is_noticed(table: Table) -> None:
    update_properties(table.store, {"hoodie.bucket.index.num.buckets": "3"})
    with pytest.raises(AssertionError, match="a key in a bucket that is not its own"):
        check_invariants(table)
