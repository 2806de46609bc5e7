"""The archived timeline of layout 2: instants that left the active one.

    <history>/_version_                    the number N of the current manifest
    <history>/manifest_N                   {"files": [{"fileName": ..., "fileLen": ...}]}
    <history>/<first>_<last>_<layer>.parquet
        instantTime  completionTime  action  metadata  plan  version

A row is an instant; `metadata` and `plan` are the bytes of its completed and
requested files. Those two columns are most of the bytes, so they are read
only when a body is asked for.

Layout 1 keeps its archive in log files of another make. Reading a table
never needs them (an instant older than the active timeline is committed,
and completion times play no part in version 6), so they are not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bucketlake.config import TableProperties
from bucketlake.errors import CorruptTableError, UnsupportedError
from bucketlake.storage import Store, in_parallel, open_input
from bucketlake.timeline.instant import Action, Instant, State
from bucketlake.timeline.metadata import CommitMetadata, decode_commit_metadata

VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d+)")
_FILE = re.compile(r"(?a:(\d+)_(\d+)_\d\.parquet)")


@dataclass(frozen=True, slots=True, order=True)
class ArchivedInstant:
    """A completed instant of the history."""

    instant: Instant
    """Its `path` is the history file."""
    row: int
    """Its row in that file."""

    @property
    def requested(self) -> str:
        return self.instant.requested

    @property
    def completed(self) -> str:
        assert self.instant.completed is not None
        return self.instant.completed

    @property
    def action(self) -> Action:
        return self.instant.action


@dataclass(frozen=True, slots=True)
class Manifest:
    """Which files make up the history."""

    version: int
    sizes: Mapping[str, int]
    """File name -> length in bytes."""


def load_history(
    store: Store, properties: TableProperties, *, since: str | None = None
) -> tuple[ArchivedInstant, ...]:
    """Read the archived instants requested at `since` or later, sorted by requested time; all without it.

    A table that has never archived has an empty history. Layout 1 raises `UnsupportedError`.
    """
    if properties.timeline_layout == 1:
        raise UnsupportedError(
            subject=f"the archived timeline in {properties.history_folder}",
            found="in the form of table version 6",
            supported="the history of table versions 8 and 9",
            remedy="Ask for instants of the active timeline, or upgrade the table with Hudi.",
        )
    paths = [path for path in history_files(store, properties) if since is None or _last_of(path) >= since]
    loaded = in_parallel(lambda path: _instants_in(store, path), paths, store)
    found = [archived for part in loaded for archived in part]
    # A merged file and its parts are never both in a manifest, but a row twice would do no harm.
    by_identity = {(archived.requested, archived.action): archived for archived in found}
    return tuple(sorted(a for a in by_identity.values() if since is None or a.requested >= since))


def history_files(store: Store, properties: TableProperties) -> tuple[str, ...]:
    """Return the paths of the history's current files."""
    names = current_manifest(store, properties).sizes
    return tuple(f"{properties.history_folder}/{name}" for name in sorted(names))


def current_manifest(store: Store, properties: TableProperties) -> Manifest:
    """Read the manifest that counts; a history that was never written has version 0 and no files."""
    folder = properties.history_folder
    names = {file.path.rpartition("/")[2] for file in store.list(folder).files}
    versions = manifest_versions(names)
    if not versions:
        return Manifest(0, {})
    stated = _stated_version(store, folder) if VERSION_FILE in names else None
    version = stated if stated in versions else versions[-1]
    return read_manifest(store, properties, version)


def manifest_versions(names: Iterable[str]) -> tuple[int, ...]:
    """Return the numbers of the manifests among these file names, sorted."""
    return tuple(sorted(int(found[1]) for name in names if (found := _MANIFEST.fullmatch(name))))


def read_manifest(store: Store, properties: TableProperties, version: int) -> Manifest:
    path = f"{properties.history_folder}/manifest_{version}"
    try:
        files = json.loads(store.read(path))["files"]
        sizes = {str(entry["fileName"]): int(entry["fileLen"]) for entry in files}
    except (ValueError, KeyError, TypeError) as fault:
        raise CorruptTableError(
            path=path,
            found=f"text that is no manifest ({fault})",
            expected='{"files": [{"fileName": ..., "fileLen": ...}]}',
            remedy="Write an earlier manifest's number into _version_, or restore the file.",
        ) from fault
    for name in sizes:
        if not _FILE.fullmatch(name):
            raise CorruptTableError(
                path=path,
                found=f"the file name {name!r}",
                expected="<first instant>_<last instant>_<layer>.parquet",
                remedy="Restore the manifest from a copy.",
            )
    return Manifest(version, sizes)


