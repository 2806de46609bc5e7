# ruff: noqa: ARG002 # what an engine may be told, it need not look at
"""The keeper: what an engine keeps on disk beside the rows, and when it comes and goes.

Bucket rules, hash rings, recorded counts, the count in `hoodie.properties`: each belongs to an instant, must be there
before that is committed and gone when it is taken back, and outlives what may still be gone back to. An engine says so
as values (`Upkeep`); who commits, rolls back, restores, archives or cleans asks its keeper, does what the value says
(`carry_out`), and knows no engine.

    before_commit          what must be there before an instant is committed
    before_publishing      once that is decided, and before anybody sees it; whoever publishes does it
    after_publishing       what may follow
    why_it_stays           before it is decided to take one back
    before_taking_back     while the instant still counts, or is pending
    after_taking_back      once nobody sees it any more
    before_archiving       before what says that something counts leaves the timeline
    when_cleaning          what no reader needs whom a clean leaves his files

All of it may be done twice, or by two at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from bucketlake.config import TableProperties, update_properties
from bucketlake.index.index import Index
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import Action, CommitMetadata, Timeline


@dataclass(frozen=True, slots=True)
class Join:
    """A file that is to hold what these files hold, one after the other."""

    path: str
    sources: tuple[str, ...]
    version: str
    """Of the file as it was when this was decided: if it has another, somebody else has done it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """What is to be done to what an engine keeps, in this order."""

    puts: Mapping[str, bytes] = field(default_factory=dict)
    """Path -> content."""
    new: Mapping[str, bytes] = field(default_factory=dict)
    """The same, of files that every writer derives alike: one that is there stays."""
    joins: tuple[Join, ...] = ()
    settings: Mapping[str, str | None] = field(default_factory=dict)
    """For `hoodie.properties`; None takes a key away."""
    deletes: tuple[str, ...] = ()
    """Paths, the first to go first."""

    def __or__(self, other: Upkeep) -> Upkeep:
        return Upkeep(
            puts={**self.puts, **other.puts},
            new={**self.new, **other.new},
            joins=self.joins + other.joins,
            settings={**self.settings, **other.settings},
            deletes=self.deletes + other.deletes,
        )


NOTHING = Upkeep()


@dataclass(frozen=True, slots=True, kw_only=True)
class Undoing:
    """What taking an instant back means for its engine."""

    upkeep: Upkeep = NOTHING
    """To be done first."""
    files: tuple[str, ...] = ()
    """Data files that go with the instant, though they do not bear its time or were written by others."""
    takes_plan: bool = False
    """Whether a pending one goes with its plan, because writers go by that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What an instant is about to change."""

    instant: str
    index: Index
    """As it is once the instant is committed."""
    written: frozenset[str]
    """The partitions that it writes to."""
    replaced: frozenset[str] = frozenset()
    """Those whose file groups give way."""
    recorded: frozenset[str] | None = None
    """The files in which it has recorded what became of keys; None if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    """An instant that is being taken back."""

    instant: str
    action: Action
    commit: CommitMetadata | None
    """What it said when it was completed; None if it was not, or is no longer."""


class Keeper:
    """What an engine says of what it keeps: nothing, unless it says otherwise. Reads the table, and changes nothing."""

    def version(self, store: Store, timeline: Timeline) -> str:
        """Return which version of the layout counts, for a writer to see whether it has changed; empty for none."""
        return ""

    def moving(self, store: Store, timeline: Timeline) -> frozenset[str]:
        """Return the instants that are moving rows to other file groups, and that writers write beside."""
        return frozenset()

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
        """Name an instant of `moving` that keeps a write from being committed, None if none does.

        One that the write did not know of, or that it wrote beside and that is gone, or that took away a bucket of the
        write's `index` while that was empty. `is_given_up` tells whether it was decided to take an instant back.
        """
        return None

    def before_commit(
        self, store: Store, properties: TableProperties, timeline: Timeline, change: Change
    ) -> Upkeep:
        """Say what must be there before an instant is committed; may refuse by raising."""
        return NOTHING

    def before_publishing(
        self, store: Store, properties: TableProperties, *, instant: str, action: Action
    ) -> Upkeep:
        """Say what is to be done once it is decided that an instant is committed, and before anybody sees it."""
        return NOTHING

    def after_publishing(self, store: Store, properties: TableProperties, timeline: Timeline) -> Upkeep:
        """Say what should follow when file groups were replaced, or that was taken back. Nothing may depend on it."""
        return NOTHING

    def why_it_stays(self, properties: TableProperties, instant: str) -> str | None:
        """Say why a completed instant that replaced file groups can no longer be taken back; None if it can."""
        return None

    def before_taking_back(
        self, store: Store, properties: TableProperties, timeline: Timeline, undone: Undone
    ) -> Undoing:
        """Say what taking an instant back begins with."""
        return Undoing()

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:
        """Say what goes once nobody sees the instant any more."""
        return NOTHING

    def left_late(self, store: Store, *, instant: str) -> Upkeep:
        """Say what goes that tasks have put after their instant was taken back: when none of them can be alive."""
        return NOTHING

    def before_archiving(self, store: Store, timeline: Timeline) -> Upkeep:
        """Say what has to be done before what tells that something counts leaves the timeline."""
        return NOTHING

    def when_cleaning(self, store: Store, timeline: Timeline, *, before: str) -> Upkeep:
        """Say what may go when nobody reads the table as it was before an instant."""
        return NOTHING


def carry_out(store: Store, upkeep: Upkeep) -> None:
    """Do what an engine says is to be done."""
    for path, content in upkeep.puts.items():
        store.put(path, content)
    for path, content in upkeep.new.items():
        store.put_new(path, content)
    for join in upkeep.joins:
        _join(store, join)
    if upkeep.settings:
        update_properties(store, upkeep.settings)
    for path in upkeep.deletes:
        store.delete(path)


def _join(store: Store, join: Join) -> None:
    try:
        whole = b"".join(in_parallel(store.read, join.sources, store))
    except FileNotFoundError:
        if store.stat(join.path).version == join.version:
            raise
        return  # somebody else has done it, and the sources are gone
    store.replace_if(join.path, whole, join.version)
