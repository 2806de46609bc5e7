"""What is kept of a file must be its own: a stale footer would have rows read from the wrong places, and stale keys
would hide rows."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.basefile import footer, read_base_file, reader
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
    kept = footer._FOOTERS.get(store, store.stat("a.parquet"))
    assert kept is not None
    notes(store, "a.parquet", "k")
    assert footer._FOOTERS.get(store, store.stat("a.parquet")) is kept


def test_scans_keep_no_footers() -> None:
    store = MemoryStore()
    store.put("a.parquet", a_file(["k"], ""))
    assert sum(batch.num_rows for batch in read_base_file(store, "a.parquet", SCHEMA)) == 1
    assert footer._FOOTERS.get(store, store.stat("a.parquet")) is None
    assert reader._KEYS.get(store, store.stat("a.parquet")) is None


def test_a_file_without_the_key_is_opened_once_and_its_keys_are_shown_each_time() -> None:
    """Somebody may want to see keys, to check a bucket count by them."""
    store = _CountsReads()
    store.put("a.parquet", a_file([f"k{n}" for n in range(100)], ""))
    seen: list[list[str]] = []
    for _ in range(3):
        rows = read_base_file(
            store,
            "a.parquet",
            SCHEMA,
            keys=pa.array(["k5x"]),
            on_keys=lambda keys: seen.append(keys[:3].to_pylist()),
        )
        assert list(rows) == []
    assert seen == [["k0", "k1", "k2"]] * 3
    assert store.reads == 1
    assert notes(store, "a.parquet", "k5x", "k5") == ["k5"]


def test_a_row_group_that_was_passed_over_does_not_count_as_known() -> None:
    store = MemoryStore()
    file = io.BytesIO()
    keys = [f"a{n}" for n in range(9)] + [f"b{n}" for n in range(9)]
    pq.write_table(pa.table({RECORD_KEY_COLUMN: keys, "note": keys}, SCHEMA), file, row_group_size=9)
    store.put("a.parquet", file.getvalue())
    assert notes(store, "a.parquet", "a3") == ["a3"]
    assert notes(store, "a.parquet", "b3") == ["b3"]
    assert notes(store, "a.parquet", "a3", "b3", "c") == ["a3", "b3"]
    assert notes(store, "a.parquet", "b4", *[f"x{n}" for n in range(40)]) == ["b4"]
    assert notes(store, "a.parquet", "c") == []


class _CountsReads(MemoryStore):
    reads = 0

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        self.reads += 1
        return super().read(path, offset=offset, length=length)
