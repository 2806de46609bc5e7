"""What a caller hands over, made into what the packages below take; or refused, with a word on what they take.

Rows come in many forms, and all of them are Arrow's a step later. pandas, polars and Python's own lists seldom say
which type a column is to have, so their columns are given the table's, if no value changes by that. Arrow's own tables
say what they mean, and are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from inspect import signature
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from bucketlake import spark as on_spark
from bucketlake.errors import ConfigError, SchemaError, shown
from bucketlake.services import Tasks, here

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from bucketlake.spark.files import Files, Paths

ROWS_EXPECTED = (
    "expected a Spark frame, bucketlake.parquet_files(path, spark=spark), an Arrow table, a pandas or polars frame, or "
    "a list of dicts"
)


def path_text(value: str | PathLike[str], what: str = "the table's path") -> str:
    """Take the path of a table; `what` else it may be stands in the error."""
    if is_session(value):
        raise ConfigError(
            "the table's path is a Spark session; expected a path. The session is a keyword: create_table(path, "
            "schema, key=..., spark=spark)."
        )
    if not isinstance(value, str | PathLike):
        raise ConfigError(
            f"{what} is {shown(value)}; expected a folder, or a uri such as s3://bucket/folder."
        )
    return fspath(value)


def paths(value: Paths) -> list[str]:
    """Take one path of files, or several."""
    several = [value] if isinstance(value, str | PathLike) else value
    if not isinstance(several, Sequence) or not all(isinstance(path, str | PathLike) for path in several):
        raise ConfigError(f"the path of the files is {shown(value)}; expected a path, or a list of paths.")
    return [fspath(path) for path in several]


def names(value: str | Iterable[str], what: str) -> tuple[str, ...]:
    """Take one name, or several; `what` they are stands in the error."""
    if isinstance(value, str):
        return (value,)
    # A set would name them in another order each time.
    is_list = isinstance(value, Iterable) and not isinstance(value, bytes | Mapping | Set)
    found = tuple(value) if is_list else None
    if found is None or not all(isinstance(name, str) for name in found):
        raise ConfigError(f"{what} is {shown(value)}; expected a name, or a list of names.")
    return found


def whole_number(value: int, what: str) -> int:
    """Take a count."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ConfigError(f"{what} is {shown(value)}; expected a whole number, such as 4.")
    return int(value)


def text(value: str, what: str) -> str:
    """Take a text."""
    if not isinstance(value, str):
        raise ConfigError(f"{what} is {shown(value)}; expected a text.")
    return value


