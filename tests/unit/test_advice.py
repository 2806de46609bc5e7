"""A user makes a table once and by this advice: figures that no table would have are worse than none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import bucketlake
from bucketlake import (
    ConsistentBuckets,
    DynamicBuckets,
    PartitionBuckets,
    RecordIndex,
    SimpleBuckets,
    create_table,
)
from bucketlake.advice import IndexAdvice, Source, advise_on_rows, rates
from bucketlake.advice.choice import spelled
from bucketlake.advice.figures import TOO_LARGE_BYTES
from bucketlake.advice.keys import Keys, gather
from bucketlake.advice.replay import replay
from bucketlake.errors import ConfigError
from bucketlake.index import HashingMetadata, IndexValue, bucket_of, ring_hash_of
from bucketlake.index.told import index_of_text
from bucketlake.keygen import KeyGenerator, PartitionField
from bucketlake.sql.create import parse_create
from bucketlake.sql.tokens import Cursor

pytestmark = pytest.mark.shows("X5")

GENERATOR = KeyGenerator(
    record_key_fields=("id",), encodes_field_names=False, partition_fields=(PartitionField("day"),)
)
MIB = 1 << 20


def rows_of(*counts: int, seed: int = 1) -> pa.Table:
    """Rows with keys of their own, so many in each day."""
    rng = np.random.default_rng(seed)
    total = sum(counts)
    ids = [f"o-{number:016x}" for number in rng.integers(0, 1 << 62, total)]
    days = np.repeat([f"2026-06-{day + 1:02d}" for day in range(len(counts))], counts)
    return pa.table({"id": ids, "day": days, "ts": np.arange(total), "amount": rng.random(total)})


def keys_of(rows: pa.Table, *, row_bytes: float = 100.0, **more: Any) -> Keys:
    return gather([rows], GENERATOR, rows=rows.num_rows, row_bytes=row_bytes, **more)


# ------------------------------------------------------------------------------------------------------ rates


@pytest.mark.parametrize(
    ("measured", "modelled"),
    [
        # docs/benchmarks.md, Growth: 10,000 rows; four partitions of eight buckets, or one partition
        (0.15, rates.merge_on_read_seconds(rows=10_000, groups=32)),
        (0.91, rates.merge_on_read_seconds(rows=10_000, groups=256)),
        (0.02, rates.merge_on_read_seconds(rows=10_000, groups=4)),
        (0.63, rates.copy_on_write_seconds(rows=10_000, groups=32, rewritten=1_005_000)),
        (2.28, rates.copy_on_write_seconds(rows=10_000, groups=32, rewritten=5_005_000)),
        (1.42, rates.copy_on_write_seconds(rows=10_000, groups=256, rewritten=205_000)),
        # the same, Cold: 50,000 rows into 80 buckets, of a million rows and more
        (1.25, rates.copy_on_write_seconds(rows=50_000, groups=80, rewritten=1_025_000)),
        (0.31, rates.merge_on_read_seconds(rows=50_000, groups=80)),
        (0.11, rates.read_seconds(rows=1_250_000, groups=80)),
        (0.34, rates.read_seconds(rows=1_250_000, groups=80, logs=400)),
        # the same, one key: of a million rows, a day with 40 %, four buckets each
        (0.0168, rates.key_seconds(group_rows=45_000)),
        (0.0273, rates.key_seconds(group_rows=45_000, groups=20)),
        (0.0392, rates.key_seconds(group_rows=180_000)),
        # docs/limits.md, warm: sixteen buckets in four partitions
        (0.078, rates.merge_on_read_seconds(rows=1_000, groups=16)),
        (0.13, rates.merge_on_read_seconds(rows=100_000, groups=16)),
        (
            0.29,
            _recorded := rates.merge_on_read_seconds(rows=100_000, groups=16)
            + rates.index_seconds(rows=100_000),
        ),
        (0.25, _recorded),
        *(
            (
                seconds,
                rates.merge_on_read_seconds(rows=rows, groups=16)
                + rates.index_seconds(rows=rows, blocks=rates.blocks_read(rows=rows, keys=keys)),
            )
            for keys, rows, seconds in [
                (1e6, 1_000, 0.10),
                (1e6, 100_000, 0.29),
                (5e6, 20_000, 0.35),
                (5e6, 100_000, 0.52),
                (20e6, 1_000, 0.14),
                (20e6, 20_000, 0.84),
                (20e6, 100_000, 1.4),
            ]
        ),
        *(
            (
                seconds,
                rates.merge_on_read_seconds(rows=rows, groups=16) + rates.index_seconds(rows=rows, shards=16),
            )
            for rows, seconds in [(1_000, 0.20), (20_000, 0.27), (100_000, 0.35)]
        ),
    ],
)
def test_the_rates_give_what_was_measured_within_a_factor_of_two(measured: float, modelled: float) -> None:
    assert measured / 2 <= modelled <= measured * 2


def test_every_rate_names_where_it_was_measured() -> None:
    docs = Path(__file__).parents[2]
    for name, rate in rates.RATES.items():
        page, _, section = rate.source.partition(", ")
        text = (docs / page).read_text()
        assert section.split(",")[0] in text, f"{name}: {page} has no section {section}"
    assert "2026-11-19" in rates.MEASURED


# ----------------------------------------------------------------------------------------------------- replay


def test_buckets_are_those_that_a_table_would_have() -> None:
    rows = rows_of(300, 20)
    spread = replay(SimpleBuckets(4), keys_of(rows))
    wanted: dict[tuple[str, int], int] = {}
    for key, day in zip(rows["id"].to_pylist(), rows["day"].to_pylist(), strict=True):
        place = (day, bucket_of([key], 4))
        wanted[place] = wanted.get(place, 0) + 1
    assert spread.rows.tolist() == [wanted[place] for place in sorted(wanted)]


def test_rings_are_those_that_a_table_would_have() -> None:
    rows = rows_of(300, 20)
    spread = replay(ConsistentBuckets(4), keys_of(rows))
    wanted: dict[tuple[str, int], int] = {}
    for key, day in zip(rows["id"].to_pylist(), rows["day"].to_pylist(), strict=True):
        ring = HashingMetadata.initial(day, 4).ring
        place = (day, ring.node_of(ring_hash_of([key])).value)
        wanted[place] = wanted.get(place, 0) + 1
    assert spread.rows.tolist() == [wanted[place] for place in sorted(wanted)]


@pytest.mark.parametrize(
    "index",
    [
        SimpleBuckets(2),
        PartitionBuckets("^2026-06-01$,8", default=2),
        ConsistentBuckets(2),
        DynamicBuckets(assigners=2, keys_per_bucket=100),
        RecordIndex(per_partition=True),
        RecordIndex(),
    ],
    ids=spelled,
)
def test_a_table_of_these_rows_has_the_file_groups_that_were_foretold(index: IndexValue) -> None:
    rows = rows_of(500, 60, 60)
    table = create_table(
        f"memory://advised-{spelled(index)}",
        rows.schema,
        key="id",
        partition="day",
        ordering="ts",
        index=index,
    )
    table.bulk_insert(rows)
    found = [
        table.get(rows["id"].to_pylist(), columns=["_hoodie_file_name"])["_hoodie_file_name"].value_counts()
    ]
    wanted = sorted(count for column in found for count in column.field("counts").to_pylist())
    assert sorted(replay(index, keys_of(rows, row_bytes=30.0)).rows.tolist()) == wanted


def test_keys_of_several_columns_are_placed_as_a_table_places_them() -> None:
    rows = rows_of(400)
    advice = bucketlake.advise(rows, key=["id", "ts"])
    table = create_table("memory://advised-pairs", rows.schema, key=["id", "ts"], buckets=4)
    table.bulk_insert(rows)
    generator = KeyGenerator.from_properties(table.properties)
    keys = gather([rows], generator, rows=400, row_bytes=30.0)
    found = table.to_arrow(columns=["_hoodie_file_name"])["_hoodie_file_name"].value_counts().field("counts")
    assert sorted(replay(SimpleBuckets(4), keys).rows.tolist()) == sorted(found.to_pylist())
    assert (advice.keys, advice.partitions) == (400, 1)
    assert 'key=["id", "ts"]' in advice.python


def test_rows_are_as_large_as_in_a_table() -> None:
    rows = rows_of(40_000)
    table = create_table("memory://advised-sizes", rows.schema, key="id", partition="day", buckets=1)
    table.bulk_insert(rows)
    advice = bucketlake.advise(rows, key="id", partition="day")
    assert advice.chosen.now.largest_bytes == pytest.approx(table.layout().size_bytes, rel=0.15)


def test_large_buckets_of_a_ring_are_split_and_no_row_is_lost() -> None:
    keys = keys_of(rows_of(5_000, 100), row_bytes=MIB)
    spread = replay(ConsistentBuckets(4), keys)
    assert (spread.rows * MIB).max() <= TOO_LARGE_BYTES
    assert spread.rows.sum() == 5_100
    assert len(replay(ConsistentBuckets(4), keys, 10).rows) > 5 * len(spread.rows)


def test_of_versions_of_a_row_one_counts() -> None:
    rows = rows_of(500, 20)
    keys = keys_of(pa.concat_tables([rows, rows.slice(0, 100), rows.slice(50, 7)]))
    assert (keys.rows, keys.distinct, keys.keys_in_several, keys.rows_given) == (520, 520, 0, 627)


def test_a_sample_stands_for_all_and_keeps_whole_keys() -> None:
    rows = rows_of(40_000, 8_000)
    moved = rows.slice(0, 20_000).set_column(1, "day", pa.repeat(pa.scalar("2026-07-01"), 20_000))
    whole = keys_of(pa.concat_tables([rows, moved]))
    part = keys_of(pa.concat_tables([rows, moved]), rows_max=20_000)
    assert (whole.every, part.every) == (1, 4)
    assert whole.keys_in_several == 20_000
    assert part.keys_in_several == pytest.approx(20_000, rel=0.1)
    assert part.rows == pytest.approx(whole.rows, rel=0.1)
    source = Source(tables=[rows], rows=rows.num_rows, head=rows)
    text = str(advise_on_rows(source, key=["id"], partition=["day"], rows_max=20_000))
    assert "A sample: one of 3 keys of 48,000 rows was replayed" in text


# ---------------------------------------------------------------------------------------------------- verdict


def advised(counts: list[int], *, row_mib: float, monkeypatch: pytest.MonkeyPatch) -> IndexAdvice:
    """Advise on rows that are taken to be so large."""
    monkeypatch.setattr("bucketlake.advice.job.row_bytes_of", lambda *_: row_mib * MIB)
    return bucketlake.advise(rows_of(*counts), key="id", partition="day")


@pytest.mark.parametrize(
    ("counts", "row_mib", "index", "because"),
    [
        ([100] * 6, 0.01, "SimpleBuckets(1)", "every partition fits into one file"),
        ([400] * 6, 1.0, "SimpleBuckets(4)", "every partition fits into 4 files"),
        (
            [9_000, 300, *[100] * 10],
            1.0,
            'PartitionBuckets("^2026-06-01$,128;^2026-06-02$,4", default=1)',
            "2 partitions are far larger",
        ),
        ([3_000] * 9 + [100] * 19, 1.0, "ConsistentBuckets(2)", "too many differ to name them"),
        ([500], 1.0, "ConsistentBuckets(4)", "all growth is its growth"),
        ([500], 0.001, "SimpleBuckets(1)", "the rows fit into one file"),
    ],
)
def test_the_verdict_fits_the_partitions(
    counts: list[int], row_mib: float, index: str, because: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = advised(counts, row_mib=row_mib, monkeypatch=monkeypatch)
    assert spelled(advice.verdict.index) == index
    assert because in advice.sentence


def test_files_of_the_advised_count_stay_below_their_size_and_growth_says_when_they_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    advice = advised([2_000] * 4, row_mib=1.0, monkeypatch=monkeypatch)
    assert advice.verdict.index == SimpleBuckets(32)
    assert advice.chosen.now.largest_bytes < 130 * MIB
    twice, tenfold = advice.chosen.grown
    assert (twice.needs, tenfold.needs) == ("", "rescale to 256 buckets")
    assert tenfold.copy_on_write.seconds > advice.chosen.now.copy_on_write.seconds
    assert tenfold.merge_on_read.seconds == pytest.approx(advice.chosen.now.merge_on_read.seconds, rel=0.1)


def test_keys_in_several_partitions_need_an_index_of_the_whole_table() -> None:
    rows = rows_of(500, 500)
    moved = rows.slice(0, 30).set_column(1, "day", pa.repeat(pa.scalar("2026-07-01"), 30))
    advice = bucketlake.advise(pa.concat_tables([rows, moved]), key="id", partition="day")
    assert advice.verdict.index == RecordIndex()
    assert "30 of 1,000 keys (3.0 %) are in several partitions" in advice.sentence
    assert advice.chosen.now.memory_bytes == 10 * 1_000
    assert 0 < advice.chosen.now.saved_by_cache_seconds < advice.chosen.now.merge_on_read.seconds
    assert advice.rows == 1_030


def test_what_is_to_be_copied_makes_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = advised([9_000, *[100] * 10], row_mib=1.0, monkeypatch=monkeypatch)
    made = eval(advice.python.replace("PATH", "memory://advised-copied"), vars(bucketlake))
    assert str(advice.verdict.index) in made.describe().index
    parsed = parse_create(Cursor(advice.sql))
    assert (parsed.index, parsed.key, parsed.partition) == (advice.verdict.index, ("id",), ("day",))


def test_partitions_with_odd_names_are_named_by_rules_that_find_them_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bucketlake.advice.job.row_bytes_of", lambda *_: float(MIB))
    rows = rows_of(2_000, *[50] * 9)
    odd = pa.array(
        ["a.b (c)+{d}*$|?" if day == "2026-06-01" else f"axb{day}" for day in rows["day"].to_pylist()]
    )
    advice = bucketlake.advise(rows.set_column(1, "day", odd), key="id", partition="day")
    index = advice.verdict.index
    assert isinstance(index, PartitionBuckets)
    assert advice.chosen.now.file_groups == 32 + 9
    assert index_of_text(spelled(index)) == index


def test_the_type_of_a_table_is_told_where_batches_would_write_much_anew() -> None:
    large, small = (
        str(bucketlake.advise(pa.table({"id": np.arange(n)}), key="id")) for n in (300_000, 1_000)
    )
    assert 'For many small batches: table_type="MERGE_ON_READ"' in large
    assert "MERGE_ON_READ" not in small


def test_partitions_that_are_too_fine_are_told() -> None:
    coarse, fine = (
        str(
            bucketlake.advise(
                pa.table({"id": range(2_000), "p": [n % many for n in range(2_000)]}), key="id", partition="p"
            )
        )
        for many in (10, 1_000)
    )
    assert "coarser partitions" in fine
    assert "coarser partitions" not in coarse


# ---------------------------------------------------------------------------------------------------- callers


@pytest.mark.parametrize(
    ("call", "found"),
    [
        (lambda rows: bucketlake.advise(rows), "no key was named"),
        (lambda rows: bucketlake.advise(rows, key="no"), "the key is 'no', and there is no such column"),
        (lambda rows: bucketlake.advise(rows, key="id", partition="no"), "the partition is 'no'"),
        (lambda rows: bucketlake.advise(rows.slice(0, 0), key="id"), "there are no rows"),
        (lambda rows: bucketlake.advise([], key="id"), "there is no such column"),
        (lambda rows: bucketlake.advise("orders.parquet", key="id"), "the rows are a path.*Table.open"),
        (lambda rows: bucketlake.advise(rows, key="id", batch_rows=0), "batch_rows is 0"),
        (
            lambda rows: bucketlake.advise(rows, key="id", growth=(1,)),
            "growth has 1; expected numbers above 1",
        ),
        (lambda rows: bucketlake.advise(rows, key="id", growth="2"), "growth is '2'"),
        (
            lambda rows: bucketlake.advise(
                rows.set_column(0, "id", pa.array([None, *rows["id"].to_pylist()[:-1]])), key="id"
            ),
            "column 'id' is null or empty in row 1,",
        ),
    ],
)
def test_bad_input_is_refused_with_what_to_do(call: Callable[[pa.Table], object], found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        call(rows_of(5, 5))


def test_rows_of_every_kind_are_taken() -> None:
    rows = rows_of(40, 10)
    whole = bucketlake.advise(rows, key="id", partition="day").as_json()
    assert bucketlake.advise(rows.to_pandas(), key="id", partition="day").as_json() == whole
    encoded = rows.set_column(1, "day", rows["day"].dictionary_encode())
    large = encoded.set_column(0, "id", rows["id"].cast(pa.large_string()))
    assert bucketlake.advise(encoded, key="id", partition="day").as_json() == whole
    assert bucketlake.advise(large, key="id", partition="day").rows == 50
    assert bucketlake.advise(rows.to_pylist(), key=["id"], partition=["day"]).as_json() == whole


def test_a_table_says_its_key_itself_and_what_it_has() -> None:
    rows = rows_of(400, 100)
    table = create_table("memory://advised", rows.schema, key="id", partition="day", buckets=16)
    with pytest.raises(ConfigError, match="there are no rows"):
        table.advise()
    table.bulk_insert(rows)
    advice = bucketlake.advise(table)
    assert [spelled(engine.index) for engine in advice.engines][:2] == [
        "SimpleBuckets(16)",
        "SimpleBuckets(1)",
    ]
    assert "The table has simple buckets: 16 per partition" in str(advice)
    assert advice.sentence.startswith("Take SimpleBuckets(1)")
    assert "_hoodie" not in advice.python + advice.sql
    with pytest.raises(ConfigError, match="says itself that its key is id"):
        bucketlake.advise(table, key="id")


def test_a_table_whose_index_keeps_keys_unique_is_told_to_keep_it() -> None:
    rows = rows_of(400, 100)
    table = create_table(
        "memory://advised-unique", rows.schema, key="id", partition="day", index=RecordIndex()
    )
    table.bulk_insert(rows)
    advice = table.advise(batch_rows=10, growth=())
    assert advice.verdict.index == RecordIndex()
    assert advice.sentence.startswith("Keep RecordIndex(): ")
    assert "buckets do not" in advice.sentence
    assert "create_table(" not in str(advice)
    assert (advice.batch_rows, advice.chosen.grown) == (10, ())


def test_a_table_with_rules_or_with_an_index_of_hudi_is_compared_with_what_it_has(
    golden_table: Callable[[str], Path],
) -> None:
    ruled = bucketlake.Table.open(golden_table("mor_partition_bucket")).advise()
    assert spelled(ruled.engines[0].index).startswith('PartitionBuckets("2024-03-01,5;')
    unique = bucketlake.Table.open(golden_table("cow_global_rli")).advise()
    assert unique.sentence.startswith("Keep RecordIndex(): ")
    old = bucketlake.Table.open(golden_table("mor_v6")).advise()
    assert old.rows == 12


def test_a_notebook_shows_the_verdict_and_escapes_names() -> None:
    rows = pa.table({"<b>": ["a", "b"]})
    page = bucketlake.advise(rows, key="<b>")._repr_html_()
    assert "Take SimpleBuckets(1)" in page
    assert "<b>" not in page.replace("<p><b>", "")
