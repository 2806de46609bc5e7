"""Every file name and path below a table's root, built and parsed, here only.

    base file   <fileId>_<writeToken>_<instant>.parquet; .hfile in the metadata table
    log file    .<fileId>_<instant>.log.<version>[_<writeToken>][.cdc]
    marker      .hoodie/.temp/<instant>/<partition>/<file name>.marker.<CREATE|MERGE|APPEND>

`instant` in a log's name is the delta commit's own in table versions 8 and
9, and the base file's in 6. The write token names the attempt that wrote
the file: `<task partition>-<stage>-<attempt>`.

A partition is a path too (`dt=2024-01-02/hh=03`); the empty one is the root
of a table without partitions.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

META_FOLDER = ".hoodie"
METADATA_TABLE_FOLDER = ".hoodie/metadata"
METADATA_PROPERTIES_PATH = ".hoodie/metadata/.hoodie/hoodie.properties"
METADATA_TIMELINE_FOLDER = ".hoodie/metadata/.hoodie/timeline"
METADATA_HISTORY_FOLDER = ".hoodie/metadata/.hoodie/timeline/history"
INDEX_DEFINITIONS_PATH = ".hoodie/.index_defs/index.json"
HASHING_CONFIG_FOLDER = ".hoodie/.bucket_index/partition_bucket_index_meta/configs"
HASHING_CONFIG_ARCHIVE_FOLDER = ".hoodie/.bucket_index/partition_bucket_index_meta/archive"
HASHING_CONFIG_DRAFT_FOLDER = ".hoodie/.hashing_meta"
"""Where the RFC put `.hashing_config` files, before Hudi built it elsewhere."""
CONSISTENT_METADATA_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
EXTENDIBLE_METADATA_FOLDER = ".hoodie/.bucket_index/extendible_hashing_metadata"
"""Ours: Hudi has no such engine."""

RECORDED_COUNTS_FOLDER = ".hoodie/.simple_hashing/meta"
"""Where writers note how many buckets they gave a partition."""

PARTITION_METADATA_PREFIX = ".hoodie_partition_metadata"
"""The file that makes a folder a partition; `.parquet` follows when the base format is used for it."""

_BASE_FILE = re.compile(r"(?a:([A-Za-z0-9-]+)_([A-Za-z0-9-]+)_(\d+)\.parquet)")
_INDEX_BASE_FILE = re.compile(r"(?a:([^_/]+)_([A-Za-z0-9-]+)_(\d+)\.hfile)")
_LOG_FILE = re.compile(r"(?a:\.([^._/]+)_([^./]*)\.log\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?)")
_SHADOW = 1_000_000_007
_HASHING_FILE = re.compile(r"(?a:(\d+)\.(hashing_config|hashing_meta|commit))")


@dataclass(frozen=True, slots=True)
class BaseFileName:
    file_id: str
    write_token: str
    instant: str


@dataclass(frozen=True, slots=True)
class LogFileName:
    file_id: str
    instant: str
    version: int
    write_token: str = ""
    """Empty in the oldest tables, which had none."""
    is_cdc: bool = False
    """Change data beside the log, not part of the file group's records."""


def parse_base_file_name(name: str) -> BaseFileName | None:
    """Read a base file's name; None if it is another file's.

    >>> parse_base_file_name("00000003-159a-0_1-0-2_20240102030405678.parquet")
    BaseFileName(file_id='00000003-159a-0', write_token='1-0-2', instant='20240102030405678')
    """
    found = _BASE_FILE.fullmatch(name)
    return BaseFileName(found[1], found[2], found[3]) if found else None


def render_base_file_name(name: BaseFileName) -> str:
    return f"{name.file_id}_{name.write_token}_{name.instant}.parquet"


def parse_index_base_file_name(name: str) -> BaseFileName | None:
    """Read the name of a base file of the metadata table; None if it is another file's.

    >>> parse_index_base_file_name("files-0000-0_0-312-587_00000000000000000.hfile")
    BaseFileName(file_id='files-0000-0', write_token='0-312-587', instant='00000000000000000')
    """
    found = _INDEX_BASE_FILE.fullmatch(name)
    return BaseFileName(found[1], found[2], found[3]) if found else None


