"""What an instant changes that the metadata table tells of: a pure function of the instant's own body.

Whoever finishes an instant after a crash comes to the same change, and so to the
same bytes in the metadata table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from bucketlake.layout.names import split_path
from bucketlake.timeline import (
    WRITE_ACTIONS,
    Action,
    CommitMetadata,
    decode_clean_metadata,
    decode_commit_metadata,
)

INDEX_FILES_KEY = "bucketlake.index.files"
"""Where a commit's extra metadata names the files in which it recorded what became of keys."""
CONCERNED_KEY = "bucketlake.index.concerned"
"""Where it names file groups whose keys it recorded anew without writing to them: who writes to these conflicts."""
LOGGED_KEYS_KEY = "bucketlake.logged.keys"
"""Where it says of its logs by how many keys their file groups have grown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFile:
    """A file in which an instant has recorded what became of keys."""

    path: str
    size_bytes: int
    came: int
    """Keys that came, or live elsewhere now."""
    gone: int
    key_hash_sum: int
    """Over all of them, modulo 2**64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Data files that come and go with an instant."""

    added: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Partition -> file name -> size in bytes."""
    removed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Partition -> file names."""
    dropped: frozenset[str] = frozenset()
    """Partitions that cease to be."""
    index_files: tuple[IndexFile, ...] = ()
    """What was put into the metadata table before the instant was decided."""

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
    commit = decode_commit_metadata(body, path=path)
    for stat in commit.write_stats:
        added.setdefault(stat.partition, {})[split_path(stat.path)[1]] = stat.size_bytes
    return Change(added=added, index_files=index_files_of(commit))


def index_files_of(commit: CommitMetadata) -> tuple[IndexFile, ...]:
    """Return the files in which a commit says that it recorded keys; none if it does not say."""
    text = commit.extra.get(INDEX_FILES_KEY)
    return tuple(IndexFile(**facts) for facts in json.loads(text)) if text else ()


def concerned_by(commit: CommitMetadata) -> frozenset[tuple[str, str]]:
    """Return the file groups, as partition and file id, that a commit is about without writing to them."""
    return frozenset(
        (partition, file_id) for partition, file_id in json.loads(commit.extra.get(CONCERNED_KEY, "[]"))
    )


def render_concerned(groups: Iterable[tuple[str, str]]) -> str:
    return json.dumps(sorted(groups))


def logged_keys_of(commit: CommitMetadata) -> Mapping[str, Mapping[str, int]]:
    """Return by how many keys the logs of a commit have made file groups grow: partition -> file id -> keys.

    A commit that does not say brought none, as all of Hudi's that run on Spark.
    """
    grown: Mapping[str, Mapping[str, int]] = json.loads(commit.extra.get(LOGGED_KEYS_KEY, "{}"))
    return grown


def logs_may_delete(commit: CommitMetadata) -> bool:
    """Tell whether a log of a commit may hold deletes; of one that tells nobody what became of keys, nobody knows."""
    is_told = INDEX_FILES_KEY in commit.extra
    return any(stat.log_files and (stat.deleted or not is_told) for stat in commit.write_stats)


def render_logged_keys(grown: Iterable[tuple[str, str, int]]) -> str:
    """Write down partition, file id and number of keys of each log."""
    by_partition: dict[str, dict[str, int]] = {}
    for partition, file_id, keys in sorted(grown):
        by_partition.setdefault(partition, {})[file_id] = keys
    return json.dumps(by_partition)


def render_index_files(files: Iterable[IndexFile]) -> str:
    return json.dumps([asdict(file) for file in sorted(files, key=lambda file: file.path)])
