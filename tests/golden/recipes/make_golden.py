"""How the golden tables were made: each function below lets Hudi 1.2.0 write one of them, or a few in a row.

    PYTHONPATH=tests python tests/golden/recipes/make_golden.py OUT [RECIPE ...]

writes `<name>.tar.gz` and `<name>.expected.jsonl` into the folder OUT. Instant times and file ids differ at every run,
so the tables in `tests/golden` are never made anew to please a test; these recipes say what is in them, and make
further ones.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from judges.hudi_jvm import QUIET, HudiJvm, JudgeError, options_for
from judges.random_tables import CONSISTENT_OPTIONS, completed_instants

MOR = "MERGE_ON_READ"
COW = "COPY_ON_WRITE"

ORDERS = pa.schema([("id", pa.int32()), ("name", pa.string()), ("ts", pa.int64()), ("dt", pa.string())])
WITH_DELETE_FIELD = ORDERS.append(pa.field("_hoodie_is_deleted", pa.bool_()))
WITH_ARRAY = ORDERS.append(pa.field("arr", pa.list_(pa.string())))


@dataclass(frozen=True)
class Bench:
    """The judge, a folder to work in and a folder for what is kept."""

    hudi: HudiJvm
    folder: Path
    out: Path

    def path(self, name: str) -> Path:
        return self.folder / name

    def keep(self, name: str, *, of: str | None = None) -> None:
        """Pack table `of` (by default, `name`) as it is now, with the rows Hudi reads from it."""
        table = self.path(of or name)
        # Spark's lines as they are: parsing a number would round the widest decimals.
        lines = sorted(self.hudi.rows_json(table), key=_place)
        (self.out / f"{name}.expected.jsonl").write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )
        with tarfile.open(self.out / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(table, name, filter=_without_checksums)


def rows(*values: tuple[Any, ...], schema: pa.Schema = ORDERS) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema=schema)


TWELVE = rows(*[(n, f"n{n}", 100, f"p{n % 2}") for n in range(12)])
UPDATE_STALE_NEW = rows((1, "n1-u", 101, "p1"), (2, "n2-stale", 99, "p0"), (20, "n20", 101, "p0"))
GONE = rows((3, "", 102, "p1"))
VIRTUAL_KEYS = {"hoodie.populate.meta.fields": "false"}


# ── bucket tables ───────────────────────────────────────────────────────────────────────────────────────────────────


def three_commits(bench: Bench, name: str, table_type: str, **more: str) -> None:
    """Upsert twelve rows; upsert an update, a stale row and a new one; delete a key."""
    options = options_for(name, table_type=table_type, more=more)
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), UPDATE_STALE_NEW, options)
    bench.hudi.write(bench.path(name), GONE, options, operation="delete")
    bench.keep(name)


def cow_simple_bucket(bench: Bench) -> None:
    three_commits(bench, "cow_simple_bucket", COW)


def mor_simple_bucket_parquet_log(bench: Bench) -> None:
    three_commits(
        bench, "mor_simple_bucket_parquet_log", MOR, **{"hoodie.logfile.data.block.format": "parquet"}
    )


def mor_v8(bench: Bench) -> None:
    three_commits(bench, "mor_v8", MOR, **_version(8))


def mor_v6(bench: Bench) -> None:
    three_commits(bench, "mor_v6", MOR, **_version(6))


def cow_virtual_keys(bench: Bench) -> None:
    three_commits(bench, "cow_virtual_keys", COW, **VIRTUAL_KEYS)


def mor_virtual_keys(bench: Bench) -> None:
    three_commits(bench, "mor_virtual_keys", MOR, **VIRTUAL_KEYS)


def mor_simple_bucket_avro(bench: Bench) -> None:
    name = "mor_simple_bucket_avro"
    options = options_for(name, table_type=MOR)
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), UPDATE_STALE_NEW, options)
    bench.hudi.write(
        bench.path(name), rows((3, "", 102, "p1"), (5, "", 1, "p1")), options, operation="delete"
    )
    soft = rows(
        (4, "n4-u", 103, "p0", False),
        (6, "n6-del", 103, "p0", True),
        (7, "n7-staledel", 1, "p1", True),
        schema=WITH_DELETE_FIELD,
    )
    bench.hudi.write(bench.path(name), soft, options)
    bench.keep(name)


def mor_commit_time_ordering(bench: Bench) -> None:
    name = "mor_commit_time_ordering"
    options = options_for(name, table_type=MOR, ordering=None)
    older = rows((1, "n1-u", 101, "p1"), (2, "n2-older-but-wins", 99, "p0"), (20, "n20", 101, "p0"))
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), older, options)
    bench.hudi.write(bench.path(name), GONE, options, operation="delete")
    bench.keep(name)


def mor_multi_ordering(bench: Bench) -> None:
    name = "mor_multi_ordering"
    schema = pa.schema([*list(ORDERS)[:3], ("seq", pa.int32()), *list(WITH_DELETE_FIELD)[3:]])
    options = options_for(name, table_type=MOR, ordering="ts,seq")
    first = rows(*[(n, f"n{n}", 100, 5, "p0", False) for n in range(6)], schema=schema)
    second = rows(
        (0, "stale", 100, 4, "p0", False),
        (1, "newer", 100, 6, "p0", False),
        (2, "del", 100, 6, "p0", True),
        (3, "staledel", 100, 4, "p0", True),
        schema=schema,
    )
    bench.hudi.write(bench.path(name), first, options)
    bench.hudi.write(bench.path(name), second, options)
    bench.keep(name)


def mor_nonpartitioned(bench: Bench) -> None:
    name = "mor_nonpartitioned"
    options = options_for(
        name, table_type=MOR, partition="", more=_key_generator("NonpartitionedKeyGenerator")
    )
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), rows((1, "n1-u", 101, "p1"), (20, "n20", 101, "p0")), options)
    bench.keep(name)


def cow_complex_single_key(bench: Bench) -> None:
    name = "cow_complex_single_key"
    options = options_for(name, more=_key_generator("ComplexKeyGenerator"))
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), rows((1, "n1-u", 101, "p1")), options)
    bench.keep(name)


def cow_composite_keys(bench: Bench) -> None:
    name = "cow_composite_keys"
    schema = pa.schema(
        [
            ("k1", pa.string()),
            ("k2", pa.int32()),
            ("name", pa.string()),
            ("ts", pa.int64()),
            ("dt", pa.string()),
            ("hh", pa.string()),
        ]
    )
    more = {
        **_key_generator("ComplexKeyGenerator"),
        "hoodie.bucket.index.hash.field": "k1",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.partitionpath.urlencode": "true",
    }
    options = options_for(name, key="k1,k2", partition="dt,hh", more=more)
    first = rows(
        ("a", 1, "x", 1, "2024/01/01", "00"),
        ("b", 2, "x", 1, "2024-01-02", "01"),
        ("", 3, "empty", 1, "d", "h"),
        ("é中", 4, "nonascii", 1, "dé", "h h"),
        (None, 5, "nullpart", 1, "d", "h"),
        ("a:b,c", 6, "seps", 1, "d=1", "h%"),
        schema=schema,
    )
    second = rows(
        ("a", 1, "x-u", 2, "2024/01/01", "00"),
        ("b", 9, "new", 2, "", "h"),
        ("c", 10, "nullpartition", 2, None, "h"),
        schema=schema,
    )
    bench.hudi.write(bench.path(name), first, options)
    bench.hudi.write(bench.path(name), second, options)
    bench.keep(name)


def mor_bulk_insert_bucket(bench: Bench) -> None:
    name = "mor_bulk_insert_bucket"
    options = options_for(name, table_type=MOR)
    bench.hudi.write(bench.path(name), TWELVE, options, operation="bulk_insert")
    bench.hudi.write(bench.path(name), rows((1, "n1-u", 101, "p1")), options)
    bench.keep(name)


def cow_partition_bucket_df(bench: Bench) -> None:
    """Partition-level counts by a write option only: Hudi writes no `.hashing_config` then."""
    name = "cow_partition_bucket_df"
    more = {
        "hoodie.bucket.index.partition.expressions": "p1,3",
        "hoodie.bucket.index.partition.rule.type": "regex",
    }
    bench.hudi.write(bench.path(name), TWELVE, options_for(name, buckets=2, more=more))
    bench.keep(name)


def mor_partition_bucket(bench: Bench) -> None:
    """A SQL table with partition rules, kept before and after two rescales."""
    name = "mor_partition_bucket"
    days = ["2024-01-01", "2024-02-01", "2024-03-01"]
    values = ", ".join(f"({n}, 'n{n}', 100, '{days[n % 3]}')" for n in range(24))
    bench.hudi.sql(
        f"""CREATE TABLE {name} (id int, name string, ts long, dt string) USING hudi PARTITIONED BY (dt)
        LOCATION '{bench.path(name)}' TBLPROPERTIES (
          type = 'mor', primaryKey = 'id', preCombineField = 'ts',
          'hoodie.index.type' = 'BUCKET', 'hoodie.bucket.index.num.buckets' = '2',
          'hoodie.bucket.index.partition.expressions' = '2024-01-0[12],4;2024-02-.*,8',
          'hoodie.bucket.index.partition.rule.type' = 'regex',
          'hoodie.metadata.enable' = 'false', 'hoodie.index.bloom.num_entries' = '20')""",
        f"INSERT INTO {name} VALUES {values}",
        settings=QUIET,
    )
    bench.keep(f"{name}_before", of=name)
    bench.hudi.sql(
        f"""CALL partition_bucket_index_manager(table => '{name}', dry_run => false,
            overwrite => '2024-01-01,3;2024-02-.*,8', bucket_number => 2)""",
        f"CALL partition_bucket_index_manager(table => '{name}', dry_run => false, add => '2024-03-01,5')",
        settings=QUIET,
    )
    bench.keep(name)


def mor_consistent(bench: Bench) -> None:
    """Forty keys through a split and a merge, kept at five moments; both resizes are written into while pending."""
    name = "mor_consistent"
    options = options_for(name, table_type=MOR, more=CONSISTENT_OPTIONS)

    def upsert(keys: range, label: str, ts: int, *more: tuple[Any, ...]) -> None:
        changed = [(n, f"n{n}{label}", ts, "p0") for n in keys]
        bench.hudi.write(bench.path(name), rows(*changed, *more), options)

    def resize(operation: str, file_size_max: int) -> None:
        given = {**options, "hoodie.parquet.max.file.size": str(file_size_max)}
        text = ",".join(f"{key}={value}" for key, value in given.items() if key != "hoodie.table.name")
        bench.hudi.sql(
            f"CALL run_clustering(path => '{bench.path(name)}', op => '{operation}', options => '{text}')"
        )

    upsert(range(40), "", 100)
    upsert(range(0, 40, 5), "-u", 101)
    bench.keep(f"{name}_0_before", of=name)
    resize("schedule", 1000)
    upsert(range(1, 40, 7), "-during", 102, (100, "n100", 102, "p0"))
    bench.keep(f"{name}_1_pending_split", of=name)
    resize("execute", 1000)
    bench.keep(f"{name}_2_after_split", of=name)
    upsert(range(2, 40, 9), "-after", 103)
    resize("schedule", 120_000_000)
    upsert(range(3, 40, 9), "-dm", 104)
    bench.keep(f"{name}_3_pending_merge", of=name)
    resize("execute", 120_000_000)
    upsert(range(4, 40, 9), "-end", 105)
    bench.keep(f"{name}_4_after_merge", of=name)


# ── types, partial updates, other indexes ───────────────────────────────────────────────────────────────────────────

EVERY_TYPE = """
    SELECT 1 id, 100L ts, 'p0' dt, true b, cast(1 AS tinyint) ti, cast(2 AS smallint) si, cast(1.5 AS float) f, 2.5D d,
      cast(12345.67 AS decimal(10,2)) dec, cast(1.123456789012345678 AS decimal(38,18)) dec2, date'2024-01-02' dd,
      timestamp'2024-01-02 03:04:05.678901' tm, cast('2024-01-02 03:04:05.678901' AS timestamp_ntz) tn,
      binary('abc') bin, array(1, 2) arr, array('a', 'b') sarr, map('k', 1) m, named_struct('x', 1, 'y', 'z') st,
      array(named_struct('q', 1)) ast, map('k', array(1.5D)) ma
    UNION ALL SELECT 2, 100L, 'p0', null, null, null, null, null, null, null, null, null, null, null, null, null, null,
      null, null, null
