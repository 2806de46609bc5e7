"""What records of `files` say, and how they are spelled: by laws, and by another implementation of Avro."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.errors import DamagedFileError
from bucketlake.metadata.files import ALL_PARTITIONS, FileEntry, decode_entries, encode_entries, merged
from bucketlake.metadata.record_schema import RECORD_SCHEMA, STORED_SCHEMA

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ENTRY = st.builds(FileEntry, st.integers(0, 2**62), st.booleans())
ENTRIES = st.dictionaries(NAMES, ENTRY, max_size=6)
FEW = st.dictionaries(
    st.sampled_from("abc"), st.one_of(st.builds(FileEntry, st.integers(1, 9)), st.just(FileEntry(0, True)))
)
KEYS = st.sampled_from([ALL_PARTITIONS, "dt=1", "."])


@given(KEYS, ENTRIES)
def test_what_is_written_is_read(key: str, entries: dict[str, FileEntry]) -> None:
    assert decode_entries(encode_entries(key, entries), path="x") == entries


@given(KEYS, ENTRIES)
def test_another_reader_of_avro_reads_the_same(key: str, entries: dict[str, FileEntry]) -> None:
    schema = fastavro.parse_schema(json.loads(STORED_SCHEMA))
    data = io.BytesIO(encode_entries(key, entries))
    record: Any = fastavro.schemaless_reader(data, schema, None)
    assert data.read() == b""
    assert (record["key"], record["type"]) == ("", 1 if key == ALL_PARTITIONS else 2)
    found = {n: FileEntry(e["size"], e["isDeleted"]) for n, e in record["filesystemMetadata"].items()}
    assert found == entries
    others = set(record) - {"key", "type", "filesystemMetadata"}
    assert all(record[name] is None for name in others)


@given(ENTRIES, st.one_of(st.none(), NAMES), NAMES)
def test_what_another_writer_of_avro_wrote_is_read(
    entries: dict[str, FileEntry], file_name: str | None, key: str
) -> None:
    schema = fastavro.parse_schema(json.loads(STORED_SCHEMA))
    listed = {name: {"size": e.size_bytes, "isDeleted": e.is_deleted} for name, e in entries.items()}
    record = {"_hoodie_file_name": file_name, "key": key, "type": 2, "filesystemMetadata": listed}
    data = io.BytesIO()
    fastavro.schemaless_writer(data, schema, record)
    assert decode_entries(data.getvalue(), path="x") == entries


def test_the_schema_of_commits_has_no_meta_fields_and_says_how_java_reads_texts() -> None:
    fastavro.parse_schema(json.loads(RECORD_SCHEMA))
    names = [field["name"] for field in json.loads(STORED_SCHEMA)["fields"]]
    assert names[5:] == [field["name"] for field in json.loads(RECORD_SCHEMA)["fields"]]
    assert json.loads(RECORD_SCHEMA)["fields"][0]["type"] == {"type": "string", "avro.java.string": "String"}


@given(FEW, FEW, FEW)
def test_records_of_logs_may_be_merged_first(
    base: dict[str, FileEntry], older: dict[str, FileEntry], newer: dict[str, FileEntry]
) -> None:
    """So Hudi does it, and we do not: it is the same as long as a file is added once, and comes back never."""
    base = {name: entry for name, entry in base.items() if not entry.is_deleted}
    older = {name: entry for name, entry in older.items() if entry.is_deleted or name not in base}
    newer = {name: entry for name, entry in newer.items() if entry.is_deleted or name not in base | older}
    one = merged(merged(base, older), newer)
    other = merged(base, merged(older, newer))
    assert _live(one) == _live(other)


@given(FEW)
def test_saying_it_twice_changes_nothing(entries: dict[str, FileEntry]) -> None:
    assert _live(merged(entries, entries)) == _live(merged({}, entries))


@given(FEW, FEW)
def test_what_was_said_last_to_be_gone_is_gone(
    older: dict[str, FileEntry], newer: dict[str, FileEntry]
) -> None:
    live = _live(merged(older, newer))
    assert not any(entry.is_deleted and name in live for name, entry in newer.items())
    assert all(live[name] >= entry.size_bytes for name, entry in newer.items() if not entry.is_deleted)


@given(KEYS, ENTRIES, st.data())
def test_a_record_that_is_cut_or_changed_is_read_or_refused(
    key: str, entries: dict[str, FileEntry], data: st.DataObject
) -> None:
    value = bytearray(encode_entries(key, entries))
    place = data.draw(st.integers(0, len(value) - 1))
    if data.draw(st.booleans()):
        value = value[:place]
    else:
        value[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        decode_entries(bytes(value), path="x")
    except DamagedFileError as error:
        assert "rebuild" in str(error)


@pytest.mark.parametrize("value", [b"", b"\xff" * 40, b"\0" * 6 + b"\x04\x02" + b"\xfe" * 9 + b"\x01"])
def test_what_is_no_record_is_refused(value: bytes) -> None:
    with pytest.raises(DamagedFileError, match="does not list files"):
        decode_entries(value, path="x")


def _live(entries: dict[str, FileEntry]) -> dict[str, int]:
    return {name: entry.size_bytes for name, entry in entries.items() if not entry.is_deleted}
