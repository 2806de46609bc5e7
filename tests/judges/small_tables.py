"""Small tables of base files, made in memory without Hudi: for laws about reading that need thousands of them.

Rows go where `bucketlake.index` says a key lives, which golden vectors and the JVM hold equal to Hudi.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.config import TableProperties, render_java_properties
from bucketlake.index import HashingMetadata, Index
from bucketlake.keygen import KeyGenerator
from bucketlake.storage import MemoryStore

INSTANT, COMPLETED = "20260101000000000", "20260101000000001"

_AVRO_TYPES = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
}


def properties_of(
    schema: pa.Schema, *, key: Sequence[str], partition: Sequence[str], **more: str
) -> dict[str, str]:
    fields = [{"name": f.name, "type": ["null", _AVRO_TYPES[f.type]], "default": None} for f in schema]
    generator = "NON_PARTITION" if not partition else "COMPLEX" if len((*key, *partition)) > 2 else "SIMPLE"
    return {
        "hoodie.table.name": "small",
        "hoodie.table.type": "COPY_ON_WRITE",
        "hoodie.table.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.table.recordkey.fields": ",".join(key),
        "hoodie.table.partition.fields": ",".join(partition),
        "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        "hoodie.table.keygenerator.type": generator,
        "hoodie.table.create.schema": json.dumps({"type": "record", "name": "small", "fields": fields}),
        **more,
    }


def small_table(raw: Mapping[str, str], rows: pa.Table, index: Index) -> MemoryStore:
    """Write `rows` as one commit into the file groups that `index` names."""
    store = MemoryStore()
    store.put(".hoodie/hoodie.properties", render_java_properties(dict(raw)))
    keys = KeyGenerator.from_properties(TableProperties.parse(raw, path="hoodie.properties"))
    rows = _with_meta_columns(rows, keys)
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, partition in enumerate(rows.column("_hoodie_partition_path").to_pylist()):
        prefix = index.locate(partition, rows.column("_hoodie_record_key").slice(row, 1).combine_chunks())[
            0
        ].as_py()
        groups[(partition, prefix)].append(row)
    stats: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for (partition, prefix), members in groups.items():
        folder = f"{partition}/" if partition else ""
        file_id = f"{prefix}-0000-4000-8000-000000000000-0" if len(prefix) == 8 else f"{prefix}-0"
        path = f"{folder}{file_id}_1-0-0_{INSTANT}.parquet"
        sink = pa.BufferOutputStream()
        pq.write_table(rows.take(members), sink)
        store.put(path, sink.getvalue().to_pybytes())
        store.put(f"{folder}.hoodie_partition_metadata", b"commitTime=0\npartitionDepth=1\n")
        stats[partition].append({"fileId": file_id, "path": path, "partitionPath": partition})
    body = json.dumps({"partitionToWriteStats": stats}).encode()
    store.put(f".hoodie/timeline/{INSTANT}_{COMPLETED}.commit", body)
    return store


def _with_meta_columns(rows: pa.Table, keys: KeyGenerator) -> pa.Table:
    count = rows.num_rows
    meta = {
        "_hoodie_commit_time": pa.array([INSTANT] * count, pa.string()),
        "_hoodie_commit_seqno": pa.array([f"{INSTANT}_0_{n}" for n in range(count)], pa.string()),
        "_hoodie_record_key": keys.record_keys(rows),
        "_hoodie_partition_path": keys.partition_paths(rows),
        "_hoodie_file_name": pa.array(["f"] * count, pa.string()),
    }
    return pa.table({**meta, **{name: rows.column(name) for name in rows.schema.names}})


def put_ring(store: MemoryStore, metadata: HashingMetadata) -> None:
    """Write the hashing metadata of a consistent partition, as a first write leaves it."""
    folder = ".hoodie/.bucket_index/consistent_hashing_metadata"
    where = f"{folder}/{metadata.partition}" if metadata.partition else folder
    store.put(f"{where}/00000000000000.hashing_meta", metadata.render())
