"""Hudi and we take turns on a table with a record-level index; everybody sees the same rows, and no key is there twice.

An index that misses one entry makes the next writer insert the key again, so that a user has two rows of it. Therefore
after every turn all readers are compared with a dict, and the whole index with the whole table. Histories are drawn
from seeds: `BUCKETLAKE_SEEDS=17` repeats one, `BUCKETLAKE_SEEDS=0-100` tries many.

With an index for each partition, Hudi 1.2.0 is wrong by itself where a key lives in two partitions, and one batch has
rows for both, though not of this key: it writes or deletes the key in both. We are handed such batches, and Hudi is
not: all its rows are of one partition, or have keys that live in no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bucketlake import DynamicBuckets, RecordIndex, Table, create_table
from bucketlake.config import TimelineTimezone, load_properties
from bucketlake.layout.names import WRITE_TOKEN, LogFileName, render_log_file_name
from bucketlake.metadata.places import RECORD_INDEX, folder_of
from bucketlake.metadata.record_index import Location, Locations, decode_location, encode_location
from bucketlake.metadata.record_shard import ShardEntries, encode_entry_log
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services import compact_metadata
from bucketlake.storage import open_store
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action, instant_ms
from bucketlake.write import CommitSummary
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from judges.record_entries import entries_of, said_by_commits, values_in_files
from plugins.soak import IS_SOAK, seeds, within
from stand_ins.metadata_check import check_metadata

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_600)]

ROUNDS = 16
SOAK_SECONDS = 110
KEYS = range(60)
PARTITIONS = ("p0", "p1", "p2")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])
WITH = {"hoodie.metadata.enable": "true"}
WITHOUT = {"hoodie.metadata.enable": "false"}
TWO_SHARDS = {
    f"hoodie.metadata.{kind}.level.index.{end}.filegroup.count": "2"
    for kind in ("record", "global.record")
    for end in ("min", "max")
}
NO_COMPACTION = {"hoodie.metadata.compact.max.delta.commits": "100"}


@dataclass(frozen=True)
class Kind:
    table_type: str
    index: RecordIndex | DynamicBuckets

    @property
    def is_per_partition(self) -> bool:
        return isinstance(self.index, DynamicBuckets) or self.index.per_partition

    @property
    def is_mor(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    @property
    def told(self) -> dict[str, str]:
        return options_for(
            "orders",
            table_type=self.table_type,
            index=self.index.engine,
            more=tell_hudi(is_per_partition=self.is_per_partition),
        )


def tell_hudi(*, is_per_partition: bool) -> dict[str, str]:
    """What a Hudi writer must be told to keep an index; else it drops it, or writes rows into their old partitions."""
    kind = "record" if is_per_partition else "global.record"
    return {
        **WITH,
        f"hoodie.metadata.{kind}.level.index.enable": "true",
        "hoodie.metadata.auto.delete.partitions": "false",
        "hoodie.record.index.update.partition.path": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
        "hoodie.metadata.compact.max.delta.commits": "4",
    }


_COW, _MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
_GLOBAL, _PER_PARTITION = RecordIndex(shards=2), RecordIndex(per_partition=True, shards=2)
_DYNAMIC = DynamicBuckets(assigners=2, keys_per_bucket=5)
KINDS = {
    "global cow": Kind(_COW, _GLOBAL),
    "global mor": Kind(_MOR, _GLOBAL),
    "per partition cow": Kind(_COW, _PER_PARTITION),
    "per partition mor": Kind(_MOR, _PER_PARTITION),
    "dynamic cow": Kind(_COW, _DYNAMIC),
    "dynamic mor": Kind(_MOR, _DYNAMIC),
}

Row = tuple[int, str]
"""A key and its partition."""


class Turns:
    """A table in two hands, and the rows that it must have."""

    def __init__(self, hudi: HudiJvm, path: Path, kind: Kind, chance: Random) -> None:
        self.hudi, self.path, self.kind, self.chance = hudi, path, kind, chance
        self.table = create_table(
            path,
            SCHEMA,
            key="id",
            partition="dt",
            ordering="ts",
            index=kind.index,
            table_type=kind.table_type,
            name="orders",
        )
        self.rows: dict[object, tuple[int, str, str, int]] = {}
        """By what is one record: id, name, partition, ordering value."""
        self.writes = 0
        self.done: list[str] = []

    def identity(self, row: Row) -> object:
        return row if self.kind.is_per_partition else row[0]

    def drawn(self) -> list[Row]:
        """Draw keys and partitions: some are new, some are there, some move."""
        found: list[Row] = []
        for key in self.chance.sample(KEYS, 8):
            known = self.rows.get(key)
            stays = known is not None and self.chance.random() < 0.6
            found.append((key, known[2] if known and stays else self.chance.choice(PARTITIONS)))
        return found

    def drawn_for_us(self) -> list[Row]:
        """Draw rows; with an index for each partition some keys are in two."""
        found = self.drawn()
        if self.kind.is_per_partition:
            found += [
                (key, PARTITIONS[(PARTITIONS.index(partition) + 1) % 3]) for key, partition in found[:3]
            ]
        return found

    def fit_for_hudi(self, rows: Sequence[Row]) -> list[Row]:
        """Keep rows of one partition, or rows whose keys live in no other."""
        if not self.kind.is_per_partition:
            return list(rows)
        if self.chance.random() < 0.5:
            return [row for row in rows if row[1] == rows[0][1]]
        elsewhere = {(row[0], row[2]) for row in self.rows.values()}
        return [row for row in rows if not any((row[0], p) in elsewhere for p in PARTITIONS if p != row[1])]

    def batch(self, rows: Iterable[Row], by: str) -> pa.Table:
        """Make rows of which one in six is late, and tell the model."""
        self.writes += 1
        made = []
        for key, partition in rows:
            ts = 0 if self.chance.random() < 1 / 6 else self.writes
            name = self.name_of(key, by)
            made.append({"id": key, "name": name, "ts": ts, "dt": partition})
            identity = self.identity((key, partition))
            known = self.rows.get(identity)
            if known is None or known[3] <= ts:
                self.rows[identity] = key, name, partition, ts
        return pa.Table.from_pylist(made, SCHEMA)

    def name_of(self, key: int, by: str) -> str:
        return f"{by} {self.writes} {key}"

    def some(self) -> list[Row]:
        """Draw rows that are there, and one key that may not be."""
        there = [(row[0], row[2]) for row in self.rows.values()]
        by_key = {key: (key, partition) for key, partition in self.chance.sample(there, min(3, len(there)))}
        return [*by_key.values(), (self.chance.choice(range(100, 110)), "p0")]

    def forget(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.rows.pop(self.identity(row), None)

    def hudis(self, rows: Iterable[Row], *, operation: str = "upsert", **more: str) -> None:
        rows = self.fit_for_hudi(list(rows)) or [(200, "p0")]
        if operation == "delete":
            self.writes += 1
            values = [{"id": key, "name": "", "ts": self.writes, "dt": partition} for key, partition in rows]
            batch = pa.Table.from_pylist(values, SCHEMA)
            self.forget(rows)
        else:
            batch = self.batch(rows, "hudi")
        options = {f"hoodie.{name.replace('_', '.')}": value for name, value in more.items()}
        self.hudi.write(self.path, batch, {**self.kind.told, **options}, operation=operation)

    def check(self) -> None:
        self.table = Table.open(self.path)
        check_invariants(self.table)
        assert check_metadata(self.table.store)
        expected = sorted(row[:3] for row in self.rows.values())
        found = {
            "we": self.table.to_arrow(),
            "Hudi by the metadata table": self.hudi.read(self.path, WITH),
            "Hudi by folders": self.hudi.read(self.path, WITHOUT),
        }
        if hudi_rs_can_follow(self.table):
            found["hudi-rs"] = read_snapshot(self.path)
        for who, rows in found.items():
            seen = triples(rows)
            lost, strange = sorted(set(expected) - set(seen)), sorted(set(seen) - set(expected))
            assert seen == expected, f"{who}: lost {lost}, strange {strange}; {self.done}"

    def check_points(self) -> None:
        """Hudi finds single keys, and none that are not there."""
        asked = sorted({row[0] for row in self.some()})
        expected = sorted(row[:3] for row in self.rows.values() if row[0] in asked)
        found = hudi_finds(self.hudi, self.path, f"id in ({', '.join(map(str, asked))})")
        assert sorted((row["id"], row["name"], row["dt"]) for row in found) == expected


def triples(rows: pa.Table) -> list[tuple[int, str, str]]:
    return sorted(
        (row["id"], row["name"], row["dt"]) for row in rows.select(["id", "name", "dt"]).to_pylist()
    )


def hudi_finds(
    hudi: HudiJvm, path: Path, condition: str, *, settings: Mapping[str, str] = WITH
) -> list[dict[str, Any]]:
    told = ", ".join(f"`{key}` '{value}'" for key, value in settings.items())
    view = f"create or replace temporary view t using hudi options (path '{path}', {told})"
    return hudi.sql(view, f"select id, name, dt from t where {condition}", settings=settings)


def hudi_rs_can_follow(table: Table) -> bool:
    """hudi-rs 0.5 passes over what was requested before a compaction of the metadata table and completed after it."""
    timeline = load_metadata_timeline(table.store, load_properties(table.store))
    newest = max((i.requested for i in timeline.completed(Action.COMMIT)), default="")
    return not any(i.requested < newest < (i.completed or "") for i in timeline.writes)


Turn = Callable[[Turns], object]


def _upsert(turns: Turns) -> str:
    done = turns.table.upsert(turns.batch(turns.drawn_for_us(), "ours"))
    assert done.instant is not None
    return done.instant


def _delete(turns: Turns) -> None:
    rows = turns.some()
    if turns.kind.is_per_partition:
        turns.table.delete(pa.table({"id": [row[0] for row in rows], "dt": [row[1] for row in rows]}))
    else:
        turns.table.delete([row[0] for row in rows])
    turns.forget(rows)


def _compact(turns: Turns) -> None:
    _upsert(turns)
    turns.table.compact()


def _compact_metadata(turns: Turns) -> None:
    _upsert(turns)
    compact_metadata(turns.table.store)


def _clean(turns: Turns) -> None:
    _upsert(turns)
    turns.table.clean(retain_commits=1)


def _roll_back(turns: Turns) -> None:
    before = dict(turns.rows)
    turns.table.rollback(_upsert(turns))
    turns.rows = before


def _hudi_upsert(turns: Turns) -> None:
    turns.hudis(turns.drawn())


def _hudi_delete(turns: Turns) -> None:
    turns.hudis(turns.some(), operation="delete")


def _hudi_compact(turns: Turns) -> None:
    turns.hudis(turns.drawn(), compact_inline="true", compact_inline_max_delta_commits="1")


def _hudi_cluster(turns: Turns) -> None:
    turns.hudis(turns.drawn(), clustering_inline="true", clustering_inline_max_commits="1")


def _hudi_clean(turns: Turns) -> None:
    turns.hudis(turns.drawn(), clean_automatic="true", clean_commits_retained="1")


def turns_of(kind: Kind) -> tuple[dict[str, Turn], dict[str, Turn]]:
    """Ours, and Hudi's."""
    ours: dict[str, Turn] = {
        "upsert": _upsert,
        "delete": _delete,
        "compact metadata": _compact_metadata,
        "clean": _clean,
        "roll back": _roll_back,
    }
    theirs: dict[str, Turn] = {
        "Hudi upserts": _hudi_upsert,
        "Hudi deletes": _hudi_delete,
        "Hudi clusters": _hudi_cluster,
        "Hudi cleans": _hudi_clean,
    }
    if kind.is_mor:
        ours |= {"compact": _compact}
        theirs |= {"Hudi compacts": _hudi_compact}
    return ours, theirs


