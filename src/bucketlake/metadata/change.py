"""What an instant changes that the metadata table tells of: a pure function of the instant's own body.

Whoever finishes an instant after a crash comes to the same change, and so to the
same bytes in the metadata table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bucketlake.layout.names import split_path
from bucketlake.timeline import WRITE_ACTIONS, Action, decode_clean_metadata, decode_commit_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Data files that come and go with an instant."""

    added: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Partition -> file name -> size in bytes."""
    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Partition -> file names."""
    dropped: frozenset[str] = frozenset()
    """Partitions that cease to be."""

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.dropped)


def tells_of(action: Action) -> bool:
    """Tell whether an instant of this action, when completed, has one of the same time in the metadata table."""
    return action in WRITE_ACTIONS or action is Action.CLEAN


def change_of(action: Action, body: bytes, *, path: str) -> Change:
    """Read from the body of an instant what it changes; `path` names it in errors."""
    assert tells_of(action)
    if action is Action.CLEAN:
        clean = decode_clean_metadata(body, path=path)
        return Change(
            removed={p: names for p, names in clean.deleted.items() if names},
            dropped=frozenset(clean.partitions),
        )
    added: dict[str, dict[str, int]] = {}
    for stat in decode_commit_metadata(body, path=path).write_stats:
        added.setdefault(stat.partition, {})[split_path(stat.path)[1]] = stat.size_bytes
    return Change(added=added)
