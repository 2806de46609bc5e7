"""Which stream a checkpoint is of. Where only Spark can read it is tried in `tests/spark/test_streams.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bucketlake import Table, create_table
from bucketlake.errors import ConfigError
from bucketlake.storage import open_store
from bucketlake.streaming.checkpoint import METADATA, query_id
from servers.s3 import S3Server

pytestmark = pytest.mark.shows("R9")

NO_SESSION: Any = None
"""It is not asked for anything."""


def clicks(path: Path) -> Table:
    return create_table(path, "id STRING, ts BIGINT", key="id", ordering="ts", buckets=1)


def test_a_checkpoint_on_a_disk_says_which_stream_it_is_of(tmp_path: Path) -> None:
    (tmp_path / METADATA).write_text('{"id":"2f9d7a3e"}')
    assert query_id(str(tmp_path), NO_SESSION) == query_id(tmp_path.as_uri(), NO_SESSION) == "2f9d7a3e"


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"id":', "null"])
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / METADATA).write_text(text)
    with pytest.raises(ConfigError, match="expected the id of a query, as Spark writes it"):
        query_id(str(tmp_path), NO_SESSION)


def test_a_folder_without_the_file_is_no_checkpoint(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match="is no checkpoint: it has no file metadata"):
            query_id(folder.as_uri(), NO_SESSION)


@pytest.mark.s3
def test_a_checkpoint_in_an_object_store_is_read_with_its_own_options(
    s3_server: S3Server, tmp_path: Path
) -> None:
    uri = f"s3://{s3_server.bucket}/{tmp_path.name}"
    with pytest.raises(ConfigError, match="is no checkpoint"):
        query_id(uri, NO_SESSION, s3_server.options)
    open_store(uri, s3_server.options).put(METADATA, b'{"id":"2f9d7a3e"}')
    assert query_id(uri, NO_SESSION, s3_server.options) == "2f9d7a3e"
    wrong = {**s3_server.options, "aws_secret_access_key": "another"}
    with pytest.raises(ConfigError, match="refused access"):
        query_id(uri, NO_SESSION, wrong)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"maintenance": "besides"}, "'beside' too"),
        ({"storage_options": 4}, "storage_options is 4"),
        ({"storage_options": {"region": "x"}}, "only object stores have options"),
        ({"pipelined": True}, "hudi_writes=False"),
        ({"checkpoint": ""}, "the checkpoint is an empty text"),
        ({"checkpoint": "the table's"}, "is the folder of the table"),
    ],
)
def test_what_a_stream_cannot_have_is_refused_before_it_starts(
    given: dict[str, Any], told: str, tmp_path: Path
) -> None:
    table = clicks(tmp_path / "table")
    checkpoint = given.pop("checkpoint", str(tmp_path / "checkpoint")).replace(
        "the table's", f"{table.store.uri}/"
    )
    with pytest.raises(ConfigError, match=told):
        table.batch_writer(checkpoint=checkpoint, **given)


@pytest.mark.parametrize("number", ["0", -1, True, 1.5])
def test_a_batch_is_known_by_a_number(number: Any, tmp_path: Path) -> None:
    writer = clicks(tmp_path / "table").batch_writer(checkpoint=str(tmp_path / "checkpoint"))
    with pytest.raises(ConfigError, match="the number of the batch is"):
        writer(cast("Any", None), number)


def test_what_is_no_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="expected a Spark session"):
        clicks(tmp_path / "table").query_progress(spark=cast("Any", 3))
