"""Hudi must go on where our archive, rollback, savepoint and restore left off, and we where Hudi's did."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.services import (
    archive_table,
    check_table,
    create_savepoint,
    list_savepoints,
    look_for_restore,
    look_for_rollback,
    run_restore,
    run_rollback,
)
from bucketlake.state import load_state
from bucketlake.timeline import Action, load_history
from bucketlake.timeline.history import history_files
from bucketlake.write import ArrowRows, Operation, run_write
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from judges.rows import assert_same_rows

pytestmark = pytest.mark.interop

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])
ARCHIVES = {
    "hoodie.archive.automatic": "true",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.clean.commits.retained": "1",
    "hoodie.timeline.compaction.batch.size": "2",
}

SETTINGS = {"hoodie.metadata.enable": "false"}
"""Hudi takes the rest from the table: the index, and the key fields that its procedures ask for."""


def rows(keys: range, name: str, ts: int) -> pa.Table:
    values = [{"id": n, "name": f"{name} {n}", "ts": ts, "dt": f"p{n % 2}"} for n in keys]
    return pa.Table.from_pylist(values, SCHEMA)


def new_table(path: Path, table_type: str) -> Table:
    return create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=2,
        table_type=table_type,
        name="old",
    )


def upsert(table: Table, name: str, ts: int, keys: range = range(6)) -> None:
    run_write(ArrowRows(rows(keys, name, ts)), table.store, Operation.UPSERT)


def agree(table: Table, path: Path, hudi: HudiJvm) -> pa.Table:
    by_hudi = hudi.read(path)
    assert_same_rows(table.to_arrow(), by_hudi)
    assert_same_rows(read_snapshot(path), by_hudi)
    report = check_table(table.store)
    assert report.findings == (), str(report)
    return by_hudi


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_both_archive_one_table_in_turn(hudi: HudiJvm, tmp_path: Path, table_type: str) -> None:
    table = new_table(tmp_path, table_type)
    options = options_for("old", table_type=table_type, buckets=2, more=ARCHIVES)
    requested: set[str] = set()
    for turn in range(4):
        for number in range(3):
            upsert(table, f"ours {turn}.{number}", 10 * turn + number)
        requested |= {i.requested for i in load_state(table.store).timeline.writes}
        if turn % 2 == 0:
            assert archive_table(table.store, keep_min=2, keep_max=3).instants or turn == 0
        before = len(load_history(table.store, load_state(table.store).properties))
        hudi.write(tmp_path, rows(range(4), f"by Hudi {turn}", 10 * turn + 5), options)
        state = load_state(table.store)
        if turn % 2:
            assert len(load_history(table.store, state.properties)) > before, "Hudi archived after us"
        requested |= {i.requested for i in state.timeline.writes}
        agree(table, tmp_path, hudi)
    state = load_state(table.store)
    archived = [a.requested for a in load_history(table.store, state.properties)]
    active = [i.requested for i in state.timeline.writes]
    assert requested <= {*archived, *active}, "no instant is lost"
    assert len(archived) == len(set(archived)), "and none is doubled"
    assert any(not path.endswith("_0.parquet") for path in history_files(table.store, state.properties))
    name = f"old_{table_type.lower()}"
    shown = hudi.sql(
        f"create table {name} using hudi location '{tmp_path}'",
        f"call show_archived_commits(table => '{name}', start_ts => '{archived[0]}', end_ts => '{active[-1]}')",
        settings=SETTINGS,
    )
    hudi.sql(f"drop table {name}")
    assert {row["commit_time"] for row in shown} <= set(archived)
    assert shown, "Hudi reads the history that we wrote"


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudi_goes_on_after_our_rollback_savepoint_and_restore(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    table = new_table(tmp_path, table_type)
    options = options_for("old", table_type=table_type, buckets=2)
    for number in range(2):
        upsert(table, f"ours {number}", number)
    hudi.write(tmp_path, rows(range(4), "by Hudi", 5), options)
    newest = load_state(table.store).timeline.writes[-1].requested
    run_rollback(look_for_rollback(load_state(table.store), newest), table.store)
    assert {row["name"].split()[0] for row in agree(table, tmp_path, hudi).to_pylist()} == {"ours"}

    kept = create_savepoint(table.store, user="us", comment="before the worst")
    shown = hudi.sql(f"call show_savepoints(path => '{tmp_path}')", settings=SETTINGS)
    assert [row["savepoint_time"] for row in shown] == [kept.instant]
    upsert(table, "ours 2", 6)
    hudi.write(tmp_path, rows(range(9), "by Hudi", 7), options)
    run_restore(look_for_restore(load_state(table.store), kept.instant), table.store)
    assert {row["name"][:6] for row in agree(table, tmp_path, hudi).to_pylist()} == {"ours 1"}

    upsert(table, "ours 3", 8)
    hudi.write(tmp_path, rows(range(8), "by Hudi", 9), options)
    assert agree(table, tmp_path, hudi).num_rows == 8
    hudi.sql(
        f"call rollback_to_savepoint(path => '{tmp_path}', instant_time => '{kept.instant}')",
        settings=SETTINGS,
    )
    assert {row["name"][:6] for row in agree(table, tmp_path, hudi).to_pylist()} == {"ours 1"}
    hudi.sql(
        f"call delete_savepoint(path => '{tmp_path}', instant_time => '{kept.instant}')", settings=SETTINGS
    )
    upsert(table, "ours 4", 10)
    agree(table, tmp_path, hudi)


def test_we_restore_to_a_savepoint_of_hudi(hudi: HudiJvm, tmp_path: Path) -> None:
    table = new_table(tmp_path, "COPY_ON_WRITE")
    upsert(table, "ours", 1)
    (first,) = load_state(table.store).timeline.writes
    hudi.sql(
        f"call create_savepoint(path => '{tmp_path}', commit_time => '{first.requested}')", settings=SETTINGS
    )
    (found,) = list_savepoints(load_state(table.store))
    assert found.instant == first.requested
    hudi.write(tmp_path, rows(range(4), "by Hudi", 5), options_for("old", buckets=2))
    run_restore(look_for_restore(load_state(table.store), first.requested), table.store)
    assert load_state(table.store).timeline.completed(Action.RESTORE)
    agree(table, tmp_path, hudi)
    hudi.write(tmp_path, rows(range(4), "by Hudi", 5), options_for("old", buckets=2))
    agree(table, tmp_path, hudi)
