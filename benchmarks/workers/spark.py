"""The questions, asked through a Spark session. Works on PySpark 3.5 and 4.1 alike.

A contestant on Spark differs in one thing: what its frame is. The frame is made anew for every question, as a
user's query would make it, so that listing and planning are part of every cost.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, conv, count, md5, substring
from pyspark.sql.functions import sum as total
from pyspark.sql.streaming import DataStreamWriter

COLUMNS = ["order_id", "customer_id", "status", "amount", "quantity", "sku", "note", "updated_at", "dt"]
"""As in `data`, which Hudi's interpreter cannot import."""

SETTINGS = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "4",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",  # Hudi insists, so everybody has it
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
"""The same for every contestant; what one needs beside them stands in its module."""

Aggregate = list[list[Any]]
"""Status, sum, count; the sum in cents, because the order of adding doubles is nobody's promise."""

Timed = list[list[Any]]
"""Milliseconds and rows of each lookup."""


class SparkWorker(ABC):
    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, session: SparkSession | None = None) -> None:
        self._session = session

    def start(self, driver_memory: str, folder: str) -> dict[str, str]:
        """Start Spark with its droppings in `folder`; return the versions that run."""
        os.environ["PYSPARK_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        builder = SparkSession.builder.appName(type(self).__name__)
        places = {"spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
        memory = {"spark.driver.memory": driver_memory}
        for name, value in {**SETTINGS, **places, **memory, **self.settings}.items():
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()
        java = self._session.sql(
            "SELECT java_method('java.lang.System', 'getProperty', 'java.version')"
        ).head()
        return {"spark": self._session.version, "java": str(java[0]) if java else "unknown"}

    def sink(self, frame: DataFrame, table: str, checkpoint: str) -> DataStreamWriter:
        """Return what upserts a stream into a merge-on-read table."""
        raise TypeError(f"{type(self).__name__} takes no streams")

    def stream(self, table: str, rows: str, checkpoint: str) -> dict[str, Any]:
        """Upsert the files of a folder, each as a batch.

        Return the seconds of the query, and the milliseconds of each batch.
        """
        files = len(list(Path(rows).glob("*.parquet")))
        self.session.conf.set("spark.sql.streaming.numRecentProgressUpdates", str(files + 10))
        reader = self.session.readStream.schema(self.session.read.parquet(rows).schema)
        arriving = reader.option("maxFilesPerTrigger", 1).parquet(rows)
        start = time.perf_counter()
        sink = self.sink(arriving, table, checkpoint).option("checkpointLocation", checkpoint)
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - start
        self.end_stream()
        told = [
            p if isinstance(p, dict) else json.loads(p.json) for p in query.recentProgress
        ]  # 3.5 has dicts
        # Who looks at a batch twice has twice its rows here, as Hudi's sink does.
        latencies = [batch["durationMs"]["triggerExecution"] for batch in told if batch["numInputRows"]]
        return {"seconds": seconds, "batches_ms": latencies}

    def end_stream(self) -> None:
        """Wait for what runs beside a stream, if that can be waited for."""
        return

    @abstractmethod
    def frame(self, table: str, columns: list[str]) -> DataFrame:
        """Return these columns of the whole table."""

    @abstractmethod
    def frame_of_key(self, table: str, order_id: str, dt: str | None) -> DataFrame:
        """Return the row with this key, in this partition or wherever it is."""

    def aggregate(self, table: str) -> Aggregate:
        grouped = self.frame(table, ["status", "amount"]).groupBy("status")
        rows = grouped.agg(total("amount"), count("*")).collect()
        return sorted([row[0], round(row[1] * 100), row[2]] for row in rows)

    def materialise(self, table: str) -> None:
        self.frame(table, COLUMNS).write.format("noop").mode("overwrite").save()

    def fingerprint(self, table: str) -> list[int]:
        """Return the count of rows and the sum of 32 bits of each row's md5."""
        cells = [col(name) for name in COLUMNS]
        cells[COLUMNS.index("amount")] = col("amount").cast("decimal(12,2)")
        digest = md5(concat_ws("|", *[cell.cast("string") for cell in cells]))
        bits = conv(substring(digest, 1, 8), 16, 10).cast("long")
        row = self.frame(table, COLUMNS).agg(count("*"), total(bits)).collect()[0]
        return [row[0], row[1]]

    def lookups(self, table: str, keys: list[list[str]], with_partition: bool) -> Timed:
        timed: Timed = []
        for order_id, dt in keys:
            timed.append(
                self.timed_rows(partial(self.frame_of_key, table, order_id, dt if with_partition else None))
            )
        return timed

    def timed_rows(self, frame: Callable[[], DataFrame]) -> list[Any]:
        """Return the milliseconds that making a frame and collecting it takes, and its rows."""
        start = time.perf_counter()
        rows = frame().collect()
        return [(time.perf_counter() - start) * 1000, [list(row) for row in rows]]

    def catalog_of(self, folder: str, kind: str, **settings: str) -> str:
        """Return the name of a catalog whose warehouse is a folder; there is one for each."""
        name = f"c{zlib.crc32(folder.encode()):08x}"
        self.session.conf.set(f"spark.sql.catalog.{name}", kind)
        for key, value in {"warehouse": f"file:{folder}", **settings}.items():
            self.session.conf.set(f"spark.sql.catalog.{name}.{key}", value)
        return name

    @property
    def session(self) -> SparkSession:
        assert self._session is not None, "`start` comes first"
        return self._session