def drawn_turns(kind: Kind, chance: Random) -> list[list[str]]:
    """Draw turns that alternate, and are checked after each part. A run that is no soak has each of ours once."""
    ours, theirs = (list(side) for side in turns_of(kind))
    if IS_SOAK:
        return [[chance.choice(side)] for _ in range(ROUNDS) for side in (ours, ours, theirs)]
    mine, hudis = chance.sample(ours, len(ours)), chance.sample(theirs, 2)
    return [mine[:2], hudis[:1], mine[2:4], hudis[1:], mine[4:]]


@pytest.mark.shows("D1", "R3")
@pytest.mark.parametrize("name", KINDS if IS_SOAK else ["global mor", "per partition mor", "dynamic mor"])
def test_hudi_and_we_take_turns_on_a_table_with_a_record_level_index(
    hudi: HudiJvm, tmp_path: Path, name: str
) -> None:
    for seed in seeds(default_count=1):
        chance = Random(f"{name} {seed}")
        turns = Turns(hudi, tmp_path / str(seed) / "orders", KINDS[name], chance)
        ours, theirs = turns_of(KINDS[name])
        try:
            _upsert(turns)
            turns.check()
            for number, part in enumerate(within(SOAK_SECONDS, drawn_turns(KINDS[name], chance))):
                for turn in part:
                    turns.done.append(turn)
                    (ours | theirs)[turn](turns)
                turns.check()
                if number % 9 == 4:
                    turns.check_points()
        except BaseException as error:
            error.add_note(f"seed {seed}, {name!r}: {turns.done}")
            raise


