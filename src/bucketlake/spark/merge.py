"""What a MERGE makes of the rows of a table and of a source: changes, each with a word that says what it is.

One join finds out which rows belong together. Each side goes through it as a struct under the name that the statement
gives it, so that `t.n` and `s.n` mean what they say in every clause. A clause sees the columns that it may name without
saying whose they are: an INSERT those of the source, and what both have nobody. All else is done row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it
from pyspark.sql.types import StructType

from bucketlake.errors import ConfigError, SchemaError, shown
from bucketlake.keygen import KeyGenerator
from bucketlake.schema import PARTITION_PATH_COLUMN, RECORD_KEY_COLUMN
from bucketlake.spark.fitting import OWN_ERROR, fitting
from bucketlake.spark.types import ddl, quoted
from bucketlake.spark.worker import settle_worker

Expression = str | Column
"""An expression as Spark SQL spells it, or a column made with PySpark's functions."""

OP = "_bucketlake_op"
"""The column of changes that says what becomes of a row, in the words of a change feed."""

_KEY, _PATH = "_bucketlake_key", "_bucketlake_path"
"""Of the row of the table that a change is of; null for one that is inserted."""
_IN_SOURCE = "_bucketlake_in_source"
_CLAUSE, _ROW = "_bucketlake_clause", "_bucketlake_row"
_PARAMETER = "_bucketlake_parameter_{}"


class Part(StrEnum):
    """Which rows a clause is for."""

    MATCHED = "WHEN MATCHED"
    NOT_MATCHED = "WHEN NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "WHEN NOT MATCHED BY SOURCE"


class Deed(StrEnum):
    """What a clause does, in the words of a change feed."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One WHEN of a MERGE."""

    part: Part
    deed: Deed
    condition: Expression | None = None
    values: tuple[tuple[str, Expression], ...] | None = None
    """Columns of the table, and what they get; None: every column gets that of the source with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeSpec:
    """What is to be merged, and how."""

    on: Expression
    clauses: tuple[Clause, ...]
    target: str = "target"
    """What the conditions call the table."""
    source: str = "source"
    parameters: Mapping[str, Any]
    """Values that the conditions call `:name`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRules:
    """What a MERGE has to know of the table."""

    schema: pa.Schema
    keys: KeyGenerator
    fixed: frozenset[str]
    """Columns that an update may not change: those of the key, and of the partition where rows do not move."""
    is_global: bool
    """Whether a key is one of the whole table, and not of its partition."""


def check_expression(value: object, name: str) -> None:
    """Refuse what is no expression, before Spark does it in its own words."""
    if isinstance(value, Column) or (isinstance(value, str) and value.strip()):
        return
    raise ConfigError(
        f"{name} is {shown(value)}; expected an expression of Spark SQL, such as 'n + 1', or a column made with "
        f"PySpark's functions."
    )


def check_merge(spec: MergeSpec, rules: TableRules, source: Sequence[str]) -> None:
    """Refuse clauses that name columns which are not there, or twice."""
    if spec.target.lower() == spec.source.lower():
        raise ConfigError(
            f"the table and the source are both called {spec.target!r}. Give one of them another name: "
            f"MERGE INTO orders AS t USING changes AS s."
        )
    if not spec.clauses:
        raise ConfigError("a MERGE without a WHEN does nothing; add WHEN MATCHED or WHEN NOT MATCHED.")
    for clause in spec.clauses:
        if clause.values is None:
            if clause.deed is not Deed.DELETE:
                _check_all_there(rules.schema.names, source)
        else:
            resolved_values(clause.values, rules.schema.names, f"{clause.part} THEN {clause.deed.upper()}")
    for part in Part:
        unconditional = [c for c in spec.clauses if c.part is part][:-1]
        if any(clause.condition is None for clause in unconditional):
            raise ConfigError(
                f"{part} without a condition stands before another {part}, which no row would reach. Only the last may "
                f"go without AND and a condition."
            )


