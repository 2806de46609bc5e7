"""Every HFile of the tables that Hudi wrote reads whole, and what we make of it reads the same."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.hfile import Codec, HFile, InMemory, encode, twin
from bucketlake.hfile.block import DATA, decode_block
from bucketlake.logfile import BlockType, decode_blocks

GOLDEN = Path(__file__).parents[2] / "golden"
TABLES = sorted(archive.name.removesuffix(".tar.gz") for archive in GOLDEN.glob("*.tar.gz"))
WITH_INDEXES = ["cow_global_rli", "cow_secondary_index", "mor_partitioned_rli"]


def hfiles(table: Path) -> Iterator[InMemory]:
    metadata = table / ".hoodie/metadata"
    for path in sorted(metadata.rglob("*.hfile")):
        yield InMemory(path.read_bytes(), path.name)
    for path in sorted(metadata.rglob(".*.log.*")):
        if path.suffix != ".crc":
            for block in decode_blocks(path.read_bytes(), path=path.name):
                if block.type is BlockType.HFILE_DATA:
                    yield InMemory(block.content, path.name)


def records_by_twin(file: HFile) -> list[twin.Record]:
    data = memoryview(file.source.read([(0, file.source.size)])[0])
    records: list[twin.Record] = []
    for offset in file.index.offsets.tolist():
        payload, _ = decode_block(data, offset, (DATA,), file.codec, name="it", offset=0)
        records += twin.decode_block(bytes(payload))
    return records


@pytest.mark.parametrize("name", TABLES)
def test_every_hfile_reads_whole_and_is_written_again(name: str, golden_table: Callable[[str], Path]) -> None:
    for source in hfiles(golden_table(name)):
        file = HFile.open(source)
        entries = file.scan()
        assert len(entries.keys) == file.entries
        pairs = zip(entries.keys.to_pylist(), entries.values.to_pylist(), strict=True)
        assert list(pairs) == records_by_twin(file)
        assert file.look_up(entries.keys).values.equals(entries.values)
        last = entries.keys.to_pylist()[-1] if file.entries else None
        assert file.info["hfile.LASTKEY"] == (b"" if last is None else struct.pack(">h", len(last)) + last)

        for codec in Codec:
            info = {name: text for name, text in file.info.items() if not name.startswith("hfile.")}
            again = HFile.open(InMemory(encode(entries.keys, entries.values, info=info, codec=codec)))
            assert again.scan() == entries
            ours = {**file.info, "hfile.CREATE_TIME_TS": bytes(8)}
            assert again.info == ours


@pytest.mark.parametrize("name", WITH_INDEXES)
def test_the_golden_tables_have_hfiles_with_records(name: str, golden_table: Callable[[str], Path]) -> None:
    """If this fails, the test above shows less than it says."""
    assert sum(HFile.open(source).entries for source in hfiles(golden_table(name))) > 20


def test_entries_of_a_secondary_index_are_found_by_their_value(golden_table: Callable[[str], Path]) -> None:
    keys: list[str] = []
    for source in hfiles(golden_table("cow_secondary_index")):
        if source.name.lstrip(".").startswith("secondary-index"):
            file = HFile.open(source)
            every = file.scan().keys.cast(pa.string()).to_pylist()
            for prefix in {key.split("$")[0] + "$" for key in every}:
                found = file.with_prefixes(pa.array([prefix])).keys.cast(pa.string()).to_pylist()
                assert found == [key for key in every if key.startswith(prefix)]
            keys += every
    assert keys
