"""A partition's bucket count is given once: a writer with other rules must be stopped, and a dead one ignored."""

from __future__ import annotations

import io
import itertools
from contextlib import suppress

import fastavro
import pytest

from bucketlake import PartitionBuckets, create_table
from bucketlake.commit.transaction import abort, begin
from bucketlake.errors import CorruptTableError, LayoutMismatchError
from bucketlake.index import INITIAL_INSTANT, Rules, VersionedRules, parse_rules
from bucketlake.index.recorded_counts import (
    RECORDS_KEPT,
    RecordedCount,
    choose_record,
    decode_counts,
    encode_counts,
    load_counts,
    plan_counts,
)
from bucketlake.layout.names import RECORDED_COUNTS_FOLDER, hashing_config_path, recorded_counts_path
from bucketlake.state import load_state
from bucketlake.table import Table
from bucketlake.testing.faulty_store import FaultyStore, InjectedError
from bucketlake.timeline import Action, Instant, State, Timeline
from bucketlake.write import ArrowRows, Operation, run_write
from stand_ins.orders_table import SCHEMA, orders
from stand_ins.transactions import clock, write_file

pytestmark = pytest.mark.shows("P13")

BY = VersionedRules(INITIAL_INSTANT, Rules(parse_rules("p0,3"), 2))
T1, T2, T3 = "20260101000000001", "20260101000000002", "20260101000000003"


def made(name: str) -> Table:
    return create_table(
        f"memory://recorded-{name}", SCHEMA, key="id", partition="dt", index=PartitionBuckets("p0,3", 2)
    )


def recorded(table: Table) -> dict[str, int]:
    return {p: entry.count for p, entry in load_counts(table.store, load_state(table.store).timeline).items()}


def records(table: Table) -> list[str]:
    return sorted(f.path.rpartition("/")[2][:-13] for f in table.store.list(RECORDED_COUNTS_FOLDER).files)


def completed(requested: str, at: str) -> Instant:
    return Instant(
        requested=requested, completed=at, action=Action.COMMIT, state=State.COMPLETED, path=requested
    )


def test_counts_are_recorded_by_writes_that_add_partitions_and_by_no_others() -> None:
    table = made("adds")
    first = table.upsert(orders([0, 2], "a", 1)).instant
    assert recorded(table) == {"p0": 3}
    table.upsert(orders([0, 4, 6], "b", 2))
    assert records(table) == [first]
    second = table.upsert(orders([1, 2], "c", 3)).instant
    assert recorded(table) == {"p0": 3, "p1": 2}
    assert records(table) == [first, second]
    table.delete([1])
    table.overwrite(orders([0], "d", 4))
    assert records(table) == [first, second]


def test_a_record_is_one_avro_record_of_numbers_and_instants() -> None:
    counts = {"dt=ü": RecordedCount(3, T1), "": RecordedCount(70_000, T2)}
    assert decode_counts(encode_counts(counts), path="x") == counts
    assert next(fastavro.reader(io.BytesIO(encode_counts(counts)))) == {
        "version": 1,
        "partitionMeta": {
            "dt=ü": {"bucketNumber": 3, "instant": T1},
            "": {"bucketNumber": 70_000, "instant": T2},
        },
    }
    with pytest.raises(CorruptTableError, match="Delete the file"):
        decode_counts(b"Obj\x01 broken", path="x")


def test_a_record_of_the_older_form_is_read() -> None:
    entry = {"name": "RecordedCount", "type": "record", "fields": [
        {"name": "bucketNumber", "type": "int"}, {"name": "instant", "type": "string"}
    ]}  # fmt: skip
    schema = {"name": "RecordedCounts", "type": "record", "fields": [
        {"name": "partitions", "type": {"type": "map", "values": entry}}
    ]}  # fmt: skip
    file = io.BytesIO()
    fastavro.writer(file, schema, [{"partitions": {"p0": {"bucketNumber": 3, "instant": T1}}}])
    assert decode_counts(file.getvalue(), path="x") == {"p0": RecordedCount(3, T1)}


