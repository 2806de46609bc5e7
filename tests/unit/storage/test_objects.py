"""An object store is far away: answers get lost, credentials are wrong, folders are a manner of speaking."""

from __future__ import annotations

import hashlib
import hmac
import http.client
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from obstore.exceptions import GenericError

from bucketlake.errors import ConfigError, UnsafePathError
from bucketlake.storage import ObjectStore
from servers.faulty_proxy import Fault, FaultyProxy, running_faulty_proxy
from servers.s3 import S3Server

pytestmark = pytest.mark.s3


@pytest.fixture
def store(s3_server: S3Server, tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"s3://{s3_server.bucket}/{tmp_path.name}", s3_server.options)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultyProxy]:
    with running_faulty_proxy(s3_server.endpoint) as running:
        yield running


@pytest.fixture
def shaky(store: ObjectStore, proxy: FaultyProxy) -> ObjectStore:
    """The same store, through the proxy."""
    return ObjectStore(store.uri, {**store.options, "aws_endpoint": proxy.endpoint})


def test_a_file_that_another_deletes_at_the_same_time_is_gone_for_both(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may answer so for one of the files that a request asks it to delete."""

    def refuse(*arguments: object) -> None:
        raise GenericError(
            "Generic S3 error: DeleteObjects request failed for key marker: NoSuchKey (code: 404)"
        )

    monkeypatch.setattr("bucketlake.storage.objects.obstore.delete", refuse)
    store.delete("marker")


# Lost answers


@pytest.mark.parametrize("fault", ["after", "dropped"])
def test_a_winner_whose_answer_was_lost_still_knows_that_it_won(
    store: ObjectStore, shaky: ObjectStore, proxy: FaultyProxy, fault: Fault
) -> None:
    """A retry would be told that the file exists; believing it, both sides of a race would have lost."""
    proxy.faults.append(fault)
    assert shaky.put_new("claim", b"ours")
    assert not proxy.faults
    assert not store.put_new("claim", b"theirs")

    proxy.faults.append(fault)
    assert shaky.replace_if("claim", b"ours again", store.stat("claim").version)
    assert not proxy.faults
    assert store.read("claim") == b"ours again"


@pytest.mark.parametrize("fault", ["after", "dropped"])
def test_a_loser_whose_answer_was_lost_does_not_think_it_won(
    store: ObjectStore, shaky: ObjectStore, proxy: FaultyProxy, fault: Fault
) -> None:
    store.put("claim", b"theirs")
    proxy.faults.append(fault)
    assert not shaky.put_new("claim", b"ours")
    stale = store.stat("claim").version
    store.put("claim", b"theirs again")
    proxy.faults.append(fault)
    assert not shaky.replace_if("claim", b"ours", stale)
    assert store.read("claim") == b"theirs again"


def test_a_write_that_never_arrived_is_written_by_the_retry_or_raised(
    store: ObjectStore, shaky: ObjectStore, proxy: FaultyProxy
) -> None:
    proxy.faults.append("before")
    try:
        won = shaky.put_new("claim", b"ours")
    except ConfigError:
        assert store.list("").files == ()
    else:
        assert won
        assert store.read("claim") == b"ours"


def test_a_large_file_that_exists_is_a_plain_no(store: ObjectStore, tmp_path: Path) -> None:
    """The server answers before it has read the body, and closes: the client sees only a broken pipe."""
    spill = tmp_path / "spill"
    spill.write_bytes(b"x" * (24 << 20))
    assert store.put_new("large", spill)
    assert not store.put_new("large", spill)
    assert not store.replace_if("large", spill.read_bytes(), '"another etag"')


# Errors that say what to check


def with_options(store: ObjectStore, **options: str) -> ObjectStore:
    return ObjectStore(store.uri, {**store.options, **options})


def test_wrong_credentials_are_named(store: ObjectStore) -> None:
    store.put("a", b"x")
    wrong = with_options(store, aws_secret_access_key="hush")
    for operation in (
        lambda: wrong.read("a"),
        lambda: wrong.read("a", offset=1, length=5),
        lambda: wrong.stat("a"),
        lambda: wrong.list(""),
        lambda: wrong.list("", recursive=True),
        lambda: wrong.put("a", b""),
        lambda: wrong.put_new("b", b""),
        lambda: wrong.replace_if("a", b"", "version"),
        lambda: wrong.delete("a"),
    ):
        with pytest.raises(
            ConfigError, match=r"s3://lake/.* refused access.*Check the credentials"
        ) as refused:
            operation()
        assert "hush" not in str(refused.value)
        assert "Debug source" not in str(refused.value)


def test_a_bucket_that_is_not_there_is_named(s3_server: S3Server) -> None:
    nowhere = ObjectStore("s3://nowhere/a", s3_server.options)
    for operation in (
        lambda: nowhere.list(""),
        lambda: nowhere.read("a"),
        lambda: nowhere.put("a", b""),
        lambda: nowhere.put_new("a", b""),
    ):
        with pytest.raises(ConfigError, match="no bucket or container 'nowhere'"):
            operation()


def test_an_endpoint_that_does_not_answer_is_named(store: ObjectStore) -> None:
    with pytest.raises(ConfigError, match=r"could not be reached.*Check the endpoint"):
        with_options(store, aws_endpoint="http://127.0.0.1:1").read("a")


@pytest.mark.parametrize(("key", "value"), [("aws_nonsense", "1"), ("timeout", "soon")])
def test_an_option_that_makes_no_sense_is_named(store: ObjectStore, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=r"aws_nonsense|soon"):
        with_options(store, **{key: value}).list("")


def test_a_name_that_object_stores_do_not_take_is_unsafe(store: ObjectStore) -> None:
    with pytest.raises(UnsafePathError, match="can't hold"):
        store.put("two\nlines", b"")


# Folders


def test_folder_markers_are_not_files(store: ObjectStore, s3_server: S3Server) -> None:
    """Hadoop's S3A leaves an empty object with a slash at its end for every folder it made."""
    prefix = store.uri.removeprefix("s3://")
    for folder in ("", "day/", "day/hour/"):
        put_folder_marker(s3_server, f"/{prefix}/{folder}")
    store.put("day/hour/data", b"x")
    store.put("day/empty", b"")
    assert (store.list("").files, store.list("").folders) == ((), ("day",))
    assert [file.path for file in store.list("day").files] == ["day/empty"]
    assert [file.path for file in store.list("day/hour").files] == ["day/hour/data"]
    assert [file.path for file in store.list("", recursive=True).files] == ["day/empty", "day/hour/data"]


def test_a_store_may_have_the_bucket_as_its_root(s3_server: S3Server, tmp_path: Path) -> None:
    bucket = ObjectStore(f"s3://{s3_server.bucket}", s3_server.options)
    folder = ObjectStore(f"s3a://{s3_server.bucket}/{tmp_path.name}/", s3_server.options)
    folder.put("a", b"x")
    assert bucket.read(f"{tmp_path.name}/a") == b"x"
    assert tmp_path.name in bucket.list("").folders
    assert f"{tmp_path.name}/a" in [file.path for file in bucket.list("", recursive=True).files]


def put_folder_marker(server: S3Server, path: str) -> None:
    """Put an empty object whose key ends in a slash; obstore can't, so the request is signed by hand."""
    host = server.endpoint.removeprefix("http://")
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    empty = hashlib.sha256(b"").hexdigest()
    names = "host;x-amz-content-sha256;x-amz-date"
    request = (
        f"PUT\n{path}\n\nhost:{host}\nx-amz-content-sha256:{empty}\nx-amz-date:{now}\n\n{names}\n{empty}"
    )
    scope = f"{now[:8]}/{server.options['aws_region']}/s3/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = b"AWS4" + server.options["aws_secret_access_key"].encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"{server.options['aws_access_key_id']}/{scope}"
    connection = http.client.HTTPConnection(host, timeout=30)
    connection.request(
        "PUT",
        path,
        headers={
            "x-amz-content-sha256": empty,
            "x-amz-date": now,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, "
            f"SignedHeaders={names}, Signature={signature}",
        },
    )
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()
