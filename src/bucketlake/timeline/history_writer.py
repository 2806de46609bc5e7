"""The archived timeline, written: a tree of sorted files, and manifests that say which of them count.

    write_rows     a file of layer 0, a manifest that names it, then `_version_`: from then on the rows count
    merge_layers   ten files of a layer become one of the next
    forget_old     manifests beyond the last few, and files that none of the kept ones names

A manifest's number is taken with `put_new`, so two that archive at once do not undo each other. One that was cut off
between its manifest and `_version_` left a manifest that is whole and true: `settle` makes it count. So whatever
stands in the history is known before more is added, and a row is never written twice.

Names, thresholds and order are Hudi's (LSMTimelineWriter).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from bucketlake.config import TableProperties
from bucketlake.errors import ConflictError, CorruptTableError
from bucketlake.storage import Store, open_input
from bucketlake.timeline.history import (
    VERSION_FILE,
    Manifest,
    current_manifest,
    manifest_versions,
    read_manifest,
)
from bucketlake.timeline.instant import Instant

FILES_MERGED = 10
"""So many files of a layer become one of the next: `hoodie.timeline.compaction.batch.size`."""
MANIFESTS_KEPT = 3
"""For readers that began with an older one."""
_LAYER_MAX = 9
"""A file name has room for one digit."""

_OPTIONAL_TEXT = ["null", {"type": "string", "avro.java.string": "String"}]
_AVRO_SCHEMA = {
    "type": "record",
    "name": "HoodieLSMTimelineInstant",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantTime", "type": _OPTIONAL_TEXT, "default": None},
        {"name": "completionTime", "type": _OPTIONAL_TEXT, "default": None},
        {"name": "action", "type": _OPTIONAL_TEXT, "default": None},
        {"name": "metadata", "type": ["null", "bytes"], "default": None},
        {"name": "plan", "type": ["null", "bytes"], "default": None},
        {"name": "version", "type": "int", "default": 1},
    ],
}
_SCHEMA = pa.schema(
    [
        pa.field("instantTime", pa.string()),
        pa.field("completionTime", pa.string()),
        pa.field("action", pa.string()),
        pa.field("metadata", pa.binary()),
        pa.field("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_FOOTER = {
    "parquet.avro.schema": json.dumps(_AVRO_SCHEMA, separators=(",", ":")),
    "writer.model.name": "avro",
}
_ROW_VERSION = 1


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """A completed instant with the bytes of its files."""

    instant: Instant
    metadata: bytes
    """The completed file."""
    plan: bytes
    """What was planned: empty where nothing was."""


def settle(store: Store, properties: TableProperties) -> Manifest:
    """Return the manifest that counts, after making one count whose writer was cut off before saying so."""
    folder = properties.history_folder
    present = {file.path.rpartition("/")[2]: file.size_bytes for file in store.list(folder).files}
    current = current_manifest(store, properties)
    for version in manifest_versions(present):
        if version > current.version:
            try:
                left = read_manifest(store, properties, version)
            except CorruptTableError:
                continue  # not even a manifest: `_publish` writes over it
            if all(present.get(name) == size for name, size in left.sizes.items()):
                _state(store, properties, version)
                current = left
    if current.version and VERSION_FILE not in present:
        _state(store, properties, current.version)
    return current


def write_rows(
    store: Store, properties: TableProperties, rows: Sequence[HistoryRow], manifest: Manifest
) -> Manifest:
    """Add instants to the history, which `manifest` describes; return what describes it then."""
    assert rows, "an empty history file"
    ordered = sorted(rows, key=lambda row: row.instant)
    name = _name(ordered[0].instant.requested, ordered[-1].instant.requested, 0)
    assert name not in manifest.sizes, f"{name} is in the history"
    return _add(store, properties, name, _encode(_table_of(ordered)), manifest)


def merge_layers(store: Store, properties: TableProperties, manifest: Manifest) -> Manifest:
    """Merge files as long as a layer has enough of them; return what describes the history then."""
    for layer in range(_LAYER_MAX):
        names = sorted(name for name in manifest.sizes if _layer_of(name) == layer)
        if len(names) < FILES_MERGED:
            continue
        merged = names[:FILES_MERGED]
        rows = pa.concat_tables(_read(store, f"{properties.history_folder}/{name}") for name in merged)
        first = min(name.split("_")[0] for name in merged)
        last = max(name.split("_")[1] for name in merged)
        kept = {name: size for name, size in manifest.sizes.items() if name not in merged}
        data = _encode(rows.sort_by("instantTime"))
        manifest = _add(
            store, properties, _name(first, last, layer + 1), data, Manifest(manifest.version, kept)
        )
    return manifest


def forget_old(store: Store, properties: TableProperties, manifest: Manifest) -> None:
    """Delete old manifests, then the files that only they named. What was never named goes too."""
    folder = properties.history_folder
    names = [file.path.rpartition("/")[2] for file in store.list(folder).files]
    older = [version for version in manifest_versions(names) if version < manifest.version]
    kept = older[-(MANIFESTS_KEPT - 1) :]
    for version in older[: -(MANIFESTS_KEPT - 1)]:
        store.delete(f"{folder}/manifest_{version}")
    named = set(manifest.sizes)
    for version in kept:
        named |= set(read_manifest(store, properties, version).sizes)
    for name in names:
        if name.endswith(".parquet") and name not in named:
            store.delete(f"{folder}/{name}")


def _add(store: Store, properties: TableProperties, name: str, data: bytes, manifest: Manifest) -> Manifest:
    # Nothing that counts has this name: what may be there was left by somebody who was cut off.
    store.put(f"{properties.history_folder}/{name}", data)
    added = Manifest(manifest.version + 1, {**manifest.sizes, name: len(data)})
    _publish(store, properties, added)
    return added


def _publish(store: Store, properties: TableProperties, manifest: Manifest) -> None:
    path = f"{properties.history_folder}/manifest_{manifest.version}"
    body = _render(manifest.sizes)
    if not store.put_new(path, body) and store.read(path) != body:
        if _is_manifest(store, properties, manifest.version):
            raise ConflictError(
                f"{path} was written by somebody else while we archived. Nothing was lost; archive again."
            )
        store.put(path, body)
    _state(store, properties, manifest.version)


def _is_manifest(store: Store, properties: TableProperties, version: int) -> bool:
    try:
        read_manifest(store, properties, version)
    except CorruptTableError:
        return False
    return True


def _state(store: Store, properties: TableProperties, version: int) -> None:
    store.put(f"{properties.history_folder}/{VERSION_FILE}", str(version).encode())


def _render(sizes: Mapping[str, int]) -> bytes:
    files = [{"fileName": name, "fileLen": size} for name, size in sorted(sizes.items())]
    return json.dumps({"files": files}, indent=2).encode()


def _name(first: str, last: str, layer: int) -> str:
    return f"{first}_{last}_{layer}.parquet"


def _layer_of(name: str) -> int:
    return int(name.removesuffix(".parquet").rpartition("_")[2])


def _table_of(rows: Iterable[HistoryRow]) -> pa.Table:
    values = [
        {
            "instantTime": row.instant.requested,
            "completionTime": row.instant.completed,
            "action": str(row.instant.action),
            "metadata": row.metadata or None,
            "plan": row.plan or None,
            "version": _ROW_VERSION,
        }
        for row in rows
    ]
    return pa.Table.from_pylist(values, _SCHEMA)


def _read(store: Store, path: str) -> pa.Table:
    with open_input(store, path) as source:
        rows = pq.ParquetFile(source).read()
    return rows.select(_SCHEMA.names).cast(_SCHEMA)


def _encode(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="gzip", store_schema=False) as writer:
        writer.write_table(rows.cast(_SCHEMA))
        writer.add_key_value_metadata(_FOOTER)
    return sink.getvalue()