# ----------------------------------------------------------------------------------------------- entry by entry


def batch(ts: int, **partitions: str) -> pa.Table:
    """Rows by key, `k7="p1"`: the key 7 in p1."""
    rows = [{"id": int(k[1:]), "name": f"{ts} {k[1:]}", "ts": ts, "dt": p} for k, p in partitions.items()]
    return pa.Table.from_pylist(rows, SCHEMA)


BATCHES: tuple[tuple[str, pa.Table], ...] = (
    ("upsert", batch(1, k1="p0", k2="p1", k3="p0", k4="p1", k10="p0", k100="p1")),
    # An update has no entry. Two move, or are other records there.
    ("upsert", batch(2, k1="p1", k3="p2", k4="p1", k5="p2", k10="p0")),
    ("delete", batch(3, k2="p1", k5="p2", k77="p0")),
    # Two come back, and one is late.
    ("upsert", pa.concat_tables([batch(4, k2="p2", k5="p2", k6="p0"), batch(0, k4="p0")])),
)


@pytest.mark.parametrize("name", ["global cow", "per partition mor"] if IS_SOAK else ["global cow"])
def test_the_same_batches_leave_the_entries_that_hudi_leaves(
    hudi: HudiJvm, tmp_path: Path, name: str
) -> None:
    kind = KINDS[name]
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    table = Turns(hudi, ours, kind, Random(0)).table
    for number, (operation, rows) in enumerate(BATCHES):
        getattr(table, operation)(rows)
        hudi.write(
            theirs,
            rows,
            {**kind.told, **TWO_SHARDS, **NO_COMPACTION},
            operation=operation,
            mode="append" if number else "overwrite",
        )
    hudis = open_store(str(theirs))
    assert said_by_commits(table.store) == said_by_commits(hudis)
    assert entries_of(table.store).keys() == entries_of(hudis).keys()
    for store, path in ((table.store, ours), (hudis, theirs)):
        assert entries_of(store) == file_ids(hudi.read(path, WITH))
    assert triples(hudi.read(ours, WITH)) == triples(hudi.read(theirs, WITH))

    values = list(values_in_files(hudis))
    for instant, value in values:
        place = decode_location(value, path="")
        assert encode_location(place) == value
        assert place.instant_ms == instant_ms(instant, TimelineTimezone.UTC)
    assert len(values) > len(entries_of(hudis)), "some entries were put over others"


