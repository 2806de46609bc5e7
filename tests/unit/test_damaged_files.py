"""Rows that a commit wrote are read, or somebody is told: never fewer rows, and never older ones, in silence."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Maintenance, Table
from bucketlake.errors import CommitConflictError, ConfigError, CorruptTableError, NotATableError
from bucketlake.errors import DamagedFileError as Damaged
from bucketlake.layout import DataFile
from bucketlake.services.compaction import plan_compaction, run_compaction, schedule_compaction
from bucketlake.services.held import load_held
from bucketlake.state import files_of, load_state
from bucketlake.storage import LocalStore
from bucketlake.write.job import ATTEMPTS
from stand_ins.orders_table import SCHEMA, orders, orders_table, rows_of, written_table

TABLE_TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
MARK = ".hoodie_partition_metadata"


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def lengthen(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b"#HUDI#")


DAMAGES = [Path.unlink, cut, lengthen]


def seen_files(table: Table) -> list[DataFile]:
    files: list[DataFile] = []
    for part in table.plan().slices:
        files += [part.base_file] if part.base_file else []
        files += part.log_files
    return files


def roads(table: Table) -> dict[str, Callable[[], object]]:
    """Whatever reads what is there."""
    return {
        "to_arrow": table.to_arrow,
        "get": lambda: table.get(list(range(16))),
        "upsert": lambda: table.upsert(orders(range(16), "third", 30)),
        "delete": lambda: table.delete(orders(range(16), "third", 30)),
        "as_of": lambda: table.to_arrow(as_of=table.timeline()[-1].requested),
        "compact": table.compact,
        "cluster": lambda: table.cluster(by=["name"]),
        "savepoint": table.savepoint,
    }


@pytest.mark.shows("X3")
@pytest.mark.parametrize("damage", DAMAGES, ids=["gone", "cut", "longer"])
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_file_that_is_not_what_its_commit_says_is_an_error_on_every_road(
    table_type: str, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    whole = written_table(tmp_path / "whole", table_type=table_type)
    one_of_each = {type(file): file for file in seen_files(whole)}
    assert len(one_of_each) == (1 if table_type == "COPY_ON_WRITE" else 2)
    for kind, file in one_of_each.items():
        path = tmp_path / kind.__name__
        shutil.copytree(tmp_path / "whole", path)
        damage(path / file.path)
        table = Table.open(path)
        timeline = table.timeline()
        for road, run in roads(table).items():
            if road == "compact" and table_type == "COPY_ON_WRITE":
                continue
            with pytest.raises(Damaged) as error:
                run()
            assert file.path in str(error.value), road
        assert table.timeline() == timeline, "a write went on over the hole"


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_the_rows_of_a_lost_file_can_be_given_up(table_type: str, tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type=table_type)
    (tmp_path / seen_files(table)[0].path).unlink()
    table.overwrite(orders(range(16), "new", 40))
    assert table.to_arrow(columns=["name"]).num_rows == 16
    (tmp_path / seen_files(table)[0].path).unlink()
    table.delete_partitions("p0")
    assert set(table.to_arrow()["dt"].to_pylist()) == {"p1"}


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_partition_that_is_gone_as_a_whole_is_missed(table_type: str, tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type=table_type)
    shutil.rmtree(tmp_path / "p1")
    for run in (table.to_arrow, lambda: table.get(3), lambda: table.upsert(orders([3], "x", 50))):
        with pytest.raises(Damaged, match="p1/"):
            run()
    assert table.to_arrow(filters=[("dt", "=", "p0")]).num_rows == 7


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_what_services_took_away_is_not_missed(table_type: str, tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type=table_type)
    if table_type == "MERGE_ON_READ":
        table.compact()
    table.upsert(orders(range(16), "third", 30))
    rows = rows_of(table)
    table.clean(retain_versions=1)
    assert rows_of(table) == rows
    table.upsert(orders(range(16), "fourth", 40))
    table.rollback(table.timeline()[-1].requested)
    assert rows_of(table) == rows
    table.overwrite(orders(range(2), "fifth", 50))
    table.delete_partitions("p1")
    table.clean(retain_versions=1)
    assert table.to_arrow()["id"].to_pylist() == [0]
    table.upsert(orders([1], "sixth", 60), maintenance=Maintenance(clean=None))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [0, 1]


@pytest.mark.parametrize("damage", [cut, lengthen], ids=["cut", "longer"])
def test_an_incremental_read_looks_at_sizes_too(damage: Callable[[Path], object], tmp_path: Path) -> None:
    table = written_table(tmp_path)
    newest = max(seen_files(table), key=lambda file: file.instant)
    damage(tmp_path / newest.path)
    with pytest.raises(Damaged, match=newest.path.rpartition("/")[2]):
        table.to_arrow(begin="0")
    (tmp_path / newest.path).unlink()
    with pytest.raises(ConfigError, match="which is gone"):
        table.to_arrow(begin="0")


@pytest.mark.parametrize("table_type", TABLE_TYPES)
def test_a_partition_that_lost_its_mark_keeps_its_rows(table_type: str, tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type=table_type)
    rows = rows_of(table)
    (tmp_path / "p0" / MARK).unlink()
    assert rows_of(table) == rows
    table.upsert(orders(range(16), "third", 30))
    assert (tmp_path / "p0" / MARK).exists(), "Hudi does not see the partition without it"
    read = table.to_arrow(columns=["id", "name"]).sort_by("id")
    assert read.to_pylist() == [{"id": n, "name": f"third {n}"} for n in range(16)]


def test_a_table_that_is_deleted_under_a_reader_is_not_an_empty_one(tmp_path: Path) -> None:
    table = written_table(tmp_path / "orders")
    plan = table.plan()
    shutil.rmtree(tmp_path / "orders")
    for read in (table.to_arrow, lambda: table.get(3), lambda: table.upsert(orders([3], "x", 50))):
        with pytest.raises(NotATableError):
            read()
    assert plan.slices, "a plan from before is of no use now, but it did see the table"


class Deleting(LocalStore):
    """A table that somebody deletes once its properties were read."""

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        data = super().read(path, offset=offset, length=length)
        if path.endswith("hoodie.properties"):
            shutil.rmtree(self.root)
        return data


def test_a_table_that_is_deleted_while_it_is_opened_is_not_an_empty_one(tmp_path: Path) -> None:
    orders_table(tmp_path / "orders")
    with pytest.raises(NotATableError):
        load_state(Deleting(tmp_path / "orders"))


class Cleaning(LocalStore):
    """A table that somebody writes to and cleans whenever its timeline was just listed, a few times."""

    turns: list[int] = []  # noqa: RUF012 - told to copies of the store too

    def list(self, folder: str, *, recursive: bool = False):  # type: ignore[no-untyped-def] # as the store's
        listing = super().list(folder, recursive=recursive)
        if folder == ".hoodie/timeline" and self.turns:
            turn = self.turns.pop()
            other = Table.open(self.root)
            other.upsert(orders(range(16), f"turn {turn}", 100 - turn))
            other.clean(retain_versions=1)
        return listing


def test_a_reader_that_a_clean_overtakes_looks_again(tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type="COPY_ON_WRITE")
    slow = Table(Cleaning(tmp_path), table.properties)
    Cleaning.turns[:] = [1]
    assert slow.to_arrow().num_rows == 16
    Cleaning.turns[:] = [1]
    assert slow.get(3)["name"].to_pylist() == ["turn 1 3"]


def test_a_writer_that_a_clean_overtakes_begins_again(tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type="COPY_ON_WRITE")
    slow = Table(Cleaning(tmp_path), table.properties)
    Cleaning.turns[:] = [1, 2]
    slow.upsert(pa.Table.from_pylist([{"id": 99, "name": "late", "ts": 1, "dt": "p1"}], SCHEMA))
    assert table.to_arrow().num_rows == 17
    assert ATTEMPTS > 2


def test_damage_is_a_corrupt_table_and_no_conflict() -> None:
    assert issubclass(Damaged, CorruptTableError)
    assert not issubclass(Damaged, CommitConflictError)


def test_a_planned_compaction_does_not_merge_a_log_that_was_cut_since(tmp_path: Path) -> None:
    table = written_table(tmp_path)
    state = load_state(table.store)
    plan = plan_compaction(state, files_of(state), load_held(state), now="")
    instant = schedule_compaction(table.store, plan)
    log = next(log for part in table.plan().slices for log in part.log_files)
    cut(tmp_path / log.path)
    assert instant is not None
    with pytest.raises(Damaged, match=log.path.rpartition("/")[2]):
        run_compaction(table.store, instant)


@pytest.mark.shows("H2")
@pytest.mark.parametrize("table_type", TABLE_TYPES)
@pytest.mark.parametrize("undo", ["restore", "rollback"])
def test_a_write_whose_file_was_lost_can_be_taken_back(undo: str, table_type: str, tmp_path: Path) -> None:
    table = written_table(tmp_path, table_type=table_type)
    rows = rows_of(table)
    kept = table.savepoint()
    table.upsert(orders(range(16), "third", 30))
    newest = max(seen_files(table), key=lambda file: file.instant)
    (tmp_path / newest.path).unlink()
    with pytest.raises(Damaged):
        table.to_arrow()
    if undo == "restore":
        table.restore(kept.instant)
    else:
        table.rollback(newest.instant)
    assert rows_of(table) == rows
