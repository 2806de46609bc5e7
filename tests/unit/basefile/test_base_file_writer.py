"""What a base file says about itself proves that no row was lost: it must be true of the rows in it."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.basefile import (
    BaseFileWriter,
    FileFacts,
    check_bytes,
    read_base_file,
    read_file_facts,
    read_footer,
)
from bucketlake.basefile.encodings import columns_with_dictionary
from bucketlake.errors import CorruptTableError
from bucketlake.schema import META_COLUMNS, arrow_to_avro, with_meta_columns
from bucketlake.storage import LocalStore, MemoryStore, Spill
from bucketlake.testing.tables import tables

ROW = pa.schema([("id", pa.int64()), ("status", pa.string()), ("amount", pa.float64())])
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)


def constant(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array([value]))


def with_meta(rows: pa.Table, keys: list[str], *, is_dictionary: bool = True) -> list[pa.RecordBatch]:
    """Put meta columns before rows, the constant ones as dictionaries."""
    count = rows.num_rows
    columns = [
        constant("20260101000000000", count),
        pa.array([f"20260101000000000_0_{index}" for index in range(count)], pa.string()),
        pa.array(keys, pa.string()),
        constant("p=1", count),
        constant("f_1-0-1_20260101000000000.parquet", count),
    ]
    if not is_dictionary:
        columns = [pa.array(column.to_pylist(), pa.string()) for column in columns]
    table = pa.table([*columns, *rows.columns], names=[*META_COLUMNS, *rows.column_names])
    fields = [*list(table.schema)[:5], *rows.schema]
    batches: list[pa.RecordBatch] = table.cast(pa.schema(fields)).to_batches()
    return batches


def orders(count: int) -> pa.Table:
    return pa.table(
        {
            "id": range(count),
            "status": ["paid", "open"] * (count // 2) + ["paid"] * (count % 2),
            "amount": [index / 8 for index in range(count)],
        },
        ROW,
    )


def write(
    batches: list[pa.RecordBatch], schema: pa.Schema, extra: dict[str, str] | None = None, **options: Any
) -> tuple[bytes, FileFacts]:
    sink = io.BytesIO()
    full = with_meta_columns(schema)
    writer = BaseFileWriter(sink, full, avro_schema=arrow_to_avro(full, table="t"), **options)
    for batch in batches:
        writer.write(batch)
    facts = writer.finish(extra or {})
    return sink.getvalue(), facts


def stored(data: bytes) -> MemoryStore:
    store = MemoryStore()
    store.put("f.parquet", data)
    return store


def read(store: MemoryStore, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(list(read_base_file(store, "f.parquet", schema)), schema)


@given(tables(), st.integers(1, 5), st.booleans(), st.data())
def test_rows_of_any_type_are_read_as_they_were_written(
    rows: pa.Table, group_rows: int, is_dictionary: bool, data: st.DataObject
) -> None:
    keys = data.draw(st.lists(TEXT, min_size=rows.num_rows, max_size=rows.num_rows))
    batches = with_meta(rows, keys, is_dictionary=is_dictionary)
    content, facts = write(batches, rows.schema, row_group_rows=group_rows)

    store = stored(content)
    schema = with_meta_columns(rows.schema)
    assert read(store, rows.schema).equals(rows)
    assert read(store, schema).column("_hoodie_record_key").to_pylist() == keys
    assert read_footer(store, "f.parquet").arrow_schema.field("_hoodie_file_name").type == pa.string()
    assert read_footer(store, "f.parquet").row_count == rows.num_rows
    hashes = [xxhash.xxh64_intdigest(key.encode()) for key in keys]
    encoded = sorted(key.encode() for key in keys)
    assert facts == FileFacts(
        rows=len(keys),
        key_hash_sum=sum(hashes) % 2**64,
        min_key=encoded[0].decode() if encoded else None,
        max_key=encoded[-1].decode() if encoded else None,
    )
    assert read_file_facts(store, "f.parquet") == facts


def test_the_footer_has_what_hudi_looks_for_and_what_the_caller_adds() -> None:
    content, facts = write(with_meta(orders(3), ["b", "a", "c"]), ROW, {"mine": "x"})
    pairs = dict(read_footer(stored(content), "f.parquet").metadata)
    assert json.loads(pairs.pop("parquet.avro.schema"))["name"] == "t_record"
    assert pairs == {
        "writer.model.name": "avro",
        "hoodie_min_record_key": "a",
        "hoodie_max_record_key": "c",
        "bucketlake.rows": "3",
        "bucketlake.key_hash_sum": str(facts.key_hash_sum),
        "bucketlake.data_crc32": pairs["bucketlake.data_crc32"],
        "mine": "x",
    }


def test_a_footer_is_held_to_its_checksum_and_must_have_it() -> None:
    content, _ = write(with_meta(orders(3), ["b", "a", "c"]), ROW)
    assert content[-9 - 8 - 17 : -9 - 8] == b"bucketlake.crc32="
    at = content.rindex(b"hoodie_max_record_key")
    for damaged in (
        content[:at] + b"H" + content[at + 1 :],
        content.replace(b"bucketlake.crc32=", b"bucketlake.crc3_="),
        content[:-8] + (99).to_bytes(4, "little") + b"PAR1",
    ):
        with pytest.raises(CorruptTableError, match=r"f\.parquet: found a footer"):
            read_footer(stored(damaged), "f.parquet")


def test_all_bytes_before_the_footer_have_a_checksum() -> None:
    content, _ = write(with_meta(orders(3), ["b", "a", "c"]), ROW)
    check_bytes(stored(content), "f.parquet")
    with pytest.raises(CorruptTableError, match=r"f\.parquet: found data with the checksum"):
        check_bytes(stored(b"pAR1" + content[4:]), "f.parquet")


def test_a_file_without_rows_is_a_file() -> None:
    content, facts = write([], ROW)
    assert facts == FileFacts(rows=0, key_hash_sum=0, min_key=None, max_key=None)
    assert read(stored(content), ROW).num_rows == 0
    assert "hoodie_min_record_key" not in read_footer(stored(content), "f.parquet").metadata


def test_a_footer_of_another_writer_tells_no_facts() -> None:
    sink = io.BytesIO()
    pq.write_table(orders(1), sink)
    with pytest.raises(CorruptTableError, match="does not count rows and keys"):
        read_file_facts(stored(sink.getvalue()), "f.parquet")


def test_small_files_have_one_row_group_and_large_ones_are_cut() -> None:
    batches = [
        piece for batch in with_meta(orders(100), [str(n) for n in range(100)]) for piece in cut(batch, 7)
    ]
    whole, _ = write(batches, ROW)
    by_rows, _ = write(batches, ROW, row_group_rows=30)
    by_bytes, _ = write(batches, ROW, row_group_bytes=2000)
    assert rows_of_groups(whole) == [100]
    assert rows_of_groups(by_rows) == [30, 30, 30, 10]
    assert 2 < len(rows_of_groups(by_bytes)) < 15
    assert read(stored(whole), ROW).equals(read(stored(by_bytes), ROW))


def cut(batch: pa.RecordBatch, rows: int) -> list[pa.RecordBatch]:
    return [batch.slice(start, rows) for start in range(0, batch.num_rows, rows)]


def rows_of_groups(content: bytes) -> list[int]:
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    return [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]


def test_constant_columns_may_come_plain_in_one_batch_and_encoded_in_another() -> None:
    batches = with_meta(orders(2), ["a", "b"]) + with_meta(orders(2), ["c", "d"], is_dictionary=False)
    content, facts = write(batches, ROW)
    reversed_, _ = write(batches[::-1], ROW)
    assert facts.rows == 4
    for data in (content, reversed_):
        rows = read(stored(data), with_meta_columns(ROW))
        assert set(rows.column("_hoodie_partition_path").to_pylist()) == {"p=1"}


def test_dictionaries_are_made_where_values_repeat() -> None:
    rows = 40_000
    table = pa.table(
        {
            "few": [f"w{index % 50}" for index in range(rows)],
            "unique": [f"{index:030d}" for index in range(rows)],
            "code": pa.array([index % 7 for index in range(rows)], pa.int32()),
            "number": [index * 977 for index in range(rows)],
            "ratio": [index / 7 for index in range(rows)],
            "nothing": pa.nulls(rows, pa.string()),
            "words": [["a", "b"]] * rows,
            "flag": [True] * rows,
        }
    )
    chosen = columns_with_dictionary(table.schema, table.to_batches(), rows)
    assert chosen == ("few", "code", "nothing", "words.list.element")


def test_a_small_file_is_not_looked_at() -> None:
    table = orders(1000)
    assert columns_with_dictionary(table.schema, table.to_batches(), 1000) == ()


def test_every_column_has_statistics() -> None:
    """Hudi's column statistics take one that has none for a column of nulls."""
    content, _ = write(with_meta(orders(10), [f"k{index}" for index in range(10)]), ROW)
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    ranged = {
        group.column(index).path_in_schema: group.column(index).is_stats_set
        for index in range(group.num_columns)
    }
    assert {*META_COLUMNS, "amount"} <= ranged.keys()
    assert all(ranged.values())