def read_archived_body(store: Store, archived: ArchivedInstant) -> bytes:
    """Return the bytes of the completed file that was archived; empty if it was."""
    return _cell(store, archived, "metadata")


def read_archived_plan(store: Store, archived: ArchivedInstant) -> bytes:
    """Return the bytes of the requested file that was archived; Hudi keeps them for plans only."""
    return _cell(store, archived, "plan")


def read_archived_commit(store: Store, archived: ArchivedInstant) -> CommitMetadata:
    """Read the commit metadata of an archived commit, deltacommit or replacecommit."""
    return decode_commit_metadata(
        read_archived_body(store, archived), path=f"{archived.instant.path} (instant {archived.requested})"
    )


def archived_bodies_with(
    store: Store, properties: TableProperties, text: str, *, since: str | None = None
) -> tuple[tuple[ArchivedInstant, bytes], ...]:
    """Find the archived instants, requested at `since` or later, in whose bodies a text stands; with these bodies."""
    if properties.timeline_layout == 1:
        return ()
    paths = [path for path in history_files(store, properties) if since is None or _last_of(path) >= since]

    def search(path: str) -> list[tuple[ArchivedInstant, bytes]]:
        bodies = _read_columns(store, path, ["metadata"]).column("metadata").combine_chunks()
        has_text = pc.match_substring(bodies.cast(pa.large_binary()), text)
        rows = pc.indices_nonzero(pc.fill_null(has_text, False)).to_pylist()
        instants = list(_instants_in(store, path)) if rows else []
        return [(instants[row], bytes(bodies[row].as_py())) for row in rows]

    found = [one for part in in_parallel(search, paths, store) for one in part]
    return tuple(one for one in found if since is None or one[0].requested >= since)


def _stated_version(store: Store, folder: str) -> int | None:
    """The number in `_version_`; None if there is nonsense in it, and then the highest manifest counts."""
    try:
        return int(store.read(f"{folder}/{VERSION_FILE}").decode("ascii"))
    except (ValueError, FileNotFoundError):
        return None


def _last_of(path: str) -> str:
    found = _FILE.fullmatch(path.rpartition("/")[2])
    assert found is not None
    return found[2]


def _instants_in(store: Store, path: str) -> Iterable[ArchivedInstant]:
    rows = _read_columns(store, path, ["instantTime", "completionTime", "action"]).to_pylist()
    found = []
    for number, row in enumerate(rows):
        try:
            action = Action(row["action"])
        except ValueError:
            raise _corrupt(path, f"the action {row['action']!r} in row {number}") from None
        requested = row["instantTime"]
        if not requested:
            raise _corrupt(path, f"no instant time in row {number}")
        # Archived before the table was upgraded: no completion time. Hudi takes the requested one.
        completed = row["completionTime"] or requested
        instant = Instant(requested, action.when_completed, State.COMPLETED, completed, path)
        found.append(ArchivedInstant(instant, number))
    return found


def _cell(store: Store, archived: ArchivedInstant, column: str) -> bytes:
    value = _read_columns(store, archived.instant.path, [column]).column(column)[archived.row].as_py()
    return bytes(value or b"")


def _read_columns(store: Store, path: str, columns: list[str]) -> pa.Table:
    try:
        with open_input(store, path) as source:
            table = pq.ParquetFile(source).read(columns=columns)
    except FileNotFoundError:
        raise _corrupt(path, "no such file, though the manifest names it") from None
    except (pa.ArrowInvalid, OSError) as fault:
        if getattr(fault, "errno", None) is not None:  # the disk or the network, not the bytes
            raise
        raise _corrupt(path, f"bytes that are no Parquet file ({fault})") from fault
    if table.column_names != columns:
        raise _corrupt(path, f"the columns {', '.join(table.column_names)}")
    return table


def _corrupt(path: str, found: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=found,
        expected="a history file: instantTime, completionTime, action, metadata, plan, version",
        remedy="Restore the file from a copy. Reads that stay within the active timeline do not need it.",
    )
