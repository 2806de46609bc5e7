"""Hudi and we take turns on a table with a secondary index; a query by a value finds its rows, whoever wrote them.

Hudi's readers prune by the index, and trust it: an entry that is missing is a row that a query does not show. So after
every turn all entries are compared with all rows, and Hudi's queries by value with what a reader of folders finds.

What Hudi 1.2.0 does wrong by itself, judges are kept from: `insert_overwrite` and `delete_partition` fail on such a
table; its bulk insert by rows records no values, unless the metadata is written afterwards; and of several indexes its
updates keep one only, where they are logged to a file group that has logs already (see `ONE_BY_ONE`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table, create_table
from bucketlake.index import secondary
from bucketlake.index.secondary import secondary_indexes_of
from bucketlake.services import check_table
from bucketlake.services.fsck import Kind
from bucketlake.state import load_state
from bucketlake.storage import Store
from interop.test_record_index_judged import (
    KINDS,
    NO_COMPACTION,
    SOAK_SECONDS,
    TWO_SHARDS,
    WITH,
    WITHOUT,
    Turns,
    drawn_turns,
    hudi_finds,
    quoted,
    tell_hudi,
    turns_of,
)
from judges.hudi_jvm import HudiJvm, options_for
from plugins.soak import IS_SOAK, seeds, within
from stand_ins.made_index import check_secondary

pytestmark = [pytest.mark.interop, pytest.mark.shows("R11"), pytest.mark.timeout(3_600)]

_COW, _MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
VALUES = ("Rome", "Oslo", "", "a$b", "a", "\\", "z\u00fcrich")
ONE_BY_ONE = {"hoodie.metadata.streaming.write.enabled": "false"}
"""Metadata is written after the data. Else, of a file group that gets one more log, only one of several indexes learns
what changed: Hudi adds the log to the slice that it compares with (`SecondaryIndexStreamingTracker`)."""
LOCKED = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
"""Without these Hudi does not build an index."""


# ------------------------------------------------------------------------------------------------------- in turns


class ValueTurns(Turns):
    """A table in two hands, with an index of the names of its rows."""

    def __init__(self, hudi: HudiJvm, path: Path, kind: str, chance: Random) -> None:
        super().__init__(hudi, path, KINDS[kind], chance)
        self.table.create_index("by_name", on="name", shards=2)
        self.table = Table.open(path)

    def name_of(self, key: int, by: str) -> str:
        return self.chance.choice(VALUES)

    def check(self) -> None:
        super().check()
        assert check_secondary(self.table) == len(self.rows)

    def check_values(self) -> None:
        """Hudi finds the rows of some values by the index, and without."""
        asked = [[value] for value in VALUES] if IS_SOAK else [self.chance.sample(VALUES, 2)]
        for values in asked:
            condition = f"name in ({', '.join(map(quoted, values))})"
            expected = sorted(row[:3] for row in self.rows.values() if row[1] in values)
            for settings in (WITH, WITHOUT) if IS_SOAK else (WITH,):
                found = hudi_finds(self.hudi, self.path, condition, settings=settings)
                assert sorted((row["id"], row["name"], row["dt"]) for row in found) == expected, condition


@pytest.mark.parametrize("name", ["global cow", "global mor"] if IS_SOAK else ["global mor"])
def test_hudi_and_we_take_turns_on_a_table_with_a_secondary_index(
    hudi: HudiJvm, tmp_path: Path, name: str
) -> None:
    for seed in seeds(default_count=1):
        chance = Random(f"values {name} {seed}")
        turns = ValueTurns(hudi, tmp_path / str(seed) / "orders", name, chance)
        ours, theirs = turns_of(KINDS[name])
        try:
            ours["upsert"](turns)
            turns.check()
            for part in within(SOAK_SECONDS, drawn_turns(KINDS[name], chance)):
                for turn in part:
                    turns.done.append(turn)
                    (ours | theirs)[turn](turns)
                turns.check()
                turns.check_values()
        except BaseException as error:
            error.add_note(f"seed {seed}, {name!r}: {turns.done}")
            raise


# ------------------------------------------------------------------------------------------------- entry by entry

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("n", pa.int32()),
        ("day", pa.date32()),
        ("ts", pa.int64()),
        ("dt", pa.string()),
    ]
)
INDEXED = ("city", "n", "day")
Row = tuple[int, str | None, int | None, int | None, int, str]


def rows(*values: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, value, strict=True)) for value in values], SCHEMA)


def a_table(path: Path, table_type: str, *, shards: int = 1) -> Table:
    return create_table(
        path,
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        index=RecordIndex(shards=shards),
        table_type=table_type,
        name="t",
    )


BATCHES: tuple[tuple[str, pa.Table], ...] = (
    (
        "upsert",
        rows(
            (1, "Rome", 1, 10, 1, "p0"),
            (2, None, None, None, 1, "p1"),
            (3, "a$b", -1, 0, 1, "p0"),
            (10, "Rome", 1, -1, 1, "p0"),
        ),
    ),
    # A value, null for a value, a value for null, the same value, a new key; one row moves, with and without a value.
    (
        "upsert",
        rows(
            (1, None, 2, 10, 2, "p0"),
            (2, "Oslo", 7, None, 2, "p1"),
            (3, "a$b", -1, 0, 2, "p1"),
            (10, "", 1, 11, 2, "p1"),
            (4, "\\", 4, 4, 2, "p0"),
        ),
    ),
    ("delete", rows((2, None, None, None, 3, "p1"), (77, None, None, None, 3, "p0"))),
    # A late row, and a key that comes back.
    ("upsert", rows((1, "late", 9, 9, 0, "p0"), (2, "Oslo", 7, None, 4, "p0"))),
)


def told(table_type: str) -> dict[str, str]:
    more = {**tell_hudi(is_per_partition=False), **TWO_SHARDS, **NO_COMPACTION, **ONE_BY_ONE, **LOCKED}
    return options_for("t", table_type=table_type, index="GLOBAL_RECORD_LEVEL_INDEX", more=more)


def build_by_hudi(hudi: HudiJvm, path: Path, settings: dict[str, str], *columns: str) -> None:
    name = f"built_{path.parent.name}_{path.name}".replace("-", "_")
    for column in columns:
        hudi.sql(
            f"create table if not exists {name} using hudi location '{path}'",
            f"create index by_{column} on {name} ({column})",
            settings={key: value for key, value in settings.items() if key not in ("hoodie.table.name",)},
        )
    hudi.sql(f"drop table {name}")


def entries(store: Store) -> dict[str, list[list[str]]]:
    """Return the entries of every index, shard by shard."""
    return {
        index.definition.name: [sorted(index.entries_of(shard).to_pylist()) for shard in range(index.shards)]
        for index in secondary_indexes_of(load_state(store))
    }


@pytest.mark.parametrize("table_type", [_COW, _MOR] if IS_SOAK else [_MOR])
def test_the_same_batches_leave_the_entries_that_hudi_leaves(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    theirs, options = tmp_path / "theirs", told(table_type)
    table = a_table(tmp_path / "ours", table_type, shards=2)
    for number, (operation, batch) in enumerate(BATCHES):
        getattr(table, operation)(batch)
        mode = "append" if number else "overwrite"
        hudi.write(theirs, batch, options, operation=operation, mode=mode)
        if not number:
            for column in INDEXED:
                table.create_index(f"by_{column}", on=column, shards=2)
            table = Table.open(table.store.uri)
            build_by_hudi(hudi, theirs, options, *INDEXED)
        assert entries(table.store) == entries(Table.open(theirs).store), f"after the batch {number}"
        assert check_secondary(Table.open(table.store.uri)) == check_secondary(Table.open(theirs))


# --------------------------------------------------------------------------------------------- what is relied on


def cities(hudi: HudiJvm, path: Path, condition: str, settings: dict[str, str]) -> list[int]:
    options = ", ".join(f"`{key}` '{value}'" for key, value in settings.items())
    view = f"create or replace temporary view c using hudi options (path '{path}', {options})"
    found = hudi.sql(view, f"select id from c where {condition}", settings=settings)
    return sorted(row["id"] for row in found)


@pytest.mark.parametrize("table_type", [_COW, _MOR] if IS_SOAK else [_COW])
def test_hudi_misses_a_row_whose_entry_is_lost_and_finds_it_when_it_is_mended(
    hudi: HudiJvm, tmp_path: Path, table_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it goes by our entries when it looks for a value is seen where one of them is missing."""
    path = tmp_path / "t"
    table = a_table(path, table_type)
    table.upsert(BATCHES[0][1])
    table.create_index("by_city", on="city")
    table = Table.open(path)
    whole: Callable[..., bytes] = secondary.encode_secondary_log

    def lossy(instant: str, partition: str, came: pa.Array, gone: pa.Array) -> Any:
        kept = came.filter(pa.array([not key.startswith("Bonn$") for key in came.to_pylist()]))
        return whole(instant, partition, kept, gone)

    with monkeypatch.context() as patch:
        patch.setattr(secondary, "encode_secondary_log", lossy)
        patch.setattr(secondary, "prove_log", lambda held, keys: None)
        table.upsert(rows((5, "Bonn", 1, 1, 2, "p2"), (6, "Kiel", 1, 1, 2, "p3")))
    assert cities(hudi, path, "city = 'Kiel'", WITH) == [6]
    assert cities(hudi, path, "city = 'Bonn'", WITH) == [], "it goes by the index"
    assert cities(hudi, path, "city = 'Bonn'", WITHOUT) == [5]
    table.repair()
    assert cities(hudi, path, "city = 'Bonn'", WITH) == [5]


