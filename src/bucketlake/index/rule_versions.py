"""Aftercare for versions of bucket rules: few stay in place, and none that was never committed.

A version that is older than the active timeline counts as committed, for us and for Hudi. So one that was not must be
gone before the timeline's start passes it; and who reads the table as it was finds older versions in Hudi's archive.
"""

from __future__ import annotations

from dataclasses import dataclass

from bucketlake.config import TableProperties
from bucketlake.index.partition import ConfigVersions, list_versions
from bucketlake.layout.names import HASHING_CONFIG_ARCHIVE_FOLDER, split_path
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline, load_timeline

VERSIONS_KEPT = 3


@dataclass(frozen=True, slots=True)
class VersionsPlan:
    """What becomes of the versions of a table's rules."""

    uncommitted: tuple[str, ...] = ()
    """Paths to delete."""
    old: tuple[str, ...] = ()
    """Paths to move to the archive."""


def plan_versions(versions: ConfigVersions, timeline: Timeline) -> VersionsPlan:
    """Choose what goes. `versions` were listed before the timeline: a rescale's instant is there before its version."""
    completed = {instant.requested for instant in timeline.completed(Action.REPLACE_COMMIT)}
    pending = {instant.requested for instant in timeline.pending()}
    start = timeline.start
    if start is None:
        return VersionsPlan()
    committed = [i for i in versions.active if i in completed or i < start or not i.strip("0")]
    strangers = [i for i in versions.active if i not in committed and i not in pending]
    return VersionsPlan(
        tuple(versions.active[i] for i in sorted(strangers)),
        tuple(versions.active[i] for i in sorted(committed)[:-VERSIONS_KEPT]),
    )


def archive_versions(store: Store, properties: TableProperties) -> VersionsPlan:
    """Delete versions that were never committed, and move old ones out of the way; return what was done."""
    versions = list_versions(store, with_archived=False)
    if not versions:
        return VersionsPlan()
    plan = plan_versions(versions, load_timeline(store, properties))
    for path in plan.uncommitted:
        store.delete(path)
    for path in plan.old:
        # There before it is gone: a reader finds it in one place at least.
        store.put(f"{HASHING_CONFIG_ARCHIVE_FOLDER}/{split_path(path)[1]}", store.read(path))
        store.delete(path)
    return plan
