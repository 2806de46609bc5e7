"""A new table: what it is to be, checked, and written down as `hoodie.properties`.

`properties_of` decides and touches no disk; `create` writes. A table is made of two files: one that keeps the folder
of the timeline in being, since Hudi does not open a table without it, and the properties, which make it a table. Bucket
rules, if it has any, are a third, written before the properties: a table never is without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from bucketlake.commit.locks import table_lock
from bucketlake.commit.metadata_table import UNMAINTAINED, OnUnmaintained
from bucketlake.commit.publishing import settle
from bucketlake.commit.writable import check_writable
from bucketlake.config import (
    KEEP_COMMITS,
    MAINTENANCE,
    KeyGeneratorType,
    MaintenanceMode,
    MergeMode,
    TableProperties,
    TableType,
    TimelineTimezone,
    create_properties,
    load_properties,
    update_properties,
)
from bucketlake.errors import (
    BucketlakeError,
    ConfigError,
    NotATableError,
    TableExistsError,
)
from bucketlake.index import BUCKETS_DEFAULT, BUCKETS_MAX, IndexValue, NewTable, SimpleBuckets, list_versions
from bucketlake.index.fingerprint import fingerprint, key_encoding
from bucketlake.keygen import is_certain
from bucketlake.layout.names import TIMELINE_KEEPER
from bucketlake.merge.rules import IS_DELETED_COLUMN
from bucketlake.schema import RESERVED, arrow_to_avro, check_names, storable
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.write.state import (
    HUDI_WRITES,
    MISSING_COLUMNS_ALLOWED,
    NON_BLOCKING,
    NULL_ELEMENTS_ALLOWED,
    SCHEMA_MERGED,
    is_without_hudi,
)

__all__ = [
    "BUCKETS_DEFAULT",
    "BUCKETS_MAX",
    "TableSpec",
    "alter",
    "create",
    "key_generator_of",
    "name_for_path",
    "options_of",
    "properties_of",
]

FORMAT_VERSION_KEY = "bucketlake.version"
"""A table property: the version of what bucketlake keeps in a table besides what Hudi does. Default: none, in tables
that Hudi made. We set it."""
FORMAT_VERSION = "1"

_TABLE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_CREATE_SCHEMA = "hoodie.table.create.schema"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """What a new table is to be."""

    name: str
    schema: pa.Schema
    """Its columns, without Hudi's meta columns."""
    key: tuple[str, ...]
    """The columns of the record key; a dot leads into a struct."""
    partition: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    """Of two versions of a row the one with the higher values wins; empty: the later write."""
    index: IndexValue = SimpleBuckets()  # noqa: RUF009 # it is frozen
    """Where its keys live."""
    table_type: TableType = TableType.COPY_ON_WRITE
    hive_style: bool = False
    """Whether partition folders are named `dt=2024-01-02`, not `2024-01-02`."""
    url_encode: bool = False
    """Whether characters such as `/` in partition values are escaped."""
    database: str | None = None
    non_blocking: bool = False
    """Whether writers that open a bucket at the same time may both commit."""
    maintenance: MaintenanceMode = MaintenanceMode.INLINE
    """Who compacts, cleans and archives it."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More properties to keep with the table."""


def create(store: Store, spec: TableSpec) -> TableProperties:
    """Make a table. ConfigError says what is wrong with the spec, before anything is written.

    Raises `TableExistsError` if there is one, or somebody else makes one at the same time.
    """
    properties = properties_of(spec)
    try:
        load_properties(store)
    except NotATableError:
        try:
            # Under the lock: of two who make it at once, none may leave its rules to the other's table.
            with table_lock(store):
                return _write_table(store, spec, properties)
        except NotADirectoryError as error:
            raise ConfigError(
                f"{store.uri!r} is a file, or lies below one; expected a folder, which need not be there. Nothing was "
                f"written."
            ) from error
    except BucketlakeError:
        pass  # broken, or of a kind we do not read; but a table
    raise TableExistsError(path=store.uri)