def _check_all_there(names: Sequence[str], source: Sequence[str]) -> None:
    there = {name.lower() for name in source}
    missing = [name for name in names if name.lower() not in there]
    if missing:
        raise SchemaError(
            f"* takes every column of the table from the source, which has no {', '.join(missing)}; it has "
            f"{', '.join(source)}. Add them to the source, or name the columns: UPDATE SET a = s.a, "
            f"INSERT (a) VALUES (s.a)."
        )


def resolved_values(
    values: Iterable[tuple[str, Expression]], names: Sequence[str], who: str
) -> dict[str, Expression]:
    """Return what columns get, under the table's spelling of their names."""
    by_name = {name.lower(): name for name in names}
    resolved: dict[str, Expression] = {}
    for name, value in values:
        known = by_name.get(name.lower())
        if known is None or known in resolved:
            problem = "names twice" if known else "names"
            raise ConfigError(
                f"{who} {problem} the column {name!r}; expected each once, and columns of the table: "
                f"{', '.join(names)}."
            )
        resolved[known] = value
    return resolved


def merge_changes(target: DataFrame, source: DataFrame, spec: MergeSpec, rules: TableRules) -> DataFrame:
    """Return the changes: `OP`, the key and path of the row that is changed, and the columns of the table.

    `target` has the columns of the table, and Hudi's columns of key and partition.
    """
    columns = rules.schema.names
    ours = [F.col(quoted(name)) for name in columns]
    parameters = {_PARAMETER.format(name): F.lit(value) for name, value in spec.parameters.items()}
    aliases = {spec.target.lower(), spec.source.lower()}

    def bare(names: Iterable[str]) -> list[Column]:
        return [F.col(quoted(name)) for name in names if name.lower() not in aliases]

    left = target.select(
        *bare(columns),
        F.struct(*ours).alias(spec.target),
        F.col(RECORD_KEY_COLUMN).alias(_KEY),
        F.col(PARTITION_PATH_COLUMN).alias(_PATH),
    )
    right = source.select(
        *bare(source.columns),
        F.struct("*").alias(spec.source),
        F.lit(True).alias(_IN_SOURCE),
        *(value.alias(name) for name, value in parameters.items()),
    )
    parts = frozenset(clause.part for clause in spec.clauses)
    joined = left.join(right, _column(spec.on), _JOINS[parts - {Part.MATCHED}]).select(
        quoted(spec.target), quoted(spec.source), _KEY, _PATH, _IN_SOURCE
    )
    joined = joined.withColumns(parameters) if parameters else joined
    merged, words, rows = joined, F.lit(None).cast("string"), []
    for part in Part:
        clauses = [clause for clause in spec.clauses if clause.part is part]
        if not clauses:
            continue
        merged = _with_part(merged, part, clauses, spec, rules, source.columns)
        clause = F.col(f"{_CLAUSE}_{part.name}")
        for number, one in enumerate(clauses):
            words = F.coalesce(words, F.when(clause == number, F.lit(str(one.deed))))
        rows.append(F.col(f"{_ROW}_{part.name}"))
    changes = merged.select(words.alias(OP), _KEY, _PATH, F.coalesce(*rows).alias(_ROW)).where(
        F.col(OP).isNotNull()
    )
    return changes.select(OP, _KEY, _PATH, *(F.col(_ROW)[name].alias(name) for name in columns))


_JOINS = {
    frozenset(): "inner",
    frozenset({Part.NOT_MATCHED}): "right",
    frozenset({Part.NOT_MATCHED_BY_SOURCE}): "left",
    frozenset({Part.NOT_MATCHED, Part.NOT_MATCHED_BY_SOURCE}): "full",
}
_IS = {
    Part.MATCHED: f"{_KEY} IS NOT NULL AND {_IN_SOURCE} IS NOT NULL",
    Part.NOT_MATCHED: f"{_KEY} IS NULL",
    Part.NOT_MATCHED_BY_SOURCE: f"{_IN_SOURCE} IS NULL",
}