def file_ids(rows: pa.Table) -> dict[tuple[str, str], str]:
    """Return the file group of every partition and key, as Hudi's meta columns say."""
    columns = ["_hoodie_partition_path", "_hoodie_record_key", "_hoodie_file_name"]
    found = (row.values() for row in rows.select(columns).to_pylist())
    return {(partition, key): name.split("_")[0] for partition, key, name in found}


# ----------------------------------------------------------------------------------------------- what was found


@pytest.mark.parametrize("ordering", [("ts",), ("ts", "id")], ids=["one", "two"])
def test_a_row_that_is_in_logs_leaves_its_partition_for_hudi_too(
    hudi: HudiJvm, tmp_path: Path, ordering: tuple[str, ...]
) -> None:
    """With one ordering field Hudi could not read the log that told of it. With two, the row stayed for everybody."""
    table = create_table(
        tmp_path / "t",
        SCHEMA,
        key="id",
        partition="dt",
        ordering=ordering,
        index=_GLOBAL,
        table_type=_MOR,
    )
    table.upsert(batch(1, k1="p0", k2="p0", k3="p0"))
    table.upsert(batch(2, k1="p0", k3="p0"))
    table.upsert(batch(3, k1="p1", k2="p1", k3="p0"))
    assert_rows(hudi, tmp_path / "t", {1: "3 1", 2: "3 2", 3: "3 3"})


