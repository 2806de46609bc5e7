"""Hudi reads, and goes on writing, what a repair has left: entries, rows, and shards that its rollback forgot."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table, create_table
from bucketlake.index import record_level
from bucketlake.services.key_faults import Fault
from bucketlake.testing.invariants import check_invariants
from judges.hudi_jvm import HudiJvm, options_for
from stand_ins.metadata_check import check_metadata

pytestmark = [pytest.mark.interop, pytest.mark.shows("X7")]

SCHEMA = pa.schema([("id", pa.string()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])


def batch(ts: int, **partitions: str) -> pa.Table:
    made = [{"id": key, "name": f"{key} {ts}", "ts": ts, "dt": p} for key, p in partitions.items()]
    return pa.Table.from_pylist(made, SCHEMA)


def told(index: RecordIndex, table_type: str) -> dict[str, str]:
    kind = "record" if index.per_partition else "global.record"
    more = {
        "hoodie.metadata.enable": "true",
        f"hoodie.metadata.{kind}.level.index.enable": "true",
        "hoodie.metadata.auto.delete.partitions": "false",
        "hoodie.record.index.update.partition.path": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
        "hoodie.metadata.compact.max.delta.commits": "100",
    }
    return options_for("orders", table_type=table_type, index=index.engine, more=more)


def a_table(path: Path, index: RecordIndex, table_type: str) -> Table:
    return create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=index,
        table_type=table_type,
        name="orders",
        maintenance="off",
    )


def check(hudi: HudiJvm, path: Path, expected: set[tuple[str, str, str]]) -> None:
    table = Table.open(path)
    check_invariants(table)
    assert check_metadata(table.store)
    assert table.plan_repair().is_empty
    found = hudi.read(path, {"hoodie.metadata.enable": "true"}).to_pylist()
    assert sorted((row["id"], row["dt"], row["name"]) for row in found) == sorted(expected)


def test_hudi_goes_on_with_what_was_repaired(
    hudi: HudiJvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, path = RecordIndex(shards=2), tmp_path / "orders"
    table = a_table(path, index, "MERGE_ON_READ")
    table.upsert(batch(1, a="p0", b="p1", gone="p0"))
    # The index is told of nothing: a key without an entry, one with an entry only, one with two rows.
    with monkeypatch.context() as patch:
        patch.setattr(record_level, "prove_log", lambda held, keys: None)
        nothing = record_level.encode_entry_log
        patch.setattr(
            record_level, "encode_entry_log", lambda instant, came, gone: nothing(instant, None, None)
        )
        table.upsert(batch(2, lost="p0", twice="p0"))
        table.delete(["gone"])
    table.upsert(batch(3, twice="p1"))
    plan = table.plan_repair()
    assert {fault.kind for fault in plan.work.mends} == {Fault.MISSING, Fault.SURPLUS, Fault.DUPLICATE}
    table.run(plan)
    check(
        hudi,
        path,
        {("a", "p0", "a 1"), ("b", "p1", "b 1"), ("lost", "p0", "lost 2"), ("twice", "p1", "twice 3")},
    )
    hudi.write(path, batch(4, lost="p1", twice="p1", gone="p1"), told(index, "MERGE_ON_READ"))
    expected = {("a", "p0", "a 1"), ("b", "p1", "b 1"), ("lost", "p1", "lost 4"), ("twice", "p1", "twice 4")}
    check(hudi, path, expected | {("gone", "p1", "gone 4")})


def test_hudi_writes_again_into_a_partition_whose_shards_its_rollback_left(
    hudi: HudiJvm, tmp_path: Path
) -> None:
    """apache/hudi 1.2.0 rolls back by what a commit tells of; the empty log of a new shard is not told of."""
    index, path = RecordIndex(per_partition=True), tmp_path / "orders"
    options = told(index, "COPY_ON_WRITE")
    table = a_table(path, index, "COPY_ON_WRITE")
    table.upsert(batch(1, a="p0"))
    hudi.write(path, batch(2, b="p1"), options)
    instant = table.timeline()[-1].requested
    settings = {key: value for key, value in options.items() if key.startswith("hoodie.metadata.")}
    hudi.sql(
        f"create table repair_judged using hudi location '{path}'",
        f"call rollback_to_instant(table => 'repair_judged', instant_time => '{instant}')",
        "drop table repair_judged",
        settings=settings,
    )
    with pytest.raises(Exception, match=r"(?i)null"):
        hudi.write(path, batch(3, b="p1"), options)
    done = table.repair()
    assert done.removed and done.instant is None
    hudi.write(path, batch(4, b="p1"), options)
    check(hudi, path, {("a", "p0", "a 1"), ("b", "p1", "b 4")})
