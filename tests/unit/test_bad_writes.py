"""A writer with a wrong row, or a wrong idea of the table, gets one clear error, and the table is as it was."""

from __future__ import annotations

import datetime
import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import (
    ConfigError,
    ConsistentBuckets,
    CorruptTableError,
    FilterError,
    LayoutMismatchError,
    ProofError,
    SchemaError,
    SimpleBuckets,
    Table,
    TableExistsError,
    UnsupportedError,
    create_table,
)
from bucketlake.config import plan_mend, run_mend, update_properties
from bucketlake.index.told import IndexValue
from bucketlake.keygen import KeyGenerator
from bucketlake.metadata.files import ALL_PARTITIONS
from bucketlake.state import load_state
from bucketlake.write import ArrowRows, KeySum, Operation, Ran, WriteState, job, run_write
from bucketlake.write.metadata_drop import plan_drop_metadata_table, run_drop_metadata_table
from judges.files import unchanged
from judges.hudi_rs import read_snapshot

Golden = Callable[[str], Path]

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("dt", pa.string()),
        ("ts", pa.int64()),
        ("amount", pa.decimal128(10, 2)),
        ("n", pa.int32()),
    ]
)
GOOD = {"id": "a", "dt": "2026-06-18", "ts": 1, "amount": None, "n": 1}
GOOD_KEY = {"id": GOOD["id"], "dt": GOOD["dt"]}
OPERATIONS = ["upsert", "bulk_insert", "overwrite", "delete"]