def flag(value: bool, what: str) -> bool:
    """Take a yes or a no; the text 'false' would be a yes."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError(f"{what} is {shown(value)}; expected True or False.")
    return bool(value)


def flag_if_given(value: bool | None, what: str) -> bool | None:
    """Take a yes, a no, or None for nobody has said."""
    return None if value is None else flag(value, what)


def known(options: Mapping[str, Any], names_of: type) -> None:
    """Refuse options that a call does not have; `names_of` is the dict type that lists those it has."""
    expected = list(names_of.__annotations__)
    strange = [name for name in options if name not in expected]
    if strange:
        _refuse_gone(strange[0])
        raise ConfigError(f"there is no option {strange[0]!r} here; expected one of {', '.join(expected)}.")


_GONE = {
    "partition_rules": 'index=PartitionBuckets("expression,count;expression,count", default=4)',
    "rule_type": "index=PartitionBuckets(rules, default=4, rule_type=...)",
    "hash_fields": 'index=SimpleBuckets(4, hash_fields=("id",)); others with buckets take them too',
    "engine": "index=SimpleBuckets(4), index=PartitionBuckets(rules, default=4) or index=ConsistentBuckets(4)",
    "virtual_logs": "index=ConsistentBuckets(4, virtual_logs=True)",
    "dry_run": "the plan of the same name, which prints and is run: plan = table.plan_compaction(); table.run(plan)",
}
"""Arguments that calls once had, and what to write instead."""


def gone(options: Mapping[str, Any], call: Callable[..., object]) -> None:
    """Refuse arguments that a call does not have, or has no longer."""
    for name in options:
        _refuse_gone(name)
        known = [word for word, one in signature(call).parameters.items() if one.kind is one.KEYWORD_ONLY]
        raise ConfigError(f"there is no argument {name!r} here; expected {', '.join(known)}.")


def _refuse_gone(name: str) -> None:
    if name in _GONE:
        raise ConfigError(f"there is no argument {name!r} any more. Write instead: {_GONE[name]}.")


def numbers(options: Mapping[str, Any], names_of: type, *, others: Sequence[str] = ()) -> None:
    """Refuse options that a call does not have, or that are no numbers; but of `others` nothing is asked."""
    known(options, names_of)
    for name, value in options.items():
        if name in others:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float | np.number | None):
            raise ConfigError(f"{name} is {shown(value)}; expected a number.")


def session_of(value: SparkSession, instead: str) -> SparkSession:
    """Take a session; `instead` says what does without one."""
    if not is_session(value):
        raise ConfigError(f"found {shown(value)}, expected a Spark session. {instead}")
    return value


def session_for(spark: SparkSession | None, rows: object = None) -> SparkSession:
    """Take a session, or the one of a frame, or the one that is active in this thread."""
    if spark is not None:
        return session_of(spark, "None takes the active session.")
    found = rows.sparkSession if is_frame(rows) else on_spark.local.active_session()
    if found is None:
        raise ConfigError(
            "expressions are computed by Spark, and there is no active session. Give one: spark=spark."
        )
    return found


def tasks_of(spark: SparkSession | None, progress: bool | None) -> Tasks:
    """Let a session run the tasks of a service, or this process if there is none."""
    if spark is None:
        return here
    session = session_of(spark, "None runs the tasks in this process.")
    return on_spark.services.SessionTasks(session, progress=progress)


def is_session(value: object) -> bool:
    """Know a session, classic or of Spark Connect, without importing Spark."""
    return hasattr(value, "createDataFrame")


def is_frame(value: object) -> TypeGuard[DataFrame]:
    """Know a Spark frame, classic or of Spark Connect."""
    return hasattr(value, "mapInArrow")


def is_files(value: object) -> TypeGuard[Files]:
    # Their module needs pyspark, which a process without frames does not have to import.
    return hasattr(value, "parts") and hasattr(value, "spark")


def is_rows(value: object) -> bool:
    """Tell rows from keys. A list is one of keys, also if these are mappings."""
    return is_frame(value) or is_files(value) or _is_columns(value)


def keys_of(value: Any, *, are: str = "keys") -> list[Any]:
    """Take one key, or several in whatever holds them: a frame holds one in each row."""
    if is_frame(value) or is_files(value):
        raise ConfigError(
            f"the {are} are {shown(value)}; expected values in this process. Collect the frame, or join it with "
            f"table.read(spark)."
        )
    if _is_columns(value):
        value = pa.table(value.reset_index(drop=True) if hasattr(value, "iloc") else value)
    if hasattr(value, "to_pylist"):
        value = value.to_pylist()
    elif hasattr(value, "tolist"):
        value = value.tolist()  # of numpy, or a column of pandas
    is_one = isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable)
    return [value] if is_one else list(value)


def rows_of(value: Any, schema_of_table: Callable[[], pa.Schema]) -> DataFrame | Files | pa.Table:
    """Take rows to be written to a table."""
    if is_frame(value) or is_files(value):
        return value
    if isinstance(value, pa.Table | pa.RecordBatch | pa.RecordBatchReader):
        return _table(value)
    schema = schema_of_table()
    if _is_columns(value):
        table = _of_pandas(value, schema) if hasattr(value, "iloc") else _table(value)
    elif isinstance(value, list | tuple) and all(isinstance(row, Mapping) for row in value):
        return _of_dicts(value, schema)
    elif isinstance(value, str | PathLike):
        path = fspath(value)
        raise ConfigError(
            f"the rows are a path, {path!r}. Files are taken by bucketlake.parquet_files({path!r}, spark=spark), for "
            f"Spark to write, or pyarrow.parquet.read_table({path!r}), for this process."
        )
    else:
        hint = " Call its collect() first." if hasattr(value, "collect") else ""
        raise ConfigError(f"the rows are {shown(value)}; {ROWS_EXPECTED}.{hint}")
    return _fitted(table, schema)


def schema_of(value: Any) -> Any:
    """Take columns, or what has columns; return them as Arrow's, or as Spark's."""
    if isinstance(value, pa.Schema):
        return value
    if _is_columns(value) and not is_frame(value):
        # pandas has nanoseconds where nobody asked for any.
        columns = pa.table(value.reset_index(drop=True) if hasattr(value, "iloc") else value).schema
        return pa.schema([c.with_type(_in_micros(c.type)) for c in columns.remove_metadata()])
    columns = getattr(value, "schema", value)
    if isinstance(columns, pa.Schema) or hasattr(columns, "jsonValue"):
        return columns
    raise ConfigError(
        f"the table's schema is {shown(value)}; expected an Arrow or Spark schema, an Arrow table or a frame, which "
        f"have one, or text such as 'id STRING, amount DECIMAL(10,2)'."
    )


def _in_micros(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", tz=kind.tz) if types.is_timestamp(kind) else kind


def _is_columns(value: object) -> bool:
    """Know whatever can hand its columns to Arrow: pandas, polars, DuckDB's results, Arrow itself."""
    if isinstance(value, pa.Array | pa.ChunkedArray) or type(value).__name__ == "Series":
        return False
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def _table(value: Any) -> pa.Table:
    return _with_names(pa.table(value))


def _of_pandas(frame: Any, schema: pa.Schema) -> pa.Table:
    """Convert column by column, so that an error names one. The index is no column."""
    odd = [name for name in frame.columns if not isinstance(name, str)]
    if odd:
        raise SchemaError(f"a column of the frame is called {odd[0]!r}; expected a text. Rename it.")
    arrays = [_array(frame.iloc[:, number], name, schema) for number, name in enumerate(frame.columns)]
    return _with_names(pa.Table.from_arrays(arrays, names=list(frame.columns)))


