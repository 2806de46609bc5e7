"""Apache Hudi on the JVM, behind a pipe.

Runs under the judge's own interpreter (PySpark 3.5, nothing else installed), reads one JSON object per line
and answers each with one. `hudi_jvm.py` is the other end. Rows travel as Parquet files, so that no type is lost
on the way; only `rows` and `sql` answer with Spark's own JSON.

    request := {"command": name, ...arguments}
    answer  := {"ok": value} | {"error": message}

Nothing else may reach the pipe: file descriptor 1 is pointed at the log before the JVM starts.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

HUDI_BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"

SPARK_SETTINGS = {
    "spark.jars.packages": HUDI_BUNDLE,
    "spark.driver.memory": "2g",
    # Instant times are written in the JVM's zone. The first compiler only: a test's JVM never lives long
    # enough to earn back what the second one costs. A JVM that ran out of memory gives no verdicts.
    "spark.driver.extraJavaOptions": (
        "-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError"
    ),
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # The default, INT96, would come back as nanoseconds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    judge = Judge(_start_spark())
    _send(answers, {"ok": "ready"})
    for line in sys.stdin:
        _send(answers, _answer(judge, json.loads(line)))


class Judge:
    """One method per command; the public names are the vocabulary of the pipe."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def ping(self) -> dict[str, str]:
        return {"spark": self._spark.version, "java": self._jvm.java.lang.System.getProperty("java.version")}

    def write(self, path: str, rows: str, required: list[str], options: dict[str, str], mode: str) -> None:
        frame = _with_required(self._spark.read.parquet(rows), required).coalesce(1)
        frame.write.format("hudi").options(**options).mode(mode).save(path)

    def stream(self, path: str, source: str, checkpoint: str, options: dict[str, str]) -> list[int]:
        schema = self._spark.read.parquet(source).schema
        arriving = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(source)
        query = (
            arriving.writeStream.format("hudi")
            .options(**options)
            .option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(availableNow=True)
            .start(path)
        )
        query.awaitTermination()
        return [progress["batchId"] for progress in query.recentProgress]

    def read(self, path: str, options: dict[str, str], target: str) -> None:
        self._load(path, options).coalesce(1).write.parquet(target)

    def rows(self, path: str, options: dict[str, str]) -> list[str]:
        return _json_lines(self._load(path, options))

    def sql(self, statements: list[str], settings: dict[str, str]) -> list[str]:
        """Run `statements` in a session of their own, so that no setting outlives the call."""
        session = self._spark.newSession()
        for name, value in settings.items():
            session.conf.set(name, value)
        frame = None
        for statement in statements:
            frame = session.sql(statement)
        return [] if frame is None else _json_lines(frame)

    def java(self, class_name: str, method: str, arguments: list[Any]) -> Any:
        """Call a static method; a list argument becomes a `java.util.List`, an odd result its `toString`."""
        target = self._jvm
        for part in class_name.split("."):
            target = getattr(target, part)
        return _from_java(getattr(target, method)(*[self._to_java(argument) for argument in arguments]))

    def hfile_keys(self, path: str) -> list[str]:
        """Return the keys of an HFile as Hudi's reader scans it."""
        reader = self._hfile(path)
        keys: list[str] = []
        more = reader.seekTo()
        while more:
            keys.append(reader.getKeyValue().get().getKey().getContentInString())
            more = reader.next()
        reader.close()
        return keys

    def hfile_found(self, path: str, keys: list[str]) -> list[bool]:
        """Say which of the ascending keys Hudi's reader finds."""
        reader = self._hfile(path)
        reader.seekTo()
        found = [reader.seekTo(self._jvm.org.apache.hudi.io.hfile.UTF8StringKey(key)) == 0 for key in keys]
        reader.close()
        return found

    def hfile_values(self, path: str, keys: list[str]) -> list[str]:
        """Return the values of ascending keys, as hexadecimal text. Each brings a whole block: ask for few."""
        reader = self._hfile(path)
        reader.seekTo()
        values: list[str] = []
        for key in keys:
            reader.seekTo(self._jvm.org.apache.hudi.io.hfile.UTF8StringKey(key))
            pair = reader.getKeyValue().get()
            start = pair.getValueOffset()
            values.append(pair.getBytes()[start : start + pair.getValueLength()].hex())
        reader.close()
        return values

    def hfile_write(self, path: str, records: dict[str, str], codec: str, block_bytes: int) -> None:
        """Write an HFile with Hudi's writer; values are hexadecimal text."""
        io = self._jvm.org.apache.hudi.io
        context = (
            io.hfile.HFileContext.builder()
            .blockSize(block_bytes)
            .compressionCodec(io.compress.CompressionCodec.valueOf(codec))
            .build()
        )
        writer = io.hfile.HFileWriterImpl(context, self._jvm.java.io.FileOutputStream(path))
        for key, value in records.items():
            writer.append(key, bytes.fromhex(value))
        writer.close()

    def _hfile(self, path: str) -> Any:
        io = self._jvm.org.apache.hudi.io
        data = Path(path).read_bytes()
        stream = io.ByteArraySeekableDataInputStream(io.ByteBufferBackedInputStream(data))
        reader = io.hfile.HFileReaderImpl(stream, len(data))
        reader.initializeMetadata()
        return reader

    @property
    def _jvm(self) -> Any:
        return self._spark.sparkContext._jvm

    def _load(self, path: str, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format("hudi").options(**options).load(path)

    def _to_java(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        items = self._jvm.java.util.ArrayList()
        for item in value:
            items.add(self._to_java(item))
        return items


def _start_spark() -> SparkSession:
    # One core: with two tasks at once Hudi's partition-level buckets fail now and then
    # (ConcurrentModificationException).
    builder = SparkSession.builder.master("local[1]").appName("hudi-judge")
    for name, value in SPARK_SETTINGS.items():
        builder = builder.config(name, value)
    # The client starts us in a folder that it removes with everything in it.
    builder = builder.config("spark.sql.warehouse.dir", str(Path("warehouse").absolute()))
    builder = builder.config("spark.local.dir", str(Path("spark").absolute()))
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _answer(judge: Judge, request: dict[str, Any]) -> dict[str, Any]:
    command: Callable[..., Any] = getattr(judge, request.pop("command"))
    try:
        return {"ok": command(**request)}
    except Py4JJavaError as error:
        return {"error": _causes(error.java_exception)}
    except PySparkException as error:
        origin = getattr(error, "_origin", None)
        return {"error": str(error) if origin is None else _causes(origin)}


def _causes(throwable: Any) -> str:
    """Return the whole chain: Hudi's reason is seldom in the outermost one."""
    lines: list[str] = []
    while throwable is not None:
        # Spark appends the stack of every failed task to its message.
        text = throwable.toString().split("\n\tat ")[0].strip()
        if text not in lines:
            lines.append(text)
        throwable = throwable.getCause()
    return "\nCaused by: ".join(lines)


def _with_required(frame: DataFrame, required: list[str]) -> DataFrame:
    """Mark columns as never null; Spark forgets that of every column it reads from a file."""
    types = {field.name: field.dataType for field in frame.schema.fields}
    for name in required:
        frame = frame.withColumn(name, F.coalesce(F.col(name), F.lit(0).cast(types[name])))
    return frame


def _json_lines(frame: DataFrame) -> list[str]:
    lines: list[str] = frame.toJSON().collect()
    return lines


def _from_java(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, bytes | bytearray):
        return list(value)
    if hasattr(value, "__iter__"):
        return [_from_java(item) for item in value]
    return value.toString()


def _send(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
