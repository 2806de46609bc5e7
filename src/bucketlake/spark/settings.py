"""Settings that spare a Spark session CPU time, if it has them from its start. Nothing needs them."""

from __future__ import annotations

from typing import Any

_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow's vectors in Java check every index, and Spark asks them for every value of rows that come from Python."""

SPARK_SETTINGS: dict[str, Any] = {
    "spark.python.daemon.module": "bucketlake.spark.daemon",
    "spark.driver.extraJavaOptions": _ARROW,
    "spark.executor.extraJavaOptions": _ARROW,
    # What tasks read and write goes from process to process; a Unix socket spares it the network's ways.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For `SparkSession.builder.config(map=SPARK_SETTINGS)`."""
