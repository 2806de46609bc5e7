"""Avro records one by one, through fastavro: the readable twin of `avro_columns`, `avro_encoder` and `deletes`.

Nothing reads or writes tables with it. It says in a page what the work on
columns must come to, and the tests hold the two equal.
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
from bucketlake.logfile.deletes import DELETE_LIST_SCHEMA, Deletes
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


def encode_records(records: pa.Table, schema_json: str) -> bytes:
    """Encode the content of an Avro data block as `avro_encoder.encode_records` does."""
    schema = fastavro.parse_schema(_without_logical_types(json.loads(schema_json)))
    root = parse_avro(schema_json, path="")
    numbers = records.cast(pa.schema([_as_numbers(field) for field in records.schema]))
    parts = [struct.pack(">ii", 3, records.num_rows)]
    for row in numbers.to_pylist():
        stream = io.BytesIO()
        fastavro.schemaless_writer(
            stream, schema, {field.name: _encodable(row[field.name], field) for field in root.children}
        )
        parts += (struct.pack(">i", stream.tell()), stream.getvalue())
    return b"".join(parts)


def _as_numbers(field: pa.Field) -> pa.Field:
    """Let dates and timestamps be the numbers they are stored as."""
    kind = field.type
    if pa.types.is_date32(kind):
        kind = pa.int32()
    elif pa.types.is_timestamp(kind):
        kind = pa.int64()
    elif pa.types.is_list(kind):
        kind = pa.list_(_as_numbers(kind.value_field))
    elif pa.types.is_map(kind):
        kind = pa.map_(kind.key_field, _as_numbers(kind.item_field))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_as_numbers(inner) for inner in kind])
    return field.with_type(kind)


def _encodable(value: Any, node: AvroNode) -> Any:
    """Turn what Arrow has for a node into what fastavro encodes, logical types aside."""
    if value is None:
        return None
    match node.kind:
        case AvroKind.RECORD:
            return {child.name: _encodable(value[child.name], child) for child in node.children}
        case AvroKind.ARRAY:
            return [_encodable(element, node.children[0]) for element in value]
        case AvroKind.MAP:
            return {key: _encodable(item, node.children[1]) for key, item in value}
        case AvroKind.DECIMAL_FIXED:
            return _unscaled(value, node.type.scale).to_bytes(node.size, signed=True)
    return value


def _unscaled(value: decimal.Decimal, scale: int) -> int:
    with decimal.localcontext(prec=80):
        return int(value.scaleb(scale))


def encode_deletes(deletes: Deletes) -> bytes:
    """Encode the content of a delete block as `deletes.encode_deletes` does."""
    schema = fastavro.parse_schema(_without_logical_types(json.loads(DELETE_LIST_SCHEMA)))
    ordering = [None] * len(deletes.keys) if deletes.ordering is None else _orderings(deletes.ordering)
    listed = []
    for key, values in zip(deletes.keys.to_pylist(), ordering, strict=True):
        value: Any
        if values is None:
            value = "IntWrapper", {"value": 0}
        elif len(values) == 1:
            (value,) = values
        else:
            value = "ArrayWrapper", {"wrappedValues": values}
        listed.append({"recordKey": key, "partitionPath": deletes.partition, "orderingVal": value})
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, {"deleteRecordList": listed})
    return struct.pack(">ii", 3, stream.tell()) + stream.getvalue()


def _orderings(ordering: pa.StructArray) -> list[list[Any]]:
    wrappers = [_wrapper_of(field.type) for field in ordering.type]
    columns = [
        column.cast(_as_numbers(field).type).to_pylist()
        for column, field in zip(ordering.flatten(), ordering.type, strict=True)
    ]
    return [[_wrap(*pair) for pair in zip(row, wrappers, strict=True)] for row in zip(*columns, strict=True)]


def _wrap(value: Any, wrapper: str) -> Any:
    if value is None:
        return None
    if isinstance(value, decimal.Decimal):
        number = _unscaled(value, 15)
        value = number.to_bytes((number if number >= 0 else ~number).bit_length() // 8 + 1, signed=True)
    return wrapper, {"value": value}


def _wrapper_of(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return "DecimalWrapper"
    return {
        "bool": "BooleanWrapper",
        "int32": "IntWrapper",
        "date32[day]": "IntWrapper",
        "int64": "LongWrapper",
        "timestamp[us]": "LongWrapper",
        "timestamp[us, tz=UTC]": "LongWrapper",
        "float": "FloatWrapper",
        "double": "DoubleWrapper",
        "binary": "BytesWrapper",
        "string": "StringWrapper",
    }[str(kind)]


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
