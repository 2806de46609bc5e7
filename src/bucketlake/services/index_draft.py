"""What is decided of an index that is being built: kept beside the table, where no writer looks.

    .hoodie/.bucketlake/index_builds/number              the number that was used last, by any build
    .../record_index/draft.json                          this; another index has a folder of its own
    .../record_index/runs/<name>.arrow                   keys of file slices
    .../record_index/told/<instant>/<shard>.<round>.json what was put for a shard, and found to be right

A draft says into how many shards keys are cut, and as what the file groups were read: all of them in the first round,
those that had changed in each one after. Whoever builds goes by it, so two may build at once, and the next goes on
where one was cut off. Its instant is a number that no other has: Hudi counts the beginnings of the metadata table's
partitions. One that was used is not used again, as whoever is still at an older draft puts files that nobody takes for
those of the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bucketlake.config import TableProperties
from bucketlake.errors import ConcurrentWriteError
from bucketlake.layout import FileGroupId
from bucketlake.layout.names import (
    INDEX_BUILDS_FOLDER,
    METADATA_TABLE_FOLDER,
    parse_index_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.metadata.places import FIRST_INSTANT, INDEX_BUILT, is_own_instant
from bucketlake.metadata.secondary_index import SecondaryIndexDefinition, builds_of
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services.index_kind import IndexKind, RecordKind, SecondaryKind
from bucketlake.services.index_tasks import Run, Sum, total
from bucketlake.storage import Store, in_parallel

_NUMBER_PATH = f"{INDEX_BUILDS_FOLDER}/number"
_TRIES = 50

Groups = Mapping[FileGroupId, Run | None]
"""As what file groups were read; None: they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is decided of an index that is being built."""

    instant: str
    kind: IndexKind
    shards: int
    """Of the table; or of a partition of which nothing else is said."""
    sized: Mapping[str, int] = field(default_factory=dict)
    rounds: tuple[Groups, ...] = ()

    def shards_of(self, partition: str) -> int:
        """Return how many shards the keys of a partition are cut into."""
        return self.sized.get(partition, self.shards) if self.kind.per_partition else self.shards

    def groups(self, *, before: int | None = None) -> dict[FileGroupId, Run]:
        """Return as what the file groups were read that were there after all rounds, or before one."""
        found: dict[FileGroupId, Run | None] = {}
        for groups in self.rounds[:before]:
            found |= groups
        return {group: run for group, run in found.items() if run is not None}

    @property
    def keys(self) -> Sum:
        """What file slices tell of all keys."""
        return total(run.keys for run in self.groups().values())

    def shards_in(self, round_: int) -> list[Shard]:
        """Name the shards in which a round may have to say something."""
        if not self.kind.per_partition:
            return [Shard(self.kind, None, number) for number in range(self.shards)]
        partitions = sorted({partition for partition, _ in self.rounds[round_]})
        return [Shard(self.kind, p, number) for p in partitions for number in range(self.shards_of(p))]


@dataclass(frozen=True, slots=True)
class Shard:
    kind: IndexKind
    partition: str | None
    """The data partition that it is for; None: for all."""
    number: int

    @property
    def file_id(self) -> str:
        return self.kind.file_id(self.number, self.partition)


@dataclass(frozen=True, slots=True)
class Found:
    """What lies there of a draft."""

    draft: Draft | None
    version: str | None
    """Of the file."""


def load_draft(store: Store, partition: str) -> Found:
    """Look for the draft of the index in this partition of the metadata table."""
    path = draft_path(partition)
    try:
        version = store.stat(path).version
        said = json.loads(store.read(path))
    except FileNotFoundError:
        return Found(None, None)
    if not said:
        return Found(None, version)
    rounds = tuple(
        {
            (partition, file_id): None if name is None else Run(name, Sum(rows, hashes))
            for partition, file_id, name, rows, hashes in groups
        }
        for groups in said["rounds"]
    )
    draft = Draft(
        instant=said["instant"],
        kind=_kind_of(said["kind"]),
        shards=said["shards"],
        sized=said["sized"],
        rounds=rounds,
    )
    return Found(draft, version)


def draft_path(partition: str) -> str:
    return f"{INDEX_BUILDS_FOLDER}/{partition}/draft.json"


def begin_draft(
    store: Store, properties: TableProperties, kind: IndexKind, *, shards: int, sized: Mapping[str, int]
) -> Draft:
    """Begin a draft, in place of the one that is there; with the next number, as Hudi counts beginnings."""
    found = load_draft(store, kind.partition)
    instant = f"{_next_number(store, properties):0{len(FIRST_INSTANT)}d}"
    draft = Draft(instant=instant, kind=kind, shards=shards, sized=sized)
    _save(store, draft, _as_json(draft), found.version)
    return draft


def _next_number(store: Store, properties: TableProperties) -> int:
    """Take the next number. Two who ask at once get two."""
    own = load_metadata_timeline(store, properties).instants
    used = [int(i.requested) for i in own if is_own_instant(i.requested)]
    names = (split_path(file.path)[1] for file in store.list(METADATA_TABLE_FOLDER, recursive=True).files)
    parsed = (parse_index_base_file_name(name) or parse_log_file_name(name) for name in names)
    used += [int(name.instant) for name in parsed if name is not None and is_own_instant(name.instant)]
    used += [int(properties.raw[INDEX_BUILT].partition("_")[0])] if INDEX_BUILT in properties.raw else []
    used += [int(build.instant) for build in builds_of(properties).values()]
    for _ in range(_TRIES):
        try:
            version: str | None = store.stat(_NUMBER_PATH).version
            last = int(store.read(_NUMBER_PATH))
        except FileNotFoundError:
            version, last = None, 0
        number = max(last, *used, 0) + 1
        data = str(number).encode()
        if version is None:
            is_ours = store.put_new(_NUMBER_PATH, data)
        else:
            is_ours = store.replace_if(_NUMBER_PATH, data, version)
        if is_ours:
            return number
    raise ConcurrentWriteError(
        f"no number could be had for an index of {store.uri}: others took one each of {_TRIES} times. Nothing was "
        f"begun. Build it again."
    )


def add_round(store: Store, draft: Draft, groups: Groups) -> Draft:
    """Say as what file groups were read that have changed since the last round, or all of them in the first."""
    version = _checked(store, draft)
    draft = replace(draft, rounds=(*draft.rounds, groups))
    _save(store, draft, _as_json(draft), version)
    return draft


def check_draft(store: Store, draft: Draft) -> None:
    """Raise `ConcurrentWriteError` if somebody else has gone on with the build, or has begun another."""
    _checked(store, draft)


def end_draft(store: Store, draft: Draft) -> None:
    """Say that nothing is built, and delete what was left for tasks. One that is no longer there is none of ours."""
    found = load_draft(store, draft.kind.partition)
    if found.draft is None or found.draft.instant != draft.instant:
        return
    _save(store, draft, b"{}", found.version)
    files = store.list(draft.kind.folder, recursive=True).files
    kept = draft_path(draft.kind.partition)
    in_parallel(store.delete, [file.path for file in files if file.path != kept], store)


def _checked(store: Store, draft: Draft) -> str | None:
    found = load_draft(store, draft.kind.partition)
    if found.draft != draft:
        raise _overtaken(store, draft)
    return found.version


def _save(store: Store, draft: Draft, data: bytes, version: str | None) -> None:
    path = draft_path(draft.kind.partition)
    is_ours = store.put_new(path, data) if version is None else store.replace_if(path, data, version)
    if not is_ours:
        raise _overtaken(store, draft)


def _overtaken(store: Store, draft: Draft) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"somebody else builds the {draft.kind} of {store.uri} at the same time. Nothing was listed by this call. "
        f"Wait until it is done, or build again to go on with it."
    )


def _said(kind: IndexKind) -> dict[str, str | bool]:
    if isinstance(kind, SecondaryKind):
        return {"name": kind.definition.name, "column": kind.definition.column}
    return {"per_partition": kind.per_partition}


def _kind_of(said: Mapping[str, Any]) -> IndexKind:
    if "name" in said:
        return SecondaryKind(SecondaryIndexDefinition(said["name"], said["column"]))
    return RecordKind(said["per_partition"])


def _as_json(draft: Draft) -> bytes:
    rounds = [
        [
            [*group, None, 0, 0] if run is None else [*group, run.name, run.keys.rows, run.keys.key_hash_sum]
            for group, run in groups.items()
        ]
        for groups in draft.rounds
    ]
    said = {
        "instant": draft.instant,
        "kind": _said(draft.kind),
        "shards": draft.shards,
        "sized": dict(draft.sized),
        "rounds": rounds,
    }
    return json.dumps(said).encode()