def render_index_base_file_name(name: BaseFileName) -> str:
    return f"{name.file_id}_{name.write_token}_{name.instant}.hfile"


def parse_log_file_name(name: str) -> LogFileName | None:
    """Read a log file's name; None if it is another file's.

    >>> parse_log_file_name(".00000003-159a-0_20240102.log.1_1-0-2")
    LogFileName(file_id='00000003-159a-0', instant='20240102', version=1, write_token='1-0-2', is_cdc=False)
    """
    found = _LOG_FILE.fullmatch(name)
    if not found:
        return None
    return LogFileName(found[1], found[2], int(found[3]), found[4] or "", found[5] is not None)


def render_log_file_name(name: LogFileName) -> str:
    token = f"_{name.write_token}" if name.write_token else ""
    return f".{name.file_id}_{name.instant}.log.{name.version}{token}{'.cdc' if name.is_cdc else ''}"


WRITE_TOKEN = "1-0-1"
"""The token in the names we write. It is the same for every attempt at a file, so that there is one name to win."""


def token_of_build(completed: str) -> str:
    """Return the token of a file that is built under a number which others may build under too.

    Each has a file of his own, so nobody deletes that of another, and the one that completed it can be told.

    >>> token_of_build("20261118201708970")
    '20261118-201708-970'
    """
    return f"{completed[:8]}-{completed[8:14]}-{completed[14:]}"


def shadow_token(*, bucket: int, task: int) -> str:
    """Return the write token of a log that a write puts beside a resize, under the resize's instant.

    Two buckets that become one, and two tasks that append, write files of their own. The number in the middle, where
    Hudi has that of a stage, tells such a log from others: see `is_shadow`.
    """
    return f"{bucket}-{_SHADOW}-{task}"


def is_shadow(write_token: str) -> bool:
    """Tell a log of ours that lies beside a resize: its version is how long after that its own write was begun.

    >>> is_shadow(shadow_token(bucket=0, task=1)), is_shadow(WRITE_TOKEN)
    (True, False)
    """
    return write_token.split("-")[1:2] == [str(_SHADOW)]


def new_file_id(prefix: str, *, partition: str, instant: str) -> str:
    """Return the id of the file group that `instant` opens for a bucket, whose ids begin with `prefix`.

    A function of the three, so that every attempt at the write agrees; and of the instant, so that an id that was
    replaced is never used again. A prefix as long as a UUID, as a hash ring has them, is the whole id.

    >>> new_file_id("00000003", partition="dt=1", instant="20240102030405678")
    '00000003-ff71-0d29-e889-d4f94cde7ba6-0'
    """
    digest = hashlib.md5(f"{instant}/{partition}/{prefix}".encode(), usedforsecurity=False).hexdigest()
    shaped = "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))
    return f"{prefix}{shaped[len(prefix) :]}-0"


def fixed_file_id(prefix: str) -> str:
    """Return the id that every writer gives a bucket's file group without asking the others, as Hudi's do.

    >>> fixed_file_id("00000003")
    '00000003-0000-0000-0000-000000000000-0'
    """
    return f"{prefix}-0000-0000-0000-000000000000-0"


def path_in_partition(partition: str, name: str) -> str:
    """Return the path of a file of a partition.

    >>> path_in_partition("", "a.parquet"), path_in_partition("dt=1", "a.parquet")
    ('a.parquet', 'dt=1/a.parquet')
    """
    return f"{partition}/{name}" if partition else name


def split_path(path: str) -> tuple[str, str]:
    """Split a data file's path into partition and name; the mirror of `path_in_partition`."""
    partition, _, name = path.rpartition("/")
    return partition, name


def partition_metadata_path(partition: str) -> str:
    return path_in_partition(partition, PARTITION_METADATA_PREFIX)


def is_partition_metadata(name: str) -> bool:
    return name.startswith(PARTITION_METADATA_PREFIX)