NAN = math.nan
WITH_FLOATS = pa.schema(
    [
        ("x", pa.float64()),
        ("small", pa.float32()),
        ("s", pa.struct([("n", pa.int32()), ("x", pa.float32()), ("deep", pa.list_(pa.float64()))])),
        ("m", pa.map_(pa.string(), pa.float64())),
        ("xs", pa.list_(pa.list_(pa.float64()))),
    ]
)
FLOATS = st.none() | st.sampled_from([NAN, -0.0, 0.0, 1.5, math.inf, -math.inf])
ROWS_WITH_FLOATS = st.lists(
    st.fixed_dictionaries(
        {
            "x": FLOATS,
            "small": FLOATS,
            "s": st.none()
            | st.fixed_dictionaries(
                {"n": st.just(1), "x": FLOATS, "deep": st.none() | st.lists(FLOATS, max_size=2)}
            ),
            "m": st.none() | st.dictionaries(st.sampled_from("ab"), FLOATS).map(lambda m: list(m.items())),
            "xs": st.none() | st.lists(st.none() | st.lists(FLOATS, max_size=2), max_size=2),
        }
    ),
    max_size=12,
)


@given(ROWS_WITH_FLOATS, st.integers(0, 3), st.integers(1, 5))
def test_no_range_excludes_a_nan(rows: list[dict[str, Any]], cut_off: int, group_rows: int) -> None:
    """To Spark it is above every number. All else in the footer is as Arrow would have it."""
    # Cut out of a larger table, as the rows of a file group are: what lies around them does not count.
    table = pa.Table.from_pylist(rows, WITH_FLOATS).slice(cut_off)
    content, _ = write(
        with_meta(table, [str(n) for n in range(table.num_rows)]), WITH_FLOATS, row_group_rows=group_rows
    )
    written = pq.ParquetFile(io.BytesIO(content))
    assert repr(read(stored(content), WITH_FLOATS).to_pylist()) == repr(table.to_pylist())
    for number in range(written.metadata.num_row_groups):
        group = written.metadata.row_group(number)
        part = table.slice(number * group_rows, group_rows)
        plain = io.BytesIO()
        pq.write_table(part, plain)
        expected = pq.ParquetFile(plain).metadata.row_group(0)
        for leaf, values in enumerate(leaves_of(part)):
            found, own = (g.column(g.num_columns - 8 + leaf).statistics.to_dict() for g in (group, expected))
            if any(value != value for value in values):
                own |= {"has_min_max": True, "min": -math.inf, "max": math.inf}
            assert repr(found) == repr(own)


