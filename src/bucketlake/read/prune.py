"""Which partitions and file groups can hold a row that the filters accept.

Pruning may keep too much and must never keep too little: whatever is not
certain stays. Three kinds of certainty are used:

    partitions   the path of a partition tells the values of its columns
    file groups  equality on all hash fields tells the bucket
    record keys  equality on all key fields tells the keys, which an index may have recorded

Pure functions: they see names and values, never a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import Any

import pyarrow as pa

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index import Index, Pieces, hash_pieces, pieces_from_hash_values
from bucketlake.keygen import KeyGenerator, is_certain, never_holds_a_comma
from bucketlake.read.filters import Filter, Op, satisfied
from bucketlake.read.path_columns import path_columns_of
from bucketlake.schema import RECORD_KEY_COLUMN

COMBINATIONS_MAX = 10_000
"""Beyond this many keys in one filter, computing buckets, or looking keys up, costs more than it saves."""


def prune_partitions(
    partitions: Sequence[str], filters: Sequence[Filter], *, keys: KeyGenerator, schema: pa.Schema
) -> tuple[str, ...]:
    """Keep the partitions whose columns may satisfy all filters."""
    kept = list(partitions)
    columns = path_columns_of(keys, schema)
    for condition in filters:
        if condition.column in columns:
            kept = _keep(kept, condition, keys=keys, kind=schema.field(condition.column).type)
    return tuple(kept)


def named_partitions(
    filters: Sequence[Filter], *, keys: KeyGenerator, schema: pa.Schema
) -> frozenset[str] | None:
    """Return the partitions that the filters name, whether or not they are there; None if they leave it open.

    Only text is taken at its word: of a number somebody may have made a folder with leading zeros.
    """
    fields = keys.partition_fields
    names = [field.name for field in fields]
    if not fields or any(field.is_timestamp or field.slashes_dates for field in fields):
        return None
    if any(name not in schema.names or not pa.types.is_string(schema.field(name).type) for name in names):
        return None
    pinned = _pinned_values(filters, names, schema)
    if set(names) - set(pinned) or prod(len(pinned[name]) for name in names) > COMBINATIONS_MAX:
        return None
    rows = list(product(*([value.as_py() for value in pinned[name]] for name in names)))
    columns = {name: pa.array([row[n] for row in rows], pa.string()) for n, name in enumerate(names)}
    paths = keys.partition_paths(pa.table(columns)).to_pylist()
    try:
        for path in paths:
            keys.check_partition_path(path)
    except ConfigError:
        return None  # no writer of ours has made such a folder; whoever did is found by looking
    return frozenset(paths)


def _keep(partitions: list[str], condition: Filter, *, keys: KeyGenerator, kind: pa.DataType) -> list[str]:
    texts: list[str | None] = []
    for partition in partitions:
        values = keys.partition_values(partition)
        texts.append(None if values is None else values.get(condition.column))
    try:
        column = pa.array(texts, pa.string()).cast(kind)
    except pa.ArrowInvalid:  # a path that someone made by hand: nothing is certain
        return partitions
    # A null text stands for null or for a path that could not be read.
    verdict = satisfied(column, condition).to_pylist()
    return [p for p, text, ok in zip(partitions, texts, verdict, strict=True) if text is None or ok]


def hashed_pieces(
    filters: Sequence[Filter], *, keys: KeyGenerator, hash_fields: tuple[str, ...], schema: pa.Schema
) -> frozenset[Pieces] | None:
    """Return what the keys of the accepted rows are hashed from, or None if the filters do not pin it."""
    for condition in filters:
        if condition.column == RECORD_KEY_COLUMN and condition.op in _PINNING:
            return frozenset(hash_pieces(key, hash_fields) for key in _values(condition))
    pinned = _pinned_values(filters, keys.record_key_fields, schema)
    if not hash_fields or not set(hash_fields) <= set(pinned):
        return None
    if prod(len(values) for values in pinned.values()) > COMBINATIONS_MAX:
        return None
    # Only text can hold the separators of a key, and so disturb how its hash fields are read out of it.
    others_are_safe = all(
        field in schema.names and never_holds_a_comma(schema.field(field).type)
        for field in keys.record_key_fields
        if field not in pinned
    )
    found: set[Pieces] = set()
    for values in product(*pinned.values()):
        row = dict(zip(pinned, values, strict=True))
        pieces = pieces_from_hash_values(keys, hash_fields, row, other_fields_are_safe=others_are_safe)
        if pieces is None:
            return None
        found.add(pieces)
    return frozenset(found)


def pinned_record_keys(
    filters: Sequence[Filter], *, keys: KeyGenerator, schema: pa.Schema
) -> pa.Array | None:
    """Return the record keys that the accepted rows can have, or None if the filters do not pin them."""
    for condition in filters:
        if condition.column == RECORD_KEY_COLUMN and condition.op in _PINNING:
            values = _values(condition)
            return pa.array(values, pa.string()) if len(values) <= COMBINATIONS_MAX else None
    fields = keys.record_key_fields
    pinned = _pinned_values(filters, fields, schema)
    if not fields or set(fields) - set(pinned) or prod(map(len, pinned.values())) > COMBINATIONS_MAX:
        return None
    rows = list(product(*(pinned[field] for field in fields)))
    columns = {
        field: pa.array([row[n] for row in rows], schema.field(field).type) for n, field in enumerate(fields)
    }
    try:
        return keys.record_keys(pa.table(columns))
    except (ConfigError, UnsupportedError):
        return None  # one of them can be no key, or nobody here knows how they are spelled


_PINNING = (Op.EQ, Op.IN)


def _pinned_values(
    filters: Sequence[Filter], fields: Sequence[str], schema: pa.Schema
) -> dict[str, tuple[pa.Scalar, ...]]:
    """Return, for each field that `=` or `in` pins, the values it can take."""
    pinned: dict[str, tuple[pa.Scalar, ...]] = {}
    for condition in filters:
        if condition.op in _PINNING and condition.column in fields and condition.column not in pinned:
            kind = schema.field(condition.column).type
            if not is_certain(kind):
                continue
            try:
                pinned[condition.column] = tuple(pa.scalar(value, type=kind) for value in _values(condition))
            except pa.ArrowInvalid:  # a decimal beyond the column's scale
                continue
    return pinned


def _values(condition: Filter) -> tuple[Any, ...]:
    return condition.value if condition.op is Op.IN else (condition.value,)


def prune_file_groups(
    partition: str, file_ids: Iterable[str], pieces: frozenset[Pieces] | None, *, index: Index
) -> frozenset[str]:
    """Keep the file groups that may hold a key with these pieces."""
    ids = frozenset(file_ids)
    if pieces is None:
        return ids
    return index.file_groups(partition, ids, pieces)
