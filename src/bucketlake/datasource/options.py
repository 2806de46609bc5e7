"""Options of `format("bucketlake")`, parsed and checked.

They are named as the arguments of Python's calls are. Reading: `as_of`, `begin`, `end`, `read_optimized` (or
`query=read_optimized`), `columns` (comma-separated), `meta_columns`; filters are those of the frame. Reading as a
stream: `start`, `max_instants`, `max_rows`, `op`, `columns`, `meta_columns`. Writing: `log_format`, `maintenance`,
`merge_schema`, which may be spelled `mergeSchema`. All: `path`, `index`, as Python has it (`SimpleBuckets(4)`), or
`buckets` for short, and `storage.<name>`, which goes to the store.

A moment (`as_of`, `begin`, `end`, `start`) is an instant, or a text with an offset or `Z`: Spark tells a Python Data
Source nothing of the session, so in which zone another text was meant cannot be known here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NoReturn

from bucketlake.config import MaintenanceMode, TimelineTimezone, parse_maintenance_mode
from bucketlake.errors import ConfigError
from bucketlake.index import IndexValue
from bucketlake.index.hints import is_hint
from bucketlake.index.told import index_of_text, told
from bucketlake.logfile import LogFormat
from bucketlake.timeline import parse_instant_time
from bucketlake.write import WriteOptions

READING = frozenset(
    {
        "path",
        "as_of",
        "begin",
        "end",
        "query",
        "read_optimized",
        "columns",
        "meta_columns",
        "index",
        "buckets",
    }
)
WRITING = frozenset({"path", "log_format", "merge_schema", "maintenance", "index", "buckets"})
STREAMING = frozenset(
    {
        "path",
        "start",
        "max_instants",
        "max_rows",
        "op",
        "columns",
        "meta_columns",
        "index",
        "buckets",
    }
)
_ONLY_STREAMING = STREAMING - READING
_SPELLINGS = {"mergeschema": "merge_schema"}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one read."""

    path: str
    table: Mapping[str, Any]
    """Keyword arguments of `Table.open`."""
    query: Mapping[str, Any]
    """Keyword arguments of `Table.plan`."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> SourceOptions:
        # Spark asks for the columns of a stream in the same way.
        of_streams = f"; as a stream also with {', '.join(sorted(_ONLY_STREAMING))}"
        options = _known(raw, READING, "reads", more=of_streams)
        return cls(
            path=options["path"],
            table={"storage_options": _storage(options), "index": _index(options)},
            query={
                "as_of": options.get("as_of"),
                "begin": options.get("begin"),
                "end": options.get("end"),
                "in_zone": refuse_without_zone,
                "read_optimized": _read_optimized(options),
                "columns": _names(options, "columns"),
                "meta_columns": _boolean(options, "meta_columns", default=True),
            },
        )


class Start(StrEnum):
    """Where a stream begins, if not at a moment."""

    BEGINNING = "beginning"
    """With the rows that are there, and then what changes."""
    NOW = "now"
    """With what changes from now on."""
    OLDEST = "oldest"
    """With the oldest change that can still be read."""


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of one stream of rows."""

    path: str
    table: Mapping[str, Any]
    """Keyword arguments of `Table.open`."""
    columns: tuple[str, ...] | None
    meta_columns: bool
    start: Start | str
    """A moment, if it is none of the words."""
    max_instants: int | None
    max_rows: int | None
    op: str | None
    """The name of a column that says what became of the row."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> StreamOptions:
        options = _known(raw, STREAMING, "streams")
        start = options.get("start", Start.BEGINNING).strip()
        word = start.lower()
        return cls(
            path=options["path"],
            table={"storage_options": _storage(options), "index": _index(options)},
            columns=_names(options, "columns"),
            meta_columns=_boolean(options, "meta_columns", default=True),
            start=Start(word) if word in tuple(Start) else start,
            max_instants=_at_least_one(options, "max_instants"),
            max_rows=_at_least_one(options, "max_rows"),
            op=options.get("op"),
        )

    @classmethod
    def are_meant(cls, raw: Mapping[str, str]) -> bool:
        """Whether there are options that only a stream has."""
        return any(name.lower() in _ONLY_STREAMING for name in raw)

    @property
    def query(self) -> Mapping[str, Any]:
        """Keyword arguments of `Table.plan` that say which columns are read."""
        return {"columns": self.columns, "meta_columns": self.meta_columns}

    def begin(self, timezone: TimelineTimezone) -> str:
        """Return the completion time that `start` names."""
        try:
            return parse_instant_time(self.start, timezone, in_zone=refuse_without_zone)
        except ConfigError as error:
            words = ", ".join(Start)
            raise ConfigError(f"start is none of {words}, and as a moment: {error}") from None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one write."""

    path: str
    storage: Mapping[str, str] | None
    write: WriteOptions
    hints: Mapping[str, str]
    """What the caller takes the table's index for, in Hudi's words, of which some may be given."""
    maintenance: MaintenanceMode | None = None
    """None: as the table says."""

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> SinkOptions:
        hints = {name: value for name, value in raw.items() if is_hint(name)}
        options = _known({name: raw[name] for name in raw if name not in hints}, WRITING, "writes")
        log_format = options.get("log_format", LogFormat.PARQUET).lower()
        if log_format not in tuple(LogFormat):
            raise ConfigError(f"log_format is {log_format!r}; expected one of {', '.join(LogFormat)}.")
        return cls(
            path=options["path"],
            storage=_storage(options),
            write=WriteOptions(
                log_format=LogFormat(log_format),
                merge_schema=_boolean(options, "merge_schema") if "merge_schema" in options else None,
                index=_index(options),
            ),
            hints=hints,
            maintenance=parse_maintenance_mode(options["maintenance"]) if "maintenance" in options else None,
        )


