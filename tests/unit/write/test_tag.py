"""A row that is tagged wrongly goes to another task than its file group's, and its key gets a second file group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bucketlake.config import KeyGeneratorType, MergeMode
from bucketlake.errors import ConfigError
from bucketlake.index import SimpleIndex, bucket_of, hash_pieces
from bucketlake.keygen import KeyGenerator, PartitionField
from bucketlake.logfile import LogFormat
from bucketlake.merge import MergeRules
from bucketlake.schema import key_hashes
from bucketlake.storage import MemoryStore
from bucketlake.write import GROUP_BITS, Operation, WriteState
from bucketlake.write.tag import code_of, columns_without_null, tag

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int32())])


def a_plan(
    *,
    key: tuple[str, ...] = ("id",),
    hashed: tuple[str, ...] | None = None,
    partition: tuple[str, ...] = ("dt",),
    buckets: int = 4,
    tasks: int = 3,
    places: Mapping[tuple[str, str], int] | None = None,
    schema: pa.Schema = SCHEMA,
) -> WriteState:
    return WriteState(
        store=MemoryStore(),
        instant="20240102030405678",
        operation=Operation.UPSERT,
        is_copy_on_write=False,
        keys=KeyGenerator(
            kind=KeyGeneratorType.COMPLEX if partition else KeyGeneratorType.NON_PARTITION,
            record_key_fields=key,
            encodes_field_names=len(key) > 1,
            partition_fields=tuple(PartitionField(name) for name in partition),
        ),
        index=SimpleIndex(buckets, hashed or key),
        rules=MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts",)),
        schema=schema,
        avro_schema="",
        groups={},
        ids={},
        partitions=frozenset(),
        tasks=tasks,
        places=places or {},
        log_format=LogFormat.PARQUET,
        allows_null_elements=False,
    )


def tags_of(rows: pa.Table, plan: WriteState) -> tuple[np.ndarray, np.ndarray]:
    tags = tag(pa.RecordBatch.from_struct_array(rows.to_struct_array().combine_chunks()), plan)
    return tags.codes, tags.hashes


def rows_of(ids: list[str | None], days: list[str | None], **more: list[object]) -> pa.Table:
    columns = {"id": pa.array(ids, pa.string()), "dt": pa.array(days, pa.string())}
    columns["ts"] = pa.array(more.get("ts", [1] * len(ids)), pa.int64())
    columns["v"] = pa.array([0] * len(ids), pa.int32())
    return pa.table(columns)


@pytest.mark.shows("S3", "X2")
def test_rows_of_one_bucket_get_one_code_and_others_another() -> None:
    ids = [f"key-{number}" for number in range(500)]
    days = [f"2024-01-{number % 7 + 1:02d}" for number in range(500)]
    plan = a_plan()
    codes, _ = tags_of(rows_of(ids, days), plan)
    expected = {(day, bucket_of(hash_pieces(id, ["id"]), 4)) for id, day in zip(ids, days, strict=True)}
    by_group: dict[tuple[str, int], set[int]] = {}
    for id, day, code in zip(ids, days, codes.tolist(), strict=True):
        by_group.setdefault((day, bucket_of(hash_pieces(id, ["id"]), 4)), set()).add(code)
    assert by_group.keys() == expected
    assert all(len(codes) == 1 for codes in by_group.values())
    assert len({code for codes in by_group.values() for code in codes}) == len(expected)


def test_a_code_begins_with_its_task_and_known_groups_go_where_the_plan_says() -> None:
    plan = a_plan(tasks=5, places={("a", "one"): 4, ("a", "other"): 2})
    assert code_of(("a", "one"), 0, plan) >> GROUP_BITS == 4
    assert code_of(("a", "other"), 1, plan) >> GROUP_BITS == 2
    assert 0 <= code_of(("b", "other"), 1, plan) >> GROUP_BITS < 5


def test_the_buckets_of_a_new_partition_are_spread_over_the_tasks() -> None:
    plan = a_plan(tasks=4)
    codes = [code_of(("2024-01-01", f"{bucket:08d}-0"), bucket, plan) for bucket in range(4)]
    assert {code >> GROUP_BITS for code in codes} == {0, 1, 2, 3}


@pytest.mark.shows("X3")
def test_the_tag_carries_the_hash_of_the_record_key() -> None:
    rows = rows_of(["a", "b"], ["x", "y"])
    _, hashes = tags_of(rows, a_plan())
    assert hashes.view(np.uint64).tolist() == key_hashes(pa.array(["a", "b"])).tolist()


@pytest.mark.parametrize("missing", [None, ""])
def test_a_null_or_empty_key_is_refused(missing: str | None) -> None:
    with pytest.raises(ConfigError, match="'id' is null or empty"):
        tags_of(rows_of(["a", missing], ["x", "x"]), a_plan())


@pytest.mark.parametrize(
    ("day", "fault"),
    [
        ("a/b", "slash"),
        ("..", "begins with a dot"),
        (".hoodie", "begins with a dot"),
        ("a\x01", "control character"),
        ("a\x7f", "control character"),
        ("x" * 256, "255 bytes"),
    ],
)
def test_a_partition_value_that_is_no_folder_name_is_refused(day: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        tags_of(rows_of(["a"], [day]), a_plan())


@pytest.mark.parametrize("day", ["übermorgen", "日本", "with blank", None, "a-b"])
def test_other_partition_values_have_a_place(day: str | None) -> None:
    codes, _ = tags_of(rows_of(["a"], [day]), a_plan())
    assert len(codes) == 1


def test_a_row_without_an_ordering_value_is_refused_and_the_column_named() -> None:
    plan = a_plan()
    assert columns_without_null(SCHEMA, plan) == ("ts",)
    with pytest.raises(ConfigError, match="column 'ts' is null"):
        tags_of(rows_of(["a", "b"], ["x", "x"], ts=[1, None]), plan)


def test_columns_that_the_table_requires_are_asked_for_only_if_the_rows_may_lack_them() -> None:
    required = pa.schema(
        [SCHEMA.field("id"), SCHEMA.field("dt"), SCHEMA.field("ts"), pa.field("v", pa.int32(), False)]
    )
    plan = a_plan(schema=required)
    assert columns_without_null(SCHEMA, plan) == ("v", "ts")
    assert columns_without_null(required, plan) == ("ts",)
    assert columns_without_null(SCHEMA, replace(plan, operation=Operation.DELETE)) == ()


@pytest.mark.shows("S1")
def test_a_colon_beside_the_hashed_part_of_a_key_is_refused() -> None:
    """Hudi does not come back from hashing such a key."""
    plan = a_plan(key=("id", "dt"), hashed=("id",), partition=())
    with pytest.raises(ConfigError, match="colon"):
        tags_of(rows_of(["a"], ["10:30"]), plan)
    tags_of(rows_of(["a:b"], ["10.30"]), plan)


def test_no_rows_have_no_tags() -> None:
    codes, hashes = tags_of(rows_of([], []), a_plan())
    assert len(codes) == len(hashes) == 0
