"""Row -> record key and partition path, as Hudi's key generators make them.

    SIMPLE         key  "7"                 path  one field
    COMPLEX        key  "k1:a,k2:7"         path  any number of fields, joined by "/"
    NON_PARTITION  key  as many fields say  path  ""
    TIMESTAMP      key  "7"                 path  one field, read as a moment and written by a pattern
    CUSTOM         key  as many fields say  path  fields marked `f:simple` or `f:timestamp`

One generator answers twice: for one row (`record_key_of`, `partition_path_of`; slow, to be checked by
reading) and for a table (`record_keys`, `partition_paths`; Arrow compute). A property test holds the two
equal.

This package knows rows and text. It reads no file, and what the text is hashed to is the business of `index`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.config import KeyGeneratorType, TableProperties, TimestampKeyConfig
from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.keygen.paths import NO_VALUE, escape, unescape
from bucketlake.keygen.spelling import EMPTY_PIECE, NULL_PIECE, find_ambiguous
from bucketlake.keygen.text import is_certain, never_holds_a_comma, text_of, texts_of
from bucketlake.keygen.timestamps import TimestampPaths

_FOLDER_BYTES_MAX = 255
"""What file systems take for one name."""

_ALL_PARTITIONS = "__all_partitions__"
"""See `metadata/files.py`: the files of a partition of this name would be taken for partitions."""

_LOGICAL_TIMESTAMPS = "hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled"
_SUPPORTED = (
    KeyGeneratorType.SIMPLE,
    KeyGeneratorType.COMPLEX,
    KeyGeneratorType.NON_PARTITION,
    KeyGeneratorType.TIMESTAMP,
    KeyGeneratorType.CUSTOM,
)


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One partition column, and how its value is written."""

    name: str
    is_timestamp: bool = False
    """Read as a moment, written by the pattern of the table's timestamp configuration."""
    slashes_dates: bool = False
    """Every `-` becomes a `/`: `2024-01-02` is three folders deep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyGenerator:
    """How one table makes record keys and partition paths. A value: picklable, no I/O.

    Columns inside structs are named with dots (`address.city`).
    """

    kind: KeyGeneratorType = KeyGeneratorType.COMPLEX
    record_key_fields: tuple[str, ...]
    encodes_field_names: bool
    """Whether the key reads `field:value,...` instead of just the value."""
    partition_fields: tuple[PartitionField, ...] = ()
    hive_style: bool = False
    url_encode: bool = False
    timestamp: TimestampKeyConfig | None = None
    logical_timestamps: bool = False

    @classmethod
    def from_properties(cls, properties: TableProperties) -> Self:
        """Take what a table's properties say.

        Never fails: a table whose generator we do not have can still be read, and says so at the first key
        that is asked for.
        """
        kind = properties.key_generator
        keys = properties.record_key_fields
        encodes = len(keys) > 1
        if kind is KeyGeneratorType.COMPLEX and len(keys) == 1:
            encodes = properties.complex_key_encodes_field_name
        return cls(
            kind=kind,
            record_key_fields=keys,
            encodes_field_names=encodes,
            partition_fields=_partition_fields(properties),
            hive_style=properties.hive_style_partitioning,
            url_encode=properties.url_encode_partitioning,
            timestamp=properties.timestamp_key,
            logical_timestamps=properties.raw.get(_LOGICAL_TIMESTAMPS, "").strip().lower() == "true",
        )

    def record_key_of(self, values: Mapping[str, object]) -> str:
        """Return the record key of one row.

        A value is a Python object or a `pa.Scalar`; only the latter tells a float from a double, and gives a
        decimal its scale. ConfigError names the column that is missing, null or empty.

        >>> KeyGenerator(record_key_fields=("k1", "k2"), encodes_field_names=True).record_key_of(
        ...     {"k1": "a", "k2": None}
        ... )
        'k1:a,k2:__null__'
        """
        self._check_record_key()
        texts = [
            text_of(_value(values, field), field=field, logical_timestamps=self.logical_timestamps)
            for field in self.record_key_fields
        ]
        if not any(texts):
            raise self._no_key(row=None)
        return self._joined(texts)

    def certain_record_key_of(self, values: Mapping[str, object]) -> str | None:
        """Return the record key that every writer of this table would give the row, None if they might
        differ.

        They differ on floating point, timestamps and binary: see `is_certain`. None too for
        a row that can have no key, and for a generator or a type that we do not have: nothing is known of it.
        """
        try:
            scalars = {field: _scalar(_value(values, field)) for field in self.record_key_fields}
            if not all(is_certain(scalar.type) for scalar in scalars.values()):
                return None
            self._check_record_key()
            texts = [
                text_of(s, field=f, logical_timestamps=self.logical_timestamps) for f, s in scalars.items()
            ]
        except (ConfigError, UnsupportedError):
            return None
        return self._joined(texts) if any(texts) else None

    def record_keys(self, table: Any) -> Any:
        """Return the record keys of a `pa.Table` or `pa.RecordBatch`, as a `pa.StringArray`."""
        self._check_record_key()
        columns = [
            texts_of(_column(table, field), field=field, logical_timestamps=self.logical_timestamps)
            for field in self.record_key_fields
        ]
        return self._joined_columns(columns, encodes_field_names=self.encodes_field_names)

    def virtual_keys(self, table: Any) -> Any:
        """Return the keys by which rows are told apart where the table does not store record keys.

        They are Hudi's (`RecordContext.virtualKeyExtractor`), which reads values and asks no key generator: the key of
        one column is its value even where writers spell `field:value`, and a date is its days since 1970. A delete in
        a log file has the writer's spelling; where the two differ it deletes nothing, neither in Hudi nor here.
        """
        if not self.record_key_fields:
            raise ConfigError(
                "hoodie.populate.meta.fields is false and hoodie.table.recordkey.fields is empty, so nothing tells the "
                "key of a row, which merging log files needs. Read base files only: read_optimized=True."
            )
        columns = [
            texts_of(_days_of_dates(_column(table, field)), field=field) for field in self.record_key_fields
        ]
        return self._joined_columns(columns, encodes_field_names=len(columns) > 1)

    def _joined_columns(self, columns: Sequence[Any], *, encodes_field_names: bool) -> Any:
        has_text = pc.fill_null(pc.greater(pc.binary_length(columns[0]), 0), False)
        for column in columns[1:]:
            has_text = pc.or_(has_text, pc.fill_null(pc.greater(pc.binary_length(column), 0), False))
        if not pc.all(has_text, min_count=0).as_py():
            raise self._no_key(row=pc.index(has_text, False).as_py())
        if not encodes_field_names:
            return columns[0]
        pieces: list[Any] = []
        for number, (field, column) in enumerate(zip(self.record_key_fields, columns, strict=True)):
            pieces.append(f"{',' if number else ''}{field}:")
            pieces.append(pc.if_else(pc.equal(column, ""), EMPTY_PIECE, column).fill_null(NULL_PIECE))
        return pc.binary_join_element_wise(*pieces, "")

    def check_spelling(self, table: Any) -> None:
        """Refuse rows whose record key, or partition path, is that of other values too: the two would be one row.

        Only who writes rows asks. A table may hold such a row, which is found, read and deleted by its key.
        """
        texts = {
            name: self._spelled(name, table)
            for name in (
                *self.record_key_fields,
                *(f.name for f in self.partition_fields if not f.is_timestamp),
            )
        }
        row = find_ambiguous(self.record_key_fields, [texts[name] for name in self.record_key_fields])
        if row is not None:
            raise ConfigError(
                f"the record key {self.record_keys(table.slice(row, 1))[0].as_py()!r} is that of several rows of "
                f"values, which Hudi takes for one record; found {self._shown(table, row)}. A text in a key of several "
                f"columns cannot be {NULL_PIECE!r} or {EMPTY_PIECE!r}, nor hold ',column:' with the name of its own or "
                f"of the next column. Change the value, or make a table whose key is one column."
            )
        for field in self.partition_fields:
            column = texts.get(field.name)
            row = -1 if column is None else pc.index(column, NO_VALUE).as_py()
            if row >= 0:
                raise ConfigError(
                    f"column {field.name!r} makes partition paths and holds {NO_VALUE!r}, the word for null in them: "
                    f"it would read as null, and its rows be taken for those of null; found {self._shown(table, row)}. "
                    f"Write null, or another text."
                )

    def _spelled(self, field: str, table: Any) -> Any | None:
        """Return the texts of a column, None if its type is not text."""
        column = _column(table, field)
        return None if never_holds_a_comma(column.type) else texts_of(column, field=field)

    def _shown(self, table: Any, row: int) -> str:
        names = dict.fromkeys((*self.record_key_fields, *(field.name for field in self.partition_fields)))
        return ", ".join(f"{name} = {_column(table, name)[row].as_py()!r}" for name in names)

    def partition_path_of(self, values: Mapping[str, object]) -> str:
        """Return the partition path of one row, without a leading slash; empty for a table without
        partitions.

        >>> fields = (PartitionField("dt"), PartitionField("hh"))
        >>> KeyGenerator(
        ...     record_key_fields=("id",), encodes_field_names=False, partition_fields=fields, hive_style=True
        ... ).partition_path_of({"dt": "2024-01-02", "hh": None})
        'dt=2024-01-02/hh=__HIVE_DEFAULT_PARTITION__'
        """
        self._check_supported()
        return "/".join(
            self._path_value(field, self._text_of(field, values)) for field in self.partition_fields
        )

    def partition_paths(self, table: Any) -> Any:
        """Return the partition paths of a `pa.Table` or `pa.RecordBatch`, as a `pa.StringArray`."""
        return self.encoded_partition_paths(table).dictionary_decode()

    def encoded_partition_paths(self, table: Any) -> Any:
        """Return the same as a `pa.DictionaryArray`, in which no path stands twice."""
        self._check_supported()
        if not self.partition_fields:
            return pa.repeat(pa.scalar(""), table.num_rows).dictionary_encode()
        columns = [self._path_values(field, table) for field in self.partition_fields]
        if len(columns) == 1:
            return columns[0]
        return pc.binary_join_element_wise(*[c.dictionary_decode() for c in columns], "/").dictionary_encode()

    def check_partition_path(self, path: str) -> None:
        """Refuse a partition path that is no safe folder name, or that a reader would take for another's.

        A value with a slash makes folders that look like those of two columns; `..`, control characters and names
        that begin with a dot lead out of the table, or into what belongs to it. Hudi on the JVM takes a colon for
        the end of a URI's scheme, and cannot read a table that has one in a path. It undoes escapes whether or not
        the table makes them, and takes what is before a `=` for a column's name: the value would read as another.
        """
        dates_or_patterns = any(field.slashes_dates or field.is_timestamp for field in self.partition_fields)
        parts = path.split("/") if self.partition_fields else []
        fault = next((fault for part in parts if (fault := self._fault_of(part)) is not None), None)
        if fault is None and not dates_or_patterns and len(parts) != len(self.partition_fields):
            fault = "holds a slash"
        if path == _ALL_PARTITIONS:
            fault = "is the key under which Hudi's metadata table lists all partitions"
        if fault is not None:
            names = ", ".join(repr(field.name) for field in self.partition_fields)
            is_escapable = not self.url_encode and not any(
                part.startswith(".") or len(part.encode()) > _FOLDER_BYTES_MAX or part == _ALL_PARTITIONS
                for part in parts
            )
            remedy = (
                ", or make the table with url_encode=True, which escapes slashes, colons, backslashes and control "
                "characters"
                if is_escapable
                else ""
            )
            raise ConfigError(
                f"the values of {names} make the partition path {path!r}, which {fault}. Clean the values{remedy}."
            )

    def partition_values(self, path: str) -> Mapping[str, str | None] | None:
        """Return the texts of the partition columns that a path was made from, None if that can't be told.

        A column's None stands for whatever is written as nothing: null, the empty text, or the very word
        `__HIVE_DEFAULT_PARTITION__`. None for the whole path means that several rows of values lead to it
        (a date with slashes, a slash inside a value) or that it is not of this table's shape; a filter must
        then keep the partition.

        >>> fields = (PartitionField("dt"),)
        >>> KeyGenerator(
        ...     record_key_fields=("id",), encodes_field_names=False, partition_fields=fields, hive_style=True
        ... ).partition_values("dt=2024-01-02")
        {'dt': '2024-01-02'}
        """
        fields = self.partition_fields
        if self.kind not in _SUPPORTED or any(field.is_timestamp for field in fields):
            return None
        if not fields:
            return {} if path == "" else None
        parts = [path] if len(fields) == 1 else path.split("/")
        if len(parts) != len(fields):
            return None
        values: dict[str, str | None] = {}
        for field, part in zip(fields, parts, strict=True):
            text = self._read_path_value(field, part)
            if text is None:
                return None
            values[field.name] = None if text == NO_VALUE else text
        return values

    def _fault_of(self, folder: str) -> str | None:
        if not folder:
            return "has a part without a name"
        if folder.startswith("."):
            return "has a part that begins with a dot"
        if any(ord(character) < 0x20 or ord(character) == 0x7F for character in folder):
            return "holds a control character"
        if ":" in folder:
            return "holds a colon, at which Hudi stops reading the table"
        if "\\" in folder:
            return "holds a backslash"
        if not self.url_encode and unescape(folder) != folder:
            return "holds a % with two digits after it, which Hudi reads as an escaped character"
        if not self.url_encode and not self.hive_style and "=" in folder:
            return "holds an equals sign, before which Hudi expects a column's name"
        if len(folder.encode()) > _FOLDER_BYTES_MAX:
            return f"has a part of more than {_FOLDER_BYTES_MAX} bytes"
        return None

    def _joined(self, texts: Sequence[str | None]) -> str:
        if not self.encodes_field_names:
            assert texts[0] is not None
            return texts[0]
        return ",".join(
            f"{field}:{NULL_PIECE if text is None else text or EMPTY_PIECE}"
            for field, text in zip(self.record_key_fields, texts, strict=True)
        )

    def _text_of(self, field: PartitionField, values: Mapping[str, object]) -> str | None:
        value = _value(values, field.name)
        if field.is_timestamp:
            return self._timestamps().text_of(value, field=field.name)
        return text_of(value, field=field.name, logical_timestamps=self.logical_timestamps)

    def _texts_of(self, field: PartitionField, table: Any) -> Any:
        column = _column(table, field.name)
        if field.is_timestamp:
            return self._timestamps().texts_of(column, field=field.name)
        return texts_of(column, field=field.name, logical_timestamps=self.logical_timestamps)

    def _path_values(self, field: PartitionField, table: Any) -> Any:
        texts = self._texts_of(field, table).fill_null("").dictionary_encode()
        values = pa.array(
            [self._path_value(field, text) for text in texts.dictionary.to_pylist()], pa.string()
        )
        distinct = values.dictionary_encode()
        # Two texts may make one path: nothing, and the word that stands for it.
        indices = (
            texts.indices if len(distinct.dictionary) == len(values) else distinct.indices.take(texts.indices)
        )
        return pa.DictionaryArray.from_arrays(indices, distinct.dictionary)

    def _path_value(self, field: PartitionField, text: str | None) -> str:
        value = text or NO_VALUE
        if self.url_encode:
            value = escape(value)
        if self.hive_style:
            value = f"{field.name}={value}"
        return value.replace("-", "/") if field.slashes_dates else value

    def _read_path_value(self, field: PartitionField, part: str) -> str | None:
        if self.hive_style:
            # With slashed dates the field's own name may have lost a dash; then it does not fit, which is
            # safe.
            name, equals, part = part.partition("=")
            if not equals or name != field.name:
                return None
        if field.slashes_dates and "/" in part:
            if not self.url_encode:
                return None  # `2024/01/02` may have been `2024-01-02` or itself
            part = part.replace("/", "-")
        elif self.url_encode and "/" in part:
            return None
        if not part:
            return None
        return unescape(part) if self.url_encode else part

    def _timestamps(self) -> TimestampPaths:
        if self.timestamp is None:
            raise ConfigError(
                "the table's partition path is made from a timestamp, and its properties have no "
                "hoodie.keygen.timebased.timestamp.type. Restore hoodie.properties, or add the line by hand."
            )
        return TimestampPaths(self.timestamp, self.logical_timestamps)

    def _check_supported(self) -> None:
        if self.kind not in _SUPPORTED:
            raise UnsupportedError(
                subject="the table's key generator",
                found=str(self.kind),
                supported=", ".join(_SUPPORTED),
                remedy="Its keys and partition paths can only be made by Hudi; reading it needs neither.",
            )

    def _check_record_key(self) -> None:
        self._check_supported()
        if not self.record_key_fields:
            raise ConfigError(
                "the table has no record key fields (its keys were generated), so a row's key cannot be made "
                "from its columns. Use the column _hoodie_record_key instead."
            )
        if len(self.record_key_fields) > 1 and self.kind in (
            KeyGeneratorType.SIMPLE,
            KeyGeneratorType.TIMESTAMP,
        ):
            raise ConfigError(
                f"the table's key generator {self.kind} makes keys of one column, and its properties name "
                f"{', '.join(self.record_key_fields)}. Mend hoodie.table.keygenerator.type."
            )

    def _no_key(self, *, row: int | None) -> ConfigError:
        where = "" if row is None else f" in row {row}"
        fields = ", ".join(repr(field) for field in self.record_key_fields)
        return ConfigError(
            f"column {fields} is null or empty{where}, and a record key cannot be. "
            f"Fill the column, or drop the row."
        )


def _partition_fields(properties: TableProperties) -> tuple[PartitionField, ...]:
    names = properties.partition_fields
    slashes = properties.slash_separated_dates
    match properties.key_generator:
        case KeyGeneratorType.NON_PARTITION:
            return ()
        case KeyGeneratorType.TIMESTAMP:
            return tuple(PartitionField(name, is_timestamp=True) for name in names)
        case KeyGeneratorType.CUSTOM:
            fields = []
            for field in names:
                name, _, kind = field.partition(":")
                is_timestamp = kind.lower() == "timestamp"
                fields.append(PartitionField(name, is_timestamp, slashes and not is_timestamp))
            return tuple(fields)
        case KeyGeneratorType.SIMPLE:
            return tuple(PartitionField(name, slashes_dates=slashes) for name in names)
        case _:
            # Hudi's COMPLEX generator slashes dates only where the path is one field.
            return tuple(PartitionField(name, slashes_dates=slashes and len(names) == 1) for name in names)


def _value(values: Mapping[str, object], field: str) -> object:
    """Look a field up, into nested mappings where its name has dots."""
    first, dot, rest = field.partition(".")
    if first not in values:
        raise _missing(field, values)
    value = values[first]
    if not dot:
        return value
    if isinstance(value, pa.Scalar):
        value = {name: value[name] for name in (f.name for f in value.type)} if value.is_valid else None
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _missing(field, values)
    return _value(value, rest)


def _column(table: Any, field: str) -> Any:
    first, *nested = field.split(".")
    if first not in table.schema.names:
        raise _missing(field, table.schema.names)
    column = table.column(first)
    for name in nested:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise _missing(field, table.schema.names)
        column = pc.struct_field(column, name)
    return column


def _days_of_dates(column: Any) -> Any:
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _scalar(value: object) -> Any:
    return value if isinstance(value, pa.Scalar) else pa.scalar(value)


def _missing(field: str, known: Any) -> ConfigError:
    return ConfigError(
        f"column {field!r} makes the table's keys or partition paths, and the row has no such column: "
        f"it has {', '.join(sorted(map(str, known)))}. Add the column."
    )
