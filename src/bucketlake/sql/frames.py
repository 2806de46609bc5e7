"""What a call returned, as a frame: for people who `.show()` it, and for queries over it.

A plan is its lines, in a column `plan`. What was done, or found, is a row for each: a column per field of the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from bucketlake.commit.metadata_build import BuiltMetadata
from bucketlake.commit.rollback import RolledBack
from bucketlake.index import HashingConfig
from bucketlake.inspection import Description, Explanation, HistoryEntry, Layout, TimelineEntry
from bucketlake.plans import Plan
from bucketlake.services import (
    ArchivePlan,
    Cleaned,
    Clustered,
    Compacted,
    Done,
    Report,
    RestoreOrder,
    RollbackOrder,
    Round,
    Savepoint,
)
from bucketlake.services.record_index_build import BuiltRecordIndex
from bucketlake.services.repair import Repaired
from bucketlake.services.rescale import RescaleRollback
from bucketlake.services.secondary_index_build import BuiltSecondaryIndex
from bucketlake.services.secondary_index_status import IndexStatus
from bucketlake.storage import FileStat
from bucketlake.streaming.progress import StreamStatus

_TEXT, _TEXTS = pa.string(), pa.list_(pa.string())
_KINDS = {
    "int": pa.int64(),
    "int | None": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "tuple[str, ...]": _TEXTS,
    "tuple[FileStat, ...]": _TEXTS,
    "Mapping[str, int]": pa.map_(_TEXT, pa.int64()),
}
"""The types of fields that are more than text."""

ROWS_OF: dict[str, type] = {
    "compact": Compacted,
    "cluster": Clustered,
    "clean": Cleaned,
    "timeline": TimelineEntry,
    "history": HistoryEntry,
    "create_index": BuiltSecondaryIndex,
    "indexes": IndexStatus,
    "stream_status": StreamStatus,
    "metadata.build": BuiltMetadata,
    "metadata.rebuild": BuiltMetadata,
    "metadata.grow_record_index": BuiltRecordIndex,
    "buckets.resize": Clustered,
    "buckets.show_config": HashingConfig,
    "buckets.abort": RolledBack,
}
"""What the rows of a procedure are that may return none."""


def frame_of(spark: SparkSession, result: Any, *, of: str) -> DataFrame:
    """Make a frame of what the procedure `of` returned."""
    return result if isinstance(result, DataFrame) else spark.createDataFrame(table_of(result, of=of))


def table_of(result: Any, *, of: str) -> pa.Table:
    """The same as an Arrow table, without Spark."""
    match result:
        case Plan() | Explanation():
            return _table({"plan": _TEXT}, [(line,) for line in str(result).splitlines()])
        case Done():
            return _values(result.runs, of)
        case Savepoint() | (Savepoint(), *_):
            return _savepoints((result,) if isinstance(result, Savepoint) else result)
        case () if of == "savepoints":
            return _savepoints(())
        case RollbackOrder():
            return _undone([(result.instant.requested, result.instant.action, result.files)])
        case RestoreOrder():
            return _undone([(one.requested, one.action, ()) for one in result.instants])
        case RescaleRollback():
            finished = [(one.instant, one.action, one.files) for one in result.finished]
            return _undone(
                [*finished, *((o.instant.requested, o.instant.action, o.files) for o in result.orders)]
            )
        case ArchivePlan():
            return _table(
                {"instant": _TEXT, "action": _TEXT}, [(i.requested, str(i.action)) for i in result.instants]
            )
        case Layout():
            return _layout(result)
        case Report():
            return _report(result)
        case Repaired():
            return _repaired(result)
        case Round():
            rows = [(step.service, step.text, step.error is not None) for step in result.steps]
            return _table({"service": _TEXT, "text": _TEXT, "failed": pa.bool_()}, rows)
        case Description():
            named = [(field.name, str(_plain(getattr(result, field.name)))) for field in fields(result)]
            return _table({"name": _TEXT, "value": _TEXT}, named)
        case tuple():
            return _values(result, of)
        case None if of in ROWS_OF:
            return _values((), of)
        case None | str():
            word = of.rpartition(".")[2]
            return _table({word if result is not None else "result": _TEXT}, [(result or "done",)])
    return _values((result,), of)


def _values(values: Sequence[Any], of: str) -> pa.Table:
    kind = type(values[0]) if values else ROWS_OF[of]
    columns = {field.name: _KINDS.get(str(field.type), _TEXT) for field in fields(kind)}
    return _table(columns, [tuple(_fit(getattr(v, n), t) for n, t in columns.items()) for v in values])


def _fit(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if kind == _TEXTS:
        return [one.path if isinstance(one, FileStat) else one for one in value]
    if kind != _TEXT:
        return list(value.items()) if isinstance(value, Mapping) else value
    return str(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(str(_plain(one)) for one in value)
    if isinstance(value, pa.Schema):
        return ", ".join(f"{field.name} {field.type}" for field in value)
    return str(value) if is_dataclass(value) else value


def _savepoints(found: Sequence[Savepoint]) -> pa.Table:
    columns = {"instant": _TEXT, "files": pa.int64(), "created_by": _TEXT, "comment": _TEXT}
    rows = [(one.instant, one.file_count, one.metadata.created_by, one.metadata.comment) for one in found]
    return _table(columns, rows)


def _undone(rows: Sequence[tuple[str, object, Sequence[Any]]]) -> pa.Table:
    columns = {"instant": _TEXT, "action": _TEXT, "files": _TEXTS}
    paths = [[getattr(file, "path", file) for file in files] for _, _, files in rows]
    return _table(
        columns,
        [(instant, str(action), files) for (instant, action, _), files in zip(rows, paths, strict=True)],
    )


def _layout(found: Layout) -> pa.Table:
    numbers = ("buckets", "file_groups", "base_files", "log_files", "size_bytes", "log_bytes")
    columns = {"partition": _TEXT, **dict.fromkeys(numbers, pa.int64()), "skew": pa.float64()}
    rows = [
        (
            part.partition,
            part.buckets,
            len(part.slices),
            part.base_files,
            part.log_files,
            part.size_bytes,
            part.log_bytes,
            part.skew,
        )
        for part in found.partitions
    ]
    return _table(columns, rows)


def _report(found: Report) -> pa.Table:
    """The verdict first, then every finding."""
    rows = [("verdict", "", str(found).splitlines()[0])]
    rows += [(one.kind.name.lower(), one.place, one.text) for one in found.damage]
    rows += [(f"note: {one.kind.name.lower()}", one.place, one.text) for one in found.notes]
    return _table({"kind": _TEXT, "place": _TEXT, "text": _TEXT}, rows)


def _repaired(found: Repaired) -> pa.Table:
    """One row: how many keys were mended, and values of secondary indexes, by what was wrong with them."""
    counts = {kind.name.lower(): count for kind, count in found.counts.items()}
    counts |= {f"values_{kind.name.lower()}": count for kind, count in found.value_counts.items()}
    columns = {"instant": _TEXT, **dict.fromkeys([*counts, "passed_over"], pa.int64()), "removed": _TEXTS}
    return _table(columns, [(found.instant, *counts.values(), found.passed_over, list(found.removed))])


def _table(columns: dict[str, pa.DataType], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    values = zip(*rows, strict=True) if rows else ([] for _ in columns)
    return pa.table(
        {
            name: pa.array(list(column), kind)
            for (name, kind), column in zip(columns.items(), values, strict=True)
        }
    )
