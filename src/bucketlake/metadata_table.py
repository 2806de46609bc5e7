"""Hudi's metadata table of a table, and what can be done with it: `table.metadata`."""

from __future__ import annotations

from bucketlake import plans
from bucketlake.commit.metadata_build import BuiltMetadata
from bucketlake.commit.metadata_table import Delisted
from bucketlake.services import MetadataStatus, metadata_status
from bucketlake.storage import Store
from bucketlake.write.metadata_drop import DropMetadataTable


class MetadataTable:
    """The metadata table of a table. What changes it is a verb, or a plan for `table.run`.

    A table that has one is listed by it, by Hudi and by us, instead of folder by folder. Every write and service keeps
    it in step.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def status(self) -> MetadataStatus:
        """Say what the metadata table has, whether it is in step, and when it was last compacted."""
        return metadata_status(self._store)

    def build(self) -> BuiltMetadata | None:
        """Build the metadata table, while writers go on; None if there is one."""
        return plans.plan_metadata_build(self._store, anew=False).run(self._store)

    def plan_build(self) -> plans.PlannedMetadataBuild:
        """Say what `build` would list."""
        return plans.plan_metadata_build(self._store, anew=False)

    def rebuild(self) -> BuiltMetadata | None:
        """Build the metadata table anew, whatever there is of one. Until that is done, the table has none."""
        return plans.plan_metadata_build(self._store, anew=True).run(self._store)

    def plan_rebuild(self) -> plans.PlannedMetadataBuild:
        """Say what `rebuild` would delist, and list."""
        return plans.plan_metadata_build(self._store, anew=True)

    def drop(self) -> DropMetadataTable:
        """Delist and delete the metadata table. Returns what went."""
        return self.plan_drop().run(self._store)

    def plan_drop(self) -> plans.PlannedMetadataDrop:
        """Say what `drop` would delete."""
        return plans.plan_metadata_drop(self._store)

    def delist(self) -> Delisted:
        """Delist and delete those parts of the metadata table that bucketlake does not keep in step.

        Hudi's writers make them again, unless they are told not to. To have every write delist them:
        `table.alter(on_unmaintained="delist")`.
        """
        return self.plan_delist().run(self._store)

    def plan_delist(self) -> plans.PlannedDelisting:
        """Say what `delist` would delist."""
        return plans.plan_delisting(self._store)
