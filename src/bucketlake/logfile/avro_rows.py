"""Avro records one by one, through fastavro: the readable twin of `avro_columns`.

Nothing reads tables with it. It says in a page what the column decoder must
answer, and the tests hold the two equal.
"""

from __future__ import annotations

import decimal
import io
import json
import struct
from collections.abc import Collection
from typing import Any

import fastavro
import pyarrow as pa

from bucketlake.logfile.avro_columns import record_count
from bucketlake.logfile.deletes import DELETE_LIST_SCHEMA
from bucketlake.schema import AvroKind, AvroNode, parse_avro


def decode_records(
    content: memoryview, schema_json: str, wanted: Collection[str] | None, *, path: str, offset: int = 0
) -> pa.RecordBatch:
    """Decode the content of an Avro data block as `avro_columns.decode_records` does."""
    schema = fastavro.parse_schema(_without_logical_types(json.loads(schema_json)))
    fields = [
        field
        for field in parse_avro(schema_json, path=path).children
        if wanted is None or field.name in wanted
    ]
    stream = io.BytesIO(content[8:])
    rows = []
    for _ in range(record_count(content, path=path, offset=offset)):
        (length,) = struct.unpack(">i", stream.read(4))
        record: Any = fastavro.schemaless_reader(io.BytesIO(stream.read(length)), schema)
        rows.append({field.name: _value(record[field.name], field) for field in fields})
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([field.field for field in fields]))


def _without_logical_types(declared: Any) -> Any:
    if isinstance(declared, list):
        return [_without_logical_types(branch) for branch in declared]
    if isinstance(declared, dict):
        return {key: _without_logical_types(part) for key, part in declared.items() if key != "logicalType"}
    return declared


def _value(value: Any, node: AvroNode) -> Any:
    """Turn what fastavro read, logical types aside, into what Arrow takes for the node's type."""
    if value is None:
        return None
    match node.kind:
        case AvroKind.RECORD:
            return {child.name: _value(value[child.name], child) for child in node.children}
        case AvroKind.ARRAY:
            return [_value(element, node.children[0]) for element in value]
        case AvroKind.MAP:
            return [(key, _value(item, node.children[1])) for key, item in value.items()]
        case AvroKind.DECIMAL_BYTES | AvroKind.DECIMAL_FIXED:
            with decimal.localcontext(prec=80):
                return decimal.Decimal(int.from_bytes(value, signed=True)).scaleb(-node.type.scale)
        case AvroKind.LONG if node.wire_type != node.type:
            return value * 1000
    return value


def decode_delete_rows(content: memoryview) -> list[tuple[str, str | None, Any]]:
    """Decode a delete block to (key, partition, ordering value), the value as `(wrapper, value)` or None.

    The value of an ArrayWrapper is the list of its elements, wrapped alike.
    """
    (length,) = struct.unpack_from(">i", content, 4)
    schema = fastavro.parse_schema(_without_logical_types(json.loads(DELETE_LIST_SCHEMA)))
    deletes: Any = fastavro.schemaless_reader(
        io.BytesIO(content[8 : 8 + length]), schema, return_record_name=True
    )
    return [
        (delete["recordKey"], delete["partitionPath"], _wrapped(delete["orderingVal"]))
        for delete in deletes["deleteRecordList"]
    ]


def _wrapped(value: Any) -> Any:
    if value is None:
        return None
    name, wrapper = value
    if name == "ArrayWrapper":
        return name, [_wrapped(element) for element in wrapper["wrappedValues"]]
    return name, wrapper["value"]
