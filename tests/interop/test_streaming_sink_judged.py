"""Hudi's streaming sink and a stream of ours take turns at one table: each goes on where the other ended.

Both know the stream by an identifier, under which the newest batch stands in the commits. Each sends all batches from
the first on; those that the table has by then hold other rows, which show up if they are written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import SimpleBuckets, Table, create_table
from bucketlake.commit.stream import HUDI_KEY
from bucketlake.state import load_state
from bucketlake.streaming.stream import Stream
from bucketlake.timeline import read_commit_metadata
from judges.hudi_jvm import HudiJvm, options_for
from judges.hudi_rs import read_snapshot
from stand_ins.arriving import put_file
from stand_ins.clicks import SCHEMA, batch, rows_of, truth

pytestmark = [pytest.mark.interop, pytest.mark.shows("R9")]

IDENTIFIER = "clicks"


def sent_again(number: int) -> pa.Table:
    """Newer rows, of a key that no batch has."""
    row = {"id": 9_000 + number, "dt": "p0", "ts": 9_000, "batch": -1, "_hoodie_is_deleted": False}
    return pa.Table.from_pylist([row], SCHEMA)


class Turns:
    """A table, and who writes the next batches of the stream."""

    def __init__(self, hudi: HudiJvm, folder: Path, table_type: str) -> None:
        self.hudi, self.folder, self.path = hudi, folder, folder / "clicks"
        self.turns, self.done = 0, 0
        self.options = options_for(
            "clicks",
            table_type=table_type,
            buckets=2,
            more={
                "hoodie.datasource.write.operation": "upsert",
                "hoodie.datasource.write.streaming.checkpoint.identifier": IDENTIFIER,
                "hoodie.datasource.compaction.async.enable": "false",
                "hoodie.metadata.enable": "false",
            },
        )

    def batches_up_to(self, end: int) -> Iterable[tuple[int, pa.Table]]:
        for number in range(end):
            yield number, sent_again(number) if number < self.done else batch(number)

    def hudis(self, end: int) -> None:
        """Let Hudi's sink write all batches before `end`, with a checkpoint that is as far as the table, or new."""
        self.turns += 1
        source = self.folder / f"source-{self.turns}"
        source.mkdir()
        for number, rows in self.batches_up_to(end):
            put_file(source, number, rows)
        checkpoint = self.folder / f"checkpoint-{self.turns}"
        assert self.hudi.stream(self.path, source, checkpoint, self.options) == list(range(end))
        self._check(end)

    def ours(self, end: int) -> None:
        self.turns += 1
        table = Table.open(self.path)
        stream = Stream(store=table.store, id=f"of-turn-{self.turns}", identifier=IDENTIFIER, name="clicks")
        for number, rows in self.batches_up_to(end):
            written = stream.upsert(rows, number) is not None
            assert written == (number >= self.done), number
        self._check(end)

    def _check(self, end: int) -> None:
        self.done = end
        table = Table.open(self.path)
        assert rows_of(table.store) == truth(range(end))
        for rows in (self.hudi.read(self.path), read_snapshot(self.path)):
            found = rows.select(["id", "dt", "ts", "batch"]).to_pylist()
            assert sorted(tuple(row.values()) for row in found) == truth(range(end))
        commits = sorted(load_state(table.store).timeline.writes, key=lambda i: i.requested)
        marks = [
            read_commit_metadata(table.store, commit).extra.get(HUDI_KEY, "nothing") for commit in commits
        ]
        assert [json.loads(mark) for mark in marks] == [{IDENTIFIER: str(n)} for n in range(end)]
        assert table.fsck().is_sound


@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_hudis_sink_and_a_stream_of_ours_go_on_where_the_other_ended(
    hudi: HudiJvm, tmp_path: Path, table_type: str
) -> None:
    turns = Turns(hudi, tmp_path, table_type)
    is_ours_first = table_type == "MERGE_ON_READ"
    if is_ours_first:
        create_table(
            turns.path,
            SCHEMA,
            key="id",
            partition="dt",
            ordering="ts",
            index=SimpleBuckets(2),
            table_type=table_type,
            name="clicks",
        )
        turns.ours(2)
    turns.hudis(3)
    if not is_ours_first:
        Table.adopt(turns.path, buckets=2)
    turns.ours(5)
    turns.hudis(6)