def test_a_table_of_hudis_is_written_on_and_hudi_finds_values(
    hudi: HudiJvm, golden_table: Callable[[str], Path]
) -> None:
    path = golden_table("cow_secondary_index")
    table = Table.adopt(path)
    there = table.to_arrow().select(table.schema.names)
    changed = there.slice(0, 4)
    place = changed.schema.get_field_index("city")
    table.upsert(changed.set_column(place, "city", pa.array(["Bonn", None, "c1", "Bonn"], pa.string())))
    table.delete([there["id"][6].as_py()])
    expected = {row["id"]: row["city"] for row in table.to_arrow().to_pylist()}
    for city in ("Bonn", "c0", "c1", "c2", "none"):
        wanted = sorted(key for key, value in expected.items() if value == city)
        for settings in (WITH, WITHOUT):
            assert cities(hudi, path, f"city = '{city}'", settings) == wanted


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert"] if IS_SOAK else ["bulk_insert"])
def test_what_hudi_leaves_wrong_by_itself_is_found_and_mended(
    hudi: HudiJvm, tmp_path: Path, operation: str
) -> None:
    """With its defaults Hudi forgets values: those of all indexes but one when it logs, all when it loads in bulk."""
    path = tmp_path / "t"
    table = a_table(path, _MOR)
    table.upsert(BATCHES[0][1])
    table.upsert(rows((1, "Rome", 1, 10, 2, "p0"), (2, None, None, None, 2, "p1")))
    for column in ("city", "n"):
        table.create_index(f"by_{column}", on=column)
    table = Table.open(path)
    options = {key: value for key, value in told(_MOR).items() if key not in ONE_BY_ONE}
    batch = rows((1, "Bonn", 5, 5, 5, "p0"), (2, "Bonn", 6, 6, 5, "p1"))
    if operation == "bulk_insert":
        batch = rows((50, "Bonn", 5, 5, 5, "p0"))
    hudi.write(path, batch, options, operation=operation)
    table = Table.open(path)
    assert not table.plan_repair().is_empty, "Hudi has learned it: judges need not be kept from it"
    assert {finding.kind for finding in check_table(table.store).damage} <= {
        Kind.MISSING_ENTRY,
        Kind.STALE_ENTRY,
    }
    table.repair()
    assert check_secondary(table) == 2 * table.to_arrow().num_rows
    assert check_table(table.store).damage == ()
    city = batch["city"].to_pylist()[-1]
    wanted = sorted(row["id"] for row in table.to_arrow().to_pylist() if row["city"] == city)
    assert wanted
    assert cities(hudi, path, f"city = {quoted(city)}", WITH) == wanted