def options_of(
    *,
    merge_schema: bool | None = None,
    allow_missing_columns: bool | None = None,
    allow_null_elements: bool | None = None,
    maintenance: MaintenanceMode | None = None,
    keep_commits: int | None = None,
    on_unmaintained: OnUnmaintained | None = None,
    hudi_writes: bool | None = None,
) -> dict[str, str]:
    """Return the properties that say which rows a table takes and who maintains it; what is None is left out."""
    said = {
        SCHEMA_MERGED: merge_schema,
        MISSING_COLUMNS_ALLOWED: allow_missing_columns,
        NULL_ELEMENTS_ALLOWED: allow_null_elements,
        HUDI_WRITES: hudi_writes,
    }
    options = {key: _flag(value) for key, value in said.items() if value is not None}
    if maintenance is not None:
        options[MAINTENANCE] = str(maintenance)
    if keep_commits is not None:
        if keep_commits < 1:
            raise ConfigError(f"keep_commits is {keep_commits}; expected a number of writes, 1 or more.")
        options[KEEP_COMMITS] = str(keep_commits)
    if on_unmaintained is not None:
        options[UNMAINTAINED] = str(on_unmaintained)
    return options


def alter(store: Store, options: Mapping[str, str]) -> TableProperties:
    """Change what `options_of` names, from the next write on."""
    if UNMAINTAINED not in options:  # with it, a table becomes one that can be written
        check_writable(load_state(store))
    with table_lock(store):
        properties = update_properties(store, options)
    if HUDI_WRITES in options and not is_without_hudi(properties):
        settle(store, properties)  # what a pipelined stream has decided, Hudi would take for dead
    return properties


def _write_table(store: Store, spec: TableSpec, properties: Mapping[str, str]) -> TableProperties:
    try:
        load_properties(store)
    except NotATableError:
        pass
    else:
        raise TableExistsError(path=store.uri)
    # Whoever was cut off before it was a table has left rules that are not ours.
    for path in list_versions(store, with_archived=False).active.values():
        store.delete(path)
    for path, content in spec.index.first_files().items():
        store.put(path, content)
    store.put_new(TIMELINE_KEEPER, b"")
    return create_properties(store, properties)


def properties_of(spec: TableSpec) -> dict[str, str]:
    """Return the `hoodie.properties` of a new table, all but the checksum; ConfigError says what is wrong."""
    _check(spec)
    properties = {
        "hoodie.table.name": spec.name,
        "hoodie.table.type": spec.table_type,
        "hoodie.table.version": "9",
        "hoodie.table.initial.version": "9",
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.timeline.timezone": TimelineTimezone.UTC,
        "hoodie.table.format": "native",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.recordkey.fields": ",".join(spec.key),
        "hoodie.table.partition.fields": ",".join(spec.partition),
        "hoodie.table.keygenerator.type": key_generator_of(spec.key, spec.partition),
        "hoodie.record.merge.mode": MergeMode.EVENT_TIME_ORDERING
        if spec.ordering
        else MergeMode.COMMIT_TIME_ORDERING,
        "hoodie.datasource.write.hive_style_partitioning": _flag(spec.hive_style),
        "hoodie.datasource.write.partitionpath.urlencode": _flag(spec.url_encode),
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.populate.meta.fields": "true",
        "hoodie.partition.metafile.use.base.format": "false",
        "hoodie.table.cdc.enabled": "false",
        _CREATE_SCHEMA: arrow_to_avro(storable(spec.schema), table=spec.name),
        FORMAT_VERSION_KEY: FORMAT_VERSION,
        MAINTENANCE: spec.maintenance,
    }
    if spec.ordering:
        # Only then: Hudi's next write refuses a table ordered by commit time that names ordering fields.
        properties["hoodie.table.ordering.fields"] = ",".join(spec.ordering)
    if spec.database:
        properties["hoodie.database.name"] = spec.database
    properties |= fingerprint(
        spec.index, key=spec.key, encoding=key_encoding(TableProperties.parse(properties))
    )
    if spec.non_blocking:
        properties[NON_BLOCKING] = _flag(True)
    _check_options(spec.options, properties)
    return properties | dict(spec.options)


def key_generator_of(key: Sequence[str], partition: Sequence[str]) -> KeyGeneratorType:
    """Return the key generator that Hudi infers for these columns (KeyGenUtils.inferKeyGeneratorType)."""
    if not partition:
        return KeyGeneratorType.NON_PARTITION
    if len(partition) == 1 and len(key) == 1:
        return KeyGeneratorType.SIMPLE
    return KeyGeneratorType.COMPLEX


def name_for_path(path: str) -> str:
    """Return the name of a table that has none but its folder's, in which a name's characters need not be.

    >>> name_for_path("/data/orders/"), name_for_path("/data/.orders [2024]")
    ('orders', '_orders__2024_')
    """
    folder = path.rstrip("/").rpartition("/")[2]
    return re.sub(r"^[.-]|[^A-Za-z0-9_.-]", "_", folder)


