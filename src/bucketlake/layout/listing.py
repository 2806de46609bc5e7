"""Which partitions a table has, and which data files are in them.

A folder is a partition because a file in it says so, the one whose name
begins with `.hoodie_partition_metadata`. A partition below a partition does
not count: Hudi (FileSystemBackedTableMetadata) stops looking at the first,
except at the table's root. A folder of data files that has lost that file is a
partition too: its rows were committed, and are not lost with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from bucketlake.errors import CorruptTableError
from bucketlake.layout.file_slice import BaseFile, DataFile, LogFile
from bucketlake.layout.names import (
    META_FOLDER,
    is_partition_metadata,
    parse_base_file_name,
    parse_log_file_name,
    split_path,
)
from bucketlake.storage import FileStat, Listing, Store, in_parallel


class Listed(NamedTuple):
    """What lies in a table's folders."""

    files: dict[str, tuple[DataFile, ...]]
    """Partition -> the data files right in it, committed or not; sorted by partition."""
    unmarked: frozenset[str]
    """Partitions without the file that says so: Hudi does not see them."""


def list_table(store: Store, *, is_partitioned: bool = True) -> Listed:
    """Find every partition, with the data files right in it.

    One walk finds both: to know a partition is to list it. A table without partition fields is its root and
    nothing else. Hudi's readers do not ask such a root for the metadata file, so neither do we: say
    `is_partitioned=False`.
    """
    if not is_partitioned:
        return Listed(list_files(store, [""]), frozenset())
    partitions: dict[str, tuple[DataFile, ...]] = {}
    unmarked: set[str] = set()
    to_visit = [""]
    while to_visit:
        listings = in_parallel(store.list, to_visit, store)
        deeper: list[str] = []
        for folder, listing in zip(to_visit, listings, strict=True):
            is_marked = _has_partition_metadata(folder, listing)
            files = data_files_of(listing.files) if is_marked or folder else ()
            if is_marked or files:
                partitions[folder] = files
            if files and not is_marked:
                unmarked.add(folder)
            if not is_marked or folder == "":
                deeper += [f for f in listing.folders if split_path(f)[1] != META_FOLDER]
        to_visit = deeper
    return Listed(dict(sorted(partitions.items())), frozenset(unmarked))


def list_partitions(store: Store, partitions: Iterable[str]) -> Listed:
    """Look into these folders, of a table with partition fields, for partitions and their data files."""
    wanted = sorted(set(partitions))
    found: dict[str, tuple[DataFile, ...]] = {}
    unmarked: set[str] = set()
    for folder, listing in zip(wanted, in_parallel(store.list, wanted, store), strict=True):
        is_marked, files = _has_partition_metadata(folder, listing), data_files_of(listing.files)
        if is_marked or files:
            found[folder] = files
        if files and not is_marked:
            unmarked.add(folder)
    return Listed(found, frozenset(unmarked))


def list_files(store: Store, partitions: Iterable[str]) -> dict[str, tuple[DataFile, ...]]:
    """List the data files right in each of these partitions; one that is not there has none."""
    wanted = list(partitions)
    listings = in_parallel(store.list, wanted, store)
    return {
        partition: data_files_of(listing.files) for partition, listing in zip(wanted, listings, strict=True)
    }


def data_files_of(files: Iterable[FileStat]) -> tuple[DataFile, ...]:
    """Keep the base and log files among `files`; others (foreign, temporary, change data) are not records."""
    found = (find_data_file(file.path, size_bytes=file.size_bytes) for file in files)
    return tuple(file for file in found if file is not None)


def parse_data_file(path: str, *, size_bytes: int) -> DataFile:
    """Read a path that must be a data file's, such as one in a commit's write stats."""
    file = find_data_file(path, size_bytes=size_bytes)
    if file is None:
        raise CorruptTableError(
            path=path,
            found=f"the file name {split_path(path)[1]!r}",
            expected="<fileId>_<writeToken>_<instant>.parquet or "
            ".<fileId>_<instant>.log.<version>_<writeToken>",
            remedy="The commit that names it is damaged, or written by an engine that names files otherwise.",
        )
    return file


def find_data_file(path: str, *, size_bytes: int) -> DataFile | None:
    """Read a path that may be a data file's; None if it is another's."""
    name = split_path(path)[1]
    if not name.startswith("."):
        base = parse_base_file_name(name)
        if base is None:
            return None
        return BaseFile(path, base.file_id, base.write_token, base.instant, size_bytes)
    log = parse_log_file_name(name)
    if log is None or log.is_cdc:
        return None
    return LogFile(path, log.file_id, log.instant, log.version, log.write_token, size_bytes)


def _has_partition_metadata(folder: str, listing: Listing) -> bool:
    name_start = len(folder) + 1 if folder else 0
    return any(is_partition_metadata(file.path[name_start:]) for file in listing.files)
