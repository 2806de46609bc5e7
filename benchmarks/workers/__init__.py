"""The contestants. Each module is a process that answers the same few questions over a pipe.

    aggregate(table)        sum and count of the orders by status
    materialise(table)      every row, every column, to where it costs nothing to put it
    fingerprint(table)      the same rows as a count and a sum of hashes: how `materialise` is verified
    lookups(table, keys)    rows by key, each timed by itself
    load(table, rows)       a new table of the rows in a Parquet file
    upsert(table, rows)     the rows of a Parquet file into a table of its own

`hudi` runs under Hudi's interpreter, so this package, `pipe` and `spark` import nothing but PySpark.
"""
