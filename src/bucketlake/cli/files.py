"""Files of rows, read in this process: Parquet, CSV with a header, JSON lines.

A Parquet file says its types, and is taken as it is. The other two are read
as the table's types; a value that is none is named with its file, row and
column. Values are spelled as `bucketlake read --json` prints them: binary in
base64, times in ISO 8601 (UTC where they name no zone), a map as pairs. In
CSV an empty field is null, and a quoted empty field the empty text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from bucketlake.cli.values import value_of_text
from bucketlake.errors import ConfigError, SchemaError
from bucketlake.schema import META_COLUMNS, fit_rows


class FileFormat(StrEnum):
    PARQUET = "parquet"
    CSV = "csv"
    JSON = "json"


_SUFFIXES = {
    ".parquet": FileFormat.PARQUET,
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
}

_TIME_WITH_ZONE = r"[T ].*(Z|[+-][0-9]{2}(:?[0-9]{2})?)$"

Evolve = Callable[[pa.Schema, pa.Schema], pa.Schema]
"""Says what a table's columns are after rows with other columns were written to it; SchemaError if those do not fit."""

_JSON_WORDS = {bool: "a boolean", str: "a text", list: "an array", dict: "an object"}


def format_of(file: str, given: FileFormat | None = None) -> FileFormat:
    """Tell a file's format by its suffix, unless the caller says.

    >>> format_of("orders.JSONL")
    <FileFormat.JSON: 'json'>
    """
    found = given or _SUFFIXES.get(Path(file).suffix.lower())
    if found is None:
        raise ConfigError(
            f"{file}: the format cannot be told from the name; expected one of {', '.join(_SUFFIXES)}. Give --format."
        )
    return found


def read_schema(file: str, given: FileFormat | None = None) -> pa.Schema:
    """Return the columns of a file; those of CSV and JSON are guessed from its rows."""
    readers: dict[FileFormat, Callable[[str], pa.Schema]] = {
        FileFormat.PARQUET: pq.read_schema,
        FileFormat.CSV: lambda path: pyarrow.csv.read_csv(path).schema,
        FileFormat.JSON: lambda path: pyarrow.json.read_json(path).schema,
    }
    with _named(file):
        schema = readers[format_of(file, given)](file)
    unknown = [field.name for field in schema if pa.types.is_null(field.type)]
    if unknown:
        raise SchemaError(f"{file}: column {unknown[0]!r} is empty, so its type is unknown. Give --schema.")
    return pa.schema([field for field in schema if field.name not in META_COLUMNS])


def schema_after(
    files: Sequence[str],
    schema: pa.Schema,
    *,
    evolve: Evolve,
    given: FileFormat | None = None,
) -> pa.Schema:
    """Return the columns that a table with this schema has after the files are written to it.

    Only Parquet files can bring new ones. `evolve` says what becomes of a schema through rows of another.
    """
    after = schema
    for file in files:
        if format_of(file, given) is FileFormat.PARQUET:
            own = read_schema(file, given)
            with _named(file):
                evolve(schema, own)
                of_others = [f for f in after if f.name not in own.names and f.name not in schema.names]
                after = evolve(after, pa.schema([*own, *of_others]))
    return after


def read_rows(file: str, schema: pa.Schema, *, evolve: Evolve, given: FileFormat | None = None) -> pa.Table:
    """Read whole rows of a table with this schema."""
    rows = _read(file, schema, given, is_whole=True)
    with _named(file):
        if format_of(file, given) is not FileFormat.PARQUET:
            evolve(
                schema, rows.schema
            )  # a column that is missing is refused, unless the table says it is null
        return fit_rows(rows, schema)


def column_names(file: str, given: FileFormat | None = None) -> list[str]:
    """Name the columns of a file."""
    readers: dict[FileFormat, Callable[[str], Iterable[str]]] = {
        FileFormat.PARQUET: lambda path: pq.read_schema(path).names,
        FileFormat.CSV: _csv_names,
        FileFormat.JSON: _json_columns,
    }
    with _named(file):
        return list(readers[format_of(file, given)](file))


def read_columns(file: str, schema: pa.Schema, *, given: FileFormat | None = None) -> pa.Table:
    """Read the columns of `schema` from a file that may have others too."""
    rows = _read(file, schema, given, is_whole=False)
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise SchemaError(
            f"{file}: there is no column {missing[0]!r}. Needed are {', '.join(schema.names)}, which make the keys and "
            f"partitions."
        )
    return rows.select(schema.names)