def _check(spec: TableSpec) -> None:
    if not _TABLE_NAME.fullmatch(spec.name):
        raise ConfigError(
            f"the table name is {spec.name!r}; expected letters, digits, '_', '-' and '.', such as 'orders'."
        )
    _check_columns(spec.schema)
    if not spec.key:
        raise ConfigError("a table needs a record key. Name the columns that identify a row: key=('id',).")
    for role, names in (
        ("key", spec.key),
        ("partition", spec.partition),
        ("ordering", spec.ordering),
        ("hash", spec.index.hash_fields),
    ):
        _check_names(role, names)
    for name in spec.key:
        _check_text_type("key", name, _column(spec.schema, "key", name).type)
    for name in spec.partition:
        _check_text_type("partition", name, _column(spec.schema, "partition", name).type)
    for name in spec.ordering:
        _check_ordering(spec.schema, name)
    strangers = [name for name in spec.index.hash_fields if name not in spec.key]
    if strangers:
        raise ConfigError(
            f"the hash fields are {', '.join(spec.index.hash_fields)}, and {strangers[0]!r} is not a key column "
            f"({', '.join(spec.key)}). A bucket is hashed from the key: name columns of it."
        )
    if spec.non_blocking and (spec.table_type is TableType.COPY_ON_WRITE or not spec.ordering):
        raise ConfigError(
            f"a non-blocking table must be merge-on-read and have ordering columns, which tell of two versions the "
            f"newer; found {spec.table_type}, ordered by {', '.join(spec.ordering) or 'nothing'}."
        )
    spec.index.check(
        NewTable(
            key=spec.key,
            partition=spec.partition,
            partition_types=tuple(_column(spec.schema, "partition", name).type for name in spec.partition),
            table_type=spec.table_type,
            non_blocking=spec.non_blocking,
        )
    )


def _check_columns(schema: pa.Schema) -> None:
    if not len(schema):
        raise ConfigError("the table has no columns. Give a schema with the key columns at least.")
    reserved = [name for name in schema.names if name.lower() in RESERVED]
    if reserved:
        raise ConfigError(
            f"column {reserved[0]!r} is one of Hudi's meta columns, which every table gets by itself. Drop it."
        )
    storable(schema)
    check_names(schema)
    if IS_DELETED_COLUMN in schema.names and not pa.types.is_boolean(schema.field(IS_DELETED_COLUMN).type):
        raise ConfigError(
            f"column {IS_DELETED_COLUMN!r} is a {schema.field(IS_DELETED_COLUMN).type}; expected boolean: a row in "
            f"which it is true deletes. Rename or cast the column."
        )


def _check_names(role: str, names: Sequence[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(f"the {role} columns name {twice[0]!r} twice. Name it once.")


def _column(schema: pa.Schema, role: str, name: str) -> pa.Field:
    """Find a column, by a path with dots in structs."""
    found: pa.Field | None = None
    fields = {column.name: column for column in schema}
    for part in name.split("."):
        found = fields.get(part)
        if found is None:
            raise ConfigError(
                f"the {role} column {name!r} is not among the table's columns: {', '.join(schema.names)}."
            )
        is_struct = pa.types.is_struct(found.type)
        fields = {inner.name: inner for inner in found.type} if is_struct else {}
    assert found is not None
    return found


def _check_text_type(role: str, name: str, kind: pa.DataType) -> None:
    """A key or a path is text. It must be the text that every writer gives the value, Hudi's included."""
    if pa.types.is_null(kind) or not is_certain(kind):
        raise ConfigError(
            f"the {role} column {name!r} is a {kind}; expected text, a signed integer, a boolean or a date. Other "
            f"types are spelled differently by different writers (floating point, timestamps, binary), or change their "
            f"spelling with their scale (decimals): a row would be found under one spelling and not under the other. "
            f"Cast the column."
        )


def _check_ordering(schema: pa.Schema, name: str) -> None:
    if "." in name:
        raise ConfigError(
            f"the ordering column {name!r} is inside a struct; expected a column of the table itself."
        )
    kind = _column(schema, "ordering", name).type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_null(kind):
        raise ConfigError(
            f"the ordering column {name!r} is a {kind}; expected a number, text, a date or a timestamp: a type whose "
            f"values have an order."
        )


def _check_options(options: Mapping[str, str], decided: Mapping[str, str]) -> None:
    for key in options:
        if key in decided or key == "hoodie.table.checksum":
            raise ConfigError(
                f"the option {key} is decided by the table's definition ({decided.get(key, 'a checksum')!r}). Drop it, "
                f"or change the definition."
            )


def _flag(value: bool) -> str:
    return "true" if value else "false"
