"""The log files of an index in the metadata table: where a write puts one, and when they go.

A file of entries is named after its instant, and counts once that is complete. There is one for a shard and instant,
under a name that every attempt gives it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import TableProperties
from bucketlake.errors import CommitConflictError, ProofError
from bucketlake.index.keeper import NOTHING, Change, Keeper, Upkeep
from bucketlake.layout.names import (
    WRITE_TOKEN,
    LogFileName,
    parse_log_file_name,
    render_log_file_name,
    split_path,
)
from bucketlake.metadata.places import folder_of
from bucketlake.schema import key_hash_sum
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline


@dataclass(frozen=True, slots=True)
class IndexLogsKeeper(Keeper):
    """Entries go with their instant: the files that have them are named after it."""

    partition: str
    """Of the metadata table."""

    def before_commit(
        self,
        store: Store,
        properties: TableProperties,  # noqa: ARG002 # the protocol's
        timeline: Timeline,  # noqa: ARG002
        change: Change,
    ) -> Upkeep:
        """Every log that is named after an instant counts once that is complete: those of dead attempts go first."""
        if change.recorded is None:
            return NOTHING
        folder = folder_of(self.partition)
        logs = set(_logs_of(store, self.partition, change.instant))
        lost = {path for path in change.recorded if split_path(path)[0] == folder} - logs
        if lost:
            raise CommitConflictError(
                f"the write of {change.instant} cannot commit: {min(lost)}, in which it recorded keys, is gone. "
                f"Somebody has taken the write for dead. Nothing of it is visible. Run it again."
            )
        return Upkeep(deletes=tuple(sorted(logs - change.recorded)))

    def after_taking_back(self, store: Store, *, instant: str, action: Action) -> Upkeep:  # noqa: ARG002 # whatever it was
        return Upkeep(deletes=_logs_of(store, self.partition, instant))

    def left_late(self, store: Store, *, instant: str) -> Upkeep:
        """Shards are counted by listing, and what is older than the timeline is taken for committed."""
        return Upkeep(deletes=_logs_of(store, self.partition, instant))


def _logs_of(store: Store, partition: str, instant: str) -> tuple[str, ...]:
    files = store.list(folder_of(partition)).files
    logs = ((file.path, parse_log_file_name(split_path(file.path)[1])) for file in files)
    return tuple(path for path, log in logs if log is not None and log.instant == instant)


def log_path(partition: str, file_id: str, instant: str) -> str:
    """Return where an instant puts what it records in a shard."""
    return f"{folder_of(partition)}/{render_log_file_name(LogFileName(file_id, instant, 1, WRITE_TOKEN))}"


def prove_log(held: pa.Array, keys: pa.Array) -> None:
    """Compare the keys that are read from a file of entries, before it is put, with those that it is to have: a key
    that its bytes have lost is a row that nobody finds."""
    if (len(held), key_hash_sum(held)) != (len(keys), key_hash_sum(keys)):
        raise ProofError(
            f"{len(keys)} keys were to be recorded in the index, and the bytes made of them have {len(held)}, or "
            f"others. Nothing was committed. Please report it with the keys."
        )


def in_unlike_orders(keys: pa.Array) -> tuple[str, str] | None:
    """Return two keys that Hudi sorts in one order, and searches in another, if there are such; it misses keys then.

    It sorts UTF-16, and searches UTF-8: where characters from U+E000 to U+FFFF meet some beyond, these are not alike.
    """
    high = pc.match_substring_regex(keys, "[\U0000e000-\U0000ffff]")
    if not pc.any(high, min_count=0).as_py():
        return None
    beyond = pc.match_substring_regex(keys, "[\U00010000-\U0010ffff]")
    if not pc.any(beyond, min_count=0).as_py():
        return None
    one, other = (keys[pc.index(mask, True).as_py()].as_py() for mask in (high, beyond))
    return one, other
