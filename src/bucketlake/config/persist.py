"""`hoodie.properties`, written: once when a table is made, and changed with care after.

Hudi changes the file in steps that a crash may cut anywhere: the old content goes to a backup, the file is written
anew, the backup goes away. Readers who find the file missing or torn take the backup. We keep to these steps, so
that Hudi finds its way if we are cut, and leave out the one that Hudi needs because HDFS cannot replace a file:
deleting it in between. A store's `replace_if` replaces it whole, and only if nobody else has changed it meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping

from bucketlake.config.java_properties import parse_java_properties, render_java_properties
from bucketlake.config.properties import BACKUP_PATH, PROPERTIES_PATH, TableProperties, table_checksum
from bucketlake.errors import ConcurrentWriteError, CorruptTableError, NotATableError, TableExistsError
from bucketlake.storage.store import Store

_HEADER = b"#Properties saved by bucketlake\n"


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
    if not store.put_new(PROPERTIES_PATH, _HEADER + render_java_properties(complete)):
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
    raw = parse_java_properties(old, path=PROPERTIES_PATH)
    merged = {key: value for key, value in raw.items() if key not in changes}
    merged |= {key: value for key, value in changes.items() if value is not None}
    if merged == raw:
        return TableProperties.parse(raw, path=PROPERTIES_PATH)
    complete = _with_checksum(merged)
    parsed = TableProperties.parse(complete, path=PROPERTIES_PATH)
    new = _HEADER + render_java_properties(complete)
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
    store.delete(BACKUP_PATH)
    return parsed


def _recover(store: Store) -> None:
    """Finish what an update that was cut off has left: the file if it is good, else the backup, counts."""
    try:
        backup = store.read(BACKUP_PATH)
    except FileNotFoundError:
        return
    if not _is_good(store):
        TableProperties.parse(parse_java_properties(backup, path=BACKUP_PATH), path=BACKUP_PATH)
        store.put(PROPERTIES_PATH, backup)
    store.delete(BACKUP_PATH)


def _is_good(store: Store) -> bool:
    try:
        raw = parse_java_properties(store.read(PROPERTIES_PATH), path=PROPERTIES_PATH)
        TableProperties.parse(raw, path=PROPERTIES_PATH)
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
