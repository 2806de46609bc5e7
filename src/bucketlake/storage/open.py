"""From a uri to a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.storage.local import LocalStore
from bucketlake.storage.memory import MemoryStore
from bucketlake.storage.objects import OBJECT_SCHEMES, ObjectStore
from bucketlake.storage.store import Store


def open_store(uri: str, options: Mapping[str, str] | None = None) -> Store:
    """Open the store whose root is `uri`. Nothing is read or checked until the first operation.

    A path is taken as it stands, percent signs included, as Hadoop takes it. `options` are for object stores
    only.

    >>> open_store("file:/data/sales").uri
    'file:///data/sales'
    >>> open_store("s3a://lake/sales/").uri
    's3a://lake/sales'
    """
    if not uri:
        raise ConfigError("the table's uri is empty. Give a folder, or a uri such as s3://bucket/folder.")
    scheme, rest = _split(uri)
    if scheme in OBJECT_SCHEMES:
        return ObjectStore(uri, options or {})
    if options:
        raise ConfigError(
            f"{uri!r} was given the storage options {', '.join(sorted(options))}, "
            f"but only object stores have options. Drop them, or check the uri."
        )
    if scheme == "":
        return LocalStore(Path(uri))
    if scheme == "file":
        return LocalStore(_file_path(uri, rest))
    if scheme == "memory":
        return MemoryStore(rest.removeprefix("//").rstrip("/"))
    raise UnsupportedError(
        subject=f"the storage of {uri!r}",
        found=scheme,
        supported="local folders, s3://, s3a://, gs://, az://, abfs://, abfss:// and memory://",
        remedy="Copy the table to one of these; there is no HDFS client in bucketlake."
        if scheme in ("hdfs", "viewfs", "webhdfs")
        else "Check the uri.",
    )


def _split(uri: str) -> tuple[str, str]:
    """Return the scheme, empty for a plain path, and what follows its colon.

    >>> _split("file:/a:b"), _split("/a:b/c"), _split("day:1")
    (('file', '/a:b'), ('', '/a:b/c'), ('', 'day:1'))
    """
    scheme, colon, rest = uri.partition(":")
    is_uri = colon and scheme.isalnum() and (rest.startswith("//") or scheme == "file")
    return (scheme.lower(), rest) if is_uri else ("", uri)


def _file_path(uri: str, rest: str) -> Path:
    path = rest
    if rest.startswith("//"):
        host, _, path = rest[2:].partition("/")
        if host not in ("", "localhost"):
            raise ConfigError(
                f"{uri!r} names the host {host!r}. A local path has three slashes: file:///folder."
            )
        path = f"/{path}"
    if not path.startswith("/"):
        raise ConfigError(
            f"{uri!r} is not an absolute path. Write file:///folder, or the plain path without 'file:'."
        )
    return Path(path)
