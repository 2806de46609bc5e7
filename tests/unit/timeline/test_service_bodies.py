"""The plans and reports of services that we write Hudi must read: field for field what it would have written itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from bucketlake.config import load_properties
from bucketlake.storage import LocalStore
from bucketlake.timeline import (
    Action,
    decode_body,
    encode_clean_metadata,
    encode_cleaner_plan,
    encode_compaction_plan,
    load_timeline,
    read_body,
    read_clean_metadata,
    read_cleaner_plan,
    read_compaction_plan,
    read_plan,
    requested_path,
)

Golden = Callable[[str], Path]
TABLES = ["svc_mor", "svc_mor_b"]
ROOT = "file:/tables/made-by-hudi/svc_mor"


def field_names(data: bytes) -> Any:
    """Names, order and types of all fields, without what Java adds to strings."""

    def plain(schema: Any) -> Any:
        match schema:
            case list():
                return [plain(part) for part in schema]
            case {"type": "record", "fields": fields, "name": name}:
                return name.rpartition(".")[2], [(field["name"], plain(field["type"])) for field in fields]
            case {"type": "array", "items": items}:
                return "array", plain(items)
            case {"type": "map", "values": values}:
                return "map", plain(values)
            case {"type": kind}:
                return kind
            case str():
                return schema.rpartition(".")[2]
        raise AssertionError(schema)

    return plain(fastavro.reader(io.BytesIO(data)).writer_schema)


@pytest.mark.parametrize("name", TABLES)
def test_a_compaction_plan_of_hudi_written_again_is_the_same(golden_table: Golden, name: str) -> None:
    store = LocalStore(golden_table(name))
    compactions = load_timeline(store, load_properties(store)).completed(Action.COMMIT)
    assert compactions
    for instant in compactions:
        written = encode_compaction_plan(read_compaction_plan(store, instant))
        assert decode_body(written, path="x") == read_plan(store, instant, action=Action.COMPACTION)
        theirs = store.read(requested_path(instant, action=Action.COMPACTION))
        assert field_names(written) == field_names(theirs)


@pytest.mark.parametrize("name", TABLES)
def test_a_clean_of_hudi_written_again_is_the_same(golden_table: Golden, name: str) -> None:
    store = LocalStore(golden_table(name))
    cleans = load_timeline(store, load_properties(store)).completed(Action.CLEAN)
    assert cleans
    for instant in cleans:
        plan = read_cleaner_plan(store, instant)
        written = encode_cleaner_plan(plan, root=ROOT)
        assert decode_body(written, path="x") == read_plan(store, instant)
        assert field_names(written) == field_names(store.read(requested_path(instant)))
        theirs = read_body(store, instant)
        taken_ms = theirs["timeTakenInMillis"]
        written = encode_clean_metadata(plan, started=instant.requested, taken_ms=taken_ms, spared={})
        assert decode_body(written, path="x") == theirs
        assert field_names(written) == field_names(store.read(instant.path))


def test_what_a_clean_spared_is_not_told_as_deleted(golden_table: Golden) -> None:
    store = LocalStore(golden_table("svc_mor"))
    (instant,) = load_timeline(store, load_properties(store)).completed(Action.CLEAN)
    plan = read_cleaner_plan(store, instant)
    spared = {"p1": [plan.files["p1"][0]]}
    body = decode_body(encode_clean_metadata(plan, started="1", taken_ms=0, spared=spared), path="x")
    assert body["partitionMetadata"]["p1"]["failedDeleteFiles"] == spared["p1"]
    assert body["totalFilesDeleted"] == read_clean_metadata(store, instant).files_deleted - 1
