"""Which record keys the rows can have that some filters accept, by the secondary indexes of their columns.

`=`, `in` and `is null` on an indexed column have the index name record keys; the record-level index then names their
file groups, and the rows found there are filtered as always. Several such filters leave the keys that all of them name.

An index is asked when that pays, and where its answer is certain:

    pays      a filter has at most `COMBINATIONS_MAX` values, and at most `KEYS_ALWAYS` keys have them, or one in
              `ROWS_PER_KEY`. About how many there are at the least an index tells before they are read. Filters that
              pin few keys by themselves lead to few file groups without it
    certain   all writers spell the column's type alike, and its values are those in files, not those of paths

Indexes speak of now: who plans asks only for the newest snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError
from bucketlake.index import (
    RecordedIndex,
    SecondaryIndex,
    is_certain_for_reads,
    secondary_indexes_for_reads,
    secondary_indexes_of,
)
from bucketlake.keygen import KeyGenerator
from bucketlake.read.filters import Filter, Op
from bucketlake.read.path_columns import path_columns_of
from bucketlake.read.prune import COMBINATIONS_MAX
from bucketlake.state import TableState

KEYS_ALWAYS = 1_000
"""So many are looked up in some milliseconds."""
ROWS_PER_KEY = 1_000
"""To find a key and then its file group takes about 10 µs, and to read a row of a few columns 0.1: so an index that
spares nothing, because its keys are in all file groups, makes a read by a tenth slower at most."""
KEYS_MAX = 100_000
"""As `plan.KEYS_LOOKED_UP_MAX`."""
KEYS_FEW = 100
"""So many keys that filters pin lead to few enough file groups."""

_ASKED = (Op.EQ, Op.IN, Op.IS_NULL)


@dataclass(frozen=True, slots=True)
class AskedIndex:
    """What a secondary index said of a filter; prints as a line."""

    index: str
    column: str
    values: int
    keys: int | None
    """How many record keys have these values; None if the read does without."""
    why_not: str = ""

    def in_vain(self, why_not: str) -> AskedIndex:
        """Return the same for a read that does without it, for a reason of its own."""
        return self if self.keys is None else replace(self, keys=None, why_not=why_not)

    def __str__(self) -> str:
        asked = f"secondary index {self.index}: {self.values:,} value{'' if self.values == 1 else 's'} of {self.column}"
        if self.keys is None:
            return f"{asked}, not used: {self.why_not}"
        return f"{asked}, {self.keys:,} record key{'' if self.keys == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class KeysByValues:
    """The record keys that rows can have, and what was asked for them."""

    keys: pa.Array | None = None
    """None: any."""
    asked: tuple[AskedIndex, ...] = ()


Question = tuple[SecondaryIndex, Filter]


def questions_of(
    state: TableState, filters: Sequence[Filter], *, generator: KeyGenerator, schema: pa.Schema
) -> list[Question]:
    """Return the filters that a secondary index can be asked about, each with it."""
    conditions = [condition for condition in filters if condition.op in _ASKED]
    indexes = (
        {index.definition.column: index for index in secondary_indexes_for_reads(state)} if conditions else {}
    )
    from_paths = path_columns_of(generator, schema)
    return [
        (indexes[condition.column], condition)
        for condition in conditions
        if condition.column in indexes and condition.column not in from_paths
    ]


def keys_by_values(
    questions: Sequence[Question], recorded: RecordedIndex, *, schema: pa.Schema, pinned: pa.Array | None
) -> KeysByValues:
    """Ask the indexes; `pinned` are the keys that filters pin by themselves, and `recorded` knows where keys live."""
    if pinned is not None and len(pinned) <= KEYS_FEW:
        return KeysByValues()
    keys, asked = None, []
    for index, condition in questions:
        found, said = _ask(index, condition, schema.field(condition.column).type, recorded)
        asked.append(said)
        if found is not None:
            keys = found if keys is None else _in_both(keys, found)
    if keys is not None and pinned is not None:
        keys = _in_both(keys, pinned)
    return KeysByValues(keys, tuple(asked))


def check_indexed(state: TableState, column: str) -> None:
    """Raise `ConfigError` if no secondary index is of this column."""
    indexed = [index.definition.column for index in secondary_indexes_of(state)]
    if column not in indexed:
        raise ConfigError(
            f"{state.store.uri} has no secondary index of the column {column!r}; it has "
            f"{', '.join(indexed) or 'none of any'}. Create one: "
            f"table.create_index('by_{column}', on={column!r}). Or read without: table.read(spark, "
            f"filters=[({column!r}, '=', …)]), or table.to_arrow(filters=…) in this process."
        )


def _ask(
    index: SecondaryIndex, condition: Filter, kind: pa.DataType, recorded: RecordedIndex
) -> tuple[pa.Array | None, AskedIndex]:
    """Return the keys that an index names, None if the read does without, and what is to be said of it."""
    wanted = condition.value if condition.op is Op.IN else (condition.value,)
    name, column = index.definition.name, condition.column
    if not is_certain_for_reads(kind):
        why = f"not all writers spell a {kind} alike"
    elif len(wanted) > COMBINATIONS_MAX:
        why = f"more than {COMBINATIONS_MAX:,} values"
    else:
        found = index.record_keys_of(pa.array(wanted, kind), are_worth=partial(_pays, recorded))
        if found.keys is not None:
            return found.keys, AskedIndex(name, column, len(wanted), len(found.keys))
        why = found.why_not
    return None, AskedIndex(name, column, len(wanted), None, why)


def _pays(recorded: RecordedIndex, keys: int) -> bool:
    """Tell whether so many keys are worth being looked up."""
    if keys <= KEYS_ALWAYS:
        return True
    return keys <= min(KEYS_MAX, (recorded.about_how_many() or 0) // ROWS_PER_KEY)


def _in_both(keys: pa.Array, others: pa.Array) -> pa.Array:
    return keys.filter(pc.is_in(keys, value_set=others))