def _with_part(
    frame: DataFrame,
    part: Part,
    clauses: Sequence[Clause],
    spec: MergeSpec,
    rules: TableRules,
    source: Sequence[str],
) -> DataFrame:
    """Add which of the clauses for these rows each row gets, and the row that it makes."""
    kept = frame.columns
    scope = frame.select("*", *_named_bare(part, spec, rules.schema.names, source))
    chosen, row = f"{_CLAUSE}_{part.name}", f"{_ROW}_{part.name}"
    choice: Any = F
    for number, clause in enumerate(clauses):
        holds = F.lit(True) if clause.condition is None else _column(clause.condition)
        choice = choice.when(holds, F.lit(number))
    scope = scope.withColumn(chosen, F.when(F.expr(_IS[part]), choice))
    made: Any = F
    for number, clause in enumerate(clauses):
        made = made.when(F.col(chosen) == number, _row_of(scope, clause, spec, rules))
    scope = scope.withColumn(row, made)
    return scope.select(*(quoted(name) for name in kept), chosen, row)


def _named_bare(part: Part, spec: MergeSpec, ours: Sequence[str], theirs: Sequence[str]) -> Iterator[Column]:
    """Return the columns that a clause may name without saying whose they are."""
    sides = {spec.target: ours, spec.source: theirs}
    if part is Part.NOT_MATCHED:
        del sides[spec.target]
    elif part is Part.NOT_MATCHED_BY_SOURCE:
        del sides[spec.source]
    every = [name.lower() for names in sides.values() for name in names]
    for side, names in sides.items():
        for name in names:
            if every.count(name.lower()) == 1 and name.lower() not in (
                spec.target.lower(),
                spec.source.lower(),
            ):
                yield F.col(quoted(side))[name].alias(name)


def _row_of(scope: DataFrame, clause: Clause, spec: MergeSpec, rules: TableRules) -> Column:
    """Return the row that a clause makes, as a struct of the table's columns."""
    names = rules.schema.names
    before = F.col(quoted(spec.target))
    if clause.deed is Deed.DELETE:
        return F.struct(*(before[name].alias(name) for name in names))
    values: Mapping[str, Expression]
    if clause.values is None:
        theirs = {field.lower(): field for field in _fields(scope, spec.source).names}
        values = {name: F.col(quoted(spec.source))[theirs[name.lower()]] for name in names}
    else:
        values = resolved_values(clause.values, names, str(clause.part))
    kinds = {field.name: field.dataType for field in _fields(scope, spec.target).fields}
    columns = {name: _column(value) for name, value in values.items()}
    given = [field.dataType for field in scope.select(*columns.values()).schema.fields]
    fitted = {
        name: fitting(column, kind, kinds[name], name)
        for (name, column), kind in zip(columns.items(), given, strict=True)
    }
    is_update = clause.deed is Deed.UPDATE
    row = []
    for name in names:
        if name not in fitted:
            value = before[name] if is_update else F.lit(None).cast(kinds[name])
        elif is_update and name in rules.fixed:
            value = _unchanged(before[name], fitted[name], name)
        else:
            value = fitted[name]
        row.append(value.alias(name))
    return F.struct(*row)


def _fields(frame: DataFrame, struct: str) -> StructType:
    kind = frame.schema[struct].dataType
    assert isinstance(kind, StructType)
    return kind


def _unchanged(before: Column, after: Column, name: str) -> Column:
    """Let a column of the key be set to what it is, and to nothing else."""
    problem = F.concat(
        F.lit(
            f"{OWN_ERROR}an update would change the column {name}, by which the table finds the row, from "
        ),
        F.coalesce(before.cast("string"), F.lit("null")),
        F.lit(" to "),
        F.coalesce(after.cast("string"), F.lit("null")),
        F.lit(". Delete the row and insert another. Nothing was written."),
    )
    return F.when(before.eqNullSafe(after), before).otherwise(F.raise_error(problem))


