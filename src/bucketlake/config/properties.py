"""What a table is, as `.hoodie/hoodie.properties` stores it.

A property is fixed when the table is made and read by every engine after us.
Here it is parsed once, at the edge, into typed values. What the file says
and we cannot do is refused by name; what it says and makes no sense is an
error that names file and key, never a default: a table opened with a guessed
type is a table read wrongly.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from bucketlake.config.java_properties import parse_java_properties, render_java_properties
from bucketlake.errors import ConfigError, CorruptTableError, NotATableError, UnsupportedError
from bucketlake.storage.store import Store

PROPERTIES_PATH = ".hoodie/hoodie.properties"
BACKUP_PATH = ".hoodie/hoodie.properties.backup"

SUPPORTED_VERSIONS = (6, 8, 9)
_LAYOUT_OF_VERSION = {6: 1, 8: 2, 9: 2}

_PAYLOADS = "org.apache.hudi.common.model."
_EVENT_TIME_PAYLOADS = (_PAYLOADS + "DefaultHoodieRecordPayload", _PAYLOADS + "EventTimeAvroPayload")
_COMMIT_TIME_PAYLOADS = (_PAYLOADS + "OverwriteWithLatestAvroPayload",)
_EVENT_TIME_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"
_COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"

_MERGE_PROPERTY = "hoodie.record.merge.property."
_TIMEBASED = "hoodie.keygen.timebased."
_TIMEBASED_OLD = "hoodie.deltastreamer.keygen.timebased."


class TableType(StrEnum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"

    @classmethod
    def of_word(cls, word: str) -> TableType | None:
        """Read what people write, in any case: `cow`, `mor`, or the name; None if it is neither.

        >>> TableType.of_word("mor") is TableType.of_word("Merge_On_Read") is TableType.MERGE_ON_READ
        True
        """
        names = {"COW": cls.COPY_ON_WRITE, "MOR": cls.MERGE_ON_READ, **{str(kind): kind for kind in cls}}
        return names.get(word.upper())


class MergeMode(StrEnum):
    """Which of two versions of a record wins. Hudi's third mode, CUSTOM, runs a Java class and is refused."""

    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"


class KeyGeneratorType(StrEnum):
    """How record keys and partition paths are made from columns.

    Hudi's `_AVRO` twins make the same strings and are read as the plain ones.
    """

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"
    TIMESTAMP = "TIMESTAMP"
    CUSTOM = "CUSTOM"
    GLOBAL_DELETE = "GLOBAL_DELETE"
    AUTO_RECORD = "AUTO_RECORD"
    HOODIE_TABLE_METADATA = "HOODIE_TABLE_METADATA"
    SPARK_SQL = "SPARK_SQL"
    SPARK_SQL_UUID = "SPARK_SQL_UUID"
    SPARK_SQL_MERGE_INTO = "SPARK_SQL_MERGE_INTO"
    USER_PROVIDED = "USER_PROVIDED"


class BucketEngine(StrEnum):
    SIMPLE = "SIMPLE"
    CONSISTENT_HASHING = "CONSISTENT_HASHING"
    EXTENDIBLE_HASHING = "EXTENDIBLE_HASHING"
    """Ours: Hudi does not write to a table that says so."""
    DYNAMIC = "DYNAMIC"
    """New keys go to buckets that open as others fill. Where they live says a record-level index of each partition."""


class IndexType(StrEnum):
    """`hoodie.index.type`, of those by which we write."""

    BUCKET = "BUCKET"
    GLOBAL_RECORD_LEVEL_INDEX = "GLOBAL_RECORD_LEVEL_INDEX"
    RECORD_LEVEL_INDEX = "RECORD_LEVEL_INDEX"


RECORD_LEVEL = frozenset({IndexType.GLOBAL_RECORD_LEVEL_INDEX, IndexType.RECORD_LEVEL_INDEX})


_SIMPLE_IN_FULL = "SIMPLE_HASHING"
"""The RFC's word for the first."""


class MaintenanceMode(StrEnum):
    """Who compacts, cleans and archives a table."""

    INLINE = "inline"
    """Whoever writes, after every so many commits."""
    SERVICE = "service"
    """`bucketlake service run`."""
    OFF = "off"
    """Nobody, unless asked to."""


