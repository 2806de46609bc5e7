"""One bit of a committed file is turned over: who reads it gets the true rows or an error of ours, and `fsck` sees it.

That holds for what we wrote. Hudi's footers and logs have no checksums.

`make soak` turns 1,000 bits of each kind of file, spread evenly over it; `BUCKETLAKE_FLIPS` says another number.
"""

from __future__ import annotations

import datetime
import decimal
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from bucketlake import Table, create_table
from bucketlake.errors import BucketlakeError
from bucketlake.layout import BaseFile
from bucketlake.state import files_of, load_state
from plugins.soak import IS_SOAK

FLIPS = int(os.environ.get("BUCKETLAKE_FLIPS", 1_000 if IS_SOAK else 100))

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("state", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("score", pa.float64()),
        ("seen", pa.timestamp("us", tz="UTC")),
        ("is_open", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("where", pa.struct([("street", pa.string()), ("number", pa.int32())])),
        ("ts", pa.int64()),
    ]
)
KEYS = [3, 70, 299, 1_000]
"""One of each kind: only in the base file, in the log too, deleted by the log, nowhere."""


def rows(keys: range, ts: int) -> pa.Table:
    day = datetime.datetime(2024, 5, 1, tzinfo=datetime.UTC)
    values = [
        {
            "id": n,
            "name": f"name {n * 7919 % 1009} of {ts}",
            "state": ["new", "paid", "sent", None][n % 4],
            "amount": decimal.Decimal(n * ts) / 100,
            "score": None if n % 5 == 0 else n / 7,
            "seen": day + datetime.timedelta(minutes=n * ts),
            "is_open": n % 3 == 0,
            "tags": [f"t{n % 6}", "x"][: n % 3],
            "where": {"street": f"street {n % 40}", "number": n % 90},
            "ts": ts,
        }
        for n in keys
    ]
    return pa.Table.from_pylist(values, SCHEMA)


def base_file(table: Table) -> None:
    table.upsert(rows(range(300), 10))


def parquet_log(table: Table) -> None:
    table.upsert(rows(range(300), 10))
    table.upsert(rows(range(50, 250), 20), log_format="parquet")


def avro_log(table: Table) -> None:
    table.upsert(rows(range(300), 10))
    table.upsert(rows(range(50, 250), 20), log_format="avro")


def log_of_deletes(table: Table) -> None:
    table.upsert(rows(range(300), 10))
    table.delete(list(range(290, 300)))


def instant(table: Table) -> None:
    """The newest commit, which tells the table's columns."""
    avro_log(table)


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    """Turn one bit over, and back; every state of the file is another one to who remembers it by its time."""
    sound = path.read_bytes()
    damaged = bytearray(sound)
    damaged[bit // 8] ^= 1 << bit % 8
    path.write_bytes(damaged)
    os.utime(path, ns=(bit + 1, bit + 1))
    try:
        yield
    finally:
        path.write_bytes(sound)


@pytest.mark.timeout(3600)
@pytest.mark.shows("X3")
@pytest.mark.parametrize("written", [base_file, parquet_log, avro_log, log_of_deletes, instant])
def test_no_flipped_bit_reads_as_other_values_and_fsck_sees_every_one(
    tmp_path: Path, written: Callable[[Table], None]
) -> None:
    table = create_table(
        tmp_path, SCHEMA, key="id", ordering="ts", buckets=1, table_type="MERGE_ON_READ", name="flips"
    )
    written(table)
    state = load_state(table.store)
    newest = max(files_of(state)[""], key=lambda file: file.instant)
    assert isinstance(newest, BaseFile) == (written is base_file)
    path = tmp_path / (state.timeline.writes[-1] if written is instant else newest).path
    asked: dict[str, Callable[[], pa.Table]] = {
        "to_arrow": lambda: table.to_arrow().sort_by("id"),
        "one column": lambda: table.to_arrow(columns=["score"]),
        "get": lambda: pa.concat_tables(table.get(key) for key in KEYS),
    }
    true = {name: ask() for name, ask in asked.items()}
    assert table.fsck().is_sound
    seen: Counter[str] = Counter()
    wrong = []
    size = path.stat().st_size
    for number in range(FLIPS):
        bit = number * size // FLIPS * 8 + number % 8
        with flipped(path, bit):
            for name, ask in asked.items():
                try:
                    is_true = ask() == true[name]
                except BucketlakeError:
                    seen[f"{name}: error"] += 1
                except Exception as error:
                    wrong.append(f"bit {bit}, {name}: {type(error).__name__}: {error}")
                else:
                    seen[f"{name}: {'true rows' if is_true else 'other rows'}"] += 1
                    if not is_true:
                        wrong.append(f"bit {bit}, {name}: other rows")
            try:
                if table.fsck().is_sound:
                    wrong.append(f"bit {bit}, fsck: sound")
            except Exception as error:
                wrong.append(f"bit {bit}, fsck: {type(error).__name__}: {error}")
    print(f"\n{written.__name__}: {FLIPS} flips in {size:,} bytes: {dict(sorted(seen.items()))}")
    assert not wrong, f"{len(wrong)} of {FLIPS}:\n" + "\n".join(wrong[:40])
    assert table.to_arrow().sort_by("id") == true["to_arrow"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["cow_all_types", "mor_all_types", "mor_all_types_parquet_log"])
def test_a_flipped_bit_of_a_file_of_hudis_never_ends_in_a_foreign_error(
    golden_table: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """Hudi's footers and logs have no checksums, so that some bits do read as other values; they are counted."""
    table = Table.open(shutil.copytree(golden_table(name), tmp_path / "copy"))
    part = max(table.plan().slices, key=lambda part: len(part.log_files))
    newest = part.log_files[-1] if part.log_files else part.base_file
    assert newest is not None
    path = tmp_path / "copy" / newest.path
    true = table.to_arrow(meta_columns=True)
    seen: Counter[str] = Counter()
    size = path.stat().st_size
    for number in range(FLIPS):
        with flipped(path, number * size // FLIPS * 8 + number % 8):
            try:
                seen["true rows" if table.to_arrow(meta_columns=True) == true else "other rows"] += 1
            except BucketlakeError:
                seen["error"] += 1
            seen["sound" if table.fsck().is_sound else "found by fsck"] += 1
    print(f"\n{name}: {FLIPS} flips in {size:,} bytes: {dict(sorted(seen.items()))}")
    assert seen["error"] > seen["other rows"]
