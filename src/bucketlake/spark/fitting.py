"""Values of one type for a column of another."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 # the name everybody gives it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from bucketlake.errors import ConfigError

OWN_ERROR = f"{ConfigError.__module__}.{ConfigError.__name__}: "
"""Before the message of an error that is raised by an expression, so that it is known as one of ours."""

_NESTED = (ArrayType, MapType, StructType)


def fitting(column: Column, given: DataType | str, kind: DataType, name: str) -> Column:
    """Cast a value to the type of the column `name`.

    One that the type cannot hold is an error, also in a session where a cast would make a null of it.
    """
    if given == kind or kind.simpleString() == given:
        return column
    if isinstance(kind, _NESTED) and isinstance(given, _NESTED):
        return column  # A cast would make nulls inside of it that nobody sees; the table says what it takes.
    cast = column.try_cast(kind)
    problem = F.concat(
        F.lit(f"{OWN_ERROR}column {name} is {kind.simpleString()}, and cannot hold the value "),
        column.cast("string"),
    )
    return F.when(column.isNull() | cast.isNotNull(), cast).otherwise(F.raise_error(problem).cast(kind))