def _of_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    """Make columns of rows; one that a row does not have is null in it."""
    found = dict.fromkeys(name for row in rows for name in row) or dict.fromkeys(schema.names)
    odd = [name for name in found if not isinstance(name, str)]
    if odd:
        raise SchemaError(f"a row has the key {odd[0]!r}; expected the name of a column.")
    columns = {}
    for name in found:
        values = [row.get(name) for row in rows]
        finer = next((value for value in values if getattr(value, "nanosecond", 0)), None)
        if finer is not None:
            raise SchemaError(
                f"column {name!r} holds {finer!r}; expected no more than microseconds. Round it."
            )
        columns[name] = _array(values, name, schema)
        if name in schema.names and types.is_float32(schema.field(name).type):
            # Python has no other numbers with a fraction, so nobody could give the exact one.
            columns[name] = _rounded(columns[name])
    return _fitted(pa.table(columns), schema)


def _rounded(values: pa.Array) -> pa.Array:
    """Take the nearest single for each double that is no larger than the largest of them."""
    if not types.is_float64(values.type):
        return values
    singles = values.cast(pa.float32(), safe=False)
    is_same = pc.equal(pc.is_inf(singles), pc.is_inf(values))
    return singles if pc.all(is_same, min_count=0).as_py() else values


def _array(values: Any, name: str, schema: pa.Schema) -> pa.Array:
    """Convert values by what they are; where that does not tell, by what the table has."""
    wanted = schema.field(name).type if name in schema.names else None
    try:
        if wanted is not None and types.is_nested(wanted):
            return pa.array(values, wanted)
        return pa.array(values)  # a NaN of pandas means null, and one of a list is a number
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        is_known = "" if wanted is None else f", which is a {wanted} in the table"
        raise SchemaError(f"column {name!r}{is_known}, cannot be made of these values: {error}") from None


def _with_names(table: pa.Table) -> pa.Table:
    twice = [name for name in table.column_names if table.column_names.count(name) > 1]
    if twice:
        raise SchemaError(
            f"the rows have two columns called {twice[0]!r}; expected one. Rename or drop the other."
        )
    return table


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give columns the types that the table has."""
    columns = {
        name: _fitted_column(table[name], schema.field(name).type, name)
        if name in schema.names
        else table[name]
        for name in table.column_names
    }
    return pa.table(columns)


def _fitted_column(values: pa.ChunkedArray, wanted: pa.DataType, name: str) -> pa.ChunkedArray:
    """Give a column another type. An error if a value would not come back as it was."""
    found = values.type
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values), wanted)])  # of what type says nothing
    if types.is_timestamp(found) and types.is_timestamp(wanted) and (found.tz is None) != (wanted.tz is None):
        has = ("a moment, with its time zone", "no time zone") if wanted.tz else ("without time zone", "one")
        raise SchemaError(
            f"column {name!r} is {has[0]}, in the table, and the rows have {has[1]}. Convert it before writing."
        )
    if types.is_dictionary(found):
        return _fitted_column(values.cast(found.value_type), wanted, name)
    if found == wanted or types.is_nested(found) or not _is_alike(found, wanted):
        return values  # for the write to judge
    try:
        if types.is_integer(found) and types.is_decimal(wanted):
            # Arrow asks for as many digits as any integer has.
            fitted = values.cast(pa.decimal128(38, wanted.scale)).cast(wanted)
        else:
            fitted = values.cast(wanted)
        is_same = fitted.cast(found).equals(values)
    except pa.ArrowException as error:
        raise _lossy(name, found, wanted, str(error)) from None
    if not is_same and not _differ_by_nan_only(fitted.cast(found), values):
        raise _lossy(name, found, wanted, "some values would change")
    return fitted


def _differ_by_nan_only(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not types.is_floating(one.type):
        return False
    return bool(np.array_equal(one.to_numpy(), other.to_numpy(), equal_nan=True))


def _lossy(name: str, found: pa.DataType, wanted: pa.DataType, problem: str) -> SchemaError:
    return SchemaError(
        f"column {name!r} is a {wanted} in the table and a {found} in the rows, and cannot be converted without loss: "
        f"{problem}. Convert it before writing. An Arrow table is taken by the types that it has."
    )


def _is_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Say whether two types can mean the same value. A time without a zone and one with it never do."""
    if types.is_timestamp(found):
        if types.is_timestamp(wanted):
            return (found.tz is None) == (wanted.tz is None)
        return types.is_date(wanted) and found.tz is None
    return any(
        any(is_of(found) for is_of in family) and any(is_of(wanted) for is_of in family)
        for family in _FAMILIES
    )


_FAMILIES = (
    (types.is_integer, types.is_floating, types.is_decimal),
    (types.is_string, types.is_large_string, types.is_string_view),
    (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
    (types.is_date,),
)
