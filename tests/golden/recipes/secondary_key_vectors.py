"""Make `secondary_key_vectors.json`: the keys of entries that Hudi's writers make of values, of every type it indexes.

    PYTHONPATH=src:tests python tests/golden/recipes/secondary_key_vectors.py tests/golden/secondary_key_vectors.json

A value is spelled when an index is built, and by each kind of file that a write makes. Where all of them agree a value
has one key; a type on which they do not is told by kind. A value is written as JSON: numbers of a date are days, of a
timestamp microseconds.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketlake import Table
from bucketlake.index.secondary import secondary_indexes_of
from bucketlake.metadata.secondary_keys import record_keys_of_entries
from bucketlake.state import load_state
from judges.hudi_jvm import HudiJvm, JudgeError, options_for

LONG = "x" * 300
TYPES: Mapping[str, tuple[pa.DataType, list[Any]]] = {
    "string": (
        pa.string(),
        ["Rome", "", " ", "a$b", "$", "\\", "\\$", "a\\b", "\0", "a\0b", "null", "ü", "日本", "😀", "\uff21", LONG],
    ),
    "int8": (pa.int8(), [1, 0, -1, 127, -128]),
    "int16": (pa.int16(), [1, 0, -1, 32767, -32768]),
    "int32": (pa.int32(), [1, 0, -1, 2**31 - 1, -(2**31)]),
    "int64": (pa.int64(), [1, 0, -1, 2**63 - 1, -(2**63)]),
    "date32": (pa.date32(), [0, 1, -1, 19724, -719162, 2932896]),
    "timestamp[us, UTC]": (
        pa.timestamp("us", "UTC"),
        [0, 1, -1, 1704164645123456, 1704164645000000, -62135596800000000],
    ),
    "float": (pa.float32(), [0.0, -0.0, 0.1, 1.0, 1e10, 2e23, 1.17549435e-38, math.nan, math.inf, -math.inf]),
    "double": (
        pa.float64(),
        [0.0, -0.0, 0.1, 1.0, 1e10, 2e23, 4.9e-324, 1e-3, 9999999.0, 1e7, 123.456, math.nan, math.inf, -math.inf],
    ),
}  # fmt: skip
REFUSED: Mapping[str, tuple[pa.DataType, Any]] = {
    "timestamp[us]": (pa.timestamp("us"), 0),
    "bool": (pa.bool_(), True),
    "decimal128(10, 2)": (pa.decimal128(10, 2), 1),
    "binary": (pa.binary(), b"x"),
}
SETTINGS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
    "hoodie.metadata.global.record.level.index.max.filegroup.count": "1",
    "hoodie.metadata.auto.delete.partitions": "false",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
    "hoodie.metadata.compact.max.delta.commits": "100",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}


def rows(kind: pa.DataType, values: list[Any], first: str, ts: int) -> pa.Table:
    """Rows with these values and a null; the key says how a row is written, and which value it has."""
    column = pa.array([*values, None], kind)
    keys = [f"{first}-{n}" for n in range(len(column))]
    return pa.table({"id": keys, "dt": ["p"] * len(column), "ts": [ts] * len(column), "v": column})


class Bench:
    def __init__(self, hudi: HudiJvm, folder: Path) -> None:
        self.hudi, self.folder, self.number = hudi, folder, 0

    def table(self, table_type: str, first: pa.Table) -> tuple[Path, dict[str, str]]:
        """A table of Hudi's with an index of the column."""
        self.number += 1
        path = self.folder / f"t{self.number}"
        told = options_for("t", table_type=table_type, index="GLOBAL_RECORD_LEVEL_INDEX", more=SETTINGS)
        self.hudi.write(path, first, told, mode="overwrite")
        name = f"t{self.number}"
        self.hudi.sql(
            f"create table {name} using hudi location '{path}'",
            f"create index by_v on {name} (v)",
            settings=SETTINGS,
        )
        return path, told

    def entries(self, path: Path) -> dict[str, str]:
        """Return the keys of all entries, by their record keys."""
        (index,) = secondary_indexes_of(load_state(Table.open(path).store))
        keys = [key for shard in range(index.shards) for key in index.entries_of(shard).to_pylist()]
        return dict(zip(record_keys_of_entries(pa.array(keys)).to_pylist(), keys, strict=True))

    def spelled(self, kind: pa.DataType, values: list[Any]) -> dict[str, dict[str, str]]:
        """Return, by how a row was written and its key, the key of its entry."""
        path, told = self.table("COPY_ON_WRITE", rows(kind, values, "k", 1))
        found = {"built": self.entries(path)}
        turned = rows(kind, [*values[1:], values[0]], "k", 2)
        self.hudi.write(path, turned, told)
        found["a base file merged"] = self.entries(path)
        path, told = self.table("COPY_ON_WRITE", rows(kind, values[:1], "z", 1))
        self.hudi.write(path, rows(kind, values, "k", 2), told, operation="insert")
        found["a base file made"] = _without(self.entries(path), "z")
        if kind not in (pa.int8(), pa.int16()):  # which that writer refuses
            path, told = self.table("COPY_ON_WRITE", rows(kind, values[:1], "z", 1))
            # With metadata written by the way, as it does by default, its bulk insert by rows records no values at all.
            bulk = {
                "hoodie.datasource.write.row.writer.enable": "true",
                "hoodie.metadata.streaming.write.enabled": "false",
            }
            self.hudi.write(path, rows(kind, values, "k", 2), told | bulk, operation="bulk_insert")
            found["a base file loaded"] = _without(self.entries(path), "z")
        path, told = self.table("MERGE_ON_READ", rows(kind, values, "k", 1))
        self.hudi.write(path, turned, told)
        found["a log"] = self.entries(path)
        return found


def _without(entries: dict[str, str], first: str) -> dict[str, str]:
    return {key: entry for key, entry in entries.items() if not key.startswith(first)}


def vectors(bench: Bench, kind: pa.DataType, values: list[Any]) -> list[dict[str, Any]]:
    """Say which entry a row with the key `k` has of each value: one, or one for each way of writing."""
    found: dict[int, dict[str, str]] = {}
    for how, entries in bench.spelled(kind, values).items():
        is_turned = how in ("a base file merged", "a log")
        for key, entry in entries.items():
            number = int(key.removeprefix("k-"))
            of_value = (number + 1) % len(values) if is_turned and number < len(values) else number
            found.setdefault(of_value, {})[how] = entry.removesuffix(key) + "k"
    said = []
    for number, value in enumerate([*values, None]):
        ways = found[number]
        assert len(ways) >= 4, (kind, value, ways)
        alike = set(ways.values())
        said.append({"value": _json(value), "entry": alike.pop() if len(alike) == 1 else ways})
    return said


def _json(value: Any) -> Any:
    return repr(value) if isinstance(value, float) else value


def is_refused(bench: Bench, kind: pa.DataType, value: Any) -> bool:
    try:
        bench.table("COPY_ON_WRITE", rows(kind, [value], "k", 1))
    except JudgeError as error:
        return "unsupported data type" in str(error)
    return False


def main(out: Path) -> None:
    hudi = HudiJvm()
    bench = Bench(hudi, Path(tempfile.mkdtemp(prefix="secondary-keys-")))
    refused = [name for name, (kind, value) in REFUSED.items() if is_refused(bench, kind, value)]
    assert refused == list(REFUSED), refused
    types = {name: vectors(bench, kind, values) for name, (kind, values) in TYPES.items()}
    said = {"java": hudi.ping()["java"], "refused": refused, "types": types}
    out.write_text(json.dumps(said, indent=1) + "\n", "ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
