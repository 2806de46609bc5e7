"""A table as it is at one moment, read by frames, which know together what they have read of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame, SparkSession

from bucketlake.index import resolve_index
from bucketlake.layout import FileGroupId
from bucketlake.read import RawFilter, make_query, plan_read
from bucketlake.spark.read import scan
from bucketlake.state import TableState, table_schema


class Snapshot:
    """What rows are computed from: every frame of it sees the same commits."""

    def __init__(self, session: SparkSession, state: TableState) -> None:
        self.session = session
        self.state = state
        self.schema = table_schema(state)
        """Without Hudi's meta columns."""
        self.index = resolve_index(state)
        self._groups: set[FileGroupId] = set()

    @property
    def groups(self) -> frozenset[FileGroupId]:
        """The file groups that the frames read."""
        return frozenset(self._groups)

    def frame(self, *, columns: Sequence[str] | None = None, filters: Iterable[RawFilter] = ()) -> DataFrame:
        """Return the table as a frame: its own columns, unless others are named."""
        names = self.schema.names if columns is None else list(columns)
        plan = plan_read(self.state, make_query(self.state, columns=names, filters=filters), self.index)
        self._groups.update((part.partition, part.file_id) for part in plan.slices)
        return scan(self.session, plan)
