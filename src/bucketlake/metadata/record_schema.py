"""The Avro schema of the metadata table's records, as Hudi 1.2 has it.

One record type serves all partitions: which of the last five fields is set
depends on `type`. Hudi compares field names and types only, so no documentation
is carried along. The strings must say that Java reads them as `String`: the
newest commit's schema becomes that of the whole table, and Hudi's payload fails
on any other class of text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_STRING = {"type": "string", "avro.java.string": "String"}
_META_FIELDS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def _record(name: str, *fields: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind}


def _optional(name: str, *kinds: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", *kinds], "default": None}


_SIMPLE_WRAPPERS: dict[str, Any] = {
    "BooleanWrapper": "boolean",
    "IntWrapper": "int",
    "LongWrapper": "long",
    "FloatWrapper": "float",
    "DoubleWrapper": "double",
    "BytesWrapper": "bytes",
    "StringWrapper": _STRING,
    "DateWrapper": "int",
    "DecimalWrapper": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicrosWrapper": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicrosWrapper": "long",
    "LocalDateWrapper": "int",
}
_ARRAY_WRAPPER = _record(
    "ArrayWrapper", _optional("wrappedValues", {"type": "array", "items": ["null", *_SIMPLE_WRAPPERS]})
)
_WRAPPERS = [_record(name, _field("value", kind)) for name, kind in _SIMPLE_WRAPPERS.items()]

_FILE_INFO = _record("HoodieMetadataFileInfo", _field("size", "long"), _field("isDeleted", "boolean"))
_BLOOM_FILTER = _record(
    "HoodieMetadataBloomFilter",
    _field("type", _STRING),
    _field("timestamp", _STRING),
    _field("bloomFilter", "bytes"),
    _field("isDeleted", "boolean"),
)
_COLUMN_STATS = _record(
    "HoodieMetadataColumnStats",
    _optional("fileName", _STRING),
    _optional("columnName", _STRING),
    _optional("minValue", *_WRAPPERS, _ARRAY_WRAPPER),
    _optional("maxValue", *_SIMPLE_WRAPPERS, "ArrayWrapper"),
    _optional("valueCount", "long"),
    _optional("nullCount", "long"),
    _optional("totalSize", "long"),
    _optional("totalUncompressedSize", "long"),
    _field("isDeleted", "boolean"),
    {"name": "isTightBound", "type": "boolean", "default": False},
    _optional(
        "valueType",
        _record("HoodieValueTypeInfo", _field("typeOrdinal", "int"), _optional("additionalInfo", _STRING)),
    ),
)
_RECORD_INDEX = _record(
    "HoodieRecordIndexInfo",
    _optional("partitionName", _STRING),
    _optional("fileIdHighBits", "long"),
    _optional("fileIdLowBits", "long"),
    _optional("fileIndex", "int"),
    _optional("fileId", _STRING),
    _optional("instantTime", "long"),
    {"name": "fileIdEncoding", "type": "int", "default": 0},
    _optional("position", "long"),
)
_SECONDARY_INDEX = _record("HoodieSecondaryIndexInfo", _field("isDeleted", "boolean"))

_FIELDS = (
    _field("key", _STRING),
    _field("type", "int"),
    _field("filesystemMetadata", ["null", {**_STRING, "type": "map", "values": _FILE_INFO}]),
    _optional("BloomFilterMetadata", _BLOOM_FILTER),
    _optional("ColumnStatsMetadata", _COLUMN_STATS),
    _optional("recordIndexMetadata", _RECORD_INDEX),
    _optional("SecondaryIndexMetadata", _SECONDARY_INDEX),
)


def _rendered(*fields: Mapping[str, Any]) -> str:
    record = _record("HoodieMetadataRecord", *fields)
    return json.dumps({"namespace": "org.apache.hudi.avro.model", **record}, separators=(",", ":"))


RECORD_SCHEMA = _rendered(*_FIELDS)
"""What a commit of the metadata table carries."""
STORED_SCHEMA = _rendered(*(_optional(name, "string") for name in _META_FIELDS), *_FIELDS)
"""What its files carry: with the meta fields, which are always null."""
