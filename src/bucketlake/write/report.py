"""From what the tasks report to what a commit says: the proof, the metadata, the summary.

The proof is three sums over record keys, each of the number of rows and of
their keys' hashes modulo 2**64: of the rows that were tagged, of the rows
that reached the tasks, and of the rows in the files. The first two must
agree, or rows were lost or doubled on the way, and nothing is committed. The
third stands in the files and in the commit, for `fsck` to find again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from bucketlake import notebook
from bucketlake.commit.operation import Operation
from bucketlake.errors import ProofError
from bucketlake.layout.names import split_path
from bucketlake.metadata.change import (
    INDEX_FILES_KEY,
    LOGGED_KEYS_KEY,
    IndexFile,
    render_index_files,
    render_logged_keys,
)
from bucketlake.schema import arrow_to_avro
from bucketlake.storage import render_bytes
from bucketlake.timeline import SCHEMA_KEY, CommitMetadata, WriteStat
from bucketlake.write.exchange import KeySum
from bucketlake.write.rounds import LookedUp
from bucketlake.write.task import GroupWritten

PROOF_KEY = "bucketlake.proof"
"""Where a commit's extra metadata keeps the sums."""

_MODULUS = 1 << 64


class Ran(NamedTuple):
    """What the tasks of a write did."""

    sent: KeySum
    """To those that write files."""
    written: tuple[GroupWritten, ...]
    recorded: tuple[IndexFile, ...] | None = None
    """What was put to say which keys came and went; None if nobody is told."""
    looked_up: LookedUp | None = None
    """None where keys are not looked up."""


def received_sum(written: Sequence[GroupWritten]) -> KeySum:
    return KeySum(sum(g.received for g in written), sum(g.received_sum for g in written) % _MODULUS)


def check_proof(sent: KeySum, written: Sequence[GroupWritten]) -> None:
    """Compare the rows that were sent with the rows that arrived."""
    received = received_sum(written)
    if sent != received:
        raise ProofError(
            f"{sent.rows} rows with the key sum {sent.key_hash_sum} were sent to the writing tasks, and "
            f"{received.rows} with {received.key_hash_sum} arrived. Nothing was committed. Either the frame's rows "
            f"change from one evaluation to the next (rand(), a source that is being written): then write it down "
            f"first, e.g. as Parquet. Or rows were damaged on their way: then try again."
        )


def commit_metadata(
    written: Sequence[GroupWritten],
    *,
    operation: Operation,
    schema: pa.Schema,
    table: str,
    sent: KeySum,
    replaced: Mapping[str, tuple[str, ...]],
    recorded: Sequence[IndexFile] | None = None,
) -> CommitMetadata:
    """Say what a write did, for the timeline."""
    files = [group for group in written if group.path is not None]
    proof = {
        "rows": sent.rows,
        "key_hash_sum": sent.key_hash_sum,
        "file_rows": sum(g.rows + (g.deleted if g.is_log else 0) for g in files),
        "file_key_hash_sum": sum(g.key_hash_sum for g in files) % _MODULUS,
    }
    grown = [(group.partition, group.file_id, group.grown) for group in files if group.grown]
    return CommitMetadata(
        operation=str(operation),
        write_stats=tuple(_stat(group) for group in files),
        replaced=replaced,
        extra={
            SCHEMA_KEY: arrow_to_avro(schema, table=table),
            PROOF_KEY: json.dumps(proof),
            **({} if recorded is None else {INDEX_FILES_KEY: render_index_files(recorded)}),
            **({LOGGED_KEYS_KEY: render_logged_keys(grown)} if grown else {}),
        },
    )


