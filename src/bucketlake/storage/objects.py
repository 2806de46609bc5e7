"""S3, Google Cloud Storage and Azure, through obstore.

`put_new` and `replace_if` are single conditional requests: the server decides who wins.

A conditional request has a catch. When the answer is lost (a dropped connection, a 5xx behind which the
write did happen) the client asks again, and is told that the file is already there: by itself. A server may
also refuse while the body is still on its way, and then the refusal arrives as a broken connection. So each
conditional write carries a token of its own as metadata of the object, and a write that seems lost looks
whose token is there before it says so.

The version of a file is the server's: a generation on Google, an etag elsewhere. An S3 etag is made of the
content, so writing the same bytes again does not change it.

A folder marker (an empty object whose key ends in '/', as Hadoop and the web consoles make) is not a file and
not listed; only a recursive listing can't tell the marker of a folder without files from an empty file.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.storage.paths import below, check_path, unsafe
from bucketlake.storage.store import FileStat, Listing

OBJECT_SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss")

# obstore gives up on a request after 30 seconds, body included; a large file on a slow line needs longer.
# What is bounded instead is silence.
_DEFAULT_OPTIONS = {"timeout": "30m", "read_timeout": "60s"}

# Azure wants an identifier here.
_TOKEN_KEY = "bucketlakewriter"

_LIST_CHUNK = 1000


@dataclass(frozen=True)
class ObjectStore:
    """The objects below a uri such as `s3://bucket/folder`.

    `options` are obstore's configuration keys, for example `aws_endpoint`, `aws_access_key_id`, `allow_http`.
    What they leave open comes from the environment of the process that uses the store.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        _parse_uri(self.uri)  # a uri that makes no sense fails here, not at the first read
        object.__setattr__(self, "uri", self.uri.rstrip("/"))
        object.__setattr__(self, "options", dict(self.options))

    @property
    def requests_at_once(self) -> int:
        return 16

    def list(self, folder: str, *, recursive: bool = False) -> Listing:
        if folder:
            check_path(folder)
        prefix = self._key(folder) or None
        with self._errors_of(folder):
            if recursive:
                objects = [meta for chunk in self._list_chunks(prefix) for meta in chunk]
                return Listing(_without_markers(self._stats(objects, prefix)), ())
            found = obstore.list_with_delimiter(self._client, prefix)
            folders = tuple(sorted(self._path(key) for key in found["common_prefixes"]))
            return Listing(self._stats(found["objects"], prefix), folders)

    def stat(self, path: str) -> FileStat:
        check_path(path)
        with self._errors_of(path):
            return self._stat(obstore.head(self._client, self._key(path)))

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        assert offset >= 0, "an offset counts from the start"
        assert length is None or length >= 0, "a length is not negative"
        check_path(path)
        if offset == 0 and length is None:
            with self._errors_of(path):
                return bytes(obstore.get(self._client, self._key(path)).bytes())
        if length == 0:
            self.stat(path)  # no server answers an empty range; a file that is missing is still missing
            return b""
        wanted: Any = {"offset": offset} if length is None else (offset, offset + length)
        try:
            with self._errors_of(path):
                return bytes(obstore.get(self._client, self._key(path), options={"range": wanted}).bytes())
        except ConfigError:
            # A range that begins at or after the end is refused, in each server's own words.
            if offset >= self.stat(path).size_bytes:
                return b""
            raise

    def put(self, path: str, data: bytes | Path) -> None:
        check_path(path)
        with self._errors_of(path):
            obstore.put(self._client, self._key(path), data)

    def put_new(self, path: str, data: bytes | Path) -> bool:
        """Write a whole file unless it exists. A `Path` is held in memory: a condition wants a single
        request."""
        return self._put_on_condition(path, data, "create", stale=None)

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        condition = {"version": version} if self._location.scheme == "gs" else {"e_tag": version}
        return self._put_on_condition(path, data, condition, stale=version)

    def delete(self, path: str) -> None:
        check_path(path)
        try:
            with self._errors_of(path):
                obstore.delete(self._client, self._key(path))
        except FileNotFoundError:
            return

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "options": self.options}  # the client is made anew where the store arrives

    @cached_property
    def _location(self) -> _Location:
        return _parse_uri(self.uri)

    @cached_property
    def _client(self) -> Any:
        where = self._location
        config: Any = {**_DEFAULT_OPTIONS, **where.options, **self.options}
        try:
            if where.scheme == "s3":
                return S3Store(where.bucket, config=config)
            if where.scheme == "gs":
                return GCSStore(where.bucket, config=config)
            return AzureStore(where.bucket, config=config)
        except (BaseError, ValueError, TypeError) as error:
            raise ConfigError(
                f"{self.uri} can't be opened with these options: {_first_line(error)}. "
                f"Options are obstore's configuration keys and their values, as text."
            ) from None

    def _put_on_condition(self, path: str, data: bytes | Path, condition: Any, *, stale: str | None) -> bool:
        check_path(path)
        token = secrets.token_hex(16)
        try:
            with self._errors_of(path):
                obstore.put(
                    self._client, self._key(path), data, mode=condition, attributes={_TOKEN_KEY: token}
                )
        except _ConditionError:
            return self._token_at(path) == token
        except ConfigError:
            # Perhaps the connection broke under a refusal, or after the write. What is there now can tell,
            # unless it is what was there before: then nobody knows, and the error stands.
            written = self._token_at(path)
            if written == token:
                return True
            if written is None or (stale is not None and self.stat(path).version == stale):
                raise
            return False
        return True

    def _token_at(self, path: str) -> str | None:
        """Return the token of the file's writer: empty for one who left none, None when there is no file."""
        try:
            with self._errors_of(path):
                found = obstore.get(self._client, self._key(path), options={"head": True})
                return str(found.attributes.get(_TOKEN_KEY, ""))
        except FileNotFoundError:
            return None

    def _list_chunks(self, prefix: str | None) -> Iterator[Any]:
        return iter(obstore.list(self._client, prefix, chunk_size=_LIST_CHUNK))

    def _stats(self, objects: Any, prefix: str | None) -> tuple[FileStat, ...]:
        # The folder's own marker is listed under the folder's name.
        return tuple(sorted(self._stat(meta) for meta in objects if meta["path"] != prefix))

    def _stat(self, meta: Any) -> FileStat:
        version = meta["version"] if self._location.scheme == "gs" else meta["e_tag"]
        modified_ms = round(meta["last_modified"].timestamp() * 1000)
        return FileStat(self._path(meta["path"]), meta["size"], modified_ms, version or "")

    def _key(self, path: str) -> str:
        return below(self._location.prefix, path) if path else self._location.prefix

    def _path(self, key: str) -> str:
        prefix = self._location.prefix
        return key[len(prefix) + 1 :] if prefix else key

    @contextmanager
    def _errors_of(self, path: str) -> Iterator[None]:
        """Turn obstore's errors into ours, in words that say what to check."""
        try:
            yield
        except FileNotFoundError as error:
            if _code_of(error) in _NO_BUCKET:
                raise self._no_bucket() from None
            raise self._no_file(path) from None
        except (AlreadyExistsError, PreconditionError) as error:
            raise _ConditionError from error
        except BaseError as error:
            if _NO_KEY.search(str(error)):  # a request for several files answers for each in its own words
                raise self._no_file(path) from None
            raise self._explained(error) from error
        except ValueError as error:
            raise unsafe(path, f"a name the store can't hold ({_first_line(error)})") from None

    def _explained(self, error: Exception) -> ConfigError:
        text = str(error)
        if _code_of(error) in _NO_BUCKET:
            return self._no_bucket()
        if re.search(r"PermissionDenied|Unauthenticated|\b40[13]\b", text):
            return ConfigError(
                f"{self.uri} refused access: {_first_line(error)}. "
                f"Check the credentials and the rights on {self._location.bucket!r}."
            )
        if "error sending request" in text or "HTTP error" in text:
            return ConfigError(
                f"{self.uri} could not be reached: {_first_line(error)}. "
                f"Check the endpoint and the network; for plain http also the option allow_http."
            )
        return ConfigError(
            f"{self.uri} answered with an error: {_first_line(error)}. Check the uri and the options."
        )

    def _no_file(self, path: str) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, "no such file in the store", f"{self.uri}/{path}")

    def _no_bucket(self) -> ConfigError:
        return ConfigError(
            f"{self.uri}: there is no bucket or container {self._location.bucket!r}. "
            f"Check its name, the region and the endpoint; bucketlake does not create buckets."
        )


