"""PySpark's daemon, with bucketlake loaded before it forks workers: `spark.python.daemon.module=spark.warm_daemon`.

A worker ends with a task that fails, and loading bucketlake and what it needs takes a new one seconds. Suites in which
many tasks fail would spend most of their time so.
"""

from pyspark.daemon import manager

import bucketlake.spark.write  # noqa: F401 # to be there already in every worker

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call] # PySpark has no types there