def with_columns(rows: DataFrame, values: Mapping[str, Expression]) -> DataFrame:
    """Add columns with these values."""
    return rows.withColumns({name: _column(value) for name, value in values.items()})


def updated(rows: DataFrame, values: Mapping[str, Expression], schema: pa.Schema) -> DataFrame:
    """Return the rows of a table with new values, which are in other columns of `rows`, in these of its columns."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    columns = []
    for name in schema.names:
        value = F.col(quoted(name))
        if name in values:
            new = str(values[name])
            value = fitting(F.col(quoted(new)), kinds[new], kinds[name], name)
        columns.append(value.alias(name))
    return rows.select(*columns)


def _column(expression: Expression) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def parameter(name: str) -> str:
    """Return the column that stands for the value `:name`.

    >>> parameter("day")
    '`_bucketlake_parameter_day`'
    """
    return quoted(_PARAMETER.format(name))


_PLACES = pa.schema([(RECORD_KEY_COLUMN, pa.string()), (PARTITION_PATH_COLUMN, pa.string())])


def check_matches(changes: DataFrame, clauses: Collection[Clause]) -> None:
    """Refuse several rows of the source for one of the table, of which at least one updates it."""
    if not any(clause.part is Part.MATCHED and clause.deed is Deed.UPDATE for clause in clauses):
        return
    is_update = F.max(F.col(OP) != str(Deed.DELETE))
    several = changes.where(F.col(_KEY).isNotNull()).groupBy(_KEY, _PATH)
    found = several.agg(F.count("*").alias("rows"), is_update.alias("updates"))
    for row in found.where("rows > 1 AND updates").limit(1).collect():
        raise ConfigError(
            f"{row.rows} rows of the source match the row with the key {_place(row[_KEY], row[_PATH])}, and at least "
            f"one of them updates it: which one counts is not known. Let the source have one row for each. Nothing "
            f"was written."
        )


def check_inserted(changes: DataFrame, known: DataFrame | None, rules: TableRules) -> None:
    """Refuse rows to be inserted with one key, or with a key that the table has.

    `known` has all rows of the table that may have such a key; None, if it is certain that there are none.
    """
    inserted = changes.where(F.col(OP) == str(Deed.INSERT)).drop(OP, _KEY, _PATH)
    places = inserted.mapInArrow(partial(_places, keys=rules.keys), ddl(_PLACES))
    identity = [RECORD_KEY_COLUMN] if rules.is_global else _PLACES.names
    twice = places.groupBy(*identity).agg(
        F.count("*").alias("rows"), F.first(PARTITION_PATH_COLUMN).alias("path")
    )
    for row in twice.where("rows > 1").limit(1).collect():
        raise ConfigError(
            f"{row.rows} rows of the source would be inserted with the key {_place(row[RECORD_KEY_COLUMN], row.path)}; "
            f"expected one. Let the source have one row for each key. Nothing was written."
        )
    if known is None:
        return
    there = places.join(known.select(*identity), identity, "left_semi")
    for row in there.limit(1).collect():
        raise ConfigError(
            f"a row would be inserted with the key {_place(row[RECORD_KEY_COLUMN], row[PARTITION_PATH_COLUMN])}, which "
            f"the table has, in a row that ON does not match with it. Put the columns of the key, and nothing else, "
            f"into ON, with <=> where they may be null, and conditions into WHEN. Nothing was written."
        )


def _place(key: str, path: str) -> str:
    return f"{key!r} in the partition {path!r}" if path else repr(key)


def _places(batches: Iterable[pa.RecordBatch], *, keys: KeyGenerator) -> Iterator[pa.RecordBatch]:
    """Spell the keys and partition paths of rows as the table does."""
    settle_worker()
    for batch in batches:
        yield pa.RecordBatch.from_arrays(
            [keys.record_keys(batch), keys.partition_paths(batch)], schema=_PLACES
        )
