"""Hudi's own reader and writer of HFiles beside ours: what one side writes, the other has to find."""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake.hfile import Codec, HFile, InMemory, encode
from judges.hudi_jvm import HudiJvm

pytestmark = pytest.mark.interop

SEED = 20261118
CODECS = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)


def random_records(count: int) -> dict[str, bytes]:
    chance = random.Random(SEED)
    keys = [str(uuid.UUID(int=chance.getrandbits(128))) for _ in range(count - 60)]
    keys += [f"{chance.choice('äé日本')}-{number}" for number in range(50)]
    keys += ["k" * 200 + str(number) for number in range(10)]
    return {key: chance.randbytes(chance.randrange(120)) for key in sorted(keys, key=str.encode)}


@CODECS
def test_hudi_reads_every_record_of_our_file(codec: Codec, hudi: HudiJvm, tmp_path: Path) -> None:
    records = random_records(4_000)
    path = tmp_path / "ours.hfile"
    values = pa.array(records.values(), pa.binary())
    path.write_bytes(encode(pa.array(records), values, codec=codec, info={"schema": b"{}"}))

    assert hudi.hfile_keys(path) == list(records)
    known = list(records)[::3]
    asked = sorted(known + [key + "!" for key in known[::2]], key=str.encode)
    assert hudi.hfile_found(path, asked) == [key in records for key in asked]
    some = list(records)[::97]
    assert hudi.hfile_values(path, some) == [records[key] for key in some]


@CODECS
def test_we_read_every_record_of_hudis_file(codec: Codec, hudi: HudiJvm, tmp_path: Path) -> None:
    """With blocks of a mebibyte, and keys in Java's order: Hudi's own reader loses records of such files."""
    records = random_records(20_000) | dict.fromkeys(["ｆ", "\ue000", "😀", "\U0010ffff!"], b"v")
    records = {key: records[key] for key in sorted(records, key=lambda key: key.encode("utf-16-be"))}
    path = tmp_path / "hudis.hfile"
    hudi.hfile_write(path, records, codec=codec.name, block_bytes=1 << 20)

    file = HFile.open(InMemory(path.read_bytes(), path.name))
    entries = file.scan()
    assert entries.keys.cast(pa.string()).to_pylist() == list(records)
    assert entries.values.to_pylist() == list(records.values())
    found = file.look_up(pa.array(records))
    assert found.at.tolist() == list(range(len(records)))
    assert found.values.equals(entries.values)