def marker_folder(instant: str) -> str:
    """Where the markers of a running write are."""
    return f".hoodie/.temp/{instant}"


def marker_path(instant: str, data_path: str, kind: str) -> str:
    """Return the marker of a data file; `kind` is CREATE, MERGE or APPEND."""
    return f"{marker_folder(instant)}/{data_path}.marker.{kind}"


def heartbeat_path(instant: str) -> str:
    return f".hoodie/.heartbeat/{instant}"


def hashing_config_path(instant: str) -> str:
    """Return where the bucket rules that `instant` set are."""
    return f"{HASHING_CONFIG_FOLDER}/{instant}.hashing_config"


def hashing_metadata_path(partition: str, instant: str, *, folder: str = CONSISTENT_METADATA_FOLDER) -> str:
    """Return where a version of a partition's hash ring is; `folder` is that of its kind of rings."""
    return "/".join(filter(None, (folder, partition, f"{instant}.hashing_meta")))


def hashing_commit_path(partition: str, instant: str, *, folder: str = CONSISTENT_METADATA_FOLDER) -> str:
    """Return the empty file that says a ring version was found to be committed."""
    return "/".join(filter(None, (folder, partition, f"{instant}.commit")))


def recorded_counts_path(instant: str) -> str:
    """Return where the bucket counts that `instant` recorded are."""
    return f"{RECORDED_COUNTS_FOLDER}/{instant}.hashing_meta"


def parse_hashing_name(name: str) -> tuple[str, str] | None:
    """Read a file name of the folders above as (instant, kind); None if it is none of theirs.

    >>> parse_hashing_name("00000000000000.hashing_meta")
    ('00000000000000', 'hashing_meta')
    """
    found = _HASHING_FILE.fullmatch(name)
    return (found[1], found[2]) if found else None


TEMPORARY_FOLDER = ".hoodie/.temp"
HEARTBEAT_FOLDER = ".hoodie/.heartbeat"
CLAIM_FOLDER = ".hoodie/.bucketlake/commits"
"""Where writers agree on the outcome of instants, one file per number."""
PIECES_FOLDER = ".hoodie/.bucketlake/pieces"
"""Where tasks of a running write leave rows for each other, a folder per instant. Not among the markers: Hudi takes
every file there for one."""
INDEX_BUILDS_FOLDER = ".hoodie/.bucketlake/index_builds"
"""What there is of indexes that are being built, beside the files of the index: a folder for each."""
MAINTENANCE_LEASE = ".hoodie/.bucketlake/maintenance"
"""Who is maintaining the table: one process at a time."""
YIELD_FOLDER = ".hoodie/.bucketlake/yield"
"""Who has asked others to let it commit first."""
STREAMS_FOLDER = ".hoodie/.bucketlake/streams"
"""How far each stream had come when somebody last looked."""
TIMELINE_KEEPER = ".hoodie/timeline/.keep"
"""A file that is no instant: Hudi does not open a table whose timeline folder is not there."""

_CLAIM_DIGITS = 20
_MARKER = re.compile(r"(.+)\.marker\.(?:CREATE|MERGE|APPEND)")


def pieces_folder(instant: str) -> str:
    return f"{PIECES_FOLDER}/{instant}"


def stream_path(name: str) -> str:
    return f"{STREAMS_FOLDER}/{name}"


def claim_path(number: int) -> str:
    return f"{CLAIM_FOLDER}/{number:0{_CLAIM_DIGITS}d}"


def parse_claim_number(name: str) -> int | None:
    """Read a file name of the claim folder; the mirror of `claim_path`."""
    return int(name) if len(name) == _CLAIM_DIGITS and name.isascii() and name.isdigit() else None


def parse_marker(path: str) -> str | None:
    """Return the data file that a marker stands for, both relative to their folders; None if it is no marker.

    >>> parse_marker("dt=1/a_1-0-1_20240102.parquet.marker.CREATE")
    'dt=1/a_1-0-1_20240102.parquet'
    """
    found = _MARKER.fullmatch(path)
    return found[1] if found else None