"""


def all_types(bench: Bench) -> None:
    """Every column type, in a base file, an Avro log block and a Parquet log block; row 2 is all null."""
    source = bench.folder / "every_type"
    bench.hudi.sql(f"INSERT OVERWRITE DIRECTORY '{source}' USING parquet {EVERY_TYPE}")
    first = pq.read_table(source)
    second = first.set_column(1, "ts", pc.add(first.column("ts"), 1))
    bench.hudi.write(bench.path("cow_all_types"), first, options_for("cow_all_types"))
    bench.keep("cow_all_types")
    for name, block in (("mor_all_types", "avro"), ("mor_all_types_parquet_log", "parquet")):
        options = options_for(name, table_type=MOR, more={"hoodie.logfile.data.block.format": block})
        bench.hudi.write(bench.path(name), first, options)
        bench.hudi.write(bench.path(name), second, options)
        bench.keep(name)


def mor_partial_update(bench: Bench) -> None:
    name = "mor_partial_update"
    bench.hudi.sql(
        f"""CREATE TABLE {name} (id int, name string, price double, ts long, dt string) USING hudi PARTITIONED BY (dt)
        LOCATION '{bench.path(name)}' TBLPROPERTIES (
          type = 'mor', primaryKey = 'id', preCombineField = 'ts', 'hoodie.metadata.enable' = 'false')""",
        f"INSERT INTO {name} VALUES (1, 'a', 1.0, 100, 'p0'), (2, 'b', 2.0, 100, 'p0'), (3, 'c', 3.0, 100, 'p0')",
        f"""MERGE INTO {name} t USING (
              SELECT 1 AS id, 9.5D AS price, 101L AS ts, 'p0' AS dt UNION ALL SELECT 2, 8.5D, 50L, 'p0'
            ) s ON t.id = s.id AND t.dt = s.dt
            WHEN MATCHED THEN UPDATE SET price = s.price, ts = s.ts""",
        settings=QUIET,
    )
    bench.keep(name)


def mor_simple_index_positions(bench: Bench) -> None:
    name = "mor_simple_index_positions"
    options = options_for(name, table_type=MOR, index="SIMPLE")
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), rows((1, "n1-u", 101, "p1"), (2, "n2-u", 101, "p0")), options)
    bench.hudi.write(bench.path(name), GONE, options, operation="delete")
    bench.keep(name)


METADATA_TABLE = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}


def cow_global_rli(bench: Bench) -> None:
    name = "cow_global_rli"
    more = {
        **METADATA_TABLE,
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.record.index.min.filegroup.count": "1",
    }
    options = options_for(name, index="GLOBAL_RECORD_LEVEL_INDEX", more=more)
    moved = rows((1, "n1-u", 101, "p1"), (20, "n20", 101, "p0"), (4, "n4-moved", 101, "p1"))
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), moved, options)
    bench.hudi.write(bench.path(name), GONE, options, operation="delete")
    bench.keep(name)


def mor_partitioned_rli(bench: Bench) -> None:
    name = "mor_partitioned_rli"
    more = {**METADATA_TABLE, "hoodie.metadata.record.level.index.enable": "true"}
    options = options_for(name, table_type=MOR, index="RECORD_LEVEL_INDEX", more=more)
    bench.hudi.write(bench.path(name), TWELVE, options)
    bench.hudi.write(bench.path(name), rows((1, "n1-u", 101, "p1"), (20, "n20", 101, "p0")), options)
    bench.hudi.write(bench.path(name), GONE, options, operation="delete")
    bench.keep(name)


def cow_secondary_index(bench: Bench) -> None:
    name = "cow_secondary_index"
    values = ", ".join(f"({n}, 'n{n}', 'c{n % 3}', 100, 'p{n % 2}')" for n in range(12))
    bench.hudi.sql(
        f"""CREATE TABLE {name} (id int, name string, city string, ts long, dt string) USING hudi PARTITIONED BY (dt)
        LOCATION '{bench.path(name)}' TBLPROPERTIES (
          type = 'cow', primaryKey = 'id', preCombineField = 'ts',
          'hoodie.metadata.enable' = 'true', 'hoodie.metadata.record.index.enable' = 'true',
          'hoodie.metadata.global.record.level.index.enable' = 'true',
          'hoodie.metadata.record.index.min.filegroup.count' = '1',
          'hoodie.metadata.index.column.stats.enable' = 'false',
          'hoodie.metadata.index.partition.stats.enable' = 'false')""",
        f"INSERT INTO {name} VALUES {values}",
        f"CREATE INDEX idx_city ON {name} (city)",
        f"UPDATE {name} SET city = 'c9' WHERE id = 4",
        f"DELETE FROM {name} WHERE id = 5",
        settings={
            **QUIET,
            "hoodie.metadata.enable": "true",
            "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
        },
    )
    bench.keep(name)


# ── failed writes, savepoints ───────────────────────────────────────────────────────────────────────────────────────


def mor_failed_inflight(bench: Bench) -> None:
    """A bulk insert that fails half way, under the lazy policy: inflight instant and heartbeat stay."""
    name = "mor_failed_inflight"
    bench.hudi.write(
        bench.path(name),
        TWELVE,
        options_for(name, table_type=MOR, more={"hoodie.clean.failed.writes.policy": "LAZY"}),
    )
    bench.hudi.sql(f"CREATE TABLE {name} USING hudi LOCATION '{bench.path(name)}'")
    with suppress(JudgeError):
        bench.hudi.sql(
            f"""INSERT INTO {name} SELECT cast(id AS int), if(id = 9, raise_error('on purpose'), 'x'), 200L,
                concat('p', id % 2) FROM range(12)""",
            settings={
                **QUIET,
                "hoodie.clean.failed.writes.policy": "LAZY",
                "hoodie.spark.sql.insert.into.operation": "bulk_insert",
                "hoodie.index.type": "BUCKET",
                "hoodie.bucket.index.num.buckets": "4",
            },
        )
    bench.keep(name)


def cow_failed_inflight_markers(bench: Bench) -> None:
    """Only a failed first write. A null in an array is what Hudi's Avro writer can't write."""
    name = "cow_failed_inflight_markers"
    broken = rows((1, "a", 1, "p0", ["x"]), (2, "b", 1, "p0", ["x", None]), schema=WITH_ARRAY)
    with suppress(JudgeError):
        bench.hudi.write(bench.path(name), broken, options_for(name))
    bench.keep(name)


def cow_failed_inflight_timeline_markers(bench: Bench) -> None:
    name = "cow_failed_inflight_timeline_markers"
    options = options_for(name, more={"hoodie.embed.timeline.server": "true"})
    broken = rows((2, "b", 1, "p0", ["x", None]), (3, "c", 1, "p0", ["y"]), schema=WITH_ARRAY)
    bench.hudi.write(bench.path(name), rows((1, "a", 1, "p0", ["x"]), schema=WITH_ARRAY), options)
    with suppress(JudgeError):
        bench.hudi.write(bench.path(name), broken, options)
    bench.keep(name)


def cow_savepoint_restore(bench: Bench) -> None:
    name = "cow_savepoint_restore"
    options = options_for(name)
    bench.hudi.write(bench.path(name), TWELVE, options)
    first = completed_instants(bench.path(name))[-1].requested
    bench.hudi.sql(
        f"CREATE TABLE {name} USING hudi LOCATION '{bench.path(name)}'",
        f"CALL create_savepoint(table => '{name}', commit_time => '{first}')",
        settings=QUIET,
    )
    bench.hudi.write(bench.path(name), rows((1, "x", 200, "p1")), options)
    bench.hudi.write(bench.path(name), rows((2, "y", 200, "p0")), options)
    bench.hudi.sql(
        f"CALL rollback_to_savepoint(table => '{name}', instant_time => '{first}')", settings=QUIET
    )
    bench.hudi.write(bench.path(name), rows((3, "z", 200, "p1")), options)
    bench.keep(name)


RECIPES: tuple[Callable[[Bench], None], ...] = (
    cow_simple_bucket,
    mor_simple_bucket_avro,
    mor_simple_bucket_parquet_log,
    mor_commit_time_ordering,
    mor_multi_ordering,
    mor_nonpartitioned,
    cow_complex_single_key,
    cow_composite_keys,
    mor_bulk_insert_bucket,
    mor_v8,
    mor_v6,
    cow_virtual_keys,
    mor_virtual_keys,
    cow_partition_bucket_df,
    mor_partition_bucket,
    mor_consistent,
    all_types,
    mor_partial_update,
    mor_simple_index_positions,
    cow_global_rli,
    mor_partitioned_rli,
    cow_secondary_index,
    mor_failed_inflight,
    cow_failed_inflight_markers,
    cow_failed_inflight_timeline_markers,
    cow_savepoint_restore,
)


def main(out: Path, wanted: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    bench = Bench(HudiJvm(), folder, out)
    for recipe in RECIPES:
        if not wanted or recipe.__name__ in wanted:
            recipe(bench)
            print(recipe.__name__)
    shutil.rmtree(folder)


def _version(number: int) -> dict[str, str]:
    return {"hoodie.write.table.version": str(number), "hoodie.write.auto.upgrade": "false"}


def _key_generator(name: str) -> dict[str, str]:
    return {"hoodie.datasource.write.keygenerator.class": f"org.apache.hudi.keygen.{name}"}


def _without_checksums(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Hadoop leaves these beside every local file; no other store has them."""
    return None if member.name.endswith(".crc") else member


def _place(line: str) -> tuple[str, str]:
    row = json.loads(line)
    return row.get("_hoodie_partition_path", row.get("dt", "")), row.get(
        "_hoodie_record_key", str(row.get("id"))
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
