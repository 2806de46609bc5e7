"""An engine is a class and a line in `resolve_index`: if this fails, something else has learned an engine's name.

The engine is the one that CONTRIBUTING.md adds step by step. Its buckets are the lengths of keys.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import create_table
from bucketlake import table as table_module
from bucketlake.index import PlacedIndex, fingerprint, hash_pieces
from bucketlake.services import check_table, fsck
from bucketlake.testing.index_contract import IndexContract

Pieces = tuple[str | None, ...]

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])


@dataclass(frozen=True, slots=True)
class LengthBuckets(PlacedIndex):
    """A bucket for every length of what is hashed of a key; the last is for all that are longer."""

    longest: int
    hash_fields: tuple[str, ...]

    def __str__(self) -> str:
        return f"buckets by length up to {self.longest}, of {', '.join(self.hash_fields)}"

    def bucket_count(self, partition: str) -> int | None:
        return self.longest + 1

    def slot_of(self, partition: str, pieces: Pieces) -> str | None:
        return f"{min(self.longest, sum(len(piece or '') for piece in pieces)):08d}"

    def locate(self, partition: str, record_keys: Any) -> Any:
        # One that is meant to be fast works on the column: `index/hashing_arrow.py`.
        found = [
            None if key is None else self.slot_of(partition, hash_pieces(key, self.hash_fields))
            for key in record_keys.to_pylist()
        ]
        return pa.array(found, pa.string()).dictionary_encode()

    def slot_of_file(self, partition: str, file_id: str) -> str | None:
        number, _, rest = file_id.partition("-")
        is_ours = rest and len(number) == 8 and number.isdigit() and int(number) <= self.longest
        return number if is_ours else None

    def file_groups(
        self, partition: str, file_ids: Collection[str], pieces: Collection[Pieces]
    ) -> frozenset[str]:
        owners = {file_id: self.slot_of_file(partition, file_id) for file_id in file_ids}
        if None in owners.values():
            return frozenset(file_ids)
        wanted = {self.slot_of(partition, piece) for piece in pieces}
        return frozenset(file_id for file_id, owner in owners.items() if owner in wanted)


INDEX: PlacedIndex = LengthBuckets(4, ("id",))


@pytest.mark.shows("C1")
class TestLengthBuckets(IndexContract):
    def index(self) -> PlacedIndex:
        return INDEX

    def partition(self) -> str:
        return "p0"

    def file_ids(self) -> list[str]:
        return [f"{length:08d}-159a-4953-a3c4-b777b847ae7f-0" for length in range(5)]


def rows(keys: Collection[str], ts: int) -> pa.Table:
    return pa.Table.from_pylist([{"id": key, "dt": f"p{len(key) % 2}", "ts": ts} for key in keys], SCHEMA)


@pytest.mark.shows("C1")
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_an_engine_that_only_resolving_knows_is_written_and_read_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, table_type: str
) -> None:
    table = create_table(
        None, tmp_path / "t", SCHEMA, key="id", partition="dt", ordering="ts", table_type=table_type
    )
    for who_resolves in (fingerprint, table_module, fsck):
        monkeypatch.setattr(who_resolves, "resolve_index", lambda *_, **__: INDEX)

    table.upsert(rows(["a", "b", "bb", "ccc", "dddd", "eeeeeeee"], 1))
    table.upsert(rows(["a", "bb", "ff"], 2))
    table.delete(["b"])

    found = table.to_arrow(meta_columns=True)
    assert dict(zip(found["id"].to_pylist(), found["ts"].to_pylist(), strict=True)) == {
        "a": 2,
        "bb": 2,
        "ff": 2,
        "ccc": 1,
        "dddd": 1,
        "eeeeeeee": 1,
    }
    lengths = {
        (name[:8], min(4, len(key)))
        for name, key in zip(found["_hoodie_file_name"].to_pylist(), found["id"].to_pylist(), strict=True)
    }
    assert lengths == {(f"{length:08d}", length) for length in (1, 2, 3, 4)}, "a file group for each length"

    file_ids = {name.partition("_")[0] for name in found["_hoodie_file_name"].to_pylist()}
    (group,) = INDEX.file_groups("p0", file_ids, [("ff",)])
    assert group.startswith("00000002-")
    assert table.get("ff").num_rows == 1
    assert table.get("b").num_rows == 0
    if table_type == "MERGE_ON_READ":
        table.compact(delta_commits=1)
        assert table.to_arrow().num_rows == 6
    table.overwrite(rows(["z", "zz"], 3))
    assert sorted(table.to_arrow(columns=["id"])["id"].to_pylist()) == ["z", "zz"]
    report = check_table(table.store)
    assert report.damage == (), str(report)