def _read(file: str, schema: pa.Schema, given: FileFormat | None, *, is_whole: bool) -> pa.Table:
    """Read a file. Columns of CSV and JSON that the table has not are passed over, or an error if `is_whole`."""
    format_ = format_of(file, given)
    with _named(file):
        if format_ is FileFormat.PARQUET:
            rows = pq.ParquetFile(file).read()
            return rows.drop_columns([name for name in rows.column_names if name in META_COLUMNS])
        columns, convert = (
            (_csv_columns(file), _of_texts)
            if format_ is FileFormat.CSV
            else (_json_columns(file, of_nothing=schema.names), _of_values)
        )
    strangers = [name for name in columns if name not in schema.names and name not in META_COLUMNS]
    if strangers and is_whole:
        raise SchemaError(
            f"{file}: the table has no column {strangers[0]!r}, but {', '.join(schema.names)}. Drop it from the file, "
            f"or write the file as Parquet: that says what type the new column is to have."
        )
    known = [field for field in schema if field.name in columns]
    arrays = [_typed(file, field, columns[field.name], convert) for field in known]
    return pa.Table.from_arrays(arrays, schema=pa.schema(known))


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Say in which file something was wrong."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}.") from error
    except ConfigError as error:
        raise SchemaError(f"{file}: {error}") from error
    except (pa.ArrowException, ValueError) as error:
        text = str(error).rstrip(".\n")
        raise ConfigError(f"{file}: {text}. Mend the file, or name its format with --format.") from error


def _typed(file: str, field: pa.Field, values: Sequence[Any], convert: Callable[..., pa.Array]) -> pa.Array:
    """Convert a column; if that fails, look for the value that is to blame."""
    faults = (pa.ArrowException, ValueError, InvalidOperation, OverflowError, TypeError)
    try:
        return convert(values, field.type)
    except faults:
        for number in range(len(values)):
            try:
                convert(values[number : number + 1], field.type)
            except faults as error:
                value = values[number].as_py() if isinstance(values[number], pa.Scalar) else values[number]
                raise SchemaError(
                    f"{file}: row {number + 1}, column {field.name!r}: {value!r} is no {field.type} ({error})."
                ) from error
        raise


_CSV = pyarrow.csv.ParseOptions(newlines_in_values=True)


def _csv_names(file: str) -> list[str]:
    with pyarrow.csv.open_csv(file, parse_options=_CSV) as reader:
        names: list[str] = reader.schema.names
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"column {twice[0]!r} is there twice")
    return names


def _csv_columns(file: str) -> Mapping[str, pa.ChunkedArray]:
    names = _csv_names(file)
    texts = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )
    rows = pyarrow.csv.read_csv(file, parse_options=_CSV, convert_options=texts)
    return {name: rows.column(name) for name in names}


def _json_columns(file: str, *, of_nothing: Iterable[str] = ()) -> Mapping[str, list[Any]]:
    """Read objects, one per line or in arrays; a field that an object lacks is null.

    A file without objects names no columns; it has those of `of_nothing`.
    """
    rows: list[dict[str, Any]] = []
    with Path(file).open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                # Decimals keep their digits; where a column is floating, they become floats there.
                found = json.loads(line, parse_float=Decimal)
            except ValueError as error:
                raise ValueError(f"line {number} is no JSON: {error}") from error
            objects = found if isinstance(found, list) else [found]
            if not all(isinstance(row, dict) for row in objects):
                raise ValueError(f"line {number} is neither a JSON object nor an array of objects")
            rows += objects
    names = dict.fromkeys((name for row in rows for name in row) if rows else of_nothing)
    return {name: [row.get(name) for row in rows] for name in names}


def _of_texts(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_nested(kind):
        raise ValueError("CSV has no lists, maps or structs; write the rows as JSON lines or Parquet")
    if pa.types.is_binary(kind):
        decoded = [
            None if text is None else base64.b64decode(text, validate=True) for text in texts.to_pylist()
        ]
        return pa.chunked_array([pa.array(decoded, kind)])
    if pa.types.is_timestamp(kind) and kind.tz:
        has_zone = pc.match_substring_regex(texts, _TIME_WITH_ZONE)
        nothing = pa.scalar(None, pa.string())
        without = pc.if_else(has_zone, nothing, texts).cast(pa.timestamp(kind.unit)).cast(kind)
        return pc.coalesce(pc.if_else(has_zone, texts, nothing).cast(kind), without)
    return texts.cast(kind)


def _of_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([_of_value(value, kind) for value in values], kind)


def _of_value(value: Any, kind: pa.DataType) -> Any:
    """Return a JSON value as Arrow takes it for a type; ValueError if it is of another kind."""
    match value:
        case None:
            return None
        case bool() if pa.types.is_boolean(kind):
            return value
        case bool():
            pass
        case str() if not (
            pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_nested(kind)
        ):
            return value_of_text(value, kind)
        case int() if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
            return value
        case int() | float() | Decimal() if pa.types.is_floating(kind):
            return float(value)
        case Decimal() if pa.types.is_decimal(kind):
            return value
        case list() if pa.types.is_list(kind):
            return [_of_value(item, kind.value_type) for item in value]
        case dict() | list() if pa.types.is_map(kind):
            pairs = value.items() if isinstance(value, dict) else value
            return [(_of_value(k, kind.key_type), _of_value(v, kind.item_type)) for k, v in pairs]
        case dict() if pa.types.is_struct(kind):
            strangers = [name for name in value if kind.get_field_index(name) < 0]
            if strangers:
                raise ValueError(f"it has no field {strangers[0]!r}")
            return {name: _of_value(item, kind.field(name).type) for name, item in value.items()}
    raise ValueError(f"it is {_JSON_WORDS.get(type(value), 'a number')} in the file")