def rows(*changes: dict[str, Any], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist([GOOD | change for change in changes], schema)


@pytest.fixture(params=["COPY_ON_WRITE", "MERGE_ON_READ"])
def table(request: pytest.FixtureRequest) -> Table:
    """A table that holds a few rows."""
    made = create_table(
        f"memory://{uuid.uuid4()}",
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        buckets=2,
        table_type=request.param,
        name="orders",
    )
    made.upsert(rows(*({"id": key} for key in "abcdef")))
    return made


@pytest.fixture
def empty() -> Callable[..., Table]:
    """Make a table as a test wants it."""

    def made(path: str | Path | None = None, **definition: Any) -> Table:
        shape = {"key": "id", "partition": "dt", "ordering": "ts", "buckets": 2, "name": "orders"}
        return create_table(path or f"memory://{uuid.uuid4()}", SCHEMA, **(shape | definition))

    return made


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("key", [None, ""])
def test_a_null_or_empty_record_key_is_refused(table: Table, operation: str, key: str | None) -> None:
    with (
        unchanged(table.store),
        pytest.raises(ConfigError, match="'id' is null or empty in row 1, and a record key"),
    ):
        getattr(table, operation)(rows({}, {"id": key}))


def test_a_key_of_several_columns_needs_one_of_them(empty: Callable[..., Table]) -> None:
    table = empty(key=["id", "n"])
    table.upsert(rows({"id": None}, {"id": "", "n": 2}, {"n": None}))
    assert sorted(table.to_arrow().column("_hoodie_record_key").to_pylist()) == [
        "id:__empty__,n:2",
        "id:__null__,n:1",
        "id:a,n:__null__",
    ]
    with unchanged(table.store), pytest.raises(ConfigError, match="'id', 'n' is null or empty"):
        table.upsert(rows({}, {"id": None, "n": None}))


ALIKE = [
    {"id": "1,dt:2", "dt": "3"},
    {"dt": "2,dt:3"},
    {"id": "__null__"},
    {"id": "__empty__"},
    {"dt": "__null__"},
]


@pytest.mark.parametrize("odd", ALIKE, ids=str)
def test_values_whose_key_others_have_too_are_refused(
    empty: Callable[..., Table], odd: dict[str, Any]
) -> None:
    table = empty(key=["id", "dt"], partition=[])
    table.upsert(rows({"id": "Doe, J: x", "dt": ",d:"}, {"id": ",dt:2"}, {"id": None}, {"id": ""}))
    for operation in ("upsert", "bulk_insert", "overwrite"):
        with (
            unchanged(table.store),
            pytest.raises(ConfigError, match="is that of several rows of values") as refused,
        ):
            getattr(table, operation)(rows({}, odd))
        assert all(f"{name} = {value!r}" in str(refused.value) for name, value in odd.items())
    single = empty(partition=[])
    single.upsert(rows(odd, {"id": "z"}))
    assert single.to_arrow().num_rows == 2


def test_a_row_whose_key_others_have_too_is_read_and_deleted(
    empty: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi may have written it."""
    table = empty(key=["id", "dt"], partition=[])
    with monkeypatch.context() as patch:
        patch.setattr(KeyGenerator, "check_spelling", lambda *_: None)
        table.upsert(rows({}, *ALIKE))
    held = table.to_arrow().num_rows
    for odd in ALIKE[1:]:
        assert table.get(GOOD_KEY | odd).num_rows == 1
    table.delete([GOOD_KEY | ALIKE[1]])
    table.delete(rows({"id": "__empty__"}))
    assert table.to_arrow().num_rows == held - 2


@pytest.mark.parametrize("operation", ["upsert", "bulk_insert", "overwrite"])
def test_the_word_for_a_null_partition_is_no_value_of_it(table: Table, operation: str) -> None:
    with (
        unchanged(table.store),
        pytest.raises(ConfigError, match=r"the word for null in them.* found id = 'z', dt"),
    ):
        getattr(table, operation)(rows({}, {"id": "z", "dt": "__HIVE_DEFAULT_PARTITION__"}))
    table.delete(rows({"dt": "__HIVE_DEFAULT_PARTITION__"}))


@pytest.mark.parametrize(
    ("operation", "column"),
    [(o, c) for o in OPERATIONS for c in ("id", "dt", "ts") if o != "delete" or c == "id"],
)
def test_a_missing_key_partition_or_ordering_column_is_named(
    table: Table, operation: str, column: str
) -> None:
    with unchanged(table.store), pytest.raises(SchemaError, match=f"no column '{column}'"):
        getattr(table, operation)(rows({}).drop_columns([column]))


def test_a_column_that_differs_in_case_is_not_the_column(table: Table) -> None:
    with unchanged(table.store), pytest.raises(SchemaError, match="differs in case only: 'ID'"):
        table.upsert(rows({}).rename_columns(["ID", "dt", "ts", "amount", "n"]))


def test_a_row_without_an_ordering_value_is_refused(table: Table) -> None:
    with unchanged(table.store), pytest.raises(ConfigError, match="column 'ts' is null"):
        table.upsert(rows({}, {"ts": None}))


@pytest.mark.parametrize(
    ("column", "kind", "value"),
    [
        ("n", pa.string(), "1"),
        ("n", pa.bool_(), True),
        ("n", pa.list_(pa.int32()), [1]),
        ("amount", pa.float64(), 1.5),
        ("id", pa.int64(), 7),
        ("dt", pa.date32(), datetime.date(2026, 6, 18)),
        ("ts", pa.float64(), 1.0),
        ("ts", pa.timestamp("us"), None),
    ],
)
def test_a_type_that_does_not_fit_is_refused_and_its_column_named(
    table: Table, column: str, kind: pa.DataType, value: object
) -> None:
    place = SCHEMA.get_field_index(column)
    given = rows({column: value}, schema=SCHEMA.set(place, pa.field(column, kind)))
    with unchanged(table.store), pytest.raises(SchemaError, match=f"column '{column}'"):
        table.upsert(given)


@pytest.mark.parametrize("kind", [pa.decimal128(9, 4), pa.decimal256(40, 2)])
def test_a_decimal_that_would_lose_digits_is_refused(table: Table, kind: pa.DataType) -> None:
    given = rows({}, schema=SCHEMA.set(3, pa.field("amount", kind)))
    with unchanged(table.store), pytest.raises((SchemaError, UnsupportedError), match="amount"):
        table.upsert(given)


def test_a_null_in_a_column_that_may_have_none_is_refused(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int32(), nullable=False)]
    )
    table = create_table(tmp_path, schema, key="id")
    loose = pa.table({"id": ["a", "b"], "n": pa.array([1, None], pa.int32())})
    with unchanged(table.store), pytest.raises(ConfigError, match="column 'n' is null"):
        table.upsert(loose)


@pytest.mark.shows("X1")
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"buckets": 4}, "has simple buckets: 2 per partition.*, and index= says simple buckets: 4 per"),
        ({"index": SimpleBuckets(2, ("dt",))}, "hashed from id, and index= says .*hashed from dt"),
    ],
)
def test_another_bucket_count_or_hash_field_is_refused(
    table: Table, operation: str, asked: dict[str, Any], words: str
) -> None:
    with unchanged(table.store), pytest.raises(LayoutMismatchError, match=words):
        getattr(Table.open(table.store.uri, **asked), operation)(rows({}))
    agreeing = Table.open(table.store.uri, index=SimpleBuckets(2, ("id",)))
    getattr(agreeing, operation)(rows({}))


@pytest.mark.shows("X1")
def test_keys_in_another_spelling_than_the_tables_are_refused(table: Table) -> None:
    assert table.properties.raw["bucketlake.key.encoding"] == "value"
    update_properties(table.store, {"bucketlake.key.encoding": "field:value"})
    with unchanged(table.store), pytest.raises(LayoutMismatchError, match=r"bucketlake\.key\.encoding"):
        Table.open(table.store.uri).upsert(rows({}))


def test_a_table_is_not_created_over_another(table: Table, golden_table: Golden, tmp_path: Path) -> None:
    hudis = Path(shutil.copytree(golden_table("mor_v6"), tmp_path / "theirs"))
    for path in (table.store.uri, str(hudis)):
        store = Table.open(path).store
        with unchanged(store), pytest.raises(TableExistsError, match="is a Hudi table already"):
            create_table(path, SCHEMA, key="id")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("a/b", "holds a slash"),
        ("/", "has a part without a name"),
        ("..", "begins with a dot"),
        (".", "begins with a dot"),
        ("../../etc", "begins with a dot"),
        (".hoodie", "begins with a dot"),
        ("a\nb", "holds a control character"),
        ("\0", "holds a control character"),
        ("\x7f", "holds a control character"),
        ("12:30", "holds a colon"),
        ("a\\b", "holds a backslash"),
        ("100%25", "a % with two digits"),
        ("a=b", "holds an equals sign"),
        ("x" * 300, "more than"),
        (ALL_PARTITIONS, "under which Hudi's metadata table lists"),
    ],
)
@pytest.mark.parametrize("operation", ["upsert", "delete"])
def test_a_partition_value_that_is_no_folder_is_refused(
    table: Table, operation: str, value: str, words: str
) -> None:
    with unchanged(table.store), pytest.raises(ConfigError, match=words) as refused:
        getattr(table, operation)(rows({}, {"dt": value}))
    assert "'dt'" in str(refused.value)
    is_mended_by_escapes = words.split()[0] not in ("begins", "more", "under")
    assert ("url_encode=True" in str(refused.value)) is is_mended_by_escapes


PARTITION_VALUES = [
    "Straße",
    "日本",
    "\N{WATER WAVE}",
    "a b",
    "100%",
    "it's",
    "'quoted' \"so\"",
    "q?u#e*r[y]",
    "~",
]


@pytest.mark.parametrize(
    "shape", [{}, {"hive_style": True}, {"url_encode": True}, {"hive_style": True, "url_encode": True}]
)
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_other_partition_values_come_back_as_they_were(
    empty: Callable[..., Table], table_type: str, shape: dict[str, bool]
) -> None:
    values: list[str | None] = [*PARTITION_VALUES, None]
    if shape.get("url_encode"):
        values += ["a/b", "a\nb", "/", "12:30", "a=b", "100%25", "a\\b"]
    table = empty(table_type=table_type, **shape)
    table.upsert(rows(*({"id": str(n), "dt": value} for n, value in enumerate(values))))
    table.upsert(rows(*({"id": str(n), "dt": value, "ts": 2, "n": 2} for n, value in enumerate(values))))
    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert {key: row["dt"] for key, row in found.items()} == {str(n): value for n, value in enumerate(values)}
    assert {row["n"] for row in found.values()} == {2}, "every row was found again and updated"
    assert len(table.to_arrow()) == len(values)
    for number, value in enumerate(values[:3]):
        assert table.to_arrow(filters=[("dt", "=", value)]).column("id").to_pylist() == [str(number)]


def test_null_and_empty_text_are_one_partition_as_in_hudi(empty: Callable[..., Table]) -> None:
    table = empty()
    table.upsert(rows({"id": "null", "dt": None}, {"id": "empty", "dt": ""}))
    found = table.to_arrow()
    assert set(found.column("_hoodie_partition_path").to_pylist()) == {"__HIVE_DEFAULT_PARTITION__"}
    assert found.column("dt").to_pylist() == [None, None]
    assert table.to_arrow(filters=[("dt", "is null")]).num_rows == 2
    table.delete(rows({"id": "null", "dt": None}))
    assert table.to_arrow().column("id").to_pylist() == ["empty"]


def test_odd_partitions_are_read_by_hudi_rs_too(empty: Callable[..., Table], tmp_path: Path) -> None:
    table = empty(tmp_path)
    table.upsert(rows(*({"id": value, "dt": value} for value in ("Straße", "日本", "a b", "~"))))
    judged = read_snapshot(tmp_path)
    assert sorted(judged.column("id").to_pylist()) == sorted(table.to_arrow().column("id").to_pylist())
    assert judged.num_rows == 4


GOLDEN_ROWS = pa.table(
    {"id": pa.array([1], pa.int32()), "name": ["x"], "ts": pa.array([500], pa.int64()), "dt": ["p0"]}
)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("mor_v6", UnsupportedError, "the table version .* is 6, .* Upgrade the table with Hudi"),
        ("mor_v8", UnsupportedError, "the table version .* is 8, .* Upgrade the table with Hudi"),
        ("cow_global_rli", LayoutMismatchError, "record-level index.*`bucketlake adopt .*cow_global_rli`"),
        ("mor_partitioned_rli", LayoutMismatchError, r"record-level index.* Table\.adopt\(path\)"),
        (
            "mor_simple_index_positions",
            UnsupportedError,
            r"none with buckets: .* metadata build .* --record-index.* Copy its rows .*Table.open\('.*positions'\)",
        ),
        ("cow_simple_bucket", LayoutMismatchError, "`bucketlake adopt .*cow_simple_bucket --buckets N`"),
        (
            "mor_consistent_0_before",
            LayoutMismatchError,
            r"Table\.adopt\(path\), or `bucketlake adopt [^ ]*`",
        ),
        ("mor_partition_bucket", LayoutMismatchError, r"Table\.adopt\(path\), or `bucketlake adopt [^ ]*`"),
    ],
)
def test_a_table_that_we_must_not_write_is_refused_and_the_way_on_named(
    golden_table: Golden, operation: str, name: str, error: type[Exception], words: str
) -> None:
    table = Table.open(golden_table(name))
    with unchanged(table.store), pytest.raises(error, match=words):
        getattr(table, operation)(GOLDEN_ROWS)


def test_a_metadata_table_that_is_listed_and_not_there_is_not_written_on(table: Table) -> None:
    update_properties(table.store, {"hoodie.table.metadata.partitions": "files"})
    with unchanged(table.store), pytest.raises(CorruptTableError, match="`bucketlake metadata rebuild "):
        table.upsert(rows({}))
    run_drop_metadata_table(plan_drop_metadata_table(load_state(table.store)), table.store)
    table.upsert(rows({"ts": 5}))


def test_rows_of_a_table_without_buckets_are_copied_as_its_error_says(
    golden_table: Golden, tmp_path: Path
) -> None:
    found = Table.open(golden_table("mor_simple_index_positions"))
    with pytest.raises(UnsupportedError, match=r"create_table\(\.\.\.\), then bulk_insert") as error:
        found.upsert(GOLDEN_ROWS)
    advice = str(error.value).partition("then ")[2].rstrip(".")
    schema = found.to_arrow(meta_columns=False).schema
    copy = create_table(tmp_path / "copy", schema, key="id", partition="dt", ordering="ts", buckets=2)
    eval(f"copy.{advice}", {"copy": copy, "Table": Table})  # what a reader of it would type
    assert copy.to_arrow(columns=["id", "name"]).sort_by("id") == found.to_arrow(
        columns=["id", "name"]
    ).sort_by("id")


@pytest.mark.parametrize("lost", ["hoodie.bucket.index.hash.field", "bucketlake.key.encoding"])
def test_a_table_of_ours_that_lost_what_it_says_of_its_buckets_is_mended_and_not_adopted(
    table: Table, lost: str
) -> None:
    text = table.store.read(".hoodie/hoodie.properties").decode()
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(lost)]
    table.store.put(".hoodie/hoodie.properties", "".join(kept[1:]).encode())
    with (
        unchanged(table.store),
        pytest.raises(LayoutMismatchError, match=f"has lost {lost}.*fsck .* --repair") as error,
    ):
        table.upsert(rows({"ts": 5}))
    assert "adopt" not in str(error.value)
    mend = plan_mend(table.store)
    assert mend is not None
    run_mend(table.store, mend)
    Table.open(table.store.uri).upsert(rows({"ts": 5}))


@pytest.mark.parametrize("index", [SimpleBuckets(2), ConsistentBuckets(2)])
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_stray_file_group_in_a_table_of_ours_goes_when_its_partition_is_written_anew(
    empty: Callable[..., Table], index: IndexValue, table_type: str
) -> None:
    """`adopt`, which was the advice once, refuses it as well."""
    table = empty(buckets=None, index=index, table_type=table_type)
    table.bulk_insert(rows(*({"id": key} for key in "abcdef")))
    base = table.layout().partitions[0].slices[0].base_file
    assert base is not None
    store, path = table.store, base.path
    folder, _, name = path.rpartition("/")
    store.put(f"{folder}/00000099{name[8:]}", store.read(path))
    with pytest.raises(CorruptTableError, match="write it anew with overwrite") as error:
        table.upsert(rows({"ts": 5}))
    assert "adopt" not in str(error.value)
    table.overwrite(table.to_arrow())
    table.upsert(rows({"ts": 5}))
    assert sorted(table.to_arrow()["id"].to_pylist()) == list("abcdef")


def test_logs_in_a_table_that_is_said_to_be_copy_on_write_are_not_lost(empty: Callable[..., Table]) -> None:
    table = empty(table_type="MERGE_ON_READ")
    table.bulk_insert(rows(*({"id": key} for key in "abcdef")))
    table.upsert(rows({"ts": 2, "n": 2}))
    update_properties(table.store, {"hoodie.table.type": "COPY_ON_WRITE"})
    changed = Table.open(table.store.uri)
    with (
        unchanged(table.store, markers=False),
        pytest.raises(CorruptTableError, match=r"hoodie\.table\.type, put MERGE_ON_READ back"),
    ):
        changed.upsert(rows({"ts": 5, "n": 5}))
    update_properties(table.store, {"hoodie.table.type": "MERGE_ON_READ"})
    Table.open(table.store.uri).compact()
    assert [row["n"] for row in table.to_arrow().to_pylist() if row["id"] == "a"] == [2]


def test_an_index_type_that_was_changed_is_to_be_put_back(table: Table) -> None:
    update_properties(table.store, {"hoodie.index.type": "BLOOM"})
    with unchanged(table.store), pytest.raises(UnsupportedError, match=r"BLOOM.*put BUCKET back"):
        table.upsert(rows({"ts": 5}))
    update_properties(table.store, {"hoodie.index.type": "BUCKET"})
    table.upsert(rows({"ts": 5}))


def test_deleting_partitions_that_are_not_there_is_refused(table: Table) -> None:
    with unchanged(table.store), pytest.raises(ConfigError, match="no partition '2026-06-19'"):
        table.delete_partitions(["2026-06-18", "2026-06-19"])


def test_keys_to_delete_of_another_type_are_refused(table: Table) -> None:
    with unchanged(table.store), pytest.raises(FilterError, match="id"):
        table.delete([1, 2])


class ChangingRows(ArrowRows):
    """Rows that are others when they are written than when they were counted, as those of `rand()` may be."""

    def __init__(self, counted: pa.Table, written: pa.Table) -> None:
        super().__init__(counted)
        self._counted, self._written = counted, ArrowRows(written)

    def run(self, plan: WriteState) -> Ran:
        keys = plan.keys.record_keys(self._counted.combine_chunks())
        sent = KeySum(len(keys), sum(g.received_sum for g in self._written.run(plan)[1]) + len(keys))
        return Ran(sent, self._written.run(plan)[1])


@pytest.mark.shows("X3")
@pytest.mark.parametrize("operation", [Operation.UPSERT, Operation.INSERT_OVERWRITE, Operation.DELETE])
def test_rows_that_are_others_when_written_than_when_counted_are_not_committed(
    table: Table, operation: Operation
) -> None:
    changing = ChangingRows(rows({"id": "a"}), rows({"id": "b", "ts": 2}))
    with (
        unchanged(table.store, markers=False),
        pytest.raises(ProofError, match="were sent to the writing tasks"),
    ):
        run_write(changing, table.store, operation)
    table.upsert(rows({"ts": 3}))


class RetriedRows(ArrowRows):
    """Rows whose writing task fails once it has written everything, and has others when it runs again."""

    def __init__(self, *attempts: pa.Table) -> None:
        super().__init__(attempts[-1])
        self._failed = attempts[:-1]

    def run(self, plan: WriteState) -> Ran:
        for attempt in self._failed:
            ArrowRows(attempt).run(plan)
        return super().run(plan)


def numbered(numbers: Sequence[int], **change: Any) -> pa.Table:
    return rows(*({"id": f"k{number}", "ts": 5} | change for number in numbers))


@pytest.mark.shows("X2", "X3")
@pytest.mark.parametrize(
    ("first", "then", "error", "words"),
    [
        (numbered(range(9)), numbered(range(8)), ConfigError, "two attempts at .* had different rows"),
        (numbered(range(9), dt="one"), numbered(range(9), dt="other"), ProofError, "attempt that failed"),
    ],
)
def test_a_task_that_has_other_rows_when_it_runs_again_fails_the_write(
    table: Table, first: pa.Table, then: pa.Table, error: type[Exception], words: str
) -> None:
    with unchanged(table.store, markers=False), pytest.raises(error, match=words):
        run_write(RetriedRows(first, then), table.store, Operation.UPSERT)
    table.upsert(numbered(range(9)))
    assert table.to_arrow().num_rows == 6 + 9


def test_a_task_that_has_the_same_rows_when_it_runs_again_does_not(table: Table) -> None:
    again = numbered(range(9))
    run_write(RetriedRows(again, again, again), table.store, Operation.UPSERT)
    assert table.to_arrow().num_rows == 6 + 9


def test_rows_in_partitions_that_they_did_not_name_before_are_not_committed(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.upsert(numbered(range(4), dt="other"))
    monkeypatch.setattr(job, "PARTITIONS_LISTED_WHOLE", 0)

    class Moving(ArrowRows):
        def distinct(self, columns: Sequence[str]) -> pa.Table:
            return rows({"dt": "another"}).select(list(columns))

    with (
        unchanged(table.store, markers=False),
        pytest.raises(ProofError, match="rows of the partition 'other' arrived"),
    ):
        run_write(Moving(numbered(range(4), dt="other", ts=9)), table.store, Operation.UPSERT)
    table.upsert(numbered(range(4), dt="other", ts=9))
    assert table.to_arrow().num_rows == 6 + 4
