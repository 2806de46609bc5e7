"""What tables with simple and partition-level buckets keep: versions of their rules, recorded counts, the one count.

A version of the rules is put before the rescale that it belongs to is committed, and goes when that is taken back.
Older than the active timeline it counts as committed, for us and for Hudi: so one that was not must be gone before the
timeline's start passes it. Few stay in place; those that count no more, and may come to count again when later ones are
taken back, are found in Hudi's archive, and brought back from there.

`hoodie.properties` follows. It says the one count of a table without rules, or that there are rules; the first rescale
of a simple table changes the one into the other and keeps the count aside (`COUNT_BEFORE_KEY`), so that whoever reads
the table between any two of these steps finds the count that holds (`simple_count`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bucketlake.config import TableProperties
from bucketlake.index.bucket_numbers import BUCKET_COUNT
from bucketlake.index.doubling import why_it_stays
from bucketlake.index.fingerprint import KEY_ENCODING
from bucketlake.index.keeper import NOTHING, Change, Keeper, Undoing, Undone, Upkeep
from bucketlake.index.partition import (
    ConfigVersions,
    HashingConfig,
    VersionedRules,
    current_version,
    is_initial,
    list_versions,
    load_rules,
)
from bucketlake.index.recorded_counts import choose_record, plan_record, recorded_instants
from bucketlake.index.resolve import COUNT_BEFORE_KEY
from bucketlake.index.ruled import RULE_TYPE_KEY, RuledIndex
from bucketlake.layout.names import (
    HASHING_CONFIG_ARCHIVE_FOLDER,
    hashing_config_path,
    recorded_counts_path,
    split_path,
)
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline

VERSIONS_KEPT = 3


class RulesKeeper(Keeper):
    """Keeps rules, recorded counts, and the count in `hoodie.properties`."""

    def version(self, store: Store, timeline: Timeline) -> str:
        return current_version(store, timeline)

    def before_commit(
        self, store: Store, properties: TableProperties, timeline: Timeline, change: Change
    ) -> Upkeep:
        index = change.index
        if not isinstance(index, RuledIndex):
            return NOTHING
        is_rescale = index.version == change.instant
        kept = NOTHING
        if change.written or is_rescale:
            by = VersionedRules(index.version, index.rules)
            kept = plan_record(store, timeline, change.written, by, instant=change.instant)
            if not is_rescale:
                # Nobody may have got so far after the rules were published: a store was full just then.
                kept |= Upkeep(settings=settings_of(properties, by))
        if is_rescale:
            config = HashingConfig(
                expressions=index.rules.expressions,
                default_count=index.rules.default_count,
                rule_type=index.rules.rule_type,
                instant=change.instant,
            )
            kept = Upkeep(puts={hashing_config_path(change.instant): config.render()}) | kept
        return kept

    def after_publishing(self, store: Store, properties: TableProperties, timeline: Timeline) -> Upkeep:
        return Upkeep(settings=settings_of(properties, load_rules(store, timeline)))

    def why_it_stays(self, properties: TableProperties, instant: str) -> str | None:
        return why_it_stays(properties, instant)

    def before_taking_back(
        self, store: Store, properties: TableProperties, timeline: Timeline, undone: Undone
    ) -> Undoing:
        if undone.action.when_completed is not Action.REPLACE_COMMIT:
            return Undoing()
        back = version_to_bring_back(list_versions(store), timeline, without=undone.instant)
        puts = {} if back is None else {hashing_config_path(back[0]): store.read(back[1])}
        # Tables whose first rescale kept the count in its commit only.
        count = undone.commit.extra.get(COUNT_BEFORE_KEY) if undone.commit is not None else None
        is_unsaid = BUCKET_COUNT not in properties.raw and COUNT_BEFORE_KEY not in properties.raw
        settings = {COUNT_BEFORE_KEY: count} if count is not None and is_unsaid else {}
        return Undoing(upkeep=Upkeep(puts=puts, settings=settings))

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:  # noqa: ARG002
        deletes = [recorded_counts_path(instant)]
        if action.when_completed is Action.REPLACE_COMMIT:
            deletes += [hashing_config_path(instant), _archived_path(hashing_config_path(instant))]
        return Upkeep(deletes=tuple(deletes))

    def before_archiving(self, store: Store, timeline: Timeline) -> Upkeep:
        plan = plan_versions(list_versions(store, with_archived=False), timeline)
        # There before it is gone: a reader finds it in one place at least.
        moved = {_archived_path(path): store.read(path) for path in plan.old}
        dead = dead_records(recorded_instants(store), timeline)
        return Upkeep(
            puts=moved, deletes=(*plan.uncommitted, *plan.old, *(recorded_counts_path(i) for i in dead))
        )


@dataclass(frozen=True, slots=True)
class VersionsPlan:
    """What becomes of the versions of a table's rules."""

    uncommitted: tuple[str, ...] = ()
    """Paths to delete."""
    old: tuple[str, ...] = ()
    """Paths to move to the archive."""


