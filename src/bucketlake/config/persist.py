"""`hoodie.properties`, written: once when a table is made, and changed with care after.

Hudi changes the file in steps that a crash may cut anywhere: the old content goes to a backup, the file is written
anew, the backup goes away. Readers who find the file missing or torn take the backup. We keep to these steps, so
that Hudi finds its way if we are cut, and leave out the one that Hudi needs because HDFS cannot replace a file:
deleting it in between. A store's `replace_if` replaces it whole, and only if nobody else has changed it meanwhile.

The backup is gone after that. So that a file that is damaged later can be mended, a copy stays in our own folder. It
follows what Hudi changes in the course of its work, but nothing that is fixed for life: where the two differ in that,
the file is damaged, or somebody knows what they do. Whoever puts the copy looks at it first and at the file then, and
replaces no copy but the one it looked at: so nobody who slept puts what the file said before others changed it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bucketlake.config.java_properties import parse_java_properties
from bucketlake.config.properties import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    TableProperties,
    check_whole,
    is_as_rendered,
    read_properties,
    rendered,
    table_checksum,
)
from bucketlake.errors import (
    BucketlakeError,
    ConcurrentWriteError,
    CorruptTableError,
    NotATableError,
    TableExistsError,
)
from bucketlake.storage.store import Store

COPY_PATH = ".hoodie/.bucketlake/hoodie.properties"
DAMAGED_PATH = COPY_PATH + ".damaged"
"""What was mended, as it was."""
_CHANGING = frozenset(
    {
        "hoodie.table.version",
        "hoodie.table.metadata.partitions",
        "hoodie.table.metadata.partitions.inflight",
        "hoodie.table.index.defs.path",
        "hoodie.table.checksum",
        "bucketlake.metadata.partitions",
        "bucketlake.metadata.delistings",
        "bucketlake.record.index.built",
        "bucketlake.record.index.growing",
    }
)
"""What Hudi, or we, may change in the life of a table: a copy that was put late may have it as it was. With the version
anything may change."""


def create_properties(store: Store, properties: Mapping[str, str]) -> TableProperties:
    """Make `store` a table with these properties; the checksum is added.

    Of several who try at once one wins; the others, and those who come later, get `TableExistsError`.
    """
    complete = _with_checksum(properties)
    parsed = TableProperties.parse(complete, path=PROPERTIES_PATH)
    # While another writer changes the file the backup may be all there is, so both are looked for, in this order:
    # who is between the two sees the file when the backup is gone again.
    if _exists(store, PROPERTIES_PATH) or _exists(store, BACKUP_PATH):
        raise TableExistsError(path=store.uri)
    _put_copy(store, complete)
    if not store.put_new(PROPERTIES_PATH, rendered(complete)):
        raise TableExistsError(path=store.uri)
    return parsed


def update_properties(store: Store, changes: Mapping[str, str | None]) -> TableProperties:
    """Set or, with None, remove some of a table's properties; all others stay as they are.

    Cut off at any point, the table still opens, with the old properties or the new ones. Raises
    `ConcurrentWriteError` if another writer changes the file at the same time; nothing was changed then.
    """
    _recover(store)
    try:
        version = store.stat(PROPERTIES_PATH).version
        old = store.read(PROPERTIES_PATH)
    except FileNotFoundError:
        raise NotATableError(path=store.uri, found=f"it has no {PROPERTIES_PATH}") from None
    check_whole(old, path=PROPERTIES_PATH)
    raw = parse_java_properties(old, path=PROPERTIES_PATH)
    merged = {key: value for key, value in raw.items() if key not in changes}
    merged |= {key: value for key, value in changes.items() if value is not None}
    if merged == raw:
        return TableProperties.parse(raw, path=PROPERTIES_PATH)
    complete = _with_checksum(merged)
    parsed = TableProperties.parse(complete, path=PROPERTIES_PATH)
    new = rendered(complete)
    if not store.put_new(BACKUP_PATH, old):
        raise _changed_meanwhile(store)
    if not store.replace_if(PROPERTIES_PATH, new, version):
        store.delete(BACKUP_PATH)
        raise _changed_meanwhile(store)
    written = store.read(PROPERTIES_PATH)
    if written != new:
        raise CorruptTableError(
            path=PROPERTIES_PATH,
            found=f"{len(written)} bytes that are not the {len(new)} just written",
            expected="what was written",
            remedy=f"The old content is in {BACKUP_PATH}; find out who else writes the file, and put it back.",
        )
    _change_copy(store, lambda copy: _read_file(store))  # noqa: ARG005 # whatever it said
    _remember(store, complete)
    store.delete(BACKUP_PATH)
    return parsed


def keep_copy(store: Store, properties: TableProperties) -> None:
    """Let the copy follow the file, if there is none yet or others have changed what may change."""
    if _COPIED.get(store.uri) == properties.raw:
        return

    def follow(copy: Mapping[str, str] | None) -> Mapping[str, str] | None:
        if copy == properties.raw:
            return None
        now = _read_file(store)  # others may have changed it since
        return None if copy and _lost(now, copy) else now

    _change_copy(store, follow)
    _remember(store, properties.raw)


def lost_properties(store: Store, properties: TableProperties) -> tuple[str, ...]:
    """Return the properties that are fixed for life, and that the file lacks or has changed since they were copied."""
    copy = _read_copy(store)
    # With a backup, an update was cut off, and the next one finishes it.
    if copy is None or _exists(store, BACKUP_PATH):
        return ()
    return tuple(sorted(_lost(properties.raw, copy)))


@dataclass(frozen=True, slots=True)
class PropertiesMend:
    """What becomes of a damaged `hoodie.properties`; prints as a list of its lines that change."""

    damaged: bytes | None
    """The file as it is; None if there is none."""
    mended: Mapping[str, str]
    restored: tuple[str, ...]
    """The keys whose values come from the copy."""

    def __str__(self) -> str:
        lines = [f"  {key}={self.mended[key]}" for key in self.restored]
        return "\n".join([f"{PROPERTIES_PATH}: {len(lines)} lines from {COPY_PATH}", *lines])


def plan_mend(store: Store) -> PropertiesMend | None:
    """Say how to mend the properties from their copy; None if nothing is wrong with them.

    Lines that are whole and fit are kept: they may be newer than the copy.
    """
    try:
        damaged = store.read(PROPERTIES_PATH)
    except FileNotFoundError:
        damaged = None
    copy = _read_copy(store)
    is_good = _is_good(store)
    if copy is None:
        if is_good:
            return None
        raise CorruptTableError(
            path=PROPERTIES_PATH,
            found="a file that is damaged, and no copy of it that is not",
            expected=f"a copy in {COPY_PATH}, as bucketlake makes it with its first write",
            remedy="Restore the file from a copy of yours; its keys are in docs/formats/table-properties.md.",
        )
    left = _whole_lines(damaged or b"")
    lost = _lost(left, copy)
    if is_good and not lost:
        return None
    mended = copy | {key: value for key, value in left.items() if key not in lost}
    if not _parses(mended):
        mended = copy
    restored = tuple(sorted(key for key in mended if left.get(key) != mended[key]))
    return PropertiesMend(damaged, mended, restored)


def run_mend(store: Store, mend: PropertiesMend) -> TableProperties:
    """Put the mended file in place; what it was like before stays beside the copy."""
    complete = _with_checksum(mend.mended)
    parsed = TableProperties.parse(complete, path=PROPERTIES_PATH)
    if mend.damaged is not None:
        store.put(DAMAGED_PATH, mend.damaged)
    store.put(PROPERTIES_PATH, rendered(complete))
    store.delete(BACKUP_PATH)
    _put_copy(store, complete)
    return parsed


_COPIED: dict[str, Mapping[str, str]] = {}
"""Of tables that this process writes to, what their copies are known to be in step with."""
_COPIED_MAX = 1_000


def _remember(store: Store, raw: Mapping[str, str]) -> None:
    if len(_COPIED) >= _COPIED_MAX:
        _COPIED.clear()
    _COPIED[store.uri] = raw


def _put_copy(store: Store, raw: Mapping[str, str]) -> None:
    store.put(COPY_PATH, rendered(raw))
    _remember(store, raw)


def _change_copy(
    store: Store, change: Callable[[Mapping[str, str] | None], Mapping[str, str] | None]
) -> None:
    """Put what `change` makes of the copy, unless that is None; begin again if others were faster."""
    while True:
        try:
            version = store.stat(COPY_PATH).version
        except FileNotFoundError:
            version = None
        changed = change(_read_copy(store))
        if changed is None:
            return
        data = rendered(changed)
        if store.put_new(COPY_PATH, data) if version is None else store.replace_if(COPY_PATH, data, version):
            return


def _read_file(store: Store) -> dict[str, str]:
    return parse_java_properties(store.read(PROPERTIES_PATH), path=PROPERTIES_PATH)


def _read_copy(store: Store) -> dict[str, str] | None:
    try:
        data = store.read(COPY_PATH)
    except FileNotFoundError:
        return None
    return parse_java_properties(data, path=COPY_PATH) if is_as_rendered(data) else None


def _lost(raw: Mapping[str, str], copy: Mapping[str, str]) -> set[str]:
    if "hoodie.table.version" in raw and raw["hoodie.table.version"] != copy.get("hoodie.table.version"):
        return set()
    return {key for key in copy if key not in _CHANGING and raw.get(key) != copy[key]}


def _whole_lines(data: bytes) -> dict[str, str]:
    try:
        return parse_java_properties(data[: data.rfind(b"\n") + 1], path=PROPERTIES_PATH)
    except CorruptTableError:
        return {}


def _parses(raw: Mapping[str, str]) -> bool:
    try:
        TableProperties.parse(_with_checksum(raw), path=PROPERTIES_PATH)
    except (BucketlakeError, KeyError):
        return False
    return True


def _recover(store: Store) -> None:
    """Finish what an update that was cut off has left: the file if it is good, else the backup, counts."""
    try:
        backup = store.read(BACKUP_PATH)
    except FileNotFoundError:
        return
    if not _is_good(store):
        TableProperties.parse(parse_java_properties(backup, path=BACKUP_PATH), path=BACKUP_PATH)
        store.put(PROPERTIES_PATH, backup)
    else:
        _change_copy(store, lambda copy: _followed(copy, _whole_lines(backup), _read_file(store)))
    store.delete(BACKUP_PATH)
    _COPIED.pop(store.uri, None)


def _followed(
    copy: Mapping[str, str] | None, before: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, str] | None:
    """Change in the copy what an update has changed in the file; None if that is nothing."""
    if copy is None:
        return None
    changed = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
    kept = {key: value for key, value in copy.items() if key not in changed}
    followed = kept | {key: now[key] for key in changed if key in now}
    return None if followed == copy else followed


def _is_good(store: Store) -> bool:
    try:
        read_properties(store, PROPERTIES_PATH)
    except (FileNotFoundError, CorruptTableError):
        return False
    return True


def _with_checksum(properties: Mapping[str, str]) -> dict[str, str]:
    checksum = table_checksum(
        database=properties.get("hoodie.database.name"), name=properties["hoodie.table.name"]
    )
    return dict(properties) | {"hoodie.table.checksum": str(checksum)}


def _exists(store: Store, path: str) -> bool:
    try:
        store.stat(path)
    except FileNotFoundError:
        return False
    return True


def _changed_meanwhile(store: Store) -> ConcurrentWriteError:
    return ConcurrentWriteError(
        f"{store.uri}/{PROPERTIES_PATH} was changed by another writer at the same time. Nothing of this change was "
        f"written; try again when it is done."
    )
