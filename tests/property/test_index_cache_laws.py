"""Whatever is kept of an index, and whatever becomes of it, a table is the dict that it is without.

Histories are longer than those of `test_record_index_laws.py`, and their batches larger. Base files have blocks of some
keys, and every few blocks are kept for themselves: so shards are kept in part. Between the calls files of the cache go,
are damaged, take each other's places, or are those of an earlier moment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bucketlake import DynamicBuckets, RecordIndex, hfile, set_index_cache
from bucketlake.index import shard_cache
from bucketlake.services import check_table
from property.test_record_index_laws import PARTITIONS, Model, a_table, contents, do
from stand_ins.record_index_check import check_record_index

STEPS = 25
ENGINES = {
    "table": RecordIndex(shards=2),
    "partitions": RecordIndex(per_partition=True, shards=2),
    "dynamic": DynamicBuckets(assigners=2, keys_per_bucket=10),
}
BUDGETS = {"tiny": 5_000, "large": 1 << 20}
"""With nothing kept the dict is what `test_record_index_laws.py` has too."""


@pytest.fixture(scope="module", autouse=True)
def small_ranges() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(hfile.encode.__kwdefaults__, "block_bytes", 120)
        patch.setattr(shard_cache, "RANGE_BYTES_MIN", 6 * shard_cache.KEY_BYTES)
        patch.setattr(shard_cache, "RANGE_PART", 1 << 40)
        patch.setattr(shard_cache, "_LOGGED_MIN", 1)
        yield
    set_index_cache(0)


def spoil(folder: Path, dice: random.Random, stale: dict[str, bytes]) -> None:
    """Do something to every second file that is kept."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        data = file.read_bytes()
        match dice.randrange(12) if data else 11:
            case 0:
                file.unlink()
            case 1:
                file.write_bytes(data[: dice.randrange(len(data))])
            case 2:
                at = dice.randrange(len(data))
                file.write_bytes(data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :])
            case 3 | 4 if len(other := dice.choice(sorted(folder.iterdir())).read_bytes()) <= len(data):
                file.write_bytes(other)
            case 5 | 6 if len(other := stale.get(file.name, data)) <= len(data):
                file.write_bytes(other)
            case _:
                stale[file.name] = data


def a_step(dice: random.Random) -> tuple[str, Any]:
    what = dice.choice(
        ["upsert"] * 9
        + ["delete", "delete", "rollback", "rollback", "compact index", "compact index"]
        + ["compact", "cluster", "rebuild", "overwrite", "delete partition"]
    )
    some = [f"{n:02}" for n in dice.sample(range(60), dice.randint(5, 25))]
    match what:
        case "upsert" | "overwrite":
            batch = [(key, dice.choice(PARTITIONS), dice.randrange(20), dice.random() < 0.1) for key in some]
            return what, batch
        case "delete":
            return what, some[:5]
        case "delete partition":
            return what, dice.choice(PARTITIONS)
    return what, []


@pytest.mark.shows("R5")
@pytest.mark.parametrize("budget", BUDGETS.values(), ids=BUDGETS)
@pytest.mark.parametrize("index", ENGINES.values(), ids=ENGINES)
@settings(max_examples=max(1, settings().max_examples // 60), deadline=None, phases=[Phase.generate])
@given(seed=st.integers(0, 1 << 32))
def test_a_table_is_a_dict_whatever_is_kept_of_its_index(
    index: RecordIndex | DynamicBuckets, budget: int, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder, dice = tmp_path_factory.mktemp("kept"), random.Random(f"{index} {budget} {seed}")
    set_index_cache(budget, folder)
    table = a_table(dice.choice(["COPY_ON_WRITE", "MERGE_ON_READ"]), index)
    model = Model(isinstance(index, RecordIndex) and not index.per_partition)
    stale: dict[str, bytes] = {}
    for number in range(STEPS):
        step = a_step(dice)
        do(table, model, step, number)
        assert sum(file.stat().st_size for file in folder.iterdir()) <= budget
        spoil(folder, dice, stale)
        assert contents(table, is_global=model.is_global) == model.rows, step
    check_record_index(table.store)
    assert check_table(table.store).damage == ()
