"""Make `keygen_vectors.json`: record keys and partition paths as Hudi's own key generators compute them.

    python keygen_vectors.py <hudi-spark3.5-bundle_2.12-1.2.0.jar> <keygen_vectors.json>

Needs PySpark 3.5 and a Java 17. The JVM runs in UTC, so answers that depend on the writer's zone are UTC's.
A value is written as `[type, value]`, in a form that both Avro and Arrow can be built from.
"""

import json
import sys
from decimal import Decimal, localcontext
from pathlib import Path

from pyspark.sql import SparkSession

AVRO = {
    "string": "string",
    "int": "int",
    "long": "long",
    "boolean": "boolean",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp_micros": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_millis": {"type": "long", "logicalType": "timestamp-millis"},
    "local_timestamp_micros": {"type": "long", "logicalType": "local-timestamp-micros"},
}
CLASSES = {
    "SIMPLE": "SimpleAvroKeyGenerator",
    "COMPLEX": "ComplexAvroKeyGenerator",
    "NON_PARTITION": "NonpartitionedAvroKeyGenerator",
    "TIMESTAMP": "TimestampBasedAvroKeyGenerator",
    "CUSTOM": "CustomAvroKeyGenerator",
}
HIVE = {"hoodie.datasource.write.hive_style_partitioning": "true"}
ENCODE = {"hoodie.datasource.write.partitionpath.urlencode": "true"}
SLASH = {"hoodie.datasource.write.slash.separated.date.partitioning": "true"}
LOGICAL = {"hoodie.datasource.write.keygenerator.consistent.logical.timestamp.enabled": "true"}
TIME = "hoodie.keygen.timebased."


def avro_type(name):
    if name.startswith("decimal"):
        precision, scale = (int(n) for n in name[len("decimal(") : -1].split(","))
        return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    return AVRO[name]


def avro_json(kind, value):
    if kind == "bytes":
        return bytes.fromhex(value).decode("latin-1")
    if kind.startswith("decimal"):
        scale = int(kind[len("decimal(") : -1].split(",")[1])
        with localcontext(prec=60):
            unscaled = int(Decimal(value).scaleb(scale))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True).decode("latin-1")
    return value


def record(jvm, values):
    fields, body = [], {}
    for name, (kind, value) in values.items():
        fields.append({"name": name, "type": ["null", avro_type(kind)]})
        plain = avro_type(kind)
        tag = plain if isinstance(plain, str) else plain["type"]
        body[name] = None if value is None else {tag: avro_json(kind, value)}
    text = json.dumps({"type": "record", "name": "row", "fields": fields})
    schema = jvm.org.apache.avro.Schema.Parser().parse(text)
    decoder = jvm.org.apache.avro.io.DecoderFactory.get().jsonDecoder(schema, json.dumps(body))
    return jvm.org.apache.avro.generic.GenericDatumReader(schema).read(None, decoder)


def ask(jvm, generator, keys, partitions, options, values):
    case = {
        "generator": generator,
        "record_key_fields": keys,
        "partition_fields": partitions,
        "options": options,
        "values": values,
    }
    properties = jvm.org.apache.hudi.common.config.TypedProperties()
    properties.put("hoodie.datasource.write.recordkey.field", ",".join(keys))
    properties.put("hoodie.datasource.write.partitionpath.field", ",".join(partitions))
    for name, value in options.items():
        properties.put(name, value)
    row = record(jvm, values)
    made = getattr(jvm.org.apache.hudi.keygen, CLASSES[generator])(properties)
    for answer, method in (("record_key", "getRecordKey"), ("partition_path", "getPartitionPath")):
        try:
            case[answer] = getattr(made, method)(row)
        except Exception as error:
            # PySpark wraps some Java exceptions in its own and leaves others to py4j.
            java = getattr(error, "java_exception", None)
            case[answer + "_error"] = str(error) if java is None else java.getMessage()
    return case


