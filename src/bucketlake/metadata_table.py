"""Hudi's metadata table of a table, and what can be done with it: `table.metadata`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketlake import given, plans
from bucketlake.commit.metadata_build import BuiltMetadata
from bucketlake.commit.metadata_table import Delisted
from bucketlake.errors import ConfigError
from bucketlake.index.record_level import RecordIndex
from bucketlake.services import MetadataStatus, metadata_status
from bucketlake.services.record_index_build import BuiltRecordIndex
from bucketlake.storage import Store
from bucketlake.write.metadata_drop import DropMetadataTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class MetadataTable:
    """Hudi's metadata table of a table. Verbs change it; a `plan_…` says what a verb would do, `table.run` does it.

    Readers and writers, Hudi's and ours, find files in it instead of listing folders. Every write and service keeps it
    up to date.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def status(self) -> MetadataStatus:
        """Say what the metadata table has, whether it is in step, and when it was last compacted."""
        return metadata_status(self._store)

    def build(
        self,
        *,
        record_index: bool = False,
        per_partition: bool = False,
        shards: int | None = None,
        spark: SparkSession | None = None,
        progress: bool | None = None,
    ) -> BuiltMetadata | None:
        """Build what the metadata table lacks, while writers go on; None if it lacks nothing.

        With `record_index`, it also builds a record-level index, by which Hudi finds a key without reading every file
        group. The index is of the whole table, and then no key may be in two partitions, or `per_partition`. It has
        `shards` files, for the table or for each partition, by default as many as the rows need. A table that finds its
        keys by such an index gets it in any case, and takes no writes until it is there.

        If a call is cut off, the next one goes on with it.
        """
        plan = self.plan_build(record_index=record_index, per_partition=per_partition, shards=shards)
        return plan.run(self._store, given.tasks_of(spark, progress))

    def plan_build(
        self, *, record_index: bool = False, per_partition: bool = False, shards: int | None = None
    ) -> plans.PlannedMetadataBuild:
        """Say what `build` would list; and rows, shards and bytes of a record-level index."""
        asked = _asked(record_index=record_index, per_partition=per_partition, shards=shards)
        return plans.plan_metadata_build(self._store, anew=False, record_index=asked)

    def rebuild(
        self, *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> BuiltMetadata | None:
        """Delete what there is of the metadata table, and build it again. Until that is done, the table has none.

        Its record-level index and its secondary indexes are built again, too.
        """
        return self.plan_rebuild().run(self._store, given.tasks_of(spark, progress))

    def plan_rebuild(self) -> plans.PlannedMetadataBuild:
        """Say what `rebuild` would delist, and list."""
        return plans.plan_metadata_build(self._store, anew=True)

    def grow_record_index(
        self, shards: int, *, spark: SparkSession | None = None, progress: bool | None = None
    ) -> BuiltRecordIndex | None:
        """Give the record-level index another number of shards, for the table or for each partition.

        Keys are read while the index is there. Then it is delisted until the new one is listed, because Hudi counts
        shards by listing one folder. Our writers go on meanwhile, by the old shards; Hudi's do not know of the index.
        If the call is cut off, the next one, or `build`, goes on with it. Secondary indexes are delisted with the
        index, and built again after it.
        """
        return self.plan_grow_record_index(shards).run(self._store, given.tasks_of(spark, progress))

    def plan_grow_record_index(self, shards: int) -> plans.PlannedIndexGrowth:
        """Say what `grow_record_index` would read and make."""
        return plans.plan_index_growth(self._store, given.whole_number(shards, "shards"))

    def drop(self, *, record_index: bool = False) -> DropMetadataTable:
        """Delete the metadata table; with `record_index`, only its record-level index. Return what was deleted."""
        return self.plan_drop(record_index=record_index).run(self._store)

    def plan_drop(self, *, record_index: bool = False) -> plans.PlannedMetadataDrop | plans.PlannedIndexDrop:
        """Say what `drop` would delete."""
        if given.flag(record_index, "record_index"):
            return plans.plan_index_drop(self._store)
        return plans.plan_metadata_drop(self._store)

    def delist(self) -> Delisted:
        """Delete the parts of the metadata table that bucketlake does not keep up to date.

        Hudi's writers make them again, unless they are told not to. To let every write delete them:
        `table.alter(on_unmaintained="delist")`.
        """
        return self.plan_delist().run(self._store)

    def plan_delist(self) -> plans.PlannedDelisting:
        """Say what `delist` would delist."""
        return plans.plan_delisting(self._store)


def _asked(*, record_index: bool, per_partition: bool, shards: int | None) -> RecordIndex | None:
    is_asked, is_cut = given.flag(record_index, "record_index"), given.flag(per_partition, "per_partition")
    if not is_asked and (is_cut or shards is not None):
        raise ConfigError(
            "per_partition and shards are said of a record-level index: give record_index=True with them."
        )
    if not is_asked:
        return None
    return RecordIndex(is_cut, None if shards is None else given.whole_number(shards, "shards"))
