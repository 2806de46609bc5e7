"""What a MERGE has to read of its table: no more than the rows of its source can match."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from bucketlake.read import RawFilter
from bucketlake.spark.conditions import Matching, filters_for, matching_of, source_column
from bucketlake.spark.merge import Deed, MergeSpec, Part, TableRules
from bucketlake.spark.types import arrow_schema, quoted
from bucketlake.write import tops_of

KEYS_MAX = 1_000
"""A source with more keys is not asked for them: they are in most file groups of most tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReads:
    """Conditions on rows of the table."""

    filters: tuple[RawFilter, ...] = ()
    """That every row which matches satisfies, or is changed because none does."""
    filters_of_inserted: tuple[RawFilter, ...] | None = ()
    """That every row satisfies whose key may be inserted; None if there is certainly no such row."""


def what_to_read(spec: MergeSpec, rules: TableRules, source: DataFrame) -> MergeReads:
    """Find out what a MERGE reads. `source` is evaluated, and must stay the same."""
    matching = matching_of(spec.on, spec.target, spec.source)
    of_key = [name.lower() for name in tops_of(rules.keys.record_key_fields)]
    by_key = all(name in matching.pairs for name in of_key) and of_key == [
        name.lower() for name in rules.keys.record_key_fields
    ]
    if any(clause.part is Part.NOT_MATCHED_BY_SOURCE for clause in spec.clauses):
        filters, keys = [], None
    else:
        filters = filters_for(matching.comparisons, rules.schema)
        keys = _keys_of(source, rules, [(name, matching.pairs[name]) for name in of_key]) if by_key else None
    inserts_its_key = by_key and all(_names_key(spec, matching, of_key))
    is_of_keys = inserts_its_key and matching.is_all and len(matching.pairs) == len(of_key)
    if is_of_keys and _is_known_by_match(source, rules, [(name, matching.pairs[name]) for name in of_key]):
        of_inserted = None  # what matches no key is new
    else:
        of_inserted = tuple(keys or ()) if inserts_its_key else ()
    return MergeReads(filters=(*filters, *(keys or ())), filters_of_inserted=of_inserted)


def _names_key(spec: MergeSpec, matching: Matching, of_key: list[str]) -> Iterator[bool]:
    """Tell of each INSERT whether its key is that of the source's row by which ON looks for a match."""
    for clause in spec.clauses:
        if clause.deed is Deed.INSERT:
            given = {name.lower(): value for name, value in clause.values or ()}
            for name in of_key:
                value = f"{quoted(spec.source)}.{quoted(name)}" if clause.values is None else given.get(name)
                yield source_column(value, spec.source) == matching.pairs[name]


def _keys_of(source: DataFrame, rules: TableRules, pairs: list[tuple[str, str]]) -> list[RawFilter] | None:
    """Return conditions that rows have which are equal to one of the source in these columns; None if those are many.

    A column is looked at if it has the type of the table's: then equal means the same to Spark and to us. One with a
    null gives no condition: the null may be part of a key of several columns.
    """
    fields = _fields_of(source, rules, pairs)
    if fields is None or not all(_is_alike(one.type, other.type) for one, other in fields):
        return None
    found = (
        source.select(*(quoted(other.name) for _, other in fields)).distinct().limit(KEYS_MAX + 1).toArrow()
    )
    if not 0 < found.num_rows <= KEYS_MAX:
        return None
    return [
        (one.name, "in", values.unique().to_pylist())
        for (one, _), values in zip(fields, found.columns, strict=True)
        if not values.null_count
    ]


def _is_known_by_match(source: DataFrame, rules: TableRules, pairs: list[tuple[str, str]]) -> bool:
    """Tell whether a row of the source that equals no key of the table has a key that the table has not.

    1.5 equals no whole number, and is inserted as 1. A null in one of several columns is part of a key, and to `=` it
    equals nothing.
    """
    fields = _fields_of(source, rules, pairs)
    if fields is None or not all(_keeps_value(one.type, other.type) for one, other in fields):
        return False
    if len(fields) == 1:
        return True  # no key of one column is null
    has_null = " OR ".join(f"{quoted(other.name)} IS NULL" for _, other in fields)
    return source.where(has_null).isEmpty()


def _fields_of(
    source: DataFrame, rules: TableRules, pairs: list[tuple[str, str]]
) -> list[tuple[pa.Field, pa.Field]] | None:
    """Return columns of the table and of the source; None if the source lacks one."""
    ours = {field.name.lower(): field for field in rules.schema}
    by_name = {name.lower(): name for name in source.columns}
    if not all(other in by_name for _, other in pairs):
        return None
    found = source.select(*(quoted(by_name[other]) for _, other in pairs)).schema
    theirs = {field.name.lower(): field for field in arrow_schema(found.jsonValue())}
    return [(ours[one], theirs[other]) for one, other in pairs]


def _is_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether values of two types are equal to us if they are to Spark."""
    kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_date)
    return bool(one == other) and any(is_of(one) for is_of in kinds)


def _keeps_value(one: pa.DataType, other: pa.DataType) -> bool:
    """Tell whether a value of the type `other` becomes the equal one of the type `one`, or none at all."""
    return bool(one == other) or (pa.types.is_integer(one) and pa.types.is_integer(other))
