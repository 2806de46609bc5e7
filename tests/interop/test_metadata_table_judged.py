"""Hudi and we take turns on a table with a metadata table; after every turn everybody sees the same rows.

Hudi reads with the metadata table and without, hudi-rs reads, we read; and what the metadata table lists is what is
committed, with its size. Hudi compacts, cleans and archives the metadata table on its turns. Histories are drawn from
seeds: `BUCKETLAKE_SEEDS=17` repeats one, `BUCKETLAKE_SEEDS=0-100` tries many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from bucketlake import ConsistentBuckets, PartitionBuckets, SimpleBuckets, Table
from bucketlake.commit.metadata_build import build_metadata
from bucketlake.commit.metadata_table import is_listed
from bucketlake.config import load_properties
from bucketlake.index.told import IndexValue
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services.resize import look_for_resize, run_resize, schedule_resize
from bucketlake.services.resize_plan import ResizeTrigger
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from judges.random_tables import CONSISTENT_OPTIONS
from plugins.soak import IS_SOAK, seeds, within
from stand_ins.metadata_check import check_metadata
from stand_ins.orders_table import orders, orders_table

pytestmark = [pytest.mark.interop, pytest.mark.shows("M1", "M3", "M5"), pytest.mark.timeout(3_600)]

ROUNDS = 20
SOAK_SECONDS = 110
SPLIT = ResizeTrigger(file_bytes=1_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)
WITH = {"hoodie.metadata.enable": "true"}
WITHOUT = {"hoodie.metadata.enable": "false"}
TELL_HUDI = {**WITH, "hoodie.metadata.compact.max.delta.commits": "4"}
"""For the rest, Hudi as it comes: it keeps statistics of columns and partitions too."""


@dataclass(frozen=True)
class Kind:
    table_type: str
    index: IndexValue
    auto_delete: bool
    """Whether Hudi deletes the partitions of the metadata table that it was not told to keep."""
    more: dict[str, str] = field(default_factory=dict)

    @property
    def is_mor(self) -> bool:
        return self.table_type == "MERGE_ON_READ"

    @property
    def told(self) -> dict[str, str]:
        auto_delete = {"hoodie.metadata.auto.delete.partitions": str(self.auto_delete).lower()}
        more = {**TELL_HUDI, **auto_delete, **self.more}
        options = options_for("orders", table_type=self.table_type, buckets=2, more=more)
        if isinstance(self.index, PartitionBuckets):
            del options["hoodie.bucket.index.num.buckets"]
        return options


_COW, _MOR = "COPY_ON_WRITE", "MERGE_ON_READ"
_RULES = PartitionBuckets("p0,3", default=2)
KINDS = {
    "simple cow": Kind(_COW, SimpleBuckets(2), auto_delete=True),
    "simple mor": Kind(_MOR, SimpleBuckets(2), auto_delete=False),
    "rules cow": Kind(_COW, _RULES, auto_delete=False),
    "rules mor": Kind(_MOR, _RULES, auto_delete=True),
    # Hudi writes no copy-on-write tables with consistent hashing.
    "ring mor": Kind(_MOR, ConsistentBuckets(2), auto_delete=False, more=CONSISTENT_OPTIONS),
}
IN_EVERY_RUN = ("simple cow", "simple mor", "rules mor", "ring mor")


class Turns:
    """A table in two hands, and the names that its keys must have."""

    def __init__(self, hudi: HudiJvm, path: Path, kind: Kind) -> None:
        self.hudi, self.path, self.kind = hudi, path, kind
        self.table = orders_table(path, table_type=kind.table_type, index=kind.index)
        self.names: dict[int, str] = {}
        self.writes = 0
        self.deleted_until = 0
        self.done: list[str] = []
        build_metadata(self.table.store)
        self.ours(range(100, 140))

    def ours(self, keys: range) -> None:
        self.writes += 1
        self.table.upsert(orders(keys, f"ours {self.writes}", self.writes))
        self.names |= {key: f"ours {self.writes} {key}" for key in keys}

    def hudis(self, keys: range) -> None:
        self.writes += 1
        self.hudi.write(self.path, orders(keys, f"hudi {self.writes}", self.writes), self.kind.told)
        self.names |= {key: f"hudi {self.writes} {key}" for key in keys}

    def lost(self, keys: range) -> str:
        """Write what is to be taken back, and return its instant."""
        self.writes += 1
        done = self.table.upsert(orders(keys, f"lost {self.writes}", self.writes))
        assert done.instant is not None
        return done.instant

    def check(self, what: str) -> None:
        self.done.append(what)
        self.table = Table.open(self.path)
        is_listed_now = check_metadata(self.table.store)
        found = {
            "we": self.table.to_arrow(),
            "Hudi by the metadata table": self.hudi.read(self.path, WITH),
            "Hudi by folders": self.hudi.read(self.path, WITHOUT),
        }
        if hudi_rs_can_follow(self.table):
            found["hudi-rs"] = read_snapshot(self.path)
        for who, rows in found.items():
            names = rows.select(["id", "name"]).to_pylist()
            assert len(names) == len(self.names), f"{who}: a key is there twice, or not at all; {self.done}"
            assert {row["id"]: row["name"] for row in names} == self.names, f"{who}; {self.done}"
        if not is_listed_now:
            build_metadata(self.table.store)
            assert check_metadata(self.table.store)
            self.done.append("built again")


def hudi_rs_can_follow(table: Table) -> bool:
    """hudi-rs 0.5 passes over what was requested before a compaction of the metadata table and completed after it."""
    timeline = load_metadata_timeline(table.store, load_properties(table.store))
    newest = max((i.requested for i in timeline.completed(Action.COMMIT)), default="")
    return not any(i.requested < newest < (i.completed or "") for i in timeline.writes)


Turn = Callable[[Turns, range], None]


def _upsert(turns: Turns, keys: range) -> None:
    turns.ours(keys)


def _delete(turns: Turns, keys: range) -> None:
    """Of keys that nobody writes again: what a delete in a log hides depends on when it is compacted."""
    first = turns.deleted_until
    turns.deleted_until += 2
    turns.ours(range(first, first + 4))
    turns.table.delete(orders(range(first, first + 2), "", 0).select(["id", "dt"]))
    turns.names = {key: name for key, name in turns.names.items() if key not in range(first, first + 2)}


def _compact(turns: Turns, keys: range) -> None:
    turns.ours(keys)
    turns.table.compact()


def _clean(turns: Turns, keys: range) -> None:
    turns.ours(keys)
    turns.table.clean(retain_commits=1)


def _roll_back(turns: Turns, keys: range) -> None:
    turns.table.rollback(turns.lost(keys))


def _restore(turns: Turns, keys: range) -> None:
    savepoint = turns.table.savepoint().instant
    turns.lost(keys)
    if turns.kind.is_mor:
        turns.table.compact()
    turns.lost(range(keys.start, keys.start + 3))
    turns.table.restore(savepoint)
    turns.table.delete_savepoint(savepoint)


def _overwrite(turns: Turns, keys: range) -> None:
    turns.writes += 1
    evens = range(keys.start, keys.start + 6, 2)
    turns.table.overwrite(orders(evens, f"only {turns.writes}", turns.writes))
    turns.names = {key: name for key, name in turns.names.items() if key % 2 != keys.start % 2}
    turns.names |= {key: f"only {turns.writes} {key}" for key in evens}


def _delete_partition(turns: Turns, keys: range) -> None:
    turns.table.delete_partitions(["p1"])
    turns.names = {key: name for key, name in turns.names.items() if key % 2 == 0}
    turns.table.clean(retain_versions=1)


def _rescale(turns: Turns, keys: range) -> None:
    turns.table.buckets.overwrite(f"p0,{2 + keys.start % 3}")


def _resize(turns: Turns, keys: range) -> None:
    instant = schedule_resize(turns.table.store, look_for_resize(turns.table.store, SPLIT))
    turns.ours(keys)
    if instant is not None:
        run_resize(turns.table.store, instant)


def _abort_resize(turns: Turns, keys: range) -> None:
    instant = schedule_resize(turns.table.store, look_for_resize(turns.table.store, SPLIT))
    turns.ours(keys)
    if instant is not None:
        turns.table.buckets.abort(instant)


def turns_of(kind: Kind) -> dict[str, Turn]:
    found: dict[str, Turn] = {
        "upsert": _upsert, "delete": _delete, "clean": _clean, "roll back": _roll_back, "restore": _restore,
        "overwrite": _overwrite, "delete partition": _delete_partition,
    }  # fmt: skip
    if kind.is_mor:
        found |= {"compact": _compact}
    if isinstance(kind.index, PartitionBuckets):
        found |= {"rescale": _rescale}
    if isinstance(kind.index, ConsistentBuckets):
        found |= {"resize": _resize, "abort resize": _abort_resize}
    return found


def drawn_turns(name: str, seed: int) -> list[list[str]]:
    """Draw the turns of every round. A run that is no soak takes half of them of each kind of table, in two rounds."""
    kind, chance = KINDS[name], Random(f"{name} {seed}")
    names = list(turns_of(kind))
    if not IS_SOAK:
        own = {"rescale", "resize", "abort resize"}.intersection(names)
        names = [turn for n, turn in enumerate(names) if n % 2 == IN_EVERY_RUN.index(name) % 2 or turn in own]
    chance.shuffle(names)
    if IS_SOAK:
        return [chance.sample(names, 3) for _ in range(ROUNDS)]
    return [names[: len(names) // 2], names[len(names) // 2 :]]


@pytest.mark.parametrize("name", KINDS if IS_SOAK else IN_EVERY_RUN)
def test_hudi_and_we_take_turns_on_a_table_with_a_metadata_table(
    hudi: HudiJvm, tmp_path: Path, name: str
) -> None:
    for seed in seeds(default_count=1):
        turns = Turns(hudi, tmp_path / str(seed) / "orders", KINDS[name])
        try:
            for number, drawn in enumerate(within(SOAK_SECONDS, drawn_turns(name, seed))):
                first = 100 + 10 * number
                for turn in drawn:
                    turns_of(KINDS[name])[turn](turns, range(first, first + 30))
                    turns.check(turn)
                turns.hudis(range(first + 5, first + 45))
                turns.check("hudi")
            check_invariants(turns.table)
            assert is_listed(load_properties(turns.table.store))
        except BaseException as error:
            error.add_note(f"seed {seed}, {name!r}: {turns.done}")
            raise
