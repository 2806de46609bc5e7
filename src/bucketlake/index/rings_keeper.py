"""What tables with consistent or extendible hashing keep: versions of every partition's ring, and rows beside a resize.

While a bucket is being split or merged, writers put rows to the file groups that take its place as well, or only there,
with a reference in the old one (`resizes`). When the resize completes, what unfinished writes have put there goes; when
it is taken back, pending or completed, the rows that lie only there go back first to where they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bucketlake.config import TableProperties, TableType
from bucketlake.index.consistent import (
    HashingMetadata,
    list_markers,
    list_rings,
    outdated_rings,
    ring_files_of,
)
from bucketlake.index.doubling import why_it_stays
from bucketlake.index.index import Index
from bucketlake.index.keeper import NOTHING, Change, Keeper, Undoing, Undone, Upkeep
from bucketlake.index.partition import instant_of, is_initial
from bucketlake.index.resizes import (
    find_unknown_resize,
    pending_resizes,
    plan_of_resize,
    references,
    shadow_logs,
    unfinished_logs,
)
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action, CommitMetadata, Timeline


@dataclass(frozen=True, slots=True)
class RingsKeeper(Keeper):
    """Keeps rings of one kind."""

    kind: type[HashingMetadata] = HashingMetadata

    def moving(self, store: Store, timeline: Timeline) -> frozenset[str]:
        return frozenset(pending_resizes(store, timeline))

    def in_the_way(
        self,
        store: Store,
        properties: TableProperties,
        timeline: Timeline,
        metadata: CommitMetadata,
        *,
        index: Index,
        known: Collection[str],
        is_given_up: Callable[[str], bool],
    ) -> str | None:
        gone = self._without_bucket(store, timeline, metadata, index)
        return gone or find_unknown_resize(
            store,
            timeline,
            metadata,
            known=known,
            is_given_up=is_given_up,
            is_copy_on_write=properties.table_type is TableType.COPY_ON_WRITE,
        )

    def _without_bucket(
        self, store: Store, timeline: Timeline, metadata: CommitMetadata, index: Index
    ) -> str | None:
        """Name the resize that merged a bucket in which this write is the first: its file group was not there yet."""
        opened = {
            (stat.partition, stat.file_id)
            for stat in metadata.write_stats
            if stat.previous_instant is None and not stat.log_files
        }
        overwrites = bool(metadata.replaced) or (metadata.operation or "").startswith("INSERT_OVERWRITE")
        if not opened or index.resizable is None or overwrites:
            return None
        rings: Mapping[str, HashingMetadata] = list_rings(store, timeline, kind=self.kind) or {}
        now = index.resizable.with_rings({p: rings[p] for p in {p for p, _ in opened} if p in rings})
        return next(
            (
                rings[p].instant
                for p, file_id in sorted(opened)
                if p in rings and not now.slot_of_file(p, file_id)
            ),
            None,
        )

    def before_commit(
        self,
        store: Store,  # noqa: ARG002
        properties: TableProperties,  # noqa: ARG002 # the protocol's
        timeline: Timeline,  # noqa: ARG002
        change: Change,
    ) -> Upkeep:
        found = NOTHING
        for partition in sorted(change.written | change.replaced):
            files = change.index.layout_files(partition)
            # The first version is derived by every writer alike; a later one is its instant's own, and Hudi may have
            # been cut off while writing it.
            is_first = all(is_initial(instant_of(path)) for path in files)
            found |= Upkeep(new=files) if is_first else Upkeep(puts=files)
        return found

    def before_publishing(
        self, store: Store, properties: TableProperties, *, instant: str, action: Action
    ) -> Upkeep:
        if action is not Action.CLUSTERING:
            return NOTHING
        plan = plan_of_resize(store, properties, instant)
        return NOTHING if plan is None else Upkeep(deletes=unfinished_logs(load_state(store), instant, plan))

    def after_publishing(self, store: Store, properties: TableProperties, timeline: Timeline) -> Upkeep:  # noqa: ARG002
        return self.before_archiving(store, timeline)

    def why_it_stays(self, properties: TableProperties, instant: str) -> str | None:
        return why_it_stays(properties, instant)  # one that is being doubled again

    def before_taking_back(
        self,
        store: Store,
        properties: TableProperties,
        timeline: Timeline,  # noqa: ARG002
        undone: Undone,
    ) -> Undoing:
        if undone.action.when_completed is not Action.REPLACE_COMMIT:
            return Undoing()
        plan = plan_of_resize(store, properties, undone.instant)
        if plan is None:
            return Undoing()
        return Undoing(
            upkeep=Upkeep(joins=references(store, plan, view=load_state(store).view)),
            files=tuple(log.path for log in shadow_logs(store, undone.instant, plan)),
            takes_plan=True,
        )

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:
        if action.when_completed is not Action.REPLACE_COMMIT:
            return NOTHING
        return Upkeep(deletes=ring_files_of(store, instant, kind=self.kind))

    def before_archiving(self, store: Store, timeline: Timeline) -> Upkeep:
        return Upkeep(new=dict.fromkeys(list_markers(store, timeline, kind=self.kind), b""))

    def when_cleaning(self, store: Store, timeline: Timeline, *, before: str) -> Upkeep:
        return Upkeep(deletes=outdated_rings(store, timeline, before=before, kind=self.kind))
