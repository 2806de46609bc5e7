"""Markers: what a running write may have left on disk, told before it was written.

    direct            .hoodie/.temp/<instant>/<partition>/<data file>.marker.<kind>    empty files
    timeline server   .hoodie/.temp/<instant>/MARKERS0, MARKERS1, ...                  a marker's path per line

We write the first kind and read both: Hudi on Spark writes the second by default.

The markers of a write that was taken back stay for a while. A task can outlive its driver: one that made its marker
before the files were deleted, and its file after, would leave a file that nobody knows of, and that is taken for
committed once the timeline is archived beyond its instant. By the markers it is found, when no task can be alive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from bucketlake.errors import CorruptTableError
from bucketlake.layout import DataFile, list_files
from bucketlake.layout.names import (
    TEMPORARY_FOLDER,
    marker_folder,
    parse_base_file_name,
    parse_log_file_name,
    parse_marker,
    partition_metadata_path,
    split_path,
)
from bucketlake.layout.partition_metadata import created_by
from bucketlake.storage import Store, in_parallel

KEPT_MS = 10 * 60 * 1000
"""How long the markers of a write that was taken back stay: longer than an executor outlives its driver."""

_SERVER_FILE = re.compile(r"MARKERS[0-9]+")


def marked_instants(store: Store) -> dict[str, int]:
    """Return instant -> when its last marker was made, of all instants that have markers, sorted."""
    newest: dict[str, int] = {}
    for file in store.list(TEMPORARY_FOLDER, recursive=True).files:
        instant = file.path.removeprefix(TEMPORARY_FOLDER + "/").partition("/")[0]
        newest[instant] = max(file.modified_ms, newest.get(instant, 0))
    return dict(sorted(newest.items()))


def marked_files(store: Store, instant: str) -> tuple[str, ...] | None:
    """Return the data files that `instant` may have written, sorted; None if it has no markers at all."""
    folder = marker_folder(instant)
    markers = [file.path for file in store.list(folder, recursive=True).files]
    if not markers:
        return None
    found: set[str] = set()
    for path in markers:
        inside = path.removeprefix(folder + "/")
        if _SERVER_FILE.fullmatch(inside):
            lines = store.read(path).decode().splitlines()
            found.update(_data_file(line, path) for line in lines if line)
        elif inside != "MARKERS.type":
            found.add(_data_file(inside, path))
    return tuple(sorted(found))


def delete_markers(store: Store, instant: str) -> None:
    files = store.list(marker_folder(instant), recursive=True).files
    in_parallel(store.delete, [file.path for file in files], store)


def delete_data_files(store: Store, paths: Iterable[str], *, instant: str, keep_partitions: bool) -> None:
    """Delete data files of a write that failed, and the partitions that it made and nobody else has written to.

    `keep_partitions` leaves the latter be, for when another writer may be about to.
    """
    wanted = sorted(paths)
    in_parallel(store.delete, wanted, store)
    if keep_partitions:
        return
    partitions = sorted({split_path(path)[0] for path in wanted})
    for partition, left in list_files(store, partitions).items():
        if not left and _made_by(store, partition, instant):
            store.delete(partition_metadata_path(partition))


def files_of_instant(files: Iterable[DataFile], instant: str) -> tuple[str, ...]:
    return tuple(sorted(file.path for file in files if file.instant == instant))


def _made_by(store: Store, partition: str, instant: str) -> bool:
    path = partition_metadata_path(partition)
    try:
        return created_by(store.read(path), path=path) == instant
    except FileNotFoundError:
        return False


def _data_file(marker: str, path: str) -> str:
    found = parse_marker(marker)
    name = split_path(found or "")[1]
    if found is None or not (parse_base_file_name(name) or parse_log_file_name(name)):
        # Whatever it is, it will not be deleted on a guess.
        raise CorruptTableError(
            path=path,
            found=f"the marker {marker!r}",
            expected="<partition>/<base or log file>.marker.<CREATE, MERGE or APPEND>",
            remedy="See what the write left behind, delete that and the markers, or let Hudi roll it back.",
        )
    return found
