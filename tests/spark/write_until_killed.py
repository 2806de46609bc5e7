"""A write whose driver is killed in the middle: started by a test, which waits for the fault and kills it."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bucketlake import Table
from bucketlake.spark.write import FrameRows
from bucketlake.write import Operation, run_write
from spark.faults import Fault, FaultyRows
from spark.orders import frame_of, orders


def main(table: Path, faults: Path) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:TieredStopAtLevel=1")
        .getOrCreate()
    )
    batch = [*orders(range(100), version=2), *orders(range(1_000, 1_020), version=2, days=["2026-07-01"])]
    rows = FaultyRows(FrameRows(frame_of(spark, batch)), Fault(folder=faults, step="data", nth=2, waits=True))
    run_write(rows, Table.open(table).store, Operation.UPSERT)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
