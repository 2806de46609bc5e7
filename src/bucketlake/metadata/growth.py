"""A record-level index that grows: two sets of shards lie in one folder, and one of them counts.

    listed       the table lists the index; GROWING says nothing
    growing      delisted: Hudi looks at neither. Ours go by the old set: what is of GROWING's number, or of a later
                 one, does not count
    outgrown     INDEX_BUILT has such a number: now that set counts, with what was recorded since; nothing else does
    listed       the old files are gone

Hudi counts shards by listing the folder, so it must not look while there are two sets, nor does it tell ours of keys
that it writes meanwhile. A commit of somebody who does not say which keys came and went makes the old set worthless.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bucketlake.config import RECORD_LEVEL, TableProperties
from bucketlake.layout.names import (
    WRITE_TOKEN,
    parse_index_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.metadata.change import INDEX_FILES_KEY
from bucketlake.metadata.places import FILES, GROWING, INDEX_BUILT, RECORD_INDEX, folder_of, is_own_instant
from bucketlake.storage import FileCache, FileStat, Store, in_parallel
from bucketlake.timeline import Instant, Timeline, read_commit_metadata


@dataclass(frozen=True, slots=True)
class Growth:
    """An index that grows, as the table's properties tell of it."""

    first: str
    """The first number that a draft of the new set has had."""
    began: str
    """When the index was delisted."""
    built: str | None = None
    """The number of the new set, once that counts."""
    switched: str = ""
    """When it began to."""

    @property
    def is_outgrown(self) -> bool:
        """Whether the new set counts."""
        return self.built is not None

    @property
    def since(self) -> str:
        """Since when every commit must have told which keys came and went."""
        return self.switched if self.is_outgrown else self.began

    def counting(self, files: Iterable[FileStat], completions: Mapping[str, str]) -> Iterable[FileStat]:
        """Choose the files of the set that counts; `completions` are those of the metadata table's instants."""
        for file in files:
            name = split_path(file.path)[1]
            base, log = parse_index_base_file_name(name), parse_log_file_name(name)
            instant = base.instant if base else log.instant if log else None
            there_since = instant if base else completions.get(instant or "", "")
            if instant is not None and self.counts(instant, there_since or ""):
                yield file

    def counts(self, instant: str, since: str) -> bool:
        """Tell whether what is of an instant is of the set that counts, if it is there since a time.

        >>> old = Growth("00000000000000002", "20260101000000000")
        >>> old.counts("00000000000000001", ""), old.counts("00000000000000003", "")
        (True, False)
        >>> new = Growth("00000000000000002", "20260101000000000", "00000000000000003", "20260102000000000")
        >>> new.counts("00000000000000003", ""), new.counts("00000000000000001", "")
        (True, False)
        >>> new.counts("20260101500000000", "20260101600000000"), new.counts("20260101500000000", "20260103000000000")
        (False, True)
        """
        if not self.is_outgrown:
            return not is_own_instant(instant) or instant < self.first
        return instant == self.built or (not is_own_instant(instant) and since > self.switched)


def growth_of(properties: TableProperties) -> Growth | None:
    """Return how the index of a table grows; None if it does not, or nobody goes by it meanwhile."""
    said, listed = properties.raw.get(GROWING, ""), properties.metadata_partitions
    if not said or RECORD_INDEX in listed or FILES not in listed or properties.engine not in RECORD_LEVEL:
        return None
    first, _, began = said.partition("_")
    built, _, switched = properties.raw.get(INDEX_BUILT, "").partition("_")
    return Growth(first, began, built, switched) if built >= first else Growth(first, began)


def kept_partitions(properties: TableProperties) -> tuple[str, ...]:
    """Name the partitions of the metadata table that ours go by: those that are listed, and an index that grows."""
    listed = properties.metadata_partitions
    return listed if growth_of(properties) is None else tuple(sorted({*listed, RECORD_INDEX}))


def untold(store: Store, growth: Growth, table: Timeline) -> str | None:
    """Say who has written or compacted since the index was delisted, and is none of ours; None if nobody has."""
    since = [i for i in table.writes if (i.completed or "") > growth.since]
    for instant, tells in zip(since, in_parallel(lambda i: _tells(store, i), since, store), strict=True):
        if not tells:
            return f"the {instant.action} of {instant.requested} has not told which keys came and went"
    for file in store.list(folder_of(RECORD_INDEX)).files:
        base = parse_index_base_file_name(split_path(file.path)[1])
        if base is not None and base.instant > growth.since and base.write_token != WRITE_TOKEN:
            return f"the compaction {base.instant} of the metadata table is not ours, and may have mixed its shards"
    return None


_TELLING: FileCache[tuple[bool]] = FileCache("told keys")


def _tells(store: Store, instant: Instant) -> bool:
    """Tell whether a commit says which keys came and went, or changes none. Each is read once by a process."""
    file = FileStat(instant.path, 0, 0, instant.version)
    known = _TELLING.get(store, file)
    if known is None:
        try:
            commit = read_commit_metadata(store, instant)
        except FileNotFoundError:
            return True  # taken back, or archived after others that were looked at, since it was listed
        known = (INDEX_FILES_KEY in commit.extra or commit.is_compaction,)
        _TELLING.put(store, file, known, 100)
    return known[0]
