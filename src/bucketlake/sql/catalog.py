"""Names of tables: one small file for each, in a folder of a warehouse.

    <warehouse>/.bucketlake/tables/<name>.json   {"version": 1, "name": "orders", "path": "orders"}

Of two who make a table of one name at the same time, one writes the file and the other finds it there. A path that is
not absolute is below the warehouse, so that a warehouse can be moved with its tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from bucketlake.errors import ConfigError, CorruptTableError
from bucketlake.storage import open_store

_FOLDER = ".bucketlake/tables"
_SUFFIX = ".json"
_VERSION = 1
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,127}")
_IS_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9]*://|file:/")


def table_name(name: str) -> str:
    """Return the name of a table as the catalog keeps it: in lower case, since Spark's names have none.

    >>> table_name("Orders")
    'orders'
    """
    lower = name.lower()
    if not _NAME.fullmatch(lower):
        raise ConfigError(
            f"a table cannot be named {name!r}: expected up to 128 letters from a to z, digits and underscores, and no "
            f"digit at the start."
        )
    return lower


@dataclass(frozen=True, slots=True)
class DroppedName:
    """A name that is forgotten, and the table that had it, which is as it was."""

    name: str
    path: str

    def __str__(self) -> str:
        return (
            f"forgot the name {self.name}; the table and its rows stay at {self.path}. CREATE TABLE {self.name} USING "
            f"bucketlake LOCATION '{self.path}' names it again; to delete it, delete the folder."
        )


class Catalog:
    """The tables of a warehouse."""

    def __init__(self, warehouse: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.warehouse = warehouse.rstrip("/") or "/"
        self._options = storage_options
        self._store = open_store(warehouse, self.options_for(warehouse))

    def options_for(self, path: str) -> Mapping[str, str] | None:
        """Return the storage options for what is in an object store; a folder has none."""
        is_remote = "://" in path and not path.startswith(("file:", "memory:"))
        return self._options if is_remote else None

    def names(self) -> tuple[str, ...]:
        """List the tables, sorted."""
        files = (file.path.rpartition("/")[2] for file in self._store.list(_FOLDER).files)
        return tuple(sorted(name.removesuffix(_SUFFIX) for name in files if name.endswith(_SUFFIX)))

    def path_of(self, name: str) -> str:
        """Return where a table is; ConfigError names those there are."""
        try:
            text = self._store.read(_file_of(name))
        except FileNotFoundError:
            raise self.unknown(name) from None
        return self.absolute(_parse_entry(text, f"{self.warehouse}/{_file_of(name)}"))

    def unknown(self, name: str) -> ConfigError:
        """Build the error for a table that is not there."""
        known = ", ".join(self.names()) or "no table"
        return ConfigError(
            f"there is no table {name!r}: the catalog in {self.warehouse!r} has {known}. Make it with CREATE TABLE, or "
            f"name it by its path: bucketlake.`/path`."
        )

    def add(self, name: str, path: str) -> bool:
        """Give a table its name, unless that is taken; return whether it was free."""
        entry = {"version": _VERSION, "name": table_name(name), "path": path}
        return self._store.put_new(_file_of(name), json.dumps(entry).encode())

    def remove(self, name: str) -> None:
        """Forget a name. The table stays as it is."""
        self._store.delete(_file_of(name))

    def absolute(self, path: str) -> str:
        """Return a path of the catalog as it is opened."""
        return path if _IS_ABSOLUTE.match(path) else f"{self.warehouse.rstrip('/')}/{path}"


def _file_of(name: str) -> str:
    return f"{_FOLDER}/{table_name(name)}{_SUFFIX}"


def _parse_entry(text: bytes, file: str) -> str:
    try:
        entry = json.loads(text)
    except ValueError:
        entry = None
    path = entry.get("path") if isinstance(entry, dict) and entry.get("version") == _VERSION else None
    if not isinstance(path, str) or not path:
        raise CorruptTableError(
            path=file,
            found=repr(text[:80].decode(errors="replace")),
            expected=f"the version {_VERSION} and the path of a table",
            remedy="The table itself is not concerned: DROP TABLE its name, then CREATE TABLE with its LOCATION.",
        )
    return path
