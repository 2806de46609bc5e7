"""Spark Connect, where a session is a client's: the scenarios, and the bar. Run by `processes.run_script`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder

from servers.s3 import free_port
from spark.orders import Place, orders
from spark.processes import run_cases
from spark.progress_cases import a_bar_counts_tasks, a_bar_that_breaks_does_not_break_the_work
from spark.stream_cases import CONNECT_CASES
from spark.write_scenarios import SCENARIO_CASES

BAR_CASES: dict[str, Callable[[Place], None]] = {
    "a bar counts tasks": lambda place: a_bar_counts_tasks(place.spark),
    "a bar that breaks does not break the work": lambda place: a_bar_that_breaks_does_not_break_the_work(
        place.spark
    ),
}


def a_table_is_a_stream(place: Place) -> None:
    """The batches go to files: a function of batches would run in the server, without the client's classes."""
    table = place.new_table("streamed", "MERGE_ON_READ")
    out, counts = f"{place.root}/streamed-out", []
    for ids in (range(10), range(5, 12)):
        table.upsert(place.rows(orders(ids, version=len(ids))))
        table.delete(place.rows(orders([ids.start], version=0)))
        stream = place.spark.readStream.format("bucketlake").options(columns="id,version", op="op")
        query = (
            stream.load(table.store.uri)
            .writeStream.format("parquet")
            .option("checkpointLocation", f"{place.root}/streamed-checkpoint")
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(60)
        found = place.spark.read.parquet(out).groupBy("op").count().collect()
        counts.append({row["op"]: row["count"] for row in found})
    # Of the second seven, five are late: two are new, and one of the others is deleted.
    assert counts == [{"insert": 9}, {"insert": 11, "delete": 1}], counts


STREAM_CASES: dict[str, Callable[[Place], None]] = {"a table is a stream": a_table_is_a_stream}


def main(folder: Path) -> int:
    port = free_port()
    # The port of a local server is fixed, and another's may be there.
    with mock.patch.object(DefaultChannelBuilder, "default_port", return_value=port):
        spark = (
            SparkSession.builder.remote("local[2]")
            .config("spark.connect.grpc.binding.port", str(port))
            .config("spark.connect.progress.reportInterval", "100ms")
            .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC -XX:TieredStopAtLevel=1")
            .config("spark.python.daemon.module", "bucketlake.spark.daemon")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.log.level", "OFF")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
    place = Place(spark, str(folder))
    cases = SCENARIO_CASES | BAR_CASES | STREAM_CASES | CONNECT_CASES
    return run_cases({name: partial(case, place) for name, case in cases.items()}, folder)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