MAINTENANCE = "bucketlake.maintenance"
"""A table property: who compacts, cleans and archives the table: its writers (`inline`), `bucketlake service run`
(`service`), or nobody (`off`). Default: `off` if it is missing, because such a table is Hudi's or an old one; new
tables get `inline`."""
KEEP_COMMITS = "bucketlake.maintenance.keep.commits"
"""A table property: maintenance keeps the files that readers of so many last writes need. Default: 30, because each one
more makes every commit and read list a few files more."""


class TimelineTimezone(StrEnum):
    """The zone in which instant times were written; LOCAL is the zone of whichever machine wrote them."""

    LOCAL = "LOCAL"
    UTC = "UTC"


class TimestampType(StrEnum):
    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"
    DATE_STRING = "DATE_STRING"
    MIXED = "MIXED"
    EPOCHMILLISECONDS = "EPOCHMILLISECONDS"
    EPOCHMICROSECONDS = "EPOCHMICROSECONDS"
    SCALAR = "SCALAR"


_KEY_GENERATOR_CLASSES = {
    "SimpleKeyGenerator": KeyGeneratorType.SIMPLE,
    "SimpleAvroKeyGenerator": KeyGeneratorType.SIMPLE,
    "ComplexKeyGenerator": KeyGeneratorType.COMPLEX,
    "ComplexAvroKeyGenerator": KeyGeneratorType.COMPLEX,
    "TimestampBasedKeyGenerator": KeyGeneratorType.TIMESTAMP,
    "TimestampBasedAvroKeyGenerator": KeyGeneratorType.TIMESTAMP,
    "CustomKeyGenerator": KeyGeneratorType.CUSTOM,
    "CustomAvroKeyGenerator": KeyGeneratorType.CUSTOM,
    "NonpartitionedKeyGenerator": KeyGeneratorType.NON_PARTITION,
    "NonpartitionedAvroKeyGenerator": KeyGeneratorType.NON_PARTITION,
    "GlobalDeleteKeyGenerator": KeyGeneratorType.GLOBAL_DELETE,
    "GlobalAvroDeleteKeyGenerator": KeyGeneratorType.GLOBAL_DELETE,
    "AutoRecordGenWrapperKeyGenerator": KeyGeneratorType.AUTO_RECORD,
    "AutoRecordGenWrapperAvroKeyGenerator": KeyGeneratorType.AUTO_RECORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TimestampKeyConfig:
    """How the TIMESTAMP key generator (and a timestamp field of CUSTOM) turns a value into a path."""

    type: TimestampType
    """`hoodie.keygen.timebased.timestamp.type`"""
    input_formats: tuple[str, ...] = ()
    """`hoodie.keygen.timebased.input.dateformat`, split at `...list.delimiter.regex`; Joda patterns."""
    output_format: str = ""
    """`hoodie.keygen.timebased.output.dateformat`, a Joda pattern."""
    input_timezone: str = ""
    """`hoodie.keygen.timebased.timezone`, else `...input.timezone`. Empty: the value's own."""
    output_timezone: str = ""
    """`hoodie.keygen.timebased.timezone`, else `...output.timezone`. Empty: the JVM's."""
    scalar_unit: str = "SECONDS"
    """`hoodie.keygen.timebased.timestamp.scalar.time.unit`, a Java `TimeUnit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """The properties this library understands, typed and checked once."""

    name: str
    """`hoodie.table.name`"""
    database: str | None
    """`hoodie.database.name`"""
    table_type: TableType
    """`hoodie.table.type`"""
    table_version: int
    """`hoodie.table.version`: 6, 8 or 9."""
    timeline_layout: int
    """`hoodie.timeline.layout.version`: 1 (version 6) or 2."""
    timeline_folder: str
    """`.hoodie`, or in layout 2 `.hoodie/<hoodie.timeline.path>`."""
    history_folder: str
    """Where older instants are: in layout 2 `<timeline folder>/<hoodie.timeline.history.path>`, in layout 1
    `.hoodie/<hoodie.archivelog.folder>`."""
    record_key_fields: tuple[str, ...]
    """`hoodie.table.recordkey.fields`. Empty: keys were generated."""
    partition_fields: tuple[str, ...]
    """`hoodie.table.partition.fields`; with the CUSTOM key generator each is `field:type`."""
    ordering_fields: tuple[str, ...]
    """`hoodie.table.ordering.fields`, or its older name `hoodie.table.precombine.field`."""
    merge_mode: MergeMode
    """`hoodie.record.merge.mode`; before version 9 also `hoodie.record.merge.strategy.id` and
    `hoodie.compaction.payload.class`."""
    key_generator: KeyGeneratorType
    """`hoodie.table.keygenerator.class`, or `hoodie.table.keygenerator.type`, or what Hudi infers from the
    fields."""
    hive_style_partitioning: bool = False
    """`hoodie.datasource.write.hive_style_partitioning`"""
    url_encode_partitioning: bool = False
    """`hoodie.datasource.write.partitionpath.urlencode`"""
    slash_separated_dates: bool = False
    """`hoodie.datasource.write.slash.separated.date.partitioning`"""
    drop_partition_columns: bool = False
    """`hoodie.datasource.write.drop.partition.columns`: partition columns are in the path only."""
    has_meta_columns: bool = True
    """`hoodie.populate.meta.fields`. False: files have Hudi's meta columns and leave them empty, and readers do not
    show them."""
    create_schema: str | None = None
    """`hoodie.table.create.schema`, Avro JSON; SQL-created tables have it."""
    timeline_timezone: TimelineTimezone = TimelineTimezone.LOCAL
    """`hoodie.table.timeline.timezone`. Instant times are compared as text, never converted, when reading."""
    metadata_partitions: tuple[str, ...] = ()
    """`hoodie.table.metadata.partitions`: which parts of the metadata table exist. Empty: there is none."""
    delete_field: str | None = None
    """`hoodie.record.merge.property.hoodie.payload.delete.field`"""
    delete_marker: str | None = None
    """`hoodie.record.merge.property.hoodie.payload.delete.marker`"""
    complex_key_encodes_field_name: bool = True
    """Whether a one-field COMPLEX key reads `field:value`: always in version 9, before it unless
    `hoodie.write.complex.keygen.new.encoding` is true."""
    timestamp_key: TimestampKeyConfig | None = None
    """`hoodie.keygen.timebased.*`"""
    index_type: str | None = None
    """`hoodie.index.type`; None: not persisted, as in every table that Hudi made."""
    bucket_engine: str | None = None
    """`hoodie.index.bucket.engine`, in capitals: one of `BucketEngine`, or an engine that a user has registered."""
    bucket_count: int | None = None
    """`hoodie.bucket.index.num.buckets`"""
    hash_fields: tuple[str, ...] | None = None
    """`hoodie.bucket.index.hash.field`"""
    raw: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    """Every pair of the file, understood or not: a rewrite must keep them all."""

    @property
    def engine(self) -> str | None:
        """What says where keys live: a record-level index, or an engine of buckets; None: the table does not tell."""
        return self.index_type if self.index_type in RECORD_LEVEL else self.bucket_engine

    @classmethod
    def parse(cls, raw: Mapping[str, str], *, path: str = PROPERTIES_PATH) -> TableProperties:
        """Read `raw`, failing on the first value that makes no sense or that we cannot read by."""
        words = _Words(raw, path)
        _check_checksum(words)
        version = _version(words)
        _refuse_what_we_would_misread(words)
        layout = _layout(words, version)
        record_keys = words.names("hoodie.table.recordkey.fields")
        partitions = words.names("hoodie.table.partition.fields")
        ordering = words.names("hoodie.table.ordering.fields", "hoodie.table.precombine.field")
        timeline_folder, history_folder = _timeline_folders(words, layout)
        hash_fields = words.names("hoodie.bucket.index.hash.field")
        return cls(
            name=words.required("hoodie.table.name"),
            database=words.text("hoodie.database.name"),
            table_type=words.required_choice("hoodie.table.type", TableType),
            table_version=version,
            timeline_layout=layout,
            timeline_folder=timeline_folder,
            history_folder=history_folder,
            record_key_fields=record_keys,
            partition_fields=partitions,
            ordering_fields=ordering,
            merge_mode=_merge_mode(words, version, has_ordering=bool(ordering)),
            key_generator=_key_generator(words, record_keys, partitions),
            hive_style_partitioning=words.flag("hoodie.datasource.write.hive_style_partitioning"),
            url_encode_partitioning=words.flag("hoodie.datasource.write.partitionpath.urlencode"),
            slash_separated_dates=words.flag("hoodie.datasource.write.slash.separated.date.partitioning"),
            drop_partition_columns=words.flag("hoodie.datasource.write.drop.partition.columns"),
            has_meta_columns=words.flag("hoodie.populate.meta.fields", default=True),
            create_schema=words.text("hoodie.table.create.schema"),
            timeline_timezone=words.choice("hoodie.table.timeline.timezone", TimelineTimezone)
            or TimelineTimezone.LOCAL,
            metadata_partitions=words.names("hoodie.table.metadata.partitions"),
            delete_field=words.text(_MERGE_PROPERTY + "hoodie.payload.delete.field"),
            delete_marker=words.text(_MERGE_PROPERTY + "hoodie.payload.delete.marker"),
            complex_key_encodes_field_name=version >= 9
            or not words.flag("hoodie.write.complex.keygen.new.encoding"),
            timestamp_key=_timestamp_key(words),
            index_type=words.text("hoodie.index.type"),
            bucket_engine=_bucket_engine(words),
            bucket_count=words.positive("hoodie.bucket.index.num.buckets"),
            hash_fields=hash_fields or None,
            raw=dict(raw),
        )


def load_properties(store: Store) -> TableProperties:
    """Read the properties of the table in `store`.

    Hudi replaces the file by writing a backup, deleting it and writing it
    anew. So a file that is missing or broken is looked up in the backup, and
    only when that is no better does the reader hear of it.
    """
    first_fault: CorruptTableError | None = None
    for path in (PROPERTIES_PATH, BACKUP_PATH):
        try:
            return read_properties(store, path)
        except FileNotFoundError:
            continue
        except CorruptTableError as fault:
            first_fault = first_fault or fault
    if first_fault:
        raise first_fault
    raise NotATableError(path=store.uri, found=f"it has neither {PROPERTIES_PATH} nor its backup")


def read_properties(store: Store, path: str) -> TableProperties:
    return _parsed(store.read(path), path)


# A write reads the file again and again, and nearly always finds the same bytes.
@lru_cache(maxsize=32)
def _parsed(data: bytes, path: str) -> TableProperties:
    check_whole(data, path=path)
    return TableProperties.parse(parse_java_properties(data, path=path), path=path)


def check_whole(data: bytes, *, path: str) -> None:
    """Refuse a file that is cut off or altered, where that can be told: ours ends in a checksum of all that is before.

    What was lost may be how keys are made, or how many buckets there are, and nothing else would tell.
    """
    if data.startswith(_BY_US):
        is_whole = is_as_rendered(data)
    else:
        is_whole = data.endswith(b"\n") or not data.startswith(_BY_A_PROGRAM)
    if not is_whole:
        raise CorruptTableError(
            path=path,
            found=f"{len(data):,} bytes that are cut off, or not what their checksum was made of",
            expected="the file as it was written",
            remedy=f"{MEND} If it was edited, take out its first line.",
        )


def rendered(raw: Mapping[str, str]) -> bytes:
    """Spell properties as a file of ours."""
    return _with_crc(_BY_US + render_java_properties(raw))


def is_as_rendered(data: bytes) -> bool:
    return data.startswith(_BY_US) and data == _with_crc(data.rpartition(_CRC)[0])


def _with_crc(text: bytes) -> bytes:
    return text + _CRC + f"{zlib.crc32(text):08x}\n".encode()


_BY_A_PROGRAM = b"#Properties saved "
_BY_US = b"#Properties saved by bucketlake; the last line is their checksum\n"
_CRC = b"#crc32="
MEND = "`bucketlake fsck TABLE --repair` says what its copy has, and with --yes puts it back; or mend it by hand."


def table_checksum(*, database: str | None, name: str) -> int:
    """Return `hoodie.table.checksum`: the CRC-32 of `<database>.<table>`, or of `.<table>`.

    >>> table_checksum(database=None, name="mor_v6")
    3186568148
    """
    return zlib.crc32(f"{database or ''}.{name}".encode())


_Choice = TypeVar("_Choice", bound=StrEnum)
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class _Words:
    """The raw pairs, asked for by type. An empty value is as good as none, as in Hudi."""

    raw: Mapping[str, str]
    path: str

    def text(self, *keys: str) -> str | None:
        """The value of the first of `keys` that has one."""
        return next((value for key in keys if (value := self.raw.get(key, "").strip())), None)

    def required(self, key: str) -> str:
        value = self.text(key)
        if value is None:
            raise CorruptTableError(
                path=self.path,
                found=f"no value for {key}",
                expected="one; a table cannot be read without it",
                remedy=MEND,
            )
        return value

    def names(self, *keys: str) -> tuple[str, ...]:
        return tuple(name for part in (self.text(*keys) or "").split(",") if (name := part.strip()))

    def flag(self, key: str, *, default: bool = False) -> bool:
        def parse(value: str) -> bool:
            return {"true": True, "false": False}[value.lower()]

        found = self._parsed(key, parse, "true or false")
        return default if found is None else found

    def number(self, key: str) -> int | None:
        return self._parsed(key, int, "a whole number")

    def positive(self, key: str) -> int | None:
        value = self.number(key)
        if value is not None and value <= 0:
            raise self.nonsense(key, "a number above zero")
        return value

    def choice(self, key: str, kind: type[_Choice]) -> _Choice | None:
        return self._parsed(key, lambda value: kind(value.upper()), "one of " + ", ".join(kind))

    def required_choice(self, key: str, kind: type[_Choice]) -> _Choice:
        self.required(key)
        found = self.choice(key, kind)
        assert found is not None
        return found

    def _parsed(self, key: str, parse: Callable[[str], _Value], expected: str) -> _Value | None:
        value = self.text(key)
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, KeyError):
            raise self.nonsense(key, expected) from None

    def nonsense(self, key: str, expected: str) -> CorruptTableError:
        return CorruptTableError(
            path=self.path,
            found=f"{key}={self.raw.get(key, '')}",
            expected=expected,
            remedy=MEND,
        )


def _check_checksum(words: _Words) -> None:
    """A missing checksum is fine (Hudi accepts it); a wrong one means a torn or foreign file."""
    stored = words.number("hoodie.table.checksum")
    if stored is None:
        return
    words.required("hoodie.table.name")
    # The words as they stand, blanks included: that is what Hudi sums.
    computed = table_checksum(
        database=words.raw.get("hoodie.database.name"), name=words.raw["hoodie.table.name"]
    )
    if stored != computed:
        raise CorruptTableError(
            path=words.path,
            found=f"hoodie.table.checksum={stored}",
            expected=f"{computed}, the CRC-32 of database and table name",
            remedy="If the table was renamed by hand, write the expected value; otherwise restore the file. "
            "Hudi refuses to open the table too.",
        )


def _version(words: _Words) -> int:
    words.required("hoodie.table.version")
    version = words.number("hoodie.table.version")
    assert version is not None
    if version not in SUPPORTED_VERSIONS:
        raise UnsupportedError(
            subject=f"hoodie.table.version in {words.path}",
            found=str(version),
            supported="table versions 6, 8 and 9",
            remedy="Upgrade or downgrade the table with Hudi's own tools first.",
        )
    return version


def _layout(words: _Words, version: int) -> int:
    words.required("hoodie.timeline.layout.version")
    layout = words.number("hoodie.timeline.layout.version")
    if layout != _LAYOUT_OF_VERSION[version]:
        raise words.nonsense(
            "hoodie.timeline.layout.version",
            f"{_LAYOUT_OF_VERSION[version]}, the layout of table version {version}",
        )
    return layout


def _timeline_folders(words: _Words, layout: int) -> tuple[str, str]:
    if layout == 1:
        return ".hoodie", ".hoodie/" + (words.text("hoodie.archivelog.folder") or "archived")
    timeline = ".hoodie/" + (words.text("hoodie.timeline.path") or "timeline")
    return timeline, timeline + "/" + (words.text("hoodie.timeline.history.path") or "history")


def _refuse_what_we_would_misread(words: _Words) -> None:
    """Refuse features that make data files mean something else than we would read."""

    def refuse(key: str, supported: str, remedy: str) -> None:
        raise UnsupportedError(
            subject=f"{key} in {words.path}", found=words.raw.get(key, ""), supported=supported, remedy=remedy
        )

    base_format = words.text("hoodie.table.base.file.format", "hoodie.table.ro.file.format")
    if base_format is not None and base_format.upper() != "PARQUET":
        refuse("hoodie.table.base.file.format", "PARQUET", "Rewrite the table with Parquet base files.")
    log_format = words.text("hoodie.table.log.file.format", "hoodie.table.rt.file.format")
    if log_format is not None and log_format.upper() != "HOODIE_LOG":
        refuse("hoodie.table.log.file.format", "HOODIE_LOG", "Rewrite the table with Hudi's log files.")
    if words.flag("hoodie.table.multiple.base.file.formats.enable"):
        refuse(
            "hoodie.table.multiple.base.file.formats.enable",
            "false",
            "Rewrite the table with one file format.",
        )
    if words.text("hoodie.bootstrap.base.path"):
        refuse(
            "hoodie.bootstrap.base.path",
            "tables whose rows are all in them",
            "Bootstrap it fully with Hudi first.",
        )
    table_format = words.text("hoodie.table.format")
    if table_format is not None and table_format.lower() != "native":
        refuse("hoodie.table.format", "native", "Read it with the engine that owns this format.")
    if words.text("hoodie.table.partial.update.mode"):
        refuse(
            "hoodie.table.partial.update.mode",
            "tables without it; the mode changes what an update means",
            "Read the table with Hudi.",
        )


def _merge_mode(words: _Words, version: int, *, has_ordering: bool) -> MergeMode:
    """Find how versions of a record are merged, as Hudi's reader does.

    Version 9 says it in one word. Earlier ones say it in up to three, which
    must agree: the payload class has the last word in 6, the strategy id in 8.
    """
    mode_key = "hoodie.record.merge.mode"
    stated = words.text(mode_key)
    if stated is not None and stated.upper() not in {*MergeMode, "CUSTOM"}:
        raise words.nonsense(mode_key, "one of " + ", ".join([*MergeMode, "CUSTOM"]))
    if version >= 9:
        words.required(mode_key)
        return _built_in(words, mode_key, stated)

    payload_key = "hoodie.compaction.payload.class"
    strategy_key = "hoodie.record.merge.strategy.id"
    payload = words.text(payload_key)
    strategy = words.text(strategy_key, "hoodie.compaction.record.merger.strategy")
    by_payload = _mode_of(payload, event_time=_EVENT_TIME_PAYLOADS, commit_time=_COMMIT_TIME_PAYLOADS)
    by_strategy = _mode_of(strategy, event_time=(_EVENT_TIME_STRATEGY,), commit_time=(_COMMIT_TIME_STRATEGY,))
    if version >= 8:
        if by_payload and by_strategy not in (None, "CUSTOM", by_payload):
            raise words.nonsense(strategy_key, f"the same as {payload_key}={payload} means, {by_payload}")
        inferred, source = (by_strategy, strategy_key) if by_strategy else (by_payload, payload_key)
    else:
        inferred, source = (by_payload, payload_key) if by_payload else (by_strategy, strategy_key)
    if inferred is None:
        default = MergeMode.EVENT_TIME_ORDERING if has_ordering else MergeMode.COMMIT_TIME_ORDERING
        return _built_in(words, mode_key, stated or default)
    if stated is not None and stated.upper() != inferred:
        raise words.nonsense(mode_key, f"{inferred}, which is what {source}={words.text(source)} means")
    return _built_in(words, source, inferred)


def _mode_of(value: str | None, *, event_time: tuple[str, ...], commit_time: tuple[str, ...]) -> str | None:
    if value is None:
        return None
    if value in event_time:
        return MergeMode.EVENT_TIME_ORDERING
    return MergeMode.COMMIT_TIME_ORDERING if value in commit_time else "CUSTOM"


def _built_in(words: _Words, key: str, mode: str | None) -> MergeMode:
    assert mode is not None
    if mode.upper() == "CUSTOM":
        raise UnsupportedError(
            subject=f"{key} in {words.path}",
            found=words.text(key) or mode,
            supported="EVENT_TIME_ORDERING and COMMIT_TIME_ORDERING",
            remedy="The merge is a Java class, and no code found in a table is run. Read it with Hudi.",
        )
    return MergeMode(mode.upper())


def _key_generator(
    words: _Words, record_keys: tuple[str, ...], partitions: tuple[str, ...]
) -> KeyGeneratorType:
    class_name = words.text("hoodie.table.keygenerator.class")
    if class_name is not None:
        return _KEY_GENERATOR_CLASSES.get(class_name.rpartition(".")[2], KeyGeneratorType.USER_PROVIDED)
    key = "hoodie.table.keygenerator.type"
    name = words.text(key)
    if name is not None:
        try:
            return KeyGeneratorType(name.upper().removesuffix("_AVRO"))
        except ValueError:
            raise words.nonsense(key, "one of " + ", ".join(KeyGeneratorType)) from None
    if not partitions:
        return KeyGeneratorType.NON_PARTITION
    if ":" in partitions[0]:
        return KeyGeneratorType.CUSTOM
    return (
        KeyGeneratorType.COMPLEX if len(partitions) > 1 or len(record_keys) > 1 else KeyGeneratorType.SIMPLE
    )


def _timestamp_key(words: _Words) -> TimestampKeyConfig | None:
    def text(name: str) -> str:
        return words.text(_TIMEBASED + name, _TIMEBASED_OLD + name) or ""

    kind = text("timestamp.type")
    if not kind:
        return None
    try:
        timestamp_type = TimestampType(kind.upper())
    except ValueError:
        raise words.nonsense(_TIMEBASED + "timestamp.type", "one of " + ", ".join(TimestampType)) from None
    # Hudi splits by a regular expression; only plain text is honoured, since a pattern in a table is not run.
    delimiter = text("input.dateformat.list.delimiter.regex") or ","
    both = text("timezone")
    return TimestampKeyConfig(
        type=timestamp_type,
        input_formats=tuple(
            part.strip() for part in text("input.dateformat").split(delimiter) if part.strip()
        ),
        output_format=text("output.dateformat"),
        input_timezone=both or text("input.timezone"),
        output_timezone=both or text("output.timezone"),
        scalar_unit=text("timestamp.scalar.time.unit").upper() or "SECONDS",
    )


def parse_engine(text: str) -> BucketEngine:
    """Read the name of a bucket engine as a caller writes it.

    >>> parse_engine("simple_hashing")
    <BucketEngine.SIMPLE: 'SIMPLE'>
    """
    word = text.strip().upper()
    try:
        return BucketEngine.SIMPLE if word == _SIMPLE_IN_FULL else BucketEngine(word)
    except ValueError:
        known = ", ".join([*BucketEngine, _SIMPLE_IN_FULL])
        raise ConfigError(f"the bucket engine is {text!r}; expected one of {known}, in any case.") from None


def parse_maintenance_mode(text: str, *, name: str = "maintenance") -> MaintenanceMode:
    """Read who looks after a table, as a caller or a table property has it.

    >>> parse_maintenance_mode("Inline")
    <MaintenanceMode.INLINE: 'inline'>
    """
    try:
        return MaintenanceMode(text.strip().lower())
    except ValueError:
        raise ConfigError(
            f"{name} is {text!r}; expected one of {', '.join(MaintenanceMode)}. Set it with "
            f"table.alter(maintenance=...), or `bucketlake alter --maintenance`."
        ) from None


def maintenance_mode(properties: TableProperties) -> MaintenanceMode:
    """Return who looks after a table; a table that does not say it is left alone."""
    word = properties.raw.get(MAINTENANCE)
    return MaintenanceMode.OFF if word is None else parse_maintenance_mode(word, name=MAINTENANCE)


def keep_commits(properties: TableProperties) -> int | None:
    """Return of how many writes a table's maintenance is to keep the files; None: as by default."""
    text = properties.raw.get(KEEP_COMMITS)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise ConfigError(
            f"{KEEP_COMMITS} is {text!r}; expected a number of writes, 1 or more. Set it with "
            f"table.alter(keep_commits=...), or `bucketlake alter --keep-commits`."
        )
    return int(text)


def _bucket_engine(words: _Words) -> str | None:
    word = (words.text("hoodie.index.bucket.engine") or "").upper()
    return BucketEngine.SIMPLE if word == _SIMPLE_IN_FULL else word or None
