"""Buckets that split and merge in use. A row that a resize forgets, or shows twice, is a row lost or doubled."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import ConsistentBuckets, ExtendibleBuckets, ResizeTrigger, SimpleBuckets, Table, create_table
from bucketlake.commit.recovery import recover
from bucketlake.config import load_properties
from bucketlake.errors import CommitConflictError, ConfigError, ConflictError, CorruptTableError, InstantError
from bucketlake.index import HashingMetadata, RingIndex, resolve_index
from bucketlake.index.rings import GrowingBuckets
from bucketlake.layout.names import hashing_commit_path, hashing_metadata_path
from bucketlake.services import (
    Retention,
    abort_resize,
    archive_table,
    check_table,
    clean_table,
    compact_table,
    create_savepoint,
    here,
    look_for_resize,
    look_for_restore,
    look_for_rollback,
    resize_table,
    run_resize,
    run_restore,
    run_rollback,
    schedule_resize,
)
from bucketlake.state import load_state
from bucketlake.storage import LocalStore
from bucketlake.testing.invariants import check_invariants
from bucketlake.timeline import Action
from bucketlake.write import ArrowRows, Operation, run_write

SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("v", pa.int64())])
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
ENGINES = [ConsistentBuckets, ExtendibleBuckets]
SPLIT = ResizeTrigger(file_bytes=2_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)
MERGE = ResizeTrigger()
_numbers = itertools.count()


def rows_of(keys: range | list[int], ts: int = 1, days: int = 2) -> pa.Table:
    rows = [(f"k{n}", f"d{n % days}", ts, n) for n in keys]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def a_table(path: object = None, table_type: str = "MERGE_ON_READ", **more: Any) -> Table:
    return create_table(
        str(path or f"memory://resize-{next(_numbers)}"),
        SCHEMA,
        key="id",
        partition="dt",
        ordering="ts",
        **{"index": ConsistentBuckets(2), "table_type": table_type, **more},
    )


def loaded(path: object = None, table_type: str = "MERGE_ON_READ", **more: Any) -> Table:
    table = a_table(path, table_type, **more)
    table.upsert(rows_of(range(400)))
    table.upsert(rows_of(range(100, 300), ts=2))
    return table


def contents(table: Table, **how: Any) -> dict[str, tuple[str, int, int]]:
    rows = table.to_arrow(columns=SCHEMA.names, **how).to_pylist()
    found = {row["id"]: (row["dt"], row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def counts(table: Table) -> dict[str, int | None]:
    return {part.partition: part.buckets for part in table.layout().partitions}


def schedule(table: Table, trigger: ResizeTrigger = SPLIT) -> str:
    instant = schedule_resize(table.store, look_for_resize(table.store, trigger))
    assert instant is not None
    return instant


def rings_of(table: Table) -> Mapping[str, HashingMetadata]:
    state = load_state(table.store)
    found = resolve_index(state).resizable
    assert found is not None
    return found.rings


def check(table: Table) -> None:
    check_invariants(table)
    report = check_table(table.store)
    assert report.damage == (), str(report)


@pytest.mark.shows("C1", "C2", "C9")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table_type", TYPES)
def test_the_first_write_makes_the_ring_that_everybody_derives(
    table_type: str, engine: type[GrowingBuckets]
) -> None:
    table = loaded(table_type=table_type, index=engine(2))
    rings = rings_of(table)
    assert sorted(rings) == ["d0", "d1"]
    assert {ring.instant for ring in rings.values()} == {"00000000000000"}
    assert counts(table) == {"d0": 2, "d1": 2}
    assert len(contents(table)) == 400
    check(table)


@pytest.mark.shows("C4", "C5")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_split_and_a_merge_rewrite_only_the_buckets_they_name(
    table_type: str, engine: type[GrowingBuckets]
) -> None:
    table = loaded(table_type=table_type, index=engine(2))
    before = contents(table)
    due = table.buckets.plan_resize(file_bytes=2_000, split_threshold=1.0, merge_threshold=0.1)
    assert counts(table) == {"d0": 2, "d1": 2}, "a dry run changes nothing"
    assert due.work.size_bytes > 0 and "before [" in str(due)
    (done,) = resize_table(table.store, SPLIT, rounds=1)
    assert (done.replaced, done.file_groups, done.rows) == (4, 8, 400)
    assert counts(table) == {"d0": 4, "d1": 4}
    assert contents(table) == before
    check(table)
    (merged,) = resize_table(table.store, MERGE)
    assert (merged.replaced, merged.file_groups) == (8, 2)
    assert counts(table) == {"d0": 1, "d1": 1}
    assert contents(table) == before
    check(table)
    table.upsert(rows_of(range(390, 420), ts=5))
    assert len(contents(table)) == 420
    check(table)


@pytest.mark.shows("C6")
@pytest.mark.parametrize(
    ("engine", "virtual_logs", "trigger", "ends"),
    [
        (ConsistentBuckets, False, SPLIT, "run"),
        (ConsistentBuckets, False, MERGE, "run"),
        (ConsistentBuckets, False, SPLIT, "abort"),
        (ConsistentBuckets, False, MERGE, "rollback"),
        (ConsistentBuckets, True, SPLIT, "run"),
        (ConsistentBuckets, True, MERGE, "run"),
        (ConsistentBuckets, True, MERGE, "abort"),
        (ConsistentBuckets, True, SPLIT, "rollback"),
        (ExtendibleBuckets, False, SPLIT, "rollback"),
        (ExtendibleBuckets, False, MERGE, "run"),
        (ExtendibleBuckets, True, SPLIT, "run"),
        (ExtendibleBuckets, True, MERGE, "abort"),
    ],
)
def test_writes_beside_a_resize_are_seen_before_and_after_it(
    engine: type[GrowingBuckets], virtual_logs: bool, trigger: ResizeTrigger, ends: str
) -> None:
    table = loaded(index=engine(2, virtual_logs=virtual_logs))
    instant = schedule(table, trigger)
    summary = table.upsert(rows_of(range(50, 150), ts=3))
    assert (summary.rows, summary.logged) == (100, 100), "a row is counted once"
    table.upsert(rows_of(range(395, 430), ts=3), log_format="avro")
    table.delete([f"k{n}" for n in range(10)])
    during = contents(table)
    assert len(during) == 420 and during["k60"] == ("d0", 3, 60)
    check(table)
    state = load_state(table.store)
    moment = state.timeline.writes[-1].requested
    begin = state.timeline.writes[1].completed
    changed = contents(table, begin=begin)
    assert {key for key, row in changed.items() if row[1] == 3} >= {f"k{n}" for n in range(50, 150)}
    if ends != "run":
        assert abort_resize(table.store, instant) if ends == "abort" else table.rollback(instant)
        assert counts(table) == {"d0": 2, "d1": 2}
    else:
        run_resize(table.store, instant)
        assert set(counts(table).values()) == {4 if trigger is SPLIT else 1}
    assert contents(table) == during
    assert contents(table, as_of=moment) == during
    assert contents(table, begin=begin) == changed, "what changed is told once, before and after"
    assert load_state(table.store).timeline.pending() == ()
    check(table)
    compact_table(table.store)
    assert contents(table) == during
    assert table.get("k60").to_pylist()[0]["ts"] == 3
    check(table)


@pytest.mark.shows("C6")
@pytest.mark.parametrize("virtual_logs", [False, True])
def test_the_plan_of_an_abort_says_what_it_deletes_and_changes_nothing(virtual_logs: bool) -> None:
    table = loaded(index=ConsistentBuckets(2, virtual_logs=virtual_logs))
    instant = schedule(table)
    table.upsert(rows_of(range(50, 150), ts=3))
    before, rows = table.store.list("", recursive=True).files, contents(table)
    order = table.buckets.plan_abort(instant).work
    assert order is not None
    assert (order.instant.requested, order.instant.action) == (instant, Action.CLUSTERING)
    assert f"clustering of {instant}" in str(order) and all(
        f"delete {file.path}" in str(order) for file in order.files
    )
    assert table.store.list("", recursive=True).files == before
    assert table.buckets.abort(instant) is not None
    left = {file.path for file in table.store.list("", recursive=True).files}
    assert order.files and left.isdisjoint(file.path for file in order.files)
    assert contents(table) == rows
    with pytest.raises(InstantError, match=f"no clustering {instant}"):
        table.buckets.plan_abort(instant)


@pytest.mark.shows("C6")
def test_rows_go_to_the_children_only_where_logs_are_virtual() -> None:
    bytes_written = {}
    for virtual_logs in (False, True):
        table = loaded(index=ConsistentBuckets(2, virtual_logs=virtual_logs))
        schedule(table)
        bytes_written[virtual_logs] = table.upsert(rows_of(range(400), ts=3)).bytes
    assert bytes_written[True] < 0.8 * bytes_written[False]


@pytest.mark.shows("C5", "C6")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_write_that_did_not_know_of_a_resize_is_run_again(table_type: str) -> None:
    table = loaded(table_type=table_type)
    held_up = HeldUp(table, lambda: schedule(table))
    held_up.upsert(rows_of(range(200), ts=7))
    (pending,) = load_state(table.store).timeline.pending(Action.CLUSTERING)
    assert all(row[1] == 7 for key, row in contents(table).items() if int(key[1:]) < 200)
    run_resize(table.store, pending.requested)
    assert all(row[1] == 7 for key, row in contents(table).items() if int(key[1:]) < 200)
    check(table)


@pytest.mark.shows("C6")
@pytest.mark.parametrize("virtual_logs", [False, True])
@pytest.mark.parametrize("how", ["run", "abort"])
def test_a_write_whose_resize_ended_meanwhile_is_run_again(virtual_logs: bool, how: str) -> None:
    table = loaded(index=ConsistentBuckets(2, virtual_logs=virtual_logs))
    instant = schedule(table)
    end = run_resize if how == "run" else abort_resize
    HeldUp(table, lambda: end(table.store, instant)).upsert(rows_of(range(200), ts=7))
    found = contents(table)
    assert len(found) == 400 and all(row[1] == 7 for key, row in found.items() if int(key[1:]) < 200)
    left = [f.path for f in table.store.list("", recursive=True).files if f"_{instant}.log" in f.path]
    assert [path for path in left if not path.startswith(".hoodie")] == [], (
        "nothing is left beside the resize"
    )
    check(table)


@pytest.mark.shows("C6")
def test_what_a_dead_write_left_beside_a_resize_is_removed_before_it_completes() -> None:
    table = loaded()
    instant = schedule(table)

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bucketlake.write.job.abort", lambda transaction: None)
        HeldUp(table, die).upsert(rows_of(range(200), ts=7))
    shadows = [f.path for f in table.store.list("", recursive=True).files if f"_{instant}.log" in f.path]
    assert any(not path.startswith(".hoodie") for path in shadows)
    run_resize(table.store, instant)
    left = [f.path for f in table.store.list("", recursive=True).files if f"_{instant}.log" in f.path]
    assert [path for path in left if not path.startswith(".hoodie")] == []
    assert {row[1] for row in contents(table).values()} == {1, 2}


def test_a_resize_gives_way_to_a_write_that_knew_nothing_of_it() -> None:
    """Hudi's writers know; one that does not, because it was told another update strategy, must not lose rows."""
    table = loaded()
    instant = schedule(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bucketlake.write.state.offspring_of", lambda *_, **__: {})
        table.upsert(rows_of(range(40), ts=7))
    with pytest.raises(CommitConflictError, match="knew nothing of it"):
        run_resize(table.store, instant)
    assert sum(row[1] == 7 for row in contents(table).values()) == 40
    assert counts(table) == {"d0": 2, "d1": 2}
    check(table)
    assert resize_table(table.store, SPLIT, rounds=1)
    assert sum(row[1] == 7 for row in contents(table).values()) == 40


@pytest.mark.thorough
@pytest.mark.shows("C4", "C9")
@pytest.mark.parametrize(
    ("engine", "table_type"),
    [
        (ConsistentBuckets, "COPY_ON_WRITE"),
        (ConsistentBuckets, "MERGE_ON_READ"),
        (ExtendibleBuckets, "MERGE_ON_READ"),
    ],
)
def test_twenty_rounds_of_split_and_merge_lose_nothing(table_type: str, engine: type[GrowingBuckets]) -> None:
    table = loaded(table_type=table_type, index=engine(2))
    truth = contents(table)
    for number in range(20):
        trigger = SPLIT if number % 2 == 0 else MERGE
        assert resize_table(table.store, trigger, rounds=1)
        keys = range(number * 7, number * 7 + 30)
        table.upsert(rows_of(keys, ts=10 + number))
        truth |= {f"k{n}": (f"d{n % 2}", 10 + number, n) for n in keys}
        assert contents(table) == truth
        if number % 5 == 4:
            clean_table(table.store, retain=Retention(commits=3))
            archive_table(table.store, keep_min=3, keep_max=4)
            assert contents(table) == truth
    check(table)
    assert rings_of(table)["d0"].sequence == 20


@pytest.mark.shows("C4", "C9")
@pytest.mark.parametrize(
    ("engine", "policy"),
    [(ConsistentBuckets, "middle"), (ConsistentBuckets, "even"), (ExtendibleBuckets, "middle")],
)
def test_most_records_in_a_tiny_range_are_spread_in_few_rounds(
    engine: type[GrowingBuckets], policy: str
) -> None:
    """Hash fields of which few values occur: their rows crowd a few hashes."""
    schema = pa.schema([("tenant", pa.string()), ("n", pa.int64()), ("ts", pa.int64())])
    table = create_table(
        f"memory://resize-{next(_numbers)}", schema, key=("tenant", "n"),
        ordering="ts", index=engine(2, hash_fields="tenant"), table_type="MERGE_ON_READ",
    )  # fmt: skip
    rows = [{"tenant": f"t{n % 7}", "n": n, "ts": 1} for n in range(3_000)]
    rows += [{"tenant": "hot", "n": n, "ts": 1} for n in range(9_000)]
    table.upsert(pa.Table.from_pylist(rows, schema))
    done = table.buckets.resize(
        file_bytes=4_000, split_threshold=1.0, merge_threshold=0.01, policy=policy, max_buckets=64
    )
    assert 1 <= len(done.runs) <= 8
    due = table.buckets.plan_resize(
        file_bytes=4_000, split_threshold=1.0, merge_threshold=0.01, policy=policy
    )
    assert due.work.is_empty
    assert any("all have one hash" in line for line in due.work.left_alone), "the hot tenant is named"
    assert table.to_arrow().num_rows == 12_000
    check(table)


@pytest.mark.thorough
@pytest.mark.shows("C6", "C9")
@pytest.mark.parametrize(
    ("engine", "table_type", "virtual_logs"),
    [
        (ConsistentBuckets, "MERGE_ON_READ", False),
        (ConsistentBuckets, "MERGE_ON_READ", True),
        (ConsistentBuckets, "COPY_ON_WRITE", False),
        (ExtendibleBuckets, "COPY_ON_WRITE", False),
    ],
)
def test_every_snapshot_is_the_truth_while_writers_and_resizes_never_stop(
    tmp_path: Path, engine: type[GrowingBuckets], table_type: str, virtual_logs: bool
) -> None:
    table = loaded(tmp_path / "t", table_type, index=engine(2, virtual_logs=virtual_logs))
    ended = Event()
    acknowledged: list[int] = []

    def write() -> None:
        number = 10
        while not ended.is_set():
            number += 1
            try:
                Table.open(tmp_path / "t").upsert(rows_of(range(200), ts=number))
            except CommitConflictError:
                continue
            acknowledged.append(number)

    def read() -> int:
        reads = 0
        while not ended.is_set():
            known = acknowledged[-1] if acknowledged else 0
            found = contents(Table.open(tmp_path / "t"))
            newest = {row[1] for key, row in found.items() if int(key[1:]) < 200}
            assert len(found) == 400
            assert len(newest - {1, 2}) <= 1 and min(newest - {1, 2}, default=known) >= known
            reads += 1
        return reads

    with ThreadPoolExecutor(2) as pool:
        writer, reader = pool.submit(write), pool.submit(read)
        done = 0
        try:
            for number in range(60):
                if number >= 6 and acknowledged:
                    break
                trigger = SPLIT if number % 2 == 0 else MERGE
                done += len(resize_table(LocalStore(tmp_path / "t"), trigger, rounds=1))
        finally:
            ended.set()
        writer.result(120)
        assert reader.result(120) > 0
    assert done >= 3 and acknowledged
    assert all(row[1] == acknowledged[-1] for key, row in contents(table).items() if int(key[1:]) < 200)
    check(table)


@pytest.mark.shows("C9")
def test_resizes_of_different_partitions_run_side_by_side_and_of_the_same_one_after_the_other() -> None:
    table = loaded()
    before = contents(table)
    first = schedule(table, ResizeTrigger(file_bytes=2_000, split_threshold=1.0, partitions=("d0",)))
    second = schedule(table, ResizeTrigger(file_bytes=2_000, split_threshold=1.0, partitions=("d1",)))
    busy = look_for_resize(table.store, SPLIT)
    assert busy.is_empty and len(busy.left_alone) == 2
    with pytest.raises(ConflictError, match="'d0' is being resized"):
        table.buckets.resize(partitions="d0")
    table.upsert(rows_of(range(60), ts=5))
    truth = before | {f"k{n}": (f"d{n % 2}", 5, n) for n in range(60)}
    run_resize(table.store, second)
    assert counts(table) == {"d0": 2, "d1": 4}
    run_resize(table.store, first)
    assert counts(table) == {"d0": 4, "d1": 4}
    assert contents(table) == truth
    assert run_resize(table.store, first).instant == first, "what is completed is reported as it is"
    check(table)


def test_two_processes_that_run_one_resize_complete_it_once() -> None:
    table = loaded()
    before = contents(table)
    instant = schedule(table)
    others: list[object] = []

    def twice(function: Callable[[Any], Any], items: Any) -> list[Any]:
        done = here(function, items)
        if not others:
            others.append(True)
            # Taken for dead: its heartbeat is as good as gone.
            table.store.delete(f".hoodie/.heartbeat/{instant}")
            run_resize(table.store, instant)
        return done

    run_resize(table.store, instant, tasks=twice)
    assert contents(table) == before
    check(table)


@pytest.mark.shows("C8")
@pytest.mark.parametrize("engine", ENGINES)
def test_cleaning_removes_outdated_rings_and_archiving_never_falls_back(engine: type[GrowingBuckets]) -> None:
    table = loaded(index=engine(2))
    for number in range(4):
        assert resize_table(table.store, SPLIT if number % 2 == 0 else MERGE, rounds=1)
        table.upsert(rows_of(range(50), ts=20 + number))
    truth = contents(table)
    folder = f"{rings_of(table)['d0'].folder}/d0"

    def versions() -> list[str]:
        return sorted(
            file.path.rpartition("/")[2]
            for file in table.store.list(folder).files
            if file.path.endswith(".hashing_meta")
        )

    all_of_them = versions()
    assert len(all_of_them) == 5
    clean_table(table.store, retain=Retention(commits=2))
    assert versions() == all_of_them[-2:], (
        "the last resize can be taken back; before that nobody reads the files"
    )
    for number in range(6):
        table.upsert(rows_of([1000 + number], ts=50))
        truth[f"k{1000 + number}"] = (f"d{number % 2}", 50, 1000 + number)
    clean_table(table.store, retain=Retention(commits=1))
    assert versions() == all_of_them[-1:]
    assert archive_table(table.store, keep_min=1, keep_max=2).instants
    newest = all_of_them[-1].partition(".")[0]
    timeline = load_state(table.store).timeline
    assert newest not in {i.requested for i in timeline.instants}, "the resize is in the history only"
    index = resolve_index(load_state(table.store))
    assert isinstance(index, RingIndex) and index.rings["d0"].instant == newest
    assert contents(table) == truth
    table.upsert(rows_of(range(20), ts=60))
    assert len(contents(table)) == len(truth)
    check(table)


def test_a_ring_that_nothing_tells_of_counts_only_if_its_file_groups_are_there() -> None:
    """Hudi's rule, for a version that was archived before anybody marked it."""
    table = loaded()
    resize_table(table.store, SPLIT, rounds=1)
    (instant,) = {ring.instant for ring in rings_of(table).values()}
    for number in range(5):
        table.upsert(rows_of([number], ts=30))
    clean_table(table.store, retain=Retention(commits=1))
    archive_table(table.store, keep_min=1, keep_max=2)
    for partition in ("d0", "d1"):
        table.store.delete(hashing_commit_path(partition, instant))
    stray = "20200101000000000"
    ring = table.store.read(hashing_metadata_path("d0", instant))
    table.store.put(
        hashing_metadata_path("d0", stray), ring.replace(b'fileIdPrefix" : "', b'fileIdPrefix" : "x')
    )
    assert {one.instant for one in rings_of(table).values()} == {instant}
    assert len(contents(table)) == 400


@pytest.mark.parametrize("ends", ["rollback", "restore"])
def test_a_completed_resize_can_be_taken_back(ends: str) -> None:
    table = loaded()
    before = contents(table)
    savepoint = create_savepoint(table.store)
    (done,) = resize_table(table.store, SPLIT, rounds=1)
    if ends == "rollback":
        run_rollback(look_for_rollback(load_state(table.store), done.instant), table.store)
    else:
        table.upsert(rows_of(range(100), ts=9))
        run_restore(look_for_restore(load_state(table.store), savepoint.instant), table.store)
    assert counts(table) == {"d0": 2, "d1": 2}
    assert contents(table) == before
    table.upsert(rows_of(range(390, 410), ts=9))
    assert len(contents(table)) == 410
    check(table)


@pytest.mark.shows("C2")
@pytest.mark.parametrize("table_type", TYPES)
def test_an_overwrite_never_uses_the_ids_of_replaced_file_groups_again(table_type: str) -> None:
    table = loaded(table_type=table_type)
    resize_table(table.store, SPLIT, rounds=1)
    used = {part.file_id for one in table.layout().partitions for part in one.slices}
    table.overwrite(rows_of(range(0, 100, 2), ts=5))
    table.delete_partitions(["d1"])
    table.upsert(rows_of(range(60), ts=6))
    now = {part.file_id for one in table.layout().partitions for part in one.slices}
    assert now.isdisjoint(used)
    assert counts(table) == {"d0": 4, "d1": 4}, "the ranges stay"
    assert len(contents(table)) == 80
    check(table)


def test_an_overwrite_in_between_makes_a_resize_give_way() -> None:
    table = loaded()
    instant = schedule(table)
    table.overwrite(rows_of(range(0, 100, 2), ts=5))
    with pytest.raises(CommitConflictError, match="which is at 1 by now"):
        run_resize(table.store, instant)
    assert len(contents(table)) == 250
    check(table)


def test_what_cannot_be_resized_is_refused() -> None:
    simple = a_table(index=SimpleBuckets(2))
    simple.upsert(rows_of(range(10)))
    with pytest.raises(ConfigError, match=r"index=ConsistentBuckets\(\)"):
        simple.buckets.plan_resize()
    table = loaded()
    with pytest.raises(InstantError, match="no clustering 20260101000000000"):
        table.buckets.abort("20260101000000000")
    with pytest.raises(ConfigError, match="policy is 'odd'"):
        table.buckets.resize(policy="odd")
    timeline = table.timeline()
    for act in (table.buckets.plan_resize, table.buckets.resize):
        with pytest.raises(ConfigError, match="policy '<lambda>' chose -1"):
            act(
                policy=lambda ring, place, hashes: -1,
                file_bytes=1_000,
                split_threshold=1.0,
                merge_threshold=0.1,
            )
    assert table.timeline() == timeline
    with pytest.raises(ConfigError, match="expected 1 at least"):
        table.buckets.resize(rounds=0)
    with pytest.raises(ConfigError, match="grow by themselves"):
        a_table(non_blocking=True)
    with pytest.raises(ConfigError, match="virtual logs"):
        a_table(table_type="COPY_ON_WRITE", index=ConsistentBuckets(2, virtual_logs=True))


def test_a_clustering_that_only_sorts_is_refused_and_leaves_resizes_alone() -> None:
    table = loaded()
    before = contents(table)
    with pytest.raises(ConfigError, match="buckets resize"):
        table.cluster(by=["v"])
    instant = schedule(table)
    with pytest.raises(ConfigError, match="buckets resize"):
        table.cluster(by=["v"])
    run_resize(table.store, instant)
    assert contents(table) == before


@pytest.mark.parametrize("engine", ENGINES)
def test_fsck_names_a_ring_whose_file_groups_are_missing(engine: type[GrowingBuckets]) -> None:
    table = loaded(index=engine(2))
    (done,) = resize_table(table.store, SPLIT, rounds=1)
    victim = table.layout().partitions[0].slices[0]
    assert victim.base_file is not None
    table.store.delete(victim.base_file.path)
    report = check_table(table.store)
    assert any(victim.base_file.path in str(finding) for finding in report.damage)
    table = loaded(index=engine(2))
    (done,) = resize_table(table.store, SPLIT, rounds=1)
    for partition in ("d0", "d1"):
        path = rings_of(table)[partition].path
        assert done.instant in path
        table.store.delete(path)
        table.store.delete(path.replace(".hashing_meta", ".commit"))
    report = check_table(table.store)
    assert any("d0: file group" in str(finding) for finding in report.damage), str(report)
    with pytest.raises(CorruptTableError, match="file group"):
        table.upsert(rows_of(range(3), ts=9))


def test_where_a_key_lives_is_explained_by_the_bits_of_its_bucket() -> None:
    table = loaded(index=ExtendibleBuckets(2))
    resize_table(
        table.store, ResizeTrigger(file_bytes=2_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=3)
    )
    assert counts(table) == {"d0": 3, "d1": 3}
    found = str(table.explain("k5", partition="d1"))
    assert re.search(r"bucket +3401 mod (2 = 1, of depth 1|4 = 1, of depth 2)", found), found
    assert "file ids     00000001-" in found


class HeldUp:
    """A write that others come in between: after its rows are written, and before it commits."""

    def __init__(self, table: Table, meanwhile: Callable[[], object]) -> None:
        self.table = table
        self.meanwhile: Callable[[], object] | None = meanwhile

    def upsert(self, rows: pa.Table) -> None:
        outer = self

        class Rows(ArrowRows):
            def run(self, plan: Any) -> Any:
                done = super().run(plan)
                if outer.meanwhile is not None:
                    act, outer.meanwhile = outer.meanwhile, None
                    act()
                return done

        run_write(Rows(rows), self.table.store, Operation.UPSERT)
        recover(self.table.store, load_properties(self.table.store))


@pytest.mark.shows("C4", "C6")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table_type", TYPES)
def test_a_ring_with_few_rows_comes_down_to_its_least_number_of_buckets(
    table_type: str, engine: type[GrowingBuckets]
) -> None:
    table = a_table(table_type=table_type, index=engine(64))
    table.upsert(rows_of(range(12)))
    resize_table(table.store, MERGE)
    assert counts(table) == {"d0": 1, "d1": 1}
    table.upsert(rows_of(range(6, 40), ts=2))
    assert {key: row[1] for key, row in contents(table).items()} == {f"k{n}": 1 + (n >= 6) for n in range(40)}
    check(table)


@pytest.mark.shows("C6")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("ends", ["before the write", "after the write"])
def test_the_first_row_of_a_bucket_that_is_being_merged_is_not_lost(
    ends: str, table_type: str, engine: type[GrowingBuckets]
) -> None:
    table = a_table(table_type=table_type, index=engine(16))
    table.upsert(rows_of(range(3), days=1))
    index = resolve_index(load_state(table.store)).placed
    assert index is not None
    slots = index.locate("d0", pa.array([f"k{n}" for n in range(60)])).to_pylist()
    in_empty_ones = [n for n in range(60) if slots[n] not in slots[:3]]
    first_rows = rows_of(in_empty_ones, ts=2, days=1)
    if ends == "before the write":
        held_up = HeldUp(table, lambda: run_resize(table.store, schedule(table, MERGE)))
        held_up.upsert(first_rows)
    else:
        instant = schedule(table, MERGE)
        table.upsert(first_rows)
        with pytest.raises(CommitConflictError, match="which was empty, has got rows"):
            run_resize(table.store, instant)
    assert len(contents(table)) == 3 + len(in_empty_ones) > 20
    check(table)
    resize_table(table.store, MERGE)
    assert counts(table) == {"d0": 1}
    assert len(contents(table)) == 3 + len(in_empty_ones)
    check(table)