TEXTS = [
    "a",
    "a b",
    "",
    None,
    "ü/ö",
    "a=b",
    "a:b,c",
    "2024-01-02",
    "50%",
    "x\ty",
    "{[]}",
    "日本",
    "a'b\"c",
    "\x7f",
    "😀",
    "__HIVE_DEFAULT_PARTITION__",
    "\\back",
    "q?*#^",
]
TYPED = [
    ("int", -7),
    ("int", 2147483647),
    ("long", 9223372036854775807),
    ("long", -1),
    ("boolean", True),
    ("boolean", False),
    ("float", 1.5),
    ("float", 0.1),
    ("float", 1e10),
    ("float", 3.4028235e38),
    ("float", 1e-5),
    ("float", 16777216.0),
    ("double", 1.0),
    ("double", 0.1),
    ("double", 100.0),
    ("double", 1e7),
    ("double", 9999999.0),
    ("double", 12345678.9),
    ("double", 1e-3),
    ("double", 9.999e-4),
    ("double", 1e21),
    ("double", -0.0),
    ("double", 1.7976931348623157e308),
    ("double", 5e-324),
    ("double", 2e-3),
    ("double", 123456789012345680.0),
    ("double", 2.0**-44),
    ("double", 2e23),
    ("bytes", "00ff10"),
    ("bytes", ""),
    ("date", 0),
    ("date", 19724),
    ("date", -1),
    ("date", -719529),
    ("date", 2932897),
    ("timestamp_micros", 1704164645123456),
    ("timestamp_micros", -1),
    ("timestamp_micros", 1704164645000000),
    ("timestamp_micros", 1704164645120000),
    ("timestamp_micros", -1001),
    ("timestamp_millis", 1704164645123),
    ("local_timestamp_micros", 1704164645123456),
    ("decimal(10,2)", "12.50"),
    ("decimal(10,2)", "0.00"),
    ("decimal(10,8)", "0.00000001"),
    ("decimal(10,8)", "0"),
    ("decimal(10,8)", "-0.00000120"),
    ("decimal(10,7)", "0.0000012"),
    ("decimal(38,0)", "99999999999999999999999999999999999999"),
    ("decimal(20,0)", "-5"),
]
FORMATS = [
    "yyyy-MM-dd",
    "yyyy/MM/dd/HH",
    "yyyyMMddHHmmss",
    "yyyy-MM-dd'T'HH:mm:ss.SSSZ",
    "yy-M-d H:m:s.S",
    "yyyy-MM-dd HH:mm:ssZZ",
    "'d'''yyyy",
    "yyyy.MM.dd.SSSSSS",
    "hh",
    "y",
    "yyyyy",
]
ZONES = [None, "GMT+8:00", "Asia/Kolkata", "America/New_York", "GMT-03:30", "Nowhere/Here"]
MILLIS = [
    0,
    1,
    1704164645123,
    -1,
    1710054000000,
    253402300800000,
    -62135596800000,
    -62135596800001,
    -99999999999999,
]
INPUTS = [
    ("yyyy-MM-dd", "2024-03-10"),
    ("yyyy-MM-dd", "2024-3-1"),
    ("yyyy-MM-dd", "24-03-10"),
    ("yyyy-MM-dd", "2024-02-30"),
    ("yyyy-MM-dd", "2024-03-10 "),
    ("yyyy-MM-dd HH:mm:ss", "2024-03-10 02:30:00"),
    ("yyyy-MM-dd HH:mm:ss", "2024-11-03 01:30:00"),
    ("yyyyMMdd", "20240310"),
    ("yyyyMMdd", "202403"),
    ("yyyyMMdd", "2024031"),
    ("yyyyMMddHH", "2024031007"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2024-03-10T12:34:56.789+0530"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2024-03-10T12:34:56.789Z"),
    ("yyyy-MM-dd'T'HH:mm:ssZ", "2024-03-10T23:59:59-08:00"),
    ("yyyy-MM-dd'T'HH:mm:ssZZ", "2024-03-10T23:59:59-0800"),
    ("yyyy-MM-dd'T'HH:mm:ssZ", "2024-03-10T23:59:59-08"),
    ("yyyy-MM-dd HH:mm:ss.SSS", "2024-03-10 12:34:56.7"),
    ("yyyy-MM-dd HH:mm:ss.SSS", "2024-03-10 12:34:56.7891"),
    ("yyyy-MM-dd,yyyy/MM/dd HH", "2024/03/10 17"),
    ("yyyy-MM-dd, yyyyMMdd", "20240310"),
    ("yyyy", "2024"),
    ("yyyy-MM", "2024-13"),
    ("HH", "07"),
    ("yyyy-MM-dd", "02024-03-10"),
    ("yyyy-MM-dd", "-2024-03-10"),
    ("yyyy-MM-dd", "+2024-03-10"),
    ("yyyy-MM-dd", ""),
    ("yyyy-MM-dd", None),
    ("yyyy-MM-dd HH:mm", "2024-03-10 24:00"),
    ("MMyyyy", "032024"),
    ("yyyy-MM-dd'T'HH:mm:ss.S", "2024-03-10T12:34:56.7"),
    ("yyyy-MM-ddTHH", "2024-03-10T11"),
    ("MMM d", "Mar 1"),
]