def plan_versions(versions: ConfigVersions, timeline: Timeline) -> VersionsPlan:
    """Choose what goes. `versions` were listed before the timeline: a rescale's instant is there before its version."""
    if timeline.start is None:
        return VersionsPlan()
    committed = _committed(versions.active, timeline)
    pending = {instant.requested for instant in timeline.pending()}
    strangers = [i for i in versions.active if i not in committed and i not in pending]
    return VersionsPlan(
        tuple(versions.active[i] for i in sorted(strangers)),
        tuple(versions.active[i] for i in committed[:-VERSIONS_KEPT]),
    )


def version_to_bring_back(
    versions: ConfigVersions, timeline: Timeline, *, without: str
) -> tuple[str, str] | None:
    """Return the archived version, with its path, that counts once `without` is gone; None if one in place does."""
    if without not in versions.active:
        return None
    left = [i for i in _committed(versions.active, timeline) if i != without]
    archived = max((i for i in versions.archived if i != without), default=None)
    if archived is None or (left and left[-1] >= archived):
        return None
    return archived, versions.archived[archived]


def dead_records(instants: Collection[str], timeline: Timeline) -> tuple[str, ...]:
    """Choose the records that do not count, and would once they are older than the active timeline.

    Those of writes that were taken back, by Hudi, which does not know them; and those of writes that began later than
    the one whose record counts, and were committed before it.
    """
    start, chosen = timeline.start, choose_record(instants, timeline)
    on_timeline = {instant.requested for instant in timeline.instants}
    gone = {i for i in instants if start is not None and i >= start and i not in on_timeline}
    completed = {instant.requested for instant in timeline.writes}
    overtaken = {i for i in instants if chosen is not None and i > chosen and i in completed}
    return tuple(sorted(gone | overtaken))


def settings_of(properties: TableProperties, rules: VersionedRules) -> Mapping[str, str | None]:
    """Return what has to be changed in `hoodie.properties` for it to say what holds; empty if it does.

    A copy of the count beside rules is what Hudi would hold against other rules.
    """
    raw = properties.raw
    if KEY_ENCODING not in raw:
        return {}  # Hudi's own: it keeps none of this
    if not rules.version:
        count = raw.get(COUNT_BEFORE_KEY)
        return {} if count is None else {BUCKET_COUNT: count, COUNT_BEFORE_KEY: None, RULE_TYPE_KEY: None}
    changes: dict[str, str | None] = {}
    if rules.rules is not None and raw.get(RULE_TYPE_KEY) != rules.rules.rule_type:
        changes[RULE_TYPE_KEY] = rules.rules.rule_type
    if BUCKET_COUNT in raw:
        changes |= {BUCKET_COUNT: None, COUNT_BEFORE_KEY: raw[BUCKET_COUNT]}
    return changes


def _committed(instants: Collection[str], timeline: Timeline) -> list[str]:
    """Return those that count, or have counted, oldest first."""
    completed = {instant.requested for instant in timeline.completed(Action.REPLACE_COMMIT)}
    start = timeline.start
    return sorted(i for i in instants if i in completed or is_initial(i) or (start is not None and i < start))


def _archived_path(path: str) -> str:
    return f"{HASHING_CONFIG_ARCHIVE_FOLDER}/{split_path(path)[1]}"
