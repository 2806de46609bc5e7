"""A lookup keeps what it read of files; what is written later must be found all the same."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.errors import ConfigError
from bucketlake.logfile import reader as log_reader
from bucketlake.storage import MemoryStore

pytestmark = pytest.mark.shows("S5")


def rows(keys: list[str], version: int) -> pa.Table:
    return pa.table({"id": keys, "version": [version] * len(keys), "note": [f"{k} {version}" for k in keys]})


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize("log_format", ["parquet", "avro"])
def test_a_lookup_finds_what_was_written_since_the_last_one(
    tmp_path: Path, table_type: str, log_format: str
) -> None:
    keys = [f"k{n}" for n in range(40)]
    made = create_table(
        tmp_path / "t",
        rows(keys, 0).schema,
        key="id",
        ordering="version",
        buckets=2,
        table_type=table_type,
    )
    made.upsert(rows(keys, 0))
    for version in range(1, 5):
        assert Table.open(tmp_path / "t").get("new").num_rows == 0
        assert Table.open(tmp_path / "t").get("k7").column("note").to_pylist() == [f"k7 {version - 1}"]
        made.upsert(rows(["k7", "k8", f"later {version}"], version), log_format=log_format)
        assert Table.open(tmp_path / "t").get(f"later {version}").num_rows == 1
    made.delete(["k7"])
    assert Table.open(tmp_path / "t").get("k7").num_rows == 0
    assert Table.open(tmp_path / "t").get(["k8", "k9"]).num_rows == 2


def test_a_wrong_bucket_count_is_found_in_files_that_are_known(tmp_path: Path) -> None:
    """The keys that prove a count are shown again, although nobody reads them again."""
    keys = [f"k{n}" for n in range(400)]
    path = tmp_path / "t"
    create_table(path, rows(keys, 0).schema, key="id", buckets=4).upsert(rows(keys, 0))
    properties = path / ".hoodie" / "hoodie.properties"
    lines = properties.read_text().splitlines()
    # As Hudi leaves a table: without a count, so that callers have to tell it.
    kept = [line for line in lines if "bucket" not in line and "checksum" not in line]
    properties.write_text("\n".join(kept) + "\n")
    for key in keys[:20]:
        assert Table.open(path, buckets=4).get(key).num_rows == 1
    for key in keys[:20]:
        with pytest.raises(ConfigError, match="opened with simple buckets: 5"):
            Table.open(path, buckets=5).get(f"{key}x")


def test_a_log_file_that_is_replaced_is_read_anew() -> None:
    store = MemoryStore()
    store.put("a", b"")
    assert list(log_reader._decoded_and_kept(store, "a")) == []
    store.put("a", b"#HUDI#" + bytes(4))
    assert list(log_reader._decoded_and_kept(store, "a")) != []
    kept = log_reader._decoded_and_kept(store, "a")
    assert log_reader._decoded_and_kept(store, "a") is kept
