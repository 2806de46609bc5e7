"""Open a table that Apache Hudi wrote, look into it, read it on Spark, fetch a key, verify every row.

make demo
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bucketlake import Table
from bucketlake.cli import main as bucketlake

GOLDEN = Path(__file__).parent.parent / "tests/golden"
NAME = "mor_simple_bucket_avro"

console = Console()


def say(text: str) -> None:
    console.print(f"\n[bold cyan]{text}[/]")


def command(*words: str) -> None:
    """Run `bucketlake …` as a user would type it."""
    console.print(f"[dim]$ bucketlake {' '.join(words)}[/]", highlight=False)
    try:
        bucketlake(words)
    except SystemExit as stop:
        if stop.code:
            raise


def local_spark() -> SparkSession:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bucketlake demo")
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.log.level": "ERROR",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def rows_of(lines: list[str]) -> list[str]:
    """Rows as text that does not depend on the order of rows or columns."""
    return sorted(json.dumps(json.loads(line), sort_keys=True) for line in lines)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(GOLDEN / f"{NAME}.tar.gz") as archive:
            archive.extractall(folder, filter="data")
        path = str(Path(folder) / NAME)

        say(
            "A merge-on-read table that Hudi 1.2.0 wrote: base files, then updates, late rows and deletes in logs"
        )
        command("describe", path, "--buckets", "4")
        command("timeline", path)
        command("layout", path, "--buckets", "4")

        say("Read on Spark: no Hudi jar, the logs merged in Arrow")
        spark = local_spark()
        table = Table.open(path, buckets=4)
        frame = table.read(spark)
        frame.drop(*[c for c in frame.columns if c.startswith("_hoodie")]).orderBy("id").show()

        say("The same by name, with a filter: only the files that can hold the row are read")
        by_name = spark.read.format("bucketlake").option("buckets", "4").load(path)
        by_name.filter("id = 4").select("id", "name", "ts").show()

        say("One key, without a Spark job")
        command("get", path, "1", "--buckets", "4", "--columns", "id,name,ts,dt")

        say("Every row against what Hudi's own reader returned")
        expected = rows_of((GOLDEN / f"{NAME}.expected.jsonl").read_text().splitlines())
        found = rows_of([row[0] for row in frame.selectExpr("to_json(struct(*))").collect()])
        spark.stop()
        if found != expected:
            console.print("[bold red]the rows differ[/]")
            sys.exit(1)
        console.print(f"[bold green]{len(found)} rows, all equal[/]")


if __name__ == "__main__":
    main()
