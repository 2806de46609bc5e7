"""Base files hold most rows of a table: a row too few here is a row missing from every query."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketlake.basefile import read_base_file, read_footer
from bucketlake.errors import CorruptTableError
from bucketlake.schema import META_COLUMNS, avro_to_arrow
from bucketlake.storage import LocalStore, MemoryStore, Store

GOLDEN = Path(__file__).parents[2] / "golden"
TABLES = sorted(archive.name.removesuffix(".tar.gz") for archive in GOLDEN.glob("*.tar.gz"))
KEYED = pa.schema([("_hoodie_record_key", pa.string()), ("n", pa.int64())])


def written(table: pa.Table, **options: object) -> MemoryStore:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    store = MemoryStore()
    store.put("f.parquet", sink.getvalue().to_pybytes())
    return store


def numbered(count: int) -> pa.Table:
    keys = [f"k{index:04d}" for index in range(count)]
    return pa.table({"n": range(count), "_hoodie_record_key": keys, "note": ["x" * 10] * count})


def read(store: Store, schema: pa.Schema, path: str = "f.parquet", **options: object) -> pa.Table:
    return pa.Table.from_batches(list(read_base_file(store, path, schema, **options)), schema)  # type: ignore[arg-type]


def base_files(folder: Path) -> list[str]:
    files = [path.relative_to(folder) for path in folder.rglob("*.parquet")]
    return sorted(path.as_posix() for path in files if ".hoodie" not in path.parts)


def test_rows_come_with_exactly_the_wanted_columns() -> None:
    store = written(numbered(3))
    assert read(store, KEYED).to_pylist()[1] == {"_hoodie_record_key": "k0001", "n": 1}


def test_a_column_the_file_does_not_have_is_null() -> None:
    schema = pa.schema([("later", pa.list_(pa.string())), ("n", pa.float64())])
    assert read(written(numbered(1)), schema).to_pylist() == [{"later": None, "n": 0.0}]


def test_a_file_with_none_of_the_wanted_columns_still_has_its_rows() -> None:
    assert read(written(numbered(5)), pa.schema([("later", pa.string())])).num_rows == 5
    assert (
        sum(batch.num_rows for batch in read_base_file(written(numbered(5)), "f.parquet", pa.schema([]))) == 5
    )


def test_no_batch_is_larger_than_asked_and_none_is_empty() -> None:
    sizes = [
        batch.num_rows for batch in read_base_file(written(numbered(25)), "f.parquet", KEYED, batch_rows=10)
    ]
    assert sizes == [10, 10, 5]
    keys = pa.array([f"k{index:04d}" for index in range(25)])
    batches = read_base_file(written(numbered(25)), "f.parquet", KEYED, keys=keys, batch_rows=10)
    assert [batch.num_rows for batch in batches] == [10, 10, 5]
    assert list(read_base_file(written(numbered(0)), "f.parquet", KEYED)) == []


@pytest.mark.parametrize("row_group_size", [7, 100_000])
def test_keys_lead_to_their_rows_in_the_order_of_the_file(row_group_size: int) -> None:
    store = written(numbered(50), row_group_size=row_group_size)
    keys = pa.array(["k0040", "k0003", "nowhere", None, "k0003", "k0002"])
    assert read(store, KEYED, keys=keys).column("n").to_pylist() == [2, 3, 40]


def test_keys_are_found_without_being_asked_for_as_a_column() -> None:
    schema = pa.schema([("n", pa.int64())])
    assert read(written(numbered(5)), schema, keys=pa.array(["k0002"])).to_pylist() == [{"n": 2}]


def test_keys_are_found_far_into_a_row_group() -> None:
    store = written(numbered(40_000))
    assert read(store, KEYED, keys=pa.array(["k0001", "k39999"])).column("n").to_pylist() == [1, 39_999]


def test_a_file_without_record_keys_can_not_be_searched() -> None:
    store = written(pa.table({"n": [1]}))
    with pytest.raises(CorruptTableError, match="_hoodie_record_key"):
        read(store, KEYED, keys=pa.array(["k"]))


@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=30),
    st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=6),
    st.integers(1, 10),
)
def test_reading_by_key_equals_filtering_all_rows(stored: list[str], keys: list[str], group: int) -> None:
    table = pa.table({"_hoodie_record_key": pa.array(stored, pa.string()), "n": range(len(stored))})
    store = written(table, row_group_size=group)
    expected = [row for row in read(store, KEYED).to_pylist() if row["_hoodie_record_key"] in keys]
    assert read(store, KEYED, keys=pa.array(keys, pa.string())).to_pylist() == expected


def test_a_footer_tells_rows_pairs_and_columns() -> None:
    footer = read_footer(written(numbered(3).replace_schema_metadata({"a": "b"})), "f.parquet")
    assert (footer.row_count, footer.metadata["a"]) == (3, "b")
    assert footer.arrow_schema.names == ["n", "_hoodie_record_key", "note"]


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_file_that_is_cut_off_is_an_error_that_names_it(kept: int, tmp_path: Path) -> None:
    content = written(numbered(100)).read("f.parquet")[:kept]
    for store in (MemoryStore(), LocalStore(tmp_path)):
        store.put("cut.parquet", content)
        with pytest.raises(CorruptTableError, match=r"cut\.parquet"):
            read(store, KEYED, "cut.parquet")
        with pytest.raises(CorruptTableError, match=r"cut\.parquet"):
            read_footer(store, "cut.parquet")


def test_pages_that_are_damaged_are_an_error_that_names_the_file() -> None:
    store = written(numbered(1000), compression="gzip")
    content = bytearray(store.read("f.parquet"))
    content[20:400] = bytes(380)
    store.put("f.parquet", bytes(content))
    with pytest.raises(CorruptTableError, match=r"f\.parquet"):
        read(store, KEYED)


def test_a_file_that_is_not_there_is_not_found() -> None:
    with pytest.raises(FileNotFoundError):
        read(MemoryStore(), KEYED)


def test_old_timestamps_of_twelve_bytes_are_read_as_microseconds() -> None:
    moments = pa.array([1_700_000_000_123_456], pa.timestamp("us"))
    store = written(pa.table({"t": moments}), use_deprecated_int96_timestamps=True)
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC"))])
    assert (
        read(store, schema).column("t").to_pylist() == moments.cast(pa.timestamp("us", tz="UTC")).to_pylist()
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_base_file_of_hudi_reads_with_the_types_of_its_schema(
    name: str, golden_table: Callable[[str], Path]
) -> None:
    folder = golden_table(name)
    for path in base_files(folder):
        footer = read_footer(LocalStore(folder), path)
        schema = footer.arrow_schema
        if "parquet.avro.schema" in footer.metadata:
            schema = avro_to_arrow(footer.metadata["parquet.avro.schema"], path=path)
        rows = read(LocalStore(folder), schema, path)
        rows.validate(full=True)
        assert rows.schema == schema
        assert rows.num_rows == footer.row_count
        assert rows.column_names[: len(META_COLUMNS)] == list(META_COLUMNS)


def test_rows_of_all_types_are_the_rows_hudi_reads(golden_table: Callable[[str], Path]) -> None:
    folder = golden_table("cow_all_types")
    lines = (GOLDEN / "cow_all_types.expected.jsonl").read_text().splitlines()
    expected = {row["_hoodie_record_key"]: row for row in map(json.loads, lines)}
    for path in base_files(folder):
        footer = read_footer(LocalStore(folder), path)
        schema = avro_to_arrow(footer.metadata["parquet.avro.schema"], path=path)
        for row in read(LocalStore(folder), schema, path).to_pylist():
            hudi = expected[row["_hoodie_record_key"]]
            for name, value in row.items():
                if isinstance(value, (str, int, bool, float)) or value is None:
                    assert hudi.get(name) == pytest.approx(value), name


WITH_ID = pa.schema([("_hoodie_record_key", pa.string()), ("id", pa.string())])


def address(column: pa.Array) -> int:
    return int(column.buffers()[2].address)


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_key_column_with_the_bytes_of_the_record_keys_is_decoded_once(
    tmp_path: Path, use_dictionary: bool
) -> None:
    keys = [f"k{index:04d}" for index in range(100)]
    table = pa.table({"_hoodie_record_key": keys, "id": keys, "other": keys[::-1]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=30, use_dictionary=use_dictionary)
    wanted = WITH_ID.append(pa.field("other", pa.string()))
    for batch in read_base_file(LocalStore(tmp_path), "f.parquet", wanted):
        assert address(batch.column("id")) == address(batch.column("_hoodie_record_key"))
        assert address(batch.column("other")) != address(batch.column("_hoodie_record_key"))
    assert read(LocalStore(tmp_path), wanted) == table


def test_one_other_key_is_enough_for_both_columns_to_be_decoded(tmp_path: Path) -> None:
    keys = [f"k{index:04d}" for index in range(100)]
    table = pa.table({"_hoodie_record_key": keys, "id": [*keys[:-1], "k9999"]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=30)
    assert read(LocalStore(tmp_path), WITH_ID) == table


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.sampled_from([None, "a", "b", ""])), max_size=4),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([pa.string(), pa.binary()]),
)
def test_what_stands_beside_the_keys_is_never_taken_for_them(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str | None]],
    row_group_size: int,
    may_be_null: bool,
    kind: pa.DataType,
) -> None:
    table = pa.table(
        [pa.array([key for key, _ in rows], pa.string()), pa.array([value for _, value in rows], kind)],
        schema=pa.schema([pa.field("_hoodie_record_key", pa.string(), nullable=may_be_null), ("id", kind)]),
    )
    folder = tmp_path_factory.mktemp("keys")
    pq.write_table(table, folder / "f.parquet", row_group_size=row_group_size)
    assert read(LocalStore(folder), WITH_ID).to_pylist() == [
        {"_hoodie_record_key": key, "id": value} for key, value in rows
    ]