def test_a_writer_that_finds_another_count_aborts_and_nothing_of_it_is_visible() -> None:
    table = made("another")
    table.upsert(orders(range(8), "a", 1))
    path = hashing_config_path(INITIAL_INSTANT)
    body = table.store.read(path)
    table.store.put(path, body.replace(b"p0,3", b"p0,9"))
    with pytest.raises(LayoutMismatchError, match=r"'p0' was given 3 buckets .* it has 9 \(by rule 1: p0\)"):
        table.upsert(orders([0, 2], "b", 2))
    assert any(finding.place == "p0" and "3 buckets" in finding.text for finding in table.fsck().findings)
    table.store.put(path, body)
    assert {row["name"] for row in table.to_arrow().to_pylist()} == {f"a {n}" for n in range(8)}
    assert not table.fsck().damage
    assert len(records(table)) == 1


def test_rules_never_split_a_partition_but_a_count_older_than_the_rules_is_derived_again() -> None:
    before = {"p0": RecordedCount(5, T1)}
    with pytest.raises(LayoutMismatchError, match="5 buckets"):
        plan_counts(before, ["p0"], BY, instant=T2)
    hudi_rescaled = VersionedRules(T2, BY.rules)
    assert plan_counts(before, ["p0"], hudi_rescaled, instant=T3) == {"p0": RecordedCount(3, T3)}
    assert plan_counts({"p0": RecordedCount(3, T1)}, ["p0"], BY, instant=T2) is None
    ours = VersionedRules(T3, BY.rules)
    late = {"p0": RecordedCount(5, T3 + "9")}
    assert plan_counts(late, ["p0"], ours, instant=T3) == {"p0": RecordedCount(3, T3)}, (
        "a rescale sets counts"
    )


def test_the_record_that_counts_is_that_of_the_last_completed_write() -> None:
    timeline = Timeline((completed(T2, "5"), completed(T3, "4")))
    assert choose_record([T1, T2, T3], timeline) == T2, "who began later committed earlier, and knew less"
    assert choose_record([T1], timeline) == T1, "archived"
    assert choose_record(["20990101000000000"], timeline) is None, "never committed"
    assert choose_record([T1], Timeline(())) is None


def test_a_record_without_its_commit_is_passed_over_and_removed_by_an_abort() -> None:
    table = made("crash")
    table.upsert(orders([0], "a", 1))
    dead = "20990101000000000"
    table.store.put(recorded_counts_path(dead), encode_counts({"p0": RecordedCount(9, dead)}))
    table.upsert(orders([0, 1], "b", 2))
    assert recorded(table) == {"p0": 3, "p1": 2}
    transaction, _ = begin(table.store, operation=Operation.UPSERT, clock=clock())
    table.store.put(recorded_counts_path(transaction.instant), b"")
    write_file(transaction, "p0", 0)
    abort(transaction)
    assert transaction.instant not in records(table)


@pytest.mark.thorough
@pytest.mark.parametrize("took_effect", [False, True])
def test_cut_off_anywhere_the_next_write_finds_counts_that_fit(took_effect: bool) -> None:
    for step in itertools.count(1):
        table = made(f"cut-{took_effect}-{step}")
        table.upsert(orders([0], "a", 1))
        faulty = FaultyStore(table.store, fails_at=step, is_dead=True, took_effect=took_effect)
        with suppress(InjectedError):
            run_write(ArrowRows(orders([0, 1], "b", 2)), faulty, Operation.UPSERT)
        table.upsert(orders([0, 1], "c", 3))
        assert recorded(table) == {"p0": 3, "p1": 2}
        assert sorted(row["name"] for row in table.to_arrow().to_pylist()) == ["c 0", "c 1"]
        if len(faulty.operations) < step:
            break
    assert any(RECORDED_COUNTS_FOLDER in what for what in faulty.operations)


def test_the_newest_ten_are_kept_and_the_one_that_counts() -> None:
    table = create_table(
        "memory://recorded-ten", SCHEMA, key="id", partition="dt", index=PartitionBuckets("p,1", 1)
    )
    kept = []
    for n in range(RECORDS_KEPT + 3):
        rows = orders([n], "x", 1)
        day = rows.column_names.index("dt")
        kept.append(table.upsert(rows.set_column(day, "dt", [[f"p{n}"]])).instant)
    assert records(table) == kept[-RECORDS_KEPT:]
    assert len(recorded(table)) == RECORDS_KEPT + 3
