"""What a user gets wrong, or a disk: one clear error that names the file or the value, and nothing half-read."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bucketlake import (
    ConfigError,
    CorruptTableError,
    DamagedFileError,
    FilterError,
    NotATableError,
    PartitionBuckets,
    SimpleBuckets,
    Table,
    UnsafePathError,
    UnsupportedError,
)

Golden = Callable[[str], Path]
COW, MOR = "cow_simple_bucket", "mor_simple_bucket_avro"


@pytest.fixture
def copy(golden_table: Golden, tmp_path: Path) -> Callable[[str], Path]:
    """A golden table that a test may damage."""

    def copied(name: str) -> Path:
        return Path(shutil.copytree(golden_table(name), tmp_path / name))

    return copied


def one(folder: Path, pattern: str) -> Path:
    return sorted(folder.rglob(pattern))[-1]


def test_a_folder_without_a_table_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(NotATableError, match=r"give the folder that contains \.hoodie"):
        Table.open(tmp_path)


def test_a_path_that_does_not_exist_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(NotATableError):
        Table.open(tmp_path / "nowhere")


def test_a_file_system_we_do_not_have_is_named() -> None:
    with pytest.raises(UnsupportedError, match="hdfs"):
        Table.open("hdfs://namenode/table")


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("hoodie.table.version=9", "hoodie.table.version=nine", CorruptTableError, "hoodie.table.version"),
        ("hoodie.table.version=9", "hoodie.table.version=10", UnsupportedError, "10"),
        ("hoodie.table.type=COPY_ON_WRITE", "hoodie.table.type=COPY", CorruptTableError, "hoodie.table.type"),
        ("hoodie.table.name=", "hoodie.nobody.name=", CorruptTableError, "hoodie.table.name"),
        ("hoodie.table.checksum=", "hoodie.table.checksum=1", CorruptTableError, "checksum"),
        (
            "hoodie.record.merge.mode=EVENT_TIME_ORDERING",
            "hoodie.record.merge.mode=CUSTOM",
            UnsupportedError,
            "CUSTOM",
        ),
        (
            "hoodie.table.base.file.format=PARQUET",
            "hoodie.table.base.file.format=ORC",
            UnsupportedError,
            "ORC",
        ),
        (
            "hoodie.populate.meta.fields=true",
            "hoodie.populate.meta.fields=perhaps",
            CorruptTableError,
            "perhaps",
        ),
    ],
)
def test_properties_that_make_no_sense_are_an_error_that_names_the_key(
    copy: Callable[[str], Path], old: str, new: str, error: type[Exception], words: str
) -> None:
    folder = copy(COW)
    file = folder / ".hoodie/hoodie.properties"
    text = file.read_text("latin-1")
    assert old in text
    file.write_text(text.replace(old, new), "latin-1")
    with pytest.raises(error) as refused:
        Table.open(folder)
    assert words in str(refused.value)
    assert "hoodie.properties" in str(refused.value) or error is UnsupportedError


def test_unreadable_properties_are_named(copy: Callable[[str], Path]) -> None:
    folder = copy(COW)
    (folder / ".hoodie/hoodie.properties").write_bytes(b"\x00\xff\\u12")
    with pytest.raises(CorruptTableError, match=r"hoodie\.properties"):
        Table.open(folder)


@pytest.mark.parametrize("damage", [b"", b"Obj\x01 and then nonsense", b"{]"])
def test_a_corrupt_instant_is_named(copy: Callable[[str], Path], damage: bytes) -> None:
    folder = copy(COW)
    instant = one(folder / ".hoodie/timeline", "*.commit")
    instant.write_bytes(damage)
    with pytest.raises(CorruptTableError, match=instant.name):
        Table.open(folder).to_arrow()


@pytest.mark.parametrize("damage", [b"", b"PAR1 no more", None])
def test_a_corrupt_base_file_is_named(copy: Callable[[str], Path], damage: bytes | None) -> None:
    folder = copy(COW)
    table = Table.open(folder)
    base = table.plan().slices[0].base_file
    assert base is not None
    file = folder / base.path
    file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    with pytest.raises(CorruptTableError, match=file.name):
        table.to_arrow()


def test_a_corrupt_record_in_a_log_block_is_named(copy: Callable[[str], Path]) -> None:
    folder = copy(MOR)
    log = one(folder / "p0", ".*.log.*")
    data = bytearray(log.read_bytes())
    data[-40:-20] = b"\xff" * 20
    log.write_bytes(data)
    with pytest.raises(CorruptTableError, match=log.name.replace(".", r"\.")):
        Table.open(folder).to_arrow()


def test_a_torn_tail_of_a_log_is_passed_over_where_no_commit_tells_its_size(
    copy: Callable[[str], Path],
) -> None:
    """In table version 6 a writer that died may have left it at the end of a log that others wrote too."""
    for name in ("mor_v6", MOR):
        folder = copy(name)
        whole = Table.open(folder).to_arrow()
        log = one(folder / "p0", ".*.log.*")
        log.write_bytes(log.read_bytes() + b"#HUDI#" + (9999).to_bytes(8, "big") + b"torn")
        if name == MOR:
            with pytest.raises(DamagedFileError, match=log.name.replace(".", r"\.")):
                Table.open(folder).to_arrow()
        else:
            assert Table.open(folder).to_arrow().equals(whole)


@pytest.mark.parametrize("place", ["../secret.parquet", "/etc/passwd", "p0/../../secret.parquet"])
def test_a_path_in_a_commit_that_leads_out_of_the_table_is_refused(
    copy: Callable[[str], Path], place: str
) -> None:
    """Incremental reads open the files that commits name."""
    folder = copy("mor_v6")
    instant = one(folder / ".hoodie", "*.deltacommit")
    text = instant.read_text()
    path = text[text.index('"path" : "') + 10 :].split('"')[0]
    name = path.rsplit("/", 1)[1]
    (folder.parent / "secret.parquet").write_bytes(b"")
    instant.write_text(text.replace(path, place.replace("secret.parquet", name)))
    with pytest.raises(UnsafePathError):
        Table.open(folder).to_arrow(begin="0")


def test_a_partition_that_is_a_link_out_of_the_table_is_refused(copy: Callable[[str], Path]) -> None:
    folder = copy(COW)
    outside = folder.parent / "outside"
    (folder / "p0").rename(outside)
    (folder / "p0").symlink_to(outside)
    with pytest.raises(UnsafePathError, match="symbolic link"):
        Table.open(folder).to_arrow()


@pytest.mark.parametrize("partition", ["../cow_simple_bucket/p0", "/p0", "p0/.."])
def test_a_partition_that_leads_out_of_the_table_is_refused(
    copy: Callable[[str], Path], partition: str
) -> None:
    with pytest.raises(UnsafePathError):
        Table.open(copy(COW)).get(1, partition=partition)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("1", "an int of 32 bits"),
        (2**40, "an int of 32 bits"),
        (1.0, "an int of 32 bits"),
        (None, "id"),
        ({"nope": 1}, "the key of this table is (id)"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(golden_table: Golden, key: Any, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Table.open(golden_table(COW)).get(key)
    assert words in str(refused.value)


def test_a_key_of_several_columns_must_be_a_mapping(golden_table: Golden) -> None:
    with pytest.raises(FilterError, match="give a mapping"):
        Table.open(golden_table("cow_composite_keys")).get("a")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"columns": ["nope"]}, "no column 'nope'"),
        ({"filters": [("id", "=", "one")]}, "an int of 32 bits"),
        ({"as_of": "yesterday"}, "yesterday"),
        ({"as_of": "2024-01-01", "begin": "0"}, "one or the other"),
        ({"end": "2024-01-01"}, "end without begin"),
        ({"begin": "2027-01-01", "end": "2026-01-01"}, "lies after end"),
        ({"begin": "0", "read_optimized": True}, "one or the other"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(
    golden_table: Golden, query: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Table.open(golden_table(COW)).to_arrow(**query)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    "arguments",
    [
        {"buckets": 0},
        {"buckets": -4},
        {"index": SimpleBuckets(4, ("name",))},
        {"index": PartitionBuckets("p1")},
    ],
)
def test_options_that_cannot_be_the_tables_are_refused(
    golden_table: Golden, arguments: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        Table.open(golden_table(COW), **arguments).describe()


@pytest.mark.parametrize(
    "ask",
    [Table.changes_until, Table.describe, Table.timeline, Table.to_arrow, lambda table: table.upsert([])],
)
def test_a_table_that_is_gone_is_an_error_and_not_an_empty_one(
    copy: Callable[[str], Path], ask: Callable[[Table], object]
) -> None:
    folder = copy(COW)
    table = Table.open(folder)
    shutil.rmtree(folder)
    with pytest.raises(NotATableError):
        ask(table)
    assert not folder.exists()
