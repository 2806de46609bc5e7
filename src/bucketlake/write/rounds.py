"""A write that looked keys up and was overtaken: what its first round has left, and what the second writes again.

The second round looks all keys up anew, on what others have made of the table; new keys go where they went before. So
a file group gets the rows that it got, or others:

    others have changed it, it gets other rows, or it got some and had nothing to write     it is written again
    it has a file and gets none any more                                                    the same, without rows
    all others                                                                              their files stay

A file keeps its name and is replaced, never removed: an attempt of the first round that is still about finds the name
taken. What the groups that stay have told of their keys is read from the files of the index that the first round has
put, and is recorded again beside what the others tell. Rows are evaluated again, for the pieces of the first round
are gone; they must be as many as before, with the same sum of their keys' hashes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bucketlake.errors import CommitConflictError
from bucketlake.layout import FileGroupId, FileSlice
from bucketlake.layout.names import path_in_partition
from bucketlake.metadata.change import IndexFile
from bucketlake.write.exchange import KeySum
from bucketlake.write.task import GroupWritten


@dataclass(frozen=True, slots=True, kw_only=True)
class LookedUp:
    """What was found out about the rows of a write before they were written."""

    arrived: KeySum
    """All of them, where their keys were looked up."""
    places: Mapping[FileGroupId, str]
    """The file group of every share of new keys, by its partition and name."""
    keys: int = 0
    """How many the index was asked about, each once."""
    cache_hits: int = 0
    """How many of these were looked up in what machines keep of the index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What earlier rounds of a write have left."""

    looked_up: LookedUp
    written: tuple[GroupWritten, ...]
    recorded: tuple[IndexFile, ...]
    stale: frozenset[FileGroupId]
    """File groups that others have changed since."""

    @property
    def files(self) -> dict[FileGroupId, GroupWritten]:
        """The file groups that have a file, and what was done to them."""
        return {(done.partition, done.file_id): done for done in self.written if done.path is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What becomes of the file groups of a write in another round."""

    written: frozenset[FileGroupId]
    """They are written, again or for the first time."""
    emptied: frozenset[FileGroupId]
    """Of these, those that have a file and get no rows any more."""
    kept: frozenset[FileGroupId]
    """Their files stay."""


def what_again(earlier: Earlier, now: Mapping[FileGroupId, KeySum]) -> Again:
    """Compare the rows that file groups get `now` with those that they got."""
    files = earlier.files
    kept = {
        group
        for group, done in files.items()
        if group not in earlier.stale and now.get(group) == KeySum(done.received, done.received_sum)
    }
    return Again(
        written=frozenset((files.keys() | now.keys()) - kept),
        emptied=frozenset(files.keys() - now.keys()),
        kept=frozenset(kept),
    )


def check_written_again(
    again: Again, earlier: Earlier, groups: Mapping[str, Mapping[str, FileSlice]], *, instant: str
) -> None:
    """Refuse to write again what must be written anew, as a whole and under another instant.

    An instant has one file of a file group, and it is a base file or a log. A log that nothing is left of cannot go,
    and a base file cannot be written where others have put logs, which would be on top of it; nor where there is
    nothing any more.
    """
    for group in sorted(again.written):
        done, partition, file_id = earlier.files.get(group), *group
        present = groups.get(partition, {}).get(file_id)
        if group in earlier.stale and present is None:
            raise _whole(group, "others have replaced it", instant)
        if done is not None and done.is_log:
            raise _whole(group, "it has a log file of this write, with other rows", instant)
        if done is not None and present is not None and present.log_files:
            raise _whole(group, "others have put log files there", instant)


def check_placed(unplaced: Collection[FileGroupId], *, instant: str) -> None:
    """Refuse keys that have become new since the first round, in whose plan they had no place."""
    if unplaced:
        raise CommitConflictError(
            f"the write of {instant} cannot commit: others have taken away keys that it updates, in the partition "
            f"{min(unplaced)[0]!r}. Nothing of it is visible. Run it again."
        )


def _whole(group: FileGroupId, why: str, instant: str) -> CommitConflictError:
    return CommitConflictError(
        f"the write of {instant} cannot commit: {path_in_partition(*group)} would have to be written again, and {why}. "
        f"Nothing of it is visible. Run it again."
    )


def still_counted(written: Sequence[GroupWritten], again: Again) -> tuple[GroupWritten, ...]:
    """Return what was done to the file groups that stay."""
    return tuple(done for done in written if (done.partition, done.file_id) in again.kept)