class _ConditionError(Exception):
    """A conditional write was refused; never leaves this module."""


@dataclass(frozen=True, slots=True)
class _Location:
    scheme: str
    """`s3`, `gs` or `az`."""
    bucket: str
    prefix: str
    """The root's key; no slash at either end."""
    options: Mapping[str, str]
    """What the uri itself says about the account."""


_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_NO_KEY = re.compile(r"\bNoSuchKey\b")


def _parse_uri(uri: str) -> _Location:
    """Split a uri, taking every character of its path as it stands: Hadoop does not decode `%20` either.

    >>> _parse_uri("s3a://lake/sales/a%20b")
    _Location(scheme='s3', bucket='lake', prefix='sales/a%20b', options={})
    >>> _parse_uri("abfss://lake@firm.dfs.core.windows.net/sales").options
    {'azure_storage_account_name': 'firm'}
    """
    scheme, mark, rest = uri.partition("://")
    scheme = scheme.lower()
    bucket, _, prefix = rest.rstrip("/").partition("/")
    if not mark or scheme not in OBJECT_SCHEMES:
        raise UnsupportedError(
            subject=f"the scheme of {uri!r}",
            found=scheme if mark else "missing",
            supported=", ".join(f"{known}://" for known in OBJECT_SCHEMES),
            remedy="Give the table's uri with one of these.",
        )
    options: dict[str, str] = {}
    if scheme in ("abfs", "abfss") and "@" in bucket:
        bucket, _, host = bucket.partition("@")
        options["azure_storage_account_name"] = host.partition(".")[0]
    if not bucket:
        raise ConfigError(f"{uri!r} names no bucket. Write it as {scheme}://bucket/folder.")
    if prefix:
        check_path(prefix)
    return _Location({"s3": "s3", "s3a": "s3", "gs": "gs"}.get(scheme, "az"), bucket, prefix, options)


def _without_markers(stats: tuple[FileStat, ...]) -> tuple[FileStat, ...]:
    """Drop empty files that have the name of a folder of another file."""
    folders: set[str] = set()
    for stat in stats:
        folder, slash, _ = stat.path.rpartition("/")
        while slash and folder not in folders:
            folders.add(folder)
            folder, slash, _ = folder.rpartition("/")
    return tuple(stat for stat in stats if stat.size_bytes > 0 or stat.path not in folders)


def _code_of(error: Exception) -> str:
    found = re.search(r"<Code>(\w+)</Code>", str(error))
    return found.group(1) if found else ""


def _first_line(error: Exception) -> str:
    line = str(error).partition("\n")[0].partition(": <?xml")[0].rstrip(". ")
    code = _code_of(error)
    return f"{line} ({code})" if code else line