def _stat(group: GroupWritten) -> WriteStat:
    assert group.path is not None
    return WriteStat(
        partition=group.partition,
        file_id=group.file_id,
        path=group.path,
        previous_instant=group.previous_instant,
        previous_base_file=group.previous_base_file,
        written=group.rows,
        inserted=group.inserted,
        updated=group.updated,
        deleted=group.deleted,
        errors=0,
        written_bytes=group.size_bytes,
        size_bytes=group.size_bytes,
        log_files=(split_path(group.path)[1],) if group.is_log else (),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSummary:
    """What a write did; prints as a few lines."""

    operation: str
    """Hudi's word for what was done, such as `UPSERT`."""
    instant: str | None = None
    """The time at which the write began, which names it on the timeline; None if there was nothing to commit."""
    completed: str | None = None
    """The time at which readers began to see it."""
    number: int = 0
    """Which of the writes of its kind on the active timeline it is; 0 if that is not known."""
    rows: int = 0
    """How many rows were given, counting every version of a key."""
    inserted: int = 0
    """Rows with new keys."""
    updated: int = 0
    """Rows that replaced an older version. In a merge-on-read table also new keys that went to a log: see `logged`."""
    deleted: int = 0
    """Rows that are gone."""
    outdated: int = 0
    """Rows that lost to a newer version in the table."""
    moved: int = 0
    """Rows that went to another partition, neither inserted nor deleted."""
    beaten: int = 0
    """Rows that lost to another version in the batch. Only indexes that look keys up count them."""
    looked_up: int = 0
    """How many keys were looked up."""
    cache_hits: int = 0
    """How many of these were found in the cache of the index."""
    logged: int = 0
    """Rows in log files. Only a merge shows whether their keys were new."""
    partitions: int = 0
    """Partitions that were written to."""
    files: int = 0
    """Files that were written."""
    bytes: int = 0
    """Bytes that were written."""
    replaced: int = 0
    """File groups that were replaced."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by stage: begin, plan, write, commit, services."""
    services: tuple[str, ...] = ()
    """What services did after the commit, and which of them failed, a line each."""

    @property
    def _word(self) -> str:
        return self.operation.lower().replace("_", " ")

    @property
    def _counts(self) -> Mapping[str, int]:
        """What became of the rows, by words."""
        named = (
            ("rows", self.rows),
            ("inserted", self.inserted),
            ("updated", self.updated - self.logged),
            ("upserted in logs", self.logged),
            ("moved", self.moved),
            ("deleted", self.deleted),
            ("outdated", self.outdated),
            ("lost to others of the batch", self.beaten),
        )
        return {word: count for word, count in named if count or word == "rows"}

    def _repr_html_(self) -> str:
        if self.instant is None:
            return notebook.lines_html(f"{self._word}: nothing to commit", str(self))
        facts = {
            **self._counts,
            "files": f"{self.files:,}, {render_bytes(self.bytes)} in {self.partitions:,} partitions",
            "seconds": ", ".join(f"{stage} {taken:.2f}" for stage, taken in self.seconds.items()),
            "services": "; ".join(self.services),
        }
        return notebook.facts_html(f"{self._word} {self.instant}", facts)

    def __str__(self) -> str:
        if self.instant is None:
            return f"{self._word}: {self.rows:,} rows, {self.outdated:,} outdated; nothing to commit"
        counts = [f"{count:,} {word}" for word, count in self._counts.items()]
        lines = [
            f"{self._word} {self.instant}: {', '.join(counts)}",
            f"  {self.files:,} files, {render_bytes(self.bytes)} in {self.partitions:,} partitions"
            + (f", {self.replaced:,} file groups replaced" if self.replaced else ""),
            *(
                [f"  {self.cache_hits:,} of {self.looked_up:,} keys looked up in what is kept of the index"]
                if self.cache_hits
                else []
            ),
            "  " + ", ".join(f"{stage} {taken:.2f} s" for stage, taken in self.seconds.items()),
            *(f"  {line}" for line in self.services),
        ]
        return "\n".join(lines)


COUNTS = (
    "inserted",
    "updated",
    "deleted",
    "outdated",
    "moved",
    "beaten",
    "logged",
    "looked_up",
    "cache_hits",
    "files",
    "bytes",
)
"""What a batch of a stream says in its commit, of a `CommitSummary`."""


def told_of(summary: CommitSummary) -> dict[str, int]:
    return {name: getattr(summary, name) for name in COUNTS}


def summarize(
    written: Sequence[GroupWritten],
    *,
    operation: Operation,
    instant: str,
    completed: str,
    number: int,
    replaced: Mapping[str, tuple[str, ...]],
    seconds: Mapping[str, float],
    looked_up: LookedUp | None = None,
) -> CommitSummary:
    files = [group for group in written if group.path is not None]
    told = [group for group in files if not group.is_copy]
    moved = sum(group.moved for group in written)
    return CommitSummary(
        operation=str(operation),
        instant=instant,
        completed=completed,
        number=number,
        rows=sum(group.received + group.unsent for group in written) - moved,
        inserted=sum(group.inserted for group in told) - moved,
        updated=sum(group.updated for group in told),
        deleted=sum(group.deleted for group in told) - moved,
        moved=moved,
        beaten=sum(group.beaten for group in written),
        outdated=sum(group.outdated for group in written),
        looked_up=0 if looked_up is None else looked_up.keys,
        cache_hits=0 if looked_up is None else looked_up.cache_hits,
        logged=sum(group.rows for group in told if group.is_log),
        partitions=len({group.partition for group in files} | set(replaced)),
        files=len(files),
        bytes=sum(group.size_bytes for group in files),
        replaced=sum(len(file_ids) for file_ids in replaced.values()),
        seconds=dict(seconds),
    )
