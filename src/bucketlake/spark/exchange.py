"""Two ways to bring pieces from task to task: by files on a disk that all tasks see, and by Spark's shuffle.

Where tasks share a disk, pieces stay on it, and the driver directs the tasks of the next stage to theirs. Elsewhere
Spark carries the pieces, and a piece costs it what a row does; what a stage has made is kept in Spark's cache, for the
driver looks at it before the next stage begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it

from bucketlake.layout import FileGroupId
from bucketlake.spark.pieces import SUMS, carried, carry, fetching, leave, received, share_out_pieces, unpack
from bucketlake.spark.worker import settle_worker
from bucketlake.storage import Handover
from bucketlake.write import GROUP_BITS, Coded, Cut, KeySum, Last, Stage

SAID = "said STRING"
_FACTS = ("code", "partition", "file_id", *SUMS)

Packed = Callable[[Sequence[str], Cut, Handover | None], DataFrame]
"""Makes a frame of what `pack_rows` makes of some columns of the rows."""


@dataclass(frozen=True, slots=True)
class ByFiles:
    """Pieces stay in files of the tasks that made them. Holds those of a stage as a table of where they lie."""

    session: SparkSession
    packed: Packed
    handover: Handover

    def scatter(self, columns: Sequence[str], cut: Cut) -> pa.Table:
        return self._listed(self.packed(columns, cut, self.handover))

    def of(self, coded: Coded) -> pa.Table:
        (lines,) = carry([coded], self.handover)
        return pa.Table.from_batches([fetching(self.handover)(lines["place"][0].as_py())])

    def joined(self, one: pa.Table, other: pa.Table) -> pa.Table:
        return pa.concat_tables([one, other])

    def gather(self, pieces: pa.Table, then: Stage, *, tasks: int) -> pa.Table:  # noqa: ARG002 # codes say which
        shares = self._shares(pieces)
        if not shares:
            return pieces.slice(0, 0)
        stage = partial(_go_on_with_shares, places=shares, then=then, handover=self.handover)
        return self._listed(self._numbers(shares).mapInArrow(stage, carried(self.handover)))

    def finish(self, pieces: pa.Table, then: Last, *, tasks: int) -> tuple[str, ...]:  # noqa: ARG002
        shares = self._shares(pieces)
        if not shares:
            return ()
        stage = partial(_end_with_shares, places=shares, then=then, handover=self.handover)
        return tuple(line[0] for line in self._numbers(shares).mapInArrow(stage, SAID).collect())

    def facts(self, pieces: pa.Table) -> pa.Table:
        return _summed(pieces.select(list(_FACTS)))

    def recoded(
        self, pieces: pa.Table, codes: npt.NDArray[np.int64], groups: Sequence[FileGroupId | None]
    ) -> pa.Table:
        for name, column in _columns(codes, groups).items():
            pieces = pieces.set_column(pieces.schema.get_field_index(name), name, column)
        return pieces

    def fetch(self, pieces: pa.Table, code: int) -> list[pa.RecordBatch]:
        chosen = pieces.filter(pc.equal(pieces["code"], code))
        return list(map(fetching(self.handover), chosen["data"].to_pylist()))

    def sum_of(self, pieces: pa.Table, *, received: KeySum) -> KeySum:  # noqa: ARG002 # it is certain
        return _key_sum({name: sum(pieces[name].to_pylist()) for name in SUMS})

    def _listed(self, lists: DataFrame) -> pa.Table:
        """Read the lists of pieces that tasks have left."""
        lines = lists.collect()
        batches = map(fetching(self.handover), [line["place"] for line in lines])
        return pa.Table.from_batches(batches) if lines else _NO_PIECES

    def _shares(self, pieces: pa.Table) -> list[bytes]:
        pieces = pieces.filter(pc.greater_equal(pieces["code"], 0))
        if not pieces.num_rows:
            return []
        places: list[bytes] = leave(share_out_pieces(pieces), self.handover).to_pylist()
        return places

    def _numbers(self, shares: Sequence[bytes]) -> DataFrame:
        return self.session.range(0, len(shares), 1, len(shares))


_NO_PIECES = pa.schema(
    [
        ("code", pa.int64()),
        ("partition", pa.string()),
        ("file_id", pa.string()),
        ("rows", pa.int64()),
        ("high", pa.int64()),
        ("low", pa.int64()),
        ("data", pa.binary()),
        ("number", pa.int64()),
    ]
).empty_table()


@dataclass(frozen=True, slots=True)
class Shuffled:
    """Pieces that Spark carries."""

    frame: DataFrame
    observation: Observation | None = None
    """Of a frame that is evaluated with the next stage: what it summed up to."""


@dataclass(slots=True)
class ByShuffle:
    """Spark carries the pieces. Holds those of a stage as a frame."""

    session: SparkSession
    packed: Packed
    kept: list[DataFrame] = field(default_factory=list)

    def close(self) -> None:
        """Let go of what stages have left in Spark's cache."""
        for frame in self.kept:
            frame.unpersist()

    def scatter(self, columns: Sequence[str], cut: Cut) -> Shuffled:
        observation = Observation()
        pieces = self.packed(columns, cut, None)
        return Shuffled(pieces.observe(observation, *_sums()), observation)

    def of(self, coded: Coded) -> Shuffled:
        lines = pa.Table.from_batches(carry([coded], None))
        return Shuffled(self.session.createDataFrame(lines, carried(None)))

    def joined(self, one: Shuffled, other: Shuffled) -> Shuffled:
        return Shuffled(one.frame.unionByName(other.frame))

    def gather(self, pieces: Shuffled, then: Stage, *, tasks: int) -> Shuffled:
        frame = _together(pieces.frame, tasks).mapInArrow(partial(_go_on, then=then), carried(None)).persist()
        self.kept.append(frame)
        return Shuffled(frame)

    def finish(self, pieces: Shuffled, then: Last, *, tasks: int) -> tuple[str, ...]:
        ended = _together(pieces.frame, tasks).mapInArrow(partial(_end, then=then), SAID)
        return tuple(line[0] for line in ended.collect())

    def facts(self, pieces: Shuffled) -> pa.Table:
        lines = pieces.frame.select(*_FACTS, "number").toArrow().sort_by("number")
        return _summed(lines.select(list(_FACTS)))

    def recoded(
        self, pieces: Shuffled, codes: npt.NDArray[np.int64], groups: Sequence[FileGroupId | None]
    ) -> Shuffled:
        numbers = pieces.frame.select("number").toArrow().sort_by("number")["number"].to_numpy()
        anew = partial(_recode, numbers=numbers, columns=_columns(codes, groups))
        return Shuffled(pieces.frame.mapInArrow(anew, carried(None)))

    def fetch(self, pieces: Shuffled, code: int) -> list[pa.RecordBatch]:
        chosen = pieces.frame.where(F.col("code") == code).select("data").toArrow()
        return [received(data.as_buffer()) for data in chosen["data"]]

    def sum_of(self, pieces: Shuffled, *, received: KeySum) -> KeySum:
        # Spark drops an observation with the plan of a frame that it knows to be empty.
        if pieces.observation is not None and received.rows:
            sent = _key_sum(pieces.observation.get)
            if sent == received:
                return sent
        # A task that ran again, because an executor was lost, was observed twice: count anew, and exactly.
        counted = pieces.frame.agg(*_sums()).first()
        assert counted is not None
        return _key_sum(counted.asDict())


