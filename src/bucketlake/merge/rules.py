"""What decides between two versions of a record, as the table's properties say it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from bucketlake.config import MergeMode
from bucketlake.errors import ConfigError
from bucketlake.schema import RECORD_KEY_COLUMN

IS_DELETED_COLUMN = "_hoodie_is_deleted"
"""An ordinary column of the table; a log row in which it is true is a delete."""

OPERATION_COLUMN = "_hoodie_operation"
"""A meta column of changelog tables: I, U, -U or D."""

DELETE_OPERATIONS = ("D", "-U")
"""-U is the old half of an update: its row must go, the new half follows as U."""


@dataclass(frozen=True, slots=True)
class MergeRules:
    """How a table merges; the same for all of its file slices."""

    mode: MergeMode
    """`hoodie.record.merge.mode`"""

    ordering_fields: tuple[str, ...]
    """`hoodie.table.ordering.fields`. A dot leads into a struct, as in Hudi."""

    delete_field: str | None = None
    """`hoodie.payload.delete.field`: a log row is a delete if this column ..."""

    delete_marker: str | None = None
    """`hoodie.payload.delete.marker`: ... reads like this."""

    def __post_init__(self) -> None:
        if bool(self.delete_field) != bool(self.delete_marker):
            raise ConfigError(
                f"hoodie.payload.delete.field is {self.delete_field!r} and hoodie.payload.delete.marker is "
                f"{self.delete_marker!r}. A custom delete needs both; set the missing one in "
                f"hoodie.properties or remove the other."
            )

    @property
    def by_commit_time(self) -> bool:
        """Whether the later write wins, whatever the rows say.

        Event time without an ordering field is the same thing: Hudi then gives
        every record the ordering value 0, and of equals the later one wins.
        """
        return self.mode == MergeMode.COMMIT_TIME_ORDERING or not self.ordering_fields

    def columns(self, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a table with `schema` that merging reads, whatever a query asks for.

        >>> rules = MergeRules(MergeMode.EVENT_TIME_ORDERING, ("ts",))
        >>> rules.columns(pa.schema(dict.fromkeys(["_hoodie_record_key", "city", "ts"], pa.string())))
        ('_hoodie_record_key', 'ts')
        """
        names = [RECORD_KEY_COLUMN]
        if not self.by_commit_time:
            names += [top_level(name, schema) for name in self.ordering_fields]
        names += [IS_DELETED_COLUMN, OPERATION_COLUMN]
        if self.delete_field:
            names.append(top_level(self.delete_field, schema))
        return tuple(name for name in dict.fromkeys(names) if name in schema.names)


def top_level(name: str, schema: pa.Schema) -> str:
    """Return the column of `schema` that holds the possibly nested field `name`."""
    return name if name in schema.names else name.split(".", 1)[0]