@pytest.mark.parametrize("table_type", [_COW, _MOR] if IS_SOAK else [_MOR])
def test_late_rows_and_late_deletes_from_another_partition_change_nothing(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    """See hudi#8203 and hudi#13830."""
    path = tmp_path / "orders"
    schema = SCHEMA.append(pa.field("_hoodie_is_deleted", pa.bool_()))

    def marked(rows: pa.Table, *, is_gone: bool) -> pa.Table:
        return rows.append_column(schema.field(-1), pa.array([is_gone] * len(rows)))

    table = create_table(
        path,
        schema,
        key="id",
        partition="dt",
        ordering="ts",
        index=_GLOBAL,
        table_type=table_type,
        name="orders",
    )
    table.upsert(marked(batch(10, k1="p0", k2="p0", k3="p1", k4="p1"), is_gone=False))
    table.upsert(marked(batch(12, k1="p0", k3="p1"), is_gone=False))
    table.upsert(marked(batch(5, k1="p1", k2="p0", k3="p0"), is_gone=True))
    table.upsert(marked(batch(6, k1="p1", k2="p1"), is_gone=False))
    assert_rows(hudi, path, {1: "12 1", 2: "10 2", 3: "12 3", 4: "10 4"})
    table.upsert(marked(batch(20, k1="p1", k4="p0"), is_gone=True))
    table.upsert(marked(batch(15, k1="p1"), is_gone=False))  # it is new: nobody knows of the delete any more
    hudi.write(path, marked(batch(11, k1="p0", k3="p0"), is_gone=False), Kind(table_type, _GLOBAL).told)
    assert_rows(hudi, path, {1: "15 1", 2: "10 2", 3: "12 3"})


def test_hudi_looks_single_keys_up_in_the_index(hudi: HudiJvm, tmp_path: Path) -> None:
    """An entry is planted that is wrong, and Hudi misses the row: so the other tests have asked the index."""
    path = tmp_path / "t"
    table = create_table(path, SCHEMA, key="id", partition="dt", index=RecordIndex(shards=1))
    done = instant_of(table.upsert(batch(1, k1="p0", k2="p1")))
    assert [row["name"] for row in hudi_finds(hudi, path, "id = 1")] == ["1 1"]
    wrong = Location("p1", entries_of(table.store)["p1", "2"], 0)
    entry = ShardEntries(pa.array(["1"]), Locations(np.zeros(1, np.int32), (wrong,)))
    name = render_log_file_name(LogFileName(shard_file_id(0), done, 2, WRITE_TOKEN))
    table.store.put(f"{folder_of(RECORD_INDEX)}/{name}", encode_entry_log(done, entry, None))
    assert hudi_finds(hudi, path, "id = 1") == []


# ------------------------------------------------------------------------------------------------- difficult keys

ODD_KEYS = (
    "1",
    "10",
    "100",
    "a$b",
    "$",
    "x\\y",
    "\\",
    "a,b:c",
    "it's",
    "z\u00fcrich",
    "\u65e5\u672c",
    "\U0001f600",
)
"""Each is the prefix of another, or has a letter that an index or a query might take for something else."""
ODD_PARTITIONS = ("2026-06-18", "a_b", "m\u00fcnchen", "x y")
ODD_SCHEMA = pa.schema(
    [("id", pa.string()), ("line", pa.int32()), ("name", pa.string()), ("dt", pa.string())]
)


@dataclass(frozen=True)
class OddTable:
    index: RecordIndex
    table_type: str
    key: tuple[str, ...] = ("id",)
    partition: tuple[str, ...] = ("dt",)
    hive_style: bool = False

    def make(self, path: Path) -> Table:
        return create_table(
            path,
            ODD_SCHEMA,
            key=self.key,
            partition=self.partition,
            index=self.index,
            table_type=self.table_type,
            hive_style=self.hive_style,
            name="odd",
        )

    @property
    def told(self) -> dict[str, str]:
        style = {"hoodie.datasource.write.hive_style_partitioning": str(self.hive_style).lower()}
        return options_for(
            "odd",
            table_type=self.table_type,
            key=",".join(self.key),
            partition=",".join(self.partition),
            ordering=None,
            index=self.index.engine,
            more={**tell_hudi(is_per_partition=self.index.per_partition), **style},
        )


ODD_TABLES = {
    "one key": OddTable(_GLOBAL, _COW),
    "composite": OddTable(_GLOBAL, _MOR, key=("id", "line")),
    "per partition": OddTable(_PER_PARTITION, _COW, hive_style=True),
    "no partitions": OddTable(_PER_PARTITION, _MOR, partition=()),
}
IN_EVERY_RUN = ("composite", "per partition")


def odd_rows(name: str, keys: Sequence[str] = ODD_KEYS) -> pa.Table:
    """Rows that are each in another partition than their neighbours."""
    rows = [
        {"id": key, "line": n % 2, "name": f"{name} {key}", "dt": ODD_PARTITIONS[n % len(ODD_PARTITIONS)]}
        for n, key in enumerate(ODD_KEYS)
        if key in keys
    ]
    return pa.Table.from_pylist(rows, ODD_SCHEMA)


@pytest.mark.parametrize("name", ODD_TABLES if IS_SOAK else IN_EVERY_RUN)
def test_hudi_finds_keys_that_are_prefixes_of_others_or_have_odd_letters(
    hudi: HudiJvm, tmp_path: Path, name: str
) -> None:
    """See hudi#19225, hudi#19027, hudi#12234."""
    made, path = ODD_TABLES[name], tmp_path / "odd"
    table = made.make(path)
    table.upsert(odd_rows("first"))
    table.upsert(odd_rows("second", ODD_KEYS[::4]))
    assert_found(hudi, path, asked=ODD_KEYS[::3])
    hudi.write(path, odd_rows("hudi"), made.told)
    assert_found(hudi, path, asked=ODD_KEYS[1::3])
    Table.open(path).upsert(odd_rows("again"))
    hudi.write(path, odd_rows("")[::4], made.told, operation="delete")
    names = Table.open(path).to_arrow()["name"].to_pylist()
    assert sorted(names) == sorted(f"again {key}" for n, key in enumerate(ODD_KEYS) if n % 4)
    assert_found(hudi, path, asked=ODD_KEYS[2::3])


def assert_found(hudi: HudiJvm, path: Path, *, asked: Sequence[str]) -> None:
    """Hudi reads what we read, and finds keys by the index; each by itself in a soak."""
    table = Table.open(path)
    check_invariants(table)
    rows = table.to_arrow()
    expected = {row["id"]: row["name"] for row in rows.to_pylist()}
    assert len(expected) == len(rows), "a key is there twice"
    for how in (WITH, WITHOUT):
        scanned = hudi.read(path, how).select(["id", "name"]).to_pylist()
        assert sorted((row["id"], row["name"]) for row in scanned) == sorted(expected.items())
    is_composite = "line" in table.properties.record_key_fields
    for few in [[key] for key in ODD_KEYS] if IS_SOAK else [asked]:
        texts = ", ".join(quoted(key) for key in few)
        lines = ", ".join(sorted({str(ODD_KEYS.index(key) % 2) for key in few}))
        condition = f"id in ({texts})" + (f" and line in ({lines})" if is_composite else "")
        found = [row["name"] for row in hudi_finds(hudi, path, condition)]
        assert sorted(found) == sorted(expected[key] for key in few if key in expected)


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


# ------------------------------------------------------------------------------------------- what is taken back


@pytest.mark.parametrize("name", KINDS if IS_SOAK else ["per partition mor"])
def test_hudi_writes_into_a_partition_whose_first_commit_was_taken_back(
    hudi: HudiJvm, tmp_path: Path, name: str
) -> None:
    """A shard that a rollback leaves makes each later write of Hudi's to the partition fail."""
    kind, path = KINDS[name], tmp_path / "orders"
    table = Turns(hudi, path, kind, Random(0)).table
    table.upsert(batch(1, k1="p0", k2="p0"))
    table.rollback(instant_of(table.upsert(batch(2, k1="p0", k3="p1", k4="p1"))))
    hudi.write(path, batch(3, k2="p0", k3="p1"), kind.told)
    assert_rows(hudi, path, {1: "1 1", 2: "3 2", 3: "3 3"})
    taken_back = instant_of(Table.open(path).upsert(batch(4, k3="p1", k5="p2")))
    roll_back_by_hudi(hudi, path, kind, taken_back)
    assert_rows(hudi, path, {1: "1 1", 2: "3 2", 3: "3 3"})
    hudi.write(path, batch(5, k4="p1", k5="p2"), kind.told)
    Table.open(path).upsert(batch(6, k3="p1", k5="p2", k6="p2"))
    assert_rows(hudi, path, {1: "1 1", 2: "3 2", 3: "6 3", 4: "5 4", 5: "6 5", 6: "6 6"})


def instant_of(done: CommitSummary) -> str:
    assert done.instant is not None
    return done.instant


def roll_back_by_hudi(hudi: HudiJvm, path: Path, kind: Kind, instant: str) -> None:
    """Hudi's procedure takes a name, and drops an index that its session does not know of."""
    settings = {key: value for key, value in kind.told.items() if key.startswith("hoodie.metadata.")}
    name = f"taken_back_{instant}"
    settings |= NO_COMPACTION  # it refuses to take back what its metadata table has compacted
    hudi.sql(
        f"create table {name} using hudi location '{path}'",
        f"call rollback_to_instant(table => '{name}', instant_time => '{instant}')",
        f"drop table {name}",
        settings=settings,
    )


def assert_rows(hudi: HudiJvm, path: Path, names: Mapping[int, str]) -> None:
    table = Table.open(path)
    check_invariants(table)
    assert check_metadata(table.store)
    for rows in (table.to_arrow(), hudi.read(path, WITH), hudi.read(path, WITHOUT)):
        assert sorted((row["id"], row["name"]) for row in rows.to_pylist()) == sorted(names.items())