def _known(raw: Mapping[str, str], known: Collection[str], does: str, *, more: str = "") -> dict[str, str]:
    options = {_SPELLINGS.get(key.lower(), key.lower()): value for key, value in raw.items()}
    if "provider" in options:  # which Spark's catalog adds, and nobody else
        raise ConfigError(
            "Spark's own CREATE TABLE ... USING bucketlake makes a table that cannot be read: Spark keeps where it is, "
            "and does not tell a Python data source. Use bucketlake.sql(spark, 'CREATE TABLE ...'), or "
            'spark.read.format("bucketlake").load(path).'
        )
    unknown = sorted(k for k in options if k not in known and not k.startswith("storage."))
    if unknown:
        raise ConfigError(
            f"unknown option {', '.join(map(repr, unknown))}; bucketlake {does} with {', '.join(sorted(known))} "
            f"and storage.<name>{more}."
        )
    if "path" not in options:
        raise ConfigError('no path: spark.read.format("bucketlake").load("/path/of/the/table").')
    return options


def refuse_without_zone(clock: datetime) -> NoReturn:
    raise ConfigError(
        f'the time {clock} has no offset, and format("bucketlake") cannot see the zone of the session. Write '
        f"{clock}Z, or the offset that is meant, or an instant of 14 or 17 digits; Table.read(spark, as_of=...) takes "
        f"it as it is, in the session's zone."
    )


def _storage(options: Mapping[str, str]) -> dict[str, str] | None:
    return {k[8:]: v for k, v in options.items() if k.startswith("storage.")} or None


def _names(options: Mapping[str, str], key: str) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in options[key].split(",")) if key in options else None


def _index(options: Mapping[str, str]) -> IndexValue | None:
    index = index_of_text(options["index"]) if "index" in options else None
    return told(index, _integer(options, "buckets"))


def _read_optimized(options: Mapping[str, str]) -> bool:
    """Read the word of Python, `read_optimized=true`, or `query=read_optimized`."""
    kind = options.get("query", "snapshot")
    if kind not in ("snapshot", "read_optimized"):
        raise ConfigError(f"query is {kind!r}; expected 'snapshot' or 'read_optimized'.")
    by_query = kind == "read_optimized"
    asked = _boolean(options, "read_optimized", default=by_query)
    if "query" in options and asked is not by_query:
        raise ConfigError(
            f"query is {kind!r} and read_optimized is {options['read_optimized']!r}, which is the opposite. Give one "
            f"of them."
        )
    return asked


def _integer(options: Mapping[str, str], key: str) -> int | None:
    if key not in options:
        return None
    try:
        return int(options[key])
    except ValueError:
        raise ConfigError(f"option {key} is {options[key]!r}; expected a number.") from None


def _at_least_one(options: Mapping[str, str], key: str) -> int | None:
    number = _integer(options, key)
    if number is not None and number < 1:
        raise ConfigError(f"option {key} is {number}; expected at least 1, or nothing for no bound.")
    return number


def _boolean(options: Mapping[str, str], key: str, *, default: bool = False) -> bool:
    words = {"true": True, "false": False}
    if key not in options:
        return default
    if options[key].lower() not in words:
        raise ConfigError(f"option {key} is {options[key]!r}; expected true or false.")
    return words[options[key].lower()]
