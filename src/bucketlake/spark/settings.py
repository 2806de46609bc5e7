"""Settings that spare a Spark session CPU time, if it has them from its start. Nothing needs them."""

from __future__ import annotations

import os
from typing import Any

from bucketlake.spark.python import python3_is_this

_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow's vectors in Java check every index, and Spark asks them for every value of rows that come from Python."""

DAEMON = {"spark.python.daemon.module": "bucketlake.spark.daemon"}
"""Every Python worker of the session then needs bucketlake, those that only make a frame of a list too."""

SPARK_SETTINGS: dict[str, Any] = {
    # Spark runs `python3` for such a list, unless it was told another. Without bucketlake it could not start there.
    **(DAEMON if "PYSPARK_PYTHON" in os.environ or python3_is_this() else {}),
    "spark.driver.extraJavaOptions": _ARROW,
    "spark.executor.extraJavaOptions": _ARROW,
    # What tasks read and write goes from process to process; a Unix socket spares it the network's ways.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For `SparkSession.builder.config(map=SPARK_SETTINGS)`."""
