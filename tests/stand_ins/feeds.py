"""A table at its source, changed at random, and the feed that tells of it. A copy must hold what the source has.

Changes have increasing numbers, by which they can be ordered (`ts`). Both halves of an update have the same one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("dt", pa.string()),
        pa.field("ts", pa.int64()),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("city", pa.string()),
    ]
)
INCOMING = pa.schema([*(column.with_nullable(True) for column in SCHEMA), pa.field("op", pa.string())])
WORDS = {
    # insert, before, after, delete; Debezium tells of no row before an update
    "debezium": ("c", None, "u", "d"),
    "flink": ("+I", "-U", "+U", "-D"),
    "delta": ("insert", "update_preimage", "update_postimage", "delete"),
    "in capitals": ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE"),
}
IDS = "abcdefgh"
PARTITIONS = ("p0", "p1")
Row = dict[str, Any]


def batch(events: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(events, INCOMING)


@dataclass(slots=True)
class Source:
    """Rows by their keys, each of which is in one partition."""

    chance: Random
    words: str
    rows: dict[str, Row] = field(default_factory=dict)
    told: list[Row] = field(default_factory=list)
    """All events, in their order."""
    _clock: int = 0

    def changes(self, count: int) -> list[Row]:
        """Change some rows; return the events, in their order."""
        events = [event for _ in range(count) for event in self._change()]
        self.told += events
        return events

    def late(self, count: int) -> list[Row]:
        """Tell again of rows that are there, what was told of them before."""
        old = [
            event
            for event in self.told
            if (row := self.rows.get(event["id"])) is not None
            and row["dt"] == event["dt"]
            and event["ts"] < row["ts"]
        ]
        return self.chance.sample(old, min(count, len(old)))

    def table(self) -> pa.Table:
        return pa.Table.from_pylist(list(self.rows.values()), SCHEMA)

    def _change(self) -> list[Row]:
        chance = self.chance
        free = [key for key in IDS if key not in self.rows]
        kind = chance.choice(["insert", "update", "update", "rename", "move", "delete"])
        if kind == "insert" or not self.rows:
            return self._insert(chance.choice(free)) if free else []
        key = chance.choice(sorted(self.rows))
        if kind == "delete":
            return [self._gone(3, self.rows.pop(key))]
        old = self.rows.pop(key)
        renamed = chance.choice(free) if kind == "rename" and free else key
        moved = chance.choice(PARTITIONS) if kind == "move" else old["dt"]
        return self._update(old, renamed, moved)

    def _insert(self, key: str) -> list[Row]:
        return [self._there(0, key, self.chance.choice(PARTITIONS))]

    def _update(self, old: Row, key: str, partition: str) -> list[Row]:
        is_elsewhere = (key, partition) != (old["id"], old["dt"])
        if WORDS[self.words][1] is None:  # a row that is elsewhere is deleted and inserted
            gone = [self._gone(3, old)] if is_elsewhere else []
            return [*gone, self._there(0 if is_elsewhere else 2, key, partition)]
        before = self._gone(1, old)
        return [before, self._there(2, key, partition, tick=0)]

    def _there(self, word: int, key: str, partition: str, *, tick: int = 1) -> Row:
        self._clock += tick
        row = {
            "id": key,
            "dt": partition,
            "ts": self._clock,
            "n": self.chance.randrange(100),
            "city": self.chance.choice([None, "Rome", "Oslo", "Bonn"]),
        }
        self.rows[key] = row
        return {**row, "op": WORDS[self.words][word]}

    def _gone(self, word: int, old: Row) -> Row:
        """A row that is no more; some sources tell its key only."""
        self._clock += 1
        values = {"n": old["n"], "city": old["city"]} if self.chance.random() < 0.5 else {}
        key = {"id": old["id"], "dt": old["dt"], "ts": self._clock, "op": WORDS[self.words][word]}
        return {"n": None, "city": None, **key, **values}
