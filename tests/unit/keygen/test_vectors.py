"""Keys and paths against Hudi's own: a key that differs is a duplicate, a path that differs a lost row."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake.config import TableProperties
from bucketlake.errors import BucketlakeError, UnsupportedError
from bucketlake.keygen import KeyGenerator

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "keygen_vectors.json").read_text("ascii")
)
ARROW = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp_micros": pa.timestamp("us", "UTC"),
    "timestamp_millis": pa.timestamp("ms", "UTC"),
    "local_timestamp_micros": pa.timestamp("us"),
}
WE_REFUSE = ("hh", "MMM d", "Nowhere/Here", "HH")
"""Patterns and zones that Hudi reads, and we refuse by name."""
JDK_17_ONLY = (2e23, 2.0**-44)
"""Doubles that JDK 17 writes with more digits than JDK 19 and we do."""


def column(kind: str, value: Any) -> Any:
    if kind.startswith("decimal"):
        precision, scale = (int(number) for number in kind[len("decimal(") : -1].split(","))
        return pa.array([None if value is None else Decimal(value)], pa.decimal128(precision, scale))
    if value is not None and kind == "bytes":
        value = bytes.fromhex(value)
    if kind in ("date", "timestamp_micros", "timestamp_millis", "local_timestamp_micros"):
        integers = pa.array([value], pa.int32() if kind == "date" else pa.int64())
        return integers.view(ARROW[kind])
    return pa.array([value], ARROW[kind])


def generator_of(vector: dict[str, Any]) -> KeyGenerator:
    raw = {
        "hoodie.table.name": "t",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": vector["options"].get("hoodie.write.table.version", "9"),
        "hoodie.timeline.layout.version": "1"
        if vector["options"].get("hoodie.write.table.version") == "6"
        else "2",
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.recordkey.fields": ",".join(vector["record_key_fields"]),
        "hoodie.table.partition.fields": ",".join(vector["partition_fields"]),
        "hoodie.table.keygenerator.type": vector["generator"],
    } | vector["options"]
    return KeyGenerator.from_properties(TableProperties.parse(raw, path="hoodie.properties"))


def differs_on_purpose(vector: dict[str, Any], answer: str) -> bool:
    options = vector["options"]
    if answer == "partition_path" and any(value in WE_REFUSE for value in options.values()):
        return True
    return any(kind == "double" and value in JDK_17_ONLY for kind, value in vector["values"].values())


def record_key_by_row(generator: KeyGenerator, table: Any) -> str:
    return generator.record_key_of({name: table.column(name)[0] for name in table.schema.names})


def record_key_by_column(generator: KeyGenerator, table: Any) -> str:
    key: str = generator.record_keys(table)[0].as_py()
    return key


def path_by_row(generator: KeyGenerator, table: Any) -> str:
    return generator.partition_path_of({name: table.column(name)[0] for name in table.schema.names})


def path_by_column(generator: KeyGenerator, table: Any) -> str:
    path: str = generator.partition_paths(table)[0].as_py()
    return path


def answer_or_none(
    ask: Callable[[KeyGenerator, Any], str], generator: KeyGenerator, table: Any
) -> str | None:
    try:
        return ask(generator, table)
    except BucketlakeError:
        return None


@pytest.mark.shows("S1")
@pytest.mark.parametrize(
    ("answer", "by_row", "by_column"),
    [
        ("record_key", record_key_by_row, record_key_by_column),
        ("partition_path", path_by_row, path_by_column),
    ],
)
def test_every_vector_of_hudi_is_met_by_row_and_by_column(
    answer: str, by_row: Callable[[KeyGenerator, Any], str], by_column: Callable[[KeyGenerator, Any], str]
) -> None:
    wrong: list[object] = []
    met = 0
    for vector in VECTORS:
        if differs_on_purpose(vector, answer):
            continue
        table = pa.table({name: column(kind, value) for name, (kind, value) in vector["values"].items()})
        generator = generator_of(vector)
        found = [answer_or_none(ask, generator, table) for ask in (by_row, by_column)]
        met += 1
        if found != [vector.get(answer)] * 2:
            wrong.append((vector, found))
    assert not wrong
    assert met > 1000


@pytest.mark.parametrize("refused", WE_REFUSE)
def test_a_pattern_or_zone_we_do_not_have_is_refused_by_name(refused: str) -> None:
    vectors = [
        vector for vector in VECTORS if [v for v in vector["options"].values() if v in WE_REFUSE] == [refused]
    ]
    assert vectors
    for vector in vectors:
        table = pa.table({name: column(kind, value) for name, (kind, value) in vector["values"].items()})
        with pytest.raises(UnsupportedError, match=refused.split("/")[0]):
            generator_of(vector).partition_paths(table)


def test_doubles_that_jdks_write_differently_are_written_the_short_way_and_never_certain() -> None:
    generator = KeyGenerator(record_key_fields=("id",), encodes_field_names=False)
    assert [generator.record_key_of({"id": value}) for value in JDK_17_ONLY] == [
        "2.0E23",
        "5.684341886080802E-14",
    ]
    assert generator.certain_record_key_of({"id": 1.5}) is None