def cases(jvm):
    key = {"id": ["string", "k"]}
    for text in TEXTS:
        value = ["string", text]
        for options in ({}, HIVE, ENCODE, HIVE | ENCODE, SLASH, HIVE | SLASH | ENCODE):
            yield ask(jvm, "SIMPLE", ["id"], ["p"], options, key | {"p": value})
            yield ask(jvm, "COMPLEX", ["id"], ["p"], options, key | {"p": value})
        for options in ({}, HIVE, HIVE | ENCODE, SLASH):
            yield ask(
                jvm,
                "COMPLEX",
                ["id", "k"],
                ["p", "q"],
                options,
                key | {"k": value, "p": value, "q": ["int", 3]},
            )
        yield ask(jvm, "SIMPLE", ["id"], ["p"], {}, {"id": value, "p": ["string", "x"]})
        yield ask(jvm, "NON_PARTITION", ["id"], [], {}, {"id": value})
        yield ask(jvm, "NON_PARTITION", ["id", "k"], [], {}, {"id": value, "k": value})
        yield ask(jvm, "COMPLEX", ["id"], ["p"], {}, {"id": value, "p": ["string", "x"]})
        for version, new in (("8", "false"), ("8", "true"), ("6", "false")):
            options = {"hoodie.write.table.version": version, "hoodie.write.complex.keygen.new.encoding": new}
            yield ask(jvm, "COMPLEX", ["id"], ["p"], options, {"id": value, "p": ["string", "x"]})
    for kind, value in TYPED:
        for options in ({}, LOGICAL):
            yield ask(jvm, "SIMPLE", ["id"], ["p"], options, {"id": [kind, value], "p": [kind, value]})
        yield ask(
            jvm,
            "COMPLEX",
            ["id", "k"],
            ["p"],
            {},
            {"id": [kind, value], "k": [kind, None], "p": [kind, value]},
        )
    for output in FORMATS:
        for zone in ZONES:
            options = {TIME + "timestamp.type": "EPOCHMILLISECONDS", TIME + "output.dateformat": output}
            options |= {} if zone is None else {TIME + "timezone": zone}
            for value in MILLIS if zone in (None, "America/New_York") else MILLIS[2:4]:
                yield ask(jvm, "TIMESTAMP", ["id"], ["p"], options, key | {"p": ["long", value]})
    short = {TIME + "output.dateformat": "yyyy-MM-dd HH:mm:ss.SSS"}
    for kind, values in {
        "UNIX_TIMESTAMP": [
            ["int", 1704164645],
            ["long", -1],
            ["double", 1.9],
            ["double", -1.9],
            ["float", 1.5],
            ["decimal(12,2)", "1.99"],
            ["date", 3],
            ["string", "5"],
            ["boolean", True],
            ["bytes", "00"],
            ["long", None],
            ["timestamp_micros", 1704164645],
        ],
        "EPOCHMILLISECONDS": [
            ["int", 5],
            ["timestamp_millis", 1704164645123],
            ["timestamp_micros", 1704164645123456],
            ["long", None],
        ],
        "EPOCHMICROSECONDS": [
            ["long", 1704164645123456],
            ["long", -1],
            ["long", -1001],
            ["timestamp_micros", 1704164645123456],
            ["local_timestamp_micros", 1704164645123456],
            ["long", None],
        ],
        "SCALAR": [["long", 5]],
        "MIXED": [["long", 5], ["string", "5"]],
    }.items():
        for value in values:
            for options in ({}, LOGICAL, HIVE, HIVE | ENCODE):
                yield ask(
                    jvm,
                    "TIMESTAMP",
                    ["id"],
                    ["p"],
                    short | {TIME + "timestamp.type": kind} | options,
                    key | {"p": value},
                )
    for unit in ("NANOSECONDS", "microseconds", "MILLISECONDS", "SECONDS", "MINUTES", "HOURS", "DAYS"):
        options = short | {TIME + "timestamp.type": "SCALAR", TIME + "timestamp.scalar.time.unit": unit}
        for value in (19724, -1, None):
            yield ask(jvm, "TIMESTAMP", ["id"], ["p"], options, key | {"p": ["long", value]})
    for kind in ("DATE_STRING", "MIXED"):
        for pattern, text in INPUTS:
            for zones in (
                {},
                {TIME + "timezone": "America/New_York"},
                {TIME + "input.timezone": "Asia/Kolkata"},
                {TIME + "output.timezone": "GMT+9:00"},
                {TIME + "input.timezone": "UTC", TIME + "output.timezone": "America/New_York"},
            ):
                options = {
                    TIME + "timestamp.type": kind,
                    TIME + "input.dateformat": pattern,
                    TIME + "output.dateformat": "yyyy-MM-dd HH:mm:ss.SSSZ",
                } | zones
                yield ask(jvm, "TIMESTAMP", ["id"], ["p"], options, key | {"p": ["string", text]})
    options = {
        TIME + "timestamp.type": "DATE_STRING",
        TIME + "input.dateformat": "yyyy-MM-dd;yyyy,MM,dd",
        TIME + "input.dateformat.list.delimiter.regex": ";",
        TIME + "output.dateformat": "yyyy/MM",
    }
    for more in ({}, HIVE, HIVE | ENCODE, SLASH):
        yield ask(jvm, "TIMESTAMP", ["id"], ["p"], options | more, key | {"p": ["string", "2024,03,10"]})
        for values in (
            {"p": ["string", "2024-03-10"], "q": ["string", "x/y"]},
            {"p": ["string", None], "q": ["string", None]},
        ):
            yield ask(jvm, "CUSTOM", ["id"], ["q:simple", "p:timestamp"], options | more, key | values)
            yield ask(jvm, "CUSTOM", ["id", "q"], ["p:TIMESTAMP"], options | more, key | values)
            yield ask(jvm, "CUSTOM", ["id"], [""], options | more, key | values)


def main(jar, target):
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jar)
        .config("spark.driver.extraClassPath", jar)
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    try:
        lines = [json.dumps(case) for case in cases(spark._jvm)]
    finally:
        spark.stop()
    Path(target).write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="ascii")
    print(len(lines), "cases")


if __name__ == "__main__":
    main(*sys.argv[1:])