def leaves_of(table: pa.Table) -> list[list[float]]:
    """Return the floats of the columns that Parquet makes of `WITH_FLOATS`, and none for `n`."""
    rows = table.to_pylist()
    structs = [row["s"] for row in rows if row["s"]]
    inner = [
        [row["x"] for row in rows],
        [row["small"] for row in rows],
        [],
        [part["x"] for part in structs],
        [value for part in structs for value in part["deep"] or ()],
        [],
        [value for row in rows for _, value in row["m"] or ()],
        [value for row in rows for values in row["xs"] or () for value in values or ()],
    ]
    return [[value for value in values if value is not None] for values in inner]


def test_no_reader_of_parquet_is_misled_by_the_range_of_a_column_with_nan(tmp_path: Path) -> None:
    rows = pa.table({"x": [NAN, -1.0, -2.0], "all": [NAN, NAN, NAN], "few": [1.0, None, 3.0]})
    content, _ = write(with_meta(rows, ["a", "b", "c"]), rows.schema)
    (tmp_path / "f.parquet").write_bytes(content)
    ask = f"select %s from '{tmp_path}/f.parquet'"
    counts = ["x > 0", "x = 'NaN'", "x > 'inf'::double", "x < 'NaN'", "x <= -2", '"all" > 5', "few > 2"]
    found = duckdb.sql(" union all ".join(f"{ask % 'count(*)'} where {condition}" for condition in counts))
    assert [count for (count,) in found.fetchall()] == [1, 1, 1, 2, 1, 3, 1]
    (bounds,) = duckdb.sql(ask % "min(x), max(x), min(few), max(few)").fetchall()
    assert repr(bounds) == repr((-2.0, NAN, 1.0, 3.0))


def test_pages_have_no_ranges_of_their_own_that_a_reader_could_skip_by() -> None:
    content, _ = write(with_meta(orders(10), [str(n) for n in range(10)]), ROW)
    group = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0)
    columns = [group.column(index) for index in range(group.num_columns)]
    assert not any(column.has_column_index or column.has_offset_index for column in columns)


def test_duckdb_reads_what_we_write(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    rows = orders(5000)
    full = with_meta_columns(ROW)
    with Spill(limit_bytes=1000) as spill:
        writer = BaseFileWriter(spill, full, avro_schema=arrow_to_avro(full, table="t"))
        for batch in with_meta(rows, [f"k{index}" for index in range(5000)]):
            writer.write(batch)
        writer.finish({})
        assert store.put_new("f.parquet", spill.content)
    found = duckdb.sql(f"select id, status, amount from '{tmp_path}/f.parquet' order by id")
    assert found is not None
    assert found.fetchall() == [tuple(row.values()) for row in rows.to_pylist()]
