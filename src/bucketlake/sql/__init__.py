"""SQL over tables: the statements that are ours are read here, everything else is Spark's.

tokens.py   a statement's words, with their places
parse.py    text -> a statement, a frozen value
changes.py  MERGE INTO and UPDATE
namesakes.py    tables of ours in statements that are Spark's
parameters.py   values for :name and ?
create.py   CREATE TABLE, in Spark's form and in Flink's
call.py     CALL partition_bucket_index_manager
procedures.py   CALL of what tables can do, by the names of Python
frames.py   what a call returned, as a frame
sources.py  the tables a query reads, and what it wants of them
catalog.py  names -> paths, in a warehouse folder
run.py      a statement, carried out on a session
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["sql"]


def sql(
    spark: SparkSession,
    text: str,
    *,
    args: Mapping[str, Any] | Sequence[Any] | None = None,
    warehouse: str | PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Any:
    """Run one SQL statement. It names tables by their names, or by their paths: bucketlake.`/path`.

    Names come from the catalog in the folder `warehouse`, by default the session's `spark.sql.warehouse.dir`.
    `storage_options` are for object stores. `args` are values for `:name` in the statement, or a list of them for `?`.

    A query, SHOW and DESCRIBE return a DataFrame. INSERT, MERGE, UPDATE, DELETE and ALTER TABLE ... ADD COLUMNS return
    a `CommitSummary`, CREATE TABLE the `Table`, DROP TABLE what was dropped, CREATE and DROP INDEX what was built or
    dropped, and CALL a DataFrame of what was done or planned. Every other statement goes to `spark.sql` as it stands,
    unless it names a table of ours: then it is refused.
    """
    # Here, and not with the package: who only fetches a row needs neither pyspark nor an SQL parser.
    run = import_module("bucketlake.sql.run")
    return run.run(spark, text, args=args, warehouse=warehouse, storage_options=storage_options)
