"""A footer that is kept must be the file's own: a stale one would have rows read from the wrong places."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.basefile import footer, read_base_file
from bucketlake.basefile.footer import KeptFooters
from bucketlake.schema import RECORD_KEY_COLUMN
from bucketlake.storage import MemoryStore

SCHEMA = pa.schema([(RECORD_KEY_COLUMN, pa.string()), ("note", pa.string())])


def a_file(keys: list[str], note: str) -> bytes:
    file = io.BytesIO()
    rows = pa.table({RECORD_KEY_COLUMN: keys, "note": [f"{note}{key}" for key in keys]}, SCHEMA)
    pq.write_table(rows, file)
    return file.getvalue()


def notes(store: MemoryStore, path: str, *keys: str) -> list[str]:
    found = read_base_file(store, path, SCHEMA, keys=pa.array(keys))
    return [note for batch in found for note in batch.column("note").to_pylist()]


def test_a_file_that_is_replaced_is_read_by_its_own_footer() -> None:
    store = MemoryStore()
    store.put("a.parquet", a_file([f"k{n}" for n in range(1_000)], "old "))
    assert notes(store, "a.parquet", "k7") == ["old k7"]
    assert notes(store, "a.parquet", "k7", "k8") == ["old k7", "old k8"]
    store.put("a.parquet", a_file([f"k{n}" for n in range(5, 9)], "new, and longer "))
    assert notes(store, "a.parquet", "k7") == ["new, and longer k7"]


def test_a_footer_is_parsed_once() -> None:
    store = MemoryStore()
    store.put("a.parquet", a_file(["k"], ""))
    notes(store, "a.parquet", "k")
    kept = footer._kept_footers.get(store, store.stat("a.parquet"))
    assert kept is not None
    notes(store, "a.parquet", "k")
    assert footer._kept_footers.get(store, store.stat("a.parquet")) is kept


def test_scans_keep_no_footers() -> None:
    store = MemoryStore()
    store.put("a.parquet", a_file(["k"], ""))
    assert sum(batch.num_rows for batch in read_base_file(store, "a.parquet", SCHEMA)) == 1
    assert footer._kept_footers.get(store, store.stat("a.parquet")) is None


def test_those_used_last_are_kept_and_one_too_large_is_not() -> None:
    store = MemoryStore()
    for name in "abc":
        store.put(name, a_file(["k"], ""))
    metadata = pq.read_metadata(io.BytesIO(store.read("a")))
    kept = KeptFooters(2 * metadata.serialized_size)
    kept.put(store, store.stat("a"), metadata)
    kept.put(store, store.stat("b"), metadata)
    assert kept.get(store, store.stat("a")) is not None
    kept.put(store, store.stat("c"), metadata)
    assert [kept.get(store, store.stat(name)) is not None for name in "abc"] == [True, False, True]
    small = KeptFooters(metadata.serialized_size - 1)
    small.put(store, store.stat("a"), metadata)
    assert small.get(store, store.stat("a")) is None
