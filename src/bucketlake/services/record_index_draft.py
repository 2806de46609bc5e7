"""What is decided of a record-level index that is being built: kept beside the table, where no writer looks.

    .hoodie/.bucketlake/record_index/draft.json    this
    .../runs/<name>.arrow                          keys of file slices
    .../told/<instant>/<shard>.<round>.json        what was put for a shard, and found to be right

A draft says into how many shards keys are cut, and as what the file groups were read: all of them in the first round,
those that had changed in each one after. Whoever builds goes by it, so two may build at once, and the next goes on
where one was cut off. A number that a draft has used for its instant is not used again: whoever is still at an older
one puts files that nobody takes for those of the next.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bucketlake.commit.metadata_table import INDEX_BUILT
from bucketlake.config import TableProperties
from bucketlake.errors import ConcurrentWriteError
from bucketlake.layout import FileGroupId
from bucketlake.layout.names import RECORD_INDEX_BUILD_FOLDER
from bucketlake.metadata.places import FIRST_INSTANT, is_own_instant
from bucketlake.metadata.record_shards import shard_file_id
from bucketlake.metadata.step import load_metadata_timeline
from bucketlake.services.record_index_tasks import Run, Sum, total
from bucketlake.storage import Store, in_parallel

DRAFT_PATH = f"{RECORD_INDEX_BUILD_FOLDER}/draft.json"

Groups = Mapping[FileGroupId, Run | None]
"""As what file groups were read; None: they are gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What is decided of an index that is being built."""

    instant: str
    per_partition: bool
    shards: int
    """Of the table; or of a partition of which nothing else is said."""
    sized: Mapping[str, int] = field(default_factory=dict)
    rounds: tuple[Groups, ...] = ()

    def shards_of(self, partition: str) -> int:
        """Return how many shards the keys of a partition are cut into."""
        return self.sized.get(partition, self.shards) if self.per_partition else self.shards

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
        if not self.per_partition:
            return [Shard(None, number) for number in range(self.shards)]
        partitions = sorted({partition for partition, _ in self.rounds[round_]})
        return [Shard(p, number) for p in partitions for number in range(self.shards_of(p))]


@dataclass(frozen=True, slots=True)
class Shard:
    partition: str | None
    """The data partition that it is for; None: for all."""
    number: int

    @property
    def file_id(self) -> str:
        return shard_file_id(self.number, self.partition)


@dataclass(frozen=True, slots=True)
class Found:
    """What lies there of a draft."""

    draft: Draft | None
    last: int
    """The number that was used last."""
    version: str | None
    """Of the file."""


def load_draft(store: Store) -> Found:
    try:
        version = store.stat(DRAFT_PATH).version
        said = json.loads(store.read(DRAFT_PATH))
    except FileNotFoundError:
        return Found(None, 0, None)
    if "instant" not in said:
        return Found(None, int(said["last"]), version)
    rounds = tuple(
        {
            (partition, file_id): None if name is None else Run(name, Sum(rows, hashes))
            for partition, file_id, name, rows, hashes in groups
        }
        for groups in said["rounds"]
    )
    draft = Draft(
        instant=said["instant"],
        per_partition=said["per_partition"],
        shards=said["shards"],
        sized=said["sized"],
        rounds=rounds,
    )
    return Found(draft, int(draft.instant), version)


def begin_draft(
    store: Store, properties: TableProperties, *, per_partition: bool, shards: int, sized: Mapping[str, int]
) -> Draft:
    """Begin a draft, in place of the one that is there; with the next number, as Hudi counts beginnings."""
    found = load_draft(store)
    own = load_metadata_timeline(store, properties).instants
    used = [int(i.requested) for i in own if is_own_instant(i.requested)]
    used += [int(properties.raw[INDEX_BUILT].partition("_")[0])] if INDEX_BUILT in properties.raw else []
    instant = f"{max([found.last, *used]) + 1:0{len(FIRST_INSTANT)}d}"
    draft = Draft(instant=instant, per_partition=per_partition, shards=shards, sized=sized)
    _save(store, _as_json(draft), found.version)
    return draft


def add_round(store: Store, draft: Draft, groups: Groups) -> Draft:
    """Say as what file groups were read that have changed since the last round, or all of them in the first."""
    version = _checked(store, draft)
    draft = replace(draft, rounds=(*draft.rounds, groups))
    _save(store, _as_json(draft), version)
    return draft


def check_draft(store: Store, draft: Draft) -> None:
    """Raise `ConcurrentWriteError` if somebody else has gone on with the build, or has begun another."""
    _checked(store, draft)


def end_draft(store: Store, draft: Draft) -> None:
    """Remember the number only, and delete what was left for tasks. One that is no longer there is none of ours."""
    found = load_draft(store)
    if found.draft is None or found.draft.instant != draft.instant:
        return
    _save(store, json.dumps({"last": int(draft.instant)}).encode(), found.version)
    files = store.list(RECORD_INDEX_BUILD_FOLDER, recursive=True).files
    in_parallel(store.delete, [file.path for file in files if file.path != DRAFT_PATH], store)


def _checked(store: Store, draft: Draft) -> str | None:
    found = load_draft(store)
    if found.draft != draft:
        raise _overtaken(store)
    return found.version


def _save(store: Store, data: bytes, version: str | None) -> None:
    is_ours = (
        store.put_new(DRAFT_PATH, data) if version is None else store.replace_if(DRAFT_PATH, data, version)
    )
    if not is_ours:
        raise _overtaken(store)


def _overtaken(store: Store) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"somebody else builds the record-level index of {store.uri} at the same time. Nothing was listed by this "
        f"call. Wait until it is done, or build again to go on with it."
    )


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
        "per_partition": draft.per_partition,
        "shards": draft.shards,
        "sized": dict(draft.sized),
        "rounds": rounds,
    }
    return json.dumps(said).encode()
