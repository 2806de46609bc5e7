"""An engine is a value, a class and a call that registers it: if this fails, something has learned an engine's name.

The engine is the one that CONTRIBUTING.md adds step by step. Its buckets are the lengths of keys.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from bucketlake import (
    ConfigError,
    LayoutMismatchError,
    Table,
    UnsupportedError,
    create_table,
    register_engine,
)
from bucketlake.index import NewTable, PlacedIndex, hash_pieces
from bucketlake.services import check_table
from bucketlake.state import TableState
from bucketlake.testing.index_contract import IndexContract

Pieces = tuple[str | None, ...]

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64())])


@dataclass(frozen=True, slots=True)
class LengthIndex(PlacedIndex):
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


INDEX: PlacedIndex = LengthIndex(4, ("id",))


@dataclass(frozen=True, slots=True)
class LengthBuckets:
    """What a new table is told: `create_table(..., index=LengthBuckets(4))`."""

    longest: int
    hash_fields: tuple[str, ...] = ()

    engine: ClassVar[str] = "LENGTH"

    def check(self, table: NewTable) -> None:
        if self.longest < 1:
            raise ConfigError(f"the longest length is {self.longest}; expected 1 or more.")

    def settings(self) -> Mapping[str, str]:
        return {"length.longest": str(self.longest)}

    def first_files(self) -> Mapping[str, bytes]:
        return {}


def index_of(state: TableState, as_of: str | None) -> PlacedIndex:
    properties = state.properties
    return LengthIndex(
        int(properties.raw["length.longest"]), properties.hash_fields or properties.record_key_fields
    )


def a_table(path: Path, index: LengthBuckets, table_type: str = "COPY_ON_WRITE") -> Table:
    return create_table(
        path, SCHEMA, key="id", partition="dt", ordering="ts", table_type=table_type, index=index
    )


@pytest.mark.shows("C1")
class TestLengthIndex(IndexContract):
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
def test_an_engine_that_was_registered_is_written_and_read_with(tmp_path: Path, table_type: str) -> None:
    register_engine("length", index_of)
    table = a_table(tmp_path / "t", LengthBuckets(4), table_type)
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


@pytest.mark.shows("C1")
def test_a_table_whose_engine_is_not_registered_is_read_and_named_when_written(tmp_path: Path) -> None:
    register_engine("length", index_of)
    a_table(tmp_path / "t", LengthBuckets(4)).upsert(rows(["a", "bb"], 1))
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    lines = [
        line for line in properties.read_text().splitlines() if "checksum" not in line and line[0] != "#"
    ]
    properties.write_text("\n".join(lines).replace("LENGTH", "ANOTHER"))
    table = Table.open(tmp_path / "t")
    assert table.to_arrow().num_rows == 2
    with pytest.raises(
        UnsupportedError,
        match=r"engine ANOTHER is not registered here.* Register it before .*register_engine",
    ):
        table.upsert(rows(["a"], 2))
    assert table.to_arrow().num_rows == 2


def test_an_engine_checks_what_it_is_told_before_a_table_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="longest length is 0"):
        a_table(tmp_path / "t", LengthBuckets(0))
    assert not (tmp_path / "t/.hoodie").exists()


@pytest.mark.parametrize("word", ["simple", "CONSISTENT_HASHING", " "])
def test_a_word_of_ours_cannot_be_registered(word: str) -> None:
    with pytest.raises(ConfigError, match="expected a word of your own"):
        register_engine(word, index_of)


def test_a_value_of_a_users_engine_that_differs_from_the_table_is_refused_with_both(tmp_path: Path) -> None:
    register_engine("length", index_of)
    a_table(tmp_path / "t", LengthBuckets(4))
    Table.open(tmp_path / "t", index=LengthBuckets(4)).upsert(rows(["a"], 1))
    with pytest.raises(LayoutMismatchError, match=r"length\.longest=4, and index= says length\.longest=5"):
        Table.open(tmp_path / "t", index=LengthBuckets(5))


def test_a_value_whose_engine_is_not_registered_makes_no_table(tmp_path: Path) -> None:
    class Unknown(LengthBuckets):
        engine: ClassVar[str] = "UNKNOWN"

    with pytest.raises(ConfigError, match=r"engine UNKNOWN is not known here\. Register it"):
        a_table(tmp_path / "t", Unknown(4))