def _together(pieces: DataFrame, tasks: int) -> DataFrame:
    return (
        pieces.where(F.col("code") >= 0)
        .select("code", "partition", "file_id", "data", "number")
        .repartitionById(tasks, F.shiftright(F.col("code"), GROUP_BITS).cast("int"))
        .sortWithinPartitions("code", "number")  # where nothing else decides, the later row counts
    )


def _columns(codes: npt.NDArray[np.int64], groups: Sequence[FileGroupId | None]) -> dict[str, pa.Array]:
    return {
        "code": pa.array(codes, pa.int64()),
        "partition": pa.array([group and group[0] for group in groups], pa.string()),
        "file_id": pa.array([group and group[1] for group in groups], pa.string()),
    }


def _recode(
    batches: Iterable[pa.RecordBatch], *, numbers: npt.NDArray[np.int64], columns: Mapping[str, pa.Array]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        places = pa.array(np.searchsorted(numbers, batch.column("number").to_numpy()))
        for name, column in columns.items():
            batch = batch.set_column(batch.schema.get_field_index(name), name, column.take(places))
        yield batch


def _go_on(batches: Iterable[pa.RecordBatch], *, then: Stage) -> Iterator[pa.RecordBatch]:
    settle_worker()
    return carry(then(unpack(batches, None)), None)


def _end(batches: Iterable[pa.RecordBatch], *, then: Last) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for text in then(unpack(batches, None)):
        yield pa.RecordBatch.from_pydict({"said": [text]})


def _go_on_with_shares(
    batches: Iterable[pa.RecordBatch], *, places: Sequence[bytes], then: Stage, handover: Handover
) -> Iterator[pa.RecordBatch]:
    """Go on with the shares whose numbers arrive: one number, one task."""
    settle_worker()
    for share in _shares_of(batches, places, handover):
        yield from carry(then(unpack([share], handover)), handover)


def _end_with_shares(
    batches: Iterable[pa.RecordBatch], *, places: Sequence[bytes], then: Last, handover: Handover
) -> Iterator[pa.RecordBatch]:
    settle_worker()
    for share in _shares_of(batches, places, handover):
        for text in then(unpack([share], handover)):
            yield pa.RecordBatch.from_pydict({"said": [text]})


def _shares_of(
    batches: Iterable[pa.RecordBatch], places: Sequence[bytes], handover: Handover
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield fetching(handover)(places[number])


def _summed(lines: pa.Table) -> pa.Table:
    """Put the two halves of sums together."""
    high, low = (lines[name].to_numpy().astype(np.uint64) for name in ("high", "low"))
    whole = pa.array((high << np.uint64(32)) + low)
    return lines.drop_columns(["high", "low"]).append_column("key_hash_sum", whole)


def _sums() -> list[Column]:
    return [F.sum(name).alias(name) for name in SUMS]


def _key_sum(sums: Mapping[str, Any]) -> KeySum:
    total = ((sums["high"] or 0) << 32) + (sums["low"] or 0)
    return KeySum(sums["rows"] or 0, total % (1 << 64))
