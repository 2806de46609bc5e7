"""A uri means here what it means to Spark and Hudi."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake.errors import ConfigError, UnsafePathError, UnsupportedError
from bucketlake.storage import LocalStore, MemoryStore, ObjectStore, open_store


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("/data/sales", "/data/sales"),
        ("/data/sales/", "/data/sales"),
        ("file:/data/sales", "/data/sales"),
        ("file:///data/sales", "/data/sales"),
        ("file://localhost/data/sales", "/data/sales"),
        ("FILE:///data/sales", "/data/sales"),
        ("file:///data/100%/a%20b?c#d", "/data/100%/a%20b?c#d"),
        ("/data/10:30", "/data/10:30"),
    ],
)
def test_a_local_uri_is_a_folder(uri: str, root: str) -> None:
    assert open_store(uri) == LocalStore(Path(root))


def test_a_relative_path_is_below_the_working_folder() -> None:
    assert open_store("some/table") == LocalStore(Path.cwd() / "some/table")


@pytest.mark.parametrize(
    "uri",
    [
        "s3://lake/a",
        "s3a://lake/a",
        "gs://lake/a",
        "az://lake/a",
        "abfs://lake/a",
        "abfss://c@firm.dfs.core.windows.net/a",
    ],
)
def test_an_object_uri_is_an_object_store(uri: str) -> None:
    store = open_store(uri + "/", {"timeout": "1m"})
    assert store == ObjectStore(uri, {"timeout": "1m"})
    assert store.uri == uri


def test_a_memory_uri_is_a_memory_store() -> None:
    store = open_store("memory://some/name/")
    assert isinstance(store, MemoryStore)
    assert store.uri == "memory://some/name"


@pytest.mark.parametrize(
    ("uri", "word"),
    [("hdfs://host/a", "HDFS"), ("viewfs://host/a", "HDFS"), ("ftp://host/a", "Check the uri")],
)
def test_other_storage_is_unsupported_and_says_so(uri: str, word: str) -> None:
    with pytest.raises(UnsupportedError, match=word):
        open_store(uri)


@pytest.mark.parametrize("uri", ["", "s3://", "s3:///a", "file://host/a", "file:relative"])
def test_a_uri_that_makes_no_sense_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError):
        open_store(uri)


@pytest.mark.parametrize("uri", ["s3://lake/a/../b", "gs://lake//a", "az://lake/a\\b"])
def test_a_root_is_checked_like_a_path(uri: str) -> None:
    with pytest.raises(UnsafePathError):
        open_store(uri)


def test_options_for_a_store_that_has_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="aws_region"):
        open_store("/data/sales", {"aws_region": "x"})


def test_secrets_are_not_printed() -> None:
    store = open_store("s3://lake/a", {"aws_secret_access_key": "hush"})
    assert "hush" not in repr(store)
