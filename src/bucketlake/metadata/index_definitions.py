"""What `.hoodie/.index_defs/index.json` says of the indexes in the metadata table.

    {"indexDefinitions": {"record_index": {"indexOptions": {"isPartitioned": "false"}, "version": "V1", ...}}}

The file may name more than the metadata table lists.
"""

from __future__ import annotations

import json
from typing import Any

from bucketlake.errors import CorruptTableError
from bucketlake.layout.names import INDEX_DEFINITIONS_PATH
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.storage import Store

DEFINITIONS_KEY = "hoodie.table.index.defs.path"
"""The table property that says where the file is."""


def definitions(store: Store) -> dict[str, Any]:
    """Return the definition of every index by its name; none if there is no file."""
    try:
        said = json.loads(store.read(INDEX_DEFINITIONS_PATH))["indexDefinitions"]
        if not isinstance(said, dict):
            raise TypeError(f"indexDefinitions is {said!r}")
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as fault:
        raise CorruptTableError(
            path=INDEX_DEFINITIONS_PATH,
            found=f"text that defines no indexes ({fault})",
            expected='{"indexDefinitions": {...}}',
            remedy="Build the metadata table anew: `bucketlake metadata rebuild TABLE`.",
        ) from fault
    return said


def is_record_index_partitioned(store: Store) -> bool | None:
    """Tell whether the record-level index has shards for each data partition; None if it is not defined.

    Hudi needs no definition of one for the whole table.
    """
    found = definitions(store).get(RECORD_INDEX)
    if not isinstance(found, dict):
        return None
    options = found.get("indexOptions") or {}
    return str(options.get("isPartitioned", "false")).lower() == "true"


def define(store: Store, name: str, definition: dict[str, Any]) -> None:
    """Add the definition of an index, or change it."""
    _put(store, definitions(store) | {name: definition})


def forget_definition(store: Store, name: str) -> None:
    known = definitions(store)
    if name in known:
        _put(store, {other: said for other, said in known.items() if other != name})


def record_index_definition(*, is_partitioned: bool) -> dict[str, Any]:
    return {
        "indexName": RECORD_INDEX,
        "indexType": RECORD_INDEX,
        "indexFunction": "",
        "sourceFields": [],
        "indexOptions": {"isPartitioned": "true" if is_partitioned else "false"},
        "version": "V1",
    }


def _put(store: Store, said: dict[str, Any]) -> None:
    store.put(INDEX_DEFINITIONS_PATH, json.dumps({"indexDefinitions": said}, indent=2).encode())
