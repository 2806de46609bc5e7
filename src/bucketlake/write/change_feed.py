"""What became of rows at their source: a column of theirs says it in a word, and here is what the words mean.

    insert          the row is there
    update_after    the row is there, and this is how it is now
    update_before   it was like this, and is not any more
    delete          it is gone

The words become numbers where rows first are columns, once, in whoever gives them their places. From there on a row has
the number instead (`ROW_CHANGE`), and `newest_changes` makes of all that is told of a key one thing to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, SchemaError, shown

ROW_CHANGE = "_bucketlake_row_change"
"""The column of rows, on their way to where all of a key come together, that says what became of each."""


class RowChange(IntEnum):
    """What became of a row at its source. Those that leave nothing behind come last."""

    INSERT = 0
    UPDATE_AFTER = 1
    UPDATE_BEFORE = 2
    DELETE = 3

    @property
    def word(self) -> str:
        return self.name.lower()


FIRST_WITHOUT_VALUES = RowChange.UPDATE_BEFORE
_UNKNOWN = -1
_SHOWN = 60
_WORDS = {
    RowChange.INSERT: ("insert", "c", "r", "+i"),
    RowChange.UPDATE_AFTER: ("update", "u", "update_after", "update_postimage", "+u"),
    RowChange.UPDATE_BEFORE: ("update_before", "update_preimage", "-u"),
    RowChange.DELETE: ("delete", "d", "-d"),
}
KNOWN_WORDS: Mapping[str, RowChange] = {word: change for change, words in _WORDS.items() for word in words}
"""The words of Debezium (r is a row of a snapshot, and u an after image), of Flink, and of Delta, in lower case."""


@dataclass(frozen=True, slots=True)
class ChangeFeed:
    """Rows of which a column says what became of them."""

    column: str
    words: Mapping[str, RowChange]
    """In lower case."""
    dates_deletes: bool = True
    """Whether a delete counts by its ordering value, as rows do. Otherwise it deletes what is there, whatever that has,
    and a row that comes later may have a smaller value than the one that went."""

    @classmethod
    def of(cls, column: str, more: Mapping[str, str] | None = None) -> ChangeFeed:
        """Make one of a column's name and of words beyond those that are known, or with other meanings.

        >>> ChangeFeed.of("op", {"X": "delete"}).meaning("x")
        <RowChange.DELETE: 3>
        """
        told = {word.lower(): _change(text, word) for word, text in (more or {}).items()}
        return cls(column, {**KNOWN_WORDS, **told})

    def meaning(self, word: str | None) -> RowChange | None:
        """Return what a word means; None if nobody has said. The slow, readable twin of `numbers`."""
        return None if word is None else self.words.get(word.lower())

    def numbers(self, values: Any) -> npt.NDArray[np.int8]:
        """Return a `RowChange` for each word of a column. ConfigError for words that nobody has explained."""
        encoded = pc.cast(values, pa.string()).dictionary_encode()
        encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
        meanings = [self.meaning(word) for word in encoded.dictionary.to_pylist()]
        # The last one is for nulls.
        of_words = np.array([_UNKNOWN if m is None else m for m in [*meanings, None]], np.int8)
        found: npt.NDArray[np.int8] = of_words[pc.fill_null(encoded.indices, len(meanings)).to_numpy()]
        is_unknown = found == _UNKNOWN
        if is_unknown.any():
            first = values[int(np.argmax(is_unknown))].as_py()
            raise self._unknown(first, int(is_unknown.sum()))
        return found

    def told(self, rows: pa.RecordBatch, *, keeps_column: bool) -> pa.RecordBatch:
        """Return rows with numbers for the words; and with the words too, if the table has a column of that name."""
        numbers = pa.array(self.numbers(rows.column(self.column)))
        rows = rows if keeps_column else rows.drop_columns([self.column])
        return rows.append_column(ROW_CHANGE, numbers)

    def is_of_deletes(self, words: Any) -> bool:
        """Tell whether there are rows, and none of them has values to be written."""
        return len(words) > 0 and bool((self.numbers(words) >= FIRST_WITHOUT_VALUES).all())

    def check_columns(self, incoming: pa.Schema) -> None:
        """Refuse rows that do not have the column, or have no words in it."""
        if self.column not in incoming.names:
            alike = [name for name in incoming.names if name.lower() == self.column.lower()]
            hint = f" Did you mean {alike[0]!r}?" if alike else ""
            raise SchemaError(
                f"op is {self.column!r}, and the rows to write have no column of that name; they have "
                f"{', '.join(incoming.names)}.{hint}"
            )
        kind = incoming.field(self.column).type
        if not _is_text(kind):
            raise SchemaError(
                f"column {self.column!r}, which is to say what became of rows, is {kind}; expected text, such as "
                f"'insert'. Cast it, and say with op_words what the texts mean."
            )

    def columns(self, incoming: pa.Schema, stored: pa.Schema) -> pa.Schema:
        """Return the columns that rows bring to a table: all but the one with the words, unless the table has it.

        A null in a column that the table has without nulls is that of a row which goes, and does not change the table.
        """
        self.check_columns(incoming)
        required = {column.name for column in stored if not column.nullable}
        return pa.schema(
            [
                column.with_nullable(column.nullable and column.name not in required)
                for column in incoming
                if column.name != self.column or column.name in stored.names
            ]
        )

    def _unknown(self, word: str | None, count: int) -> ConfigError:
        where = f"column {self.column!r}, in at least {count:,} {'row' if count == 1 else 'rows'}"
        if word is None:
            return ConfigError(
                f"{where}, is null, and is to say what became of each; expected one of {', '.join(self.words)}. Say in "
                f"the column what they are, or filter these rows out. Nothing was written."
            )
        word = word if len(word) <= _SHOWN else word[:_SHOWN] + "…"
        return ConfigError(
            f"{where}, has words that nobody has explained, such as {word!r}; known are {', '.join(self.words)}. Say "
            f"what it means: op_words={{{word!r}: 'delete'}} (--op-word), or another of {_names(RowChange)}. Or filter "
            f"these rows out. Nothing was written."
        )


def _change(text: str, word: str) -> RowChange:
    for change in RowChange:
        if change.word == text:
            return change
    raise ConfigError(
        f"op_words says that {word!r} means {shown(text)}; expected one of {_names(RowChange)}."
    )


def _names(changes: Iterable[RowChange]) -> str:
    return ", ".join(change.word for change in changes)


def _is_text(kind: pa.DataType) -> bool:
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_string(values) or pa.types.is_large_string(values) or pa.types.is_string_view(values)
    )
