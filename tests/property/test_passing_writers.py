"""A table with a record-level index is a dict, though writers pass each other before they commit.

Some have begun before us and some begin after us; each commits after one of our rounds. What there is is what they and
we have written, one after the other; and the index says of every key where it lives.

`BUCKETLAKE_SEEDS=17` repeats a history, `BUCKETLAKE_SEEDS=0-500` tries many.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import permutations
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from bucketlake import RecordIndex, Table
from bucketlake.commit.transaction import abort, begin
from bucketlake.config import load_properties
from bucketlake.errors import CommitConflictError
from bucketlake.services import check_table
from bucketlake.storage import Store
from bucketlake.write import ArrowRows, Operation, WriteOptions, WriteState, job, run_write
from bucketlake.write.finish import Prepared, finish
from plugins.soak import IS_SOAK, seeds
from property.test_record_index_laws import SCHEMA, Model, a_table
from stand_ins.record_index_check import check_record_index

PARTITIONS, KEYS = ("p0", "p1", "p2", "p3"), 24
KINDS = [
    (table_type, per_partition)
    for table_type in ("COPY_ON_WRITE", "MERGE_ON_READ")
    for per_partition in (False, True)
]
Rows = list[dict[str, Any]]
Write = tuple[Operation, Rows]


class Passed(ArrowRows):
    """Rows that others pass, one after each round."""

    def __init__(self, rows: pa.Table, others: list[Callable[[], object]]) -> None:
        super().__init__(rows)
        self.others = others
        self.instants: list[str] = []

    def run(self, plan: WriteState) -> Any:
        done = super().run(plan)
        self.instants.append(plan.instant)
        if self.others:
            self.others.pop(0)()
        return done


def drawn(chance: Random, v: str, *, at_most: int = 8) -> Write:
    """Draw rows: updates, new keys, moves, deletes, late ones among them."""
    keys = chance.sample(range(KEYS), chance.randint(1, at_most))
    rows = [
        {
            "id": f"k{key}",
            # As a rule a key stays where it is.
            "dt": PARTITIONS[key % 4] if chance.random() < 0.8 else chance.choice(PARTITIONS),
            "ts": chance.randrange(10**9),
            "v": v,
            "_hoodie_is_deleted": chance.random() < 0.05,
        }
        for key in keys
    ]
    return (Operation.DELETE if chance.random() < 0.15 else Operation.UPSERT), rows


def table_of(rows: Rows) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def folded(writes: list[Write], *, is_global: bool) -> Model:
    model = Model(is_global=is_global)
    for operation, rows in writes:
        if operation is Operation.UPSERT:
            model.upsert(rows)
            continue
        for row in rows:
            model.rows.pop(model.name(row["id"], row["dt"]), None)
    return model


def prepared(store: Store, write: Write) -> Prepared:
    """Begin a write, and write its files."""
    options = WriteOptions()
    transaction, state = begin(store, operation=write[0], index_of=options.index_of)
    return job.prepare(ArrowRows(table_of(write[1])), transaction, state, options, job._Stopwatch())


def passed(kind: tuple[str, bool], seed: int) -> str:
    """Try a history; return how often we wrote, and whether under one instant."""
    table_type, per_partition = kind
    chance = Random(f"{kind} {seed}")
    table = a_table(table_type, RecordIndex(per_partition=per_partition, shards=chance.randint(1, 3)))
    store, done = table.store, list[Write]()

    def commit(write: Write, then: Callable[[], object]) -> None:
        try:
            then()
        except CommitConflictError:
            return  # somebody has passed him, too
        done.append(write)

    before = chance.randint(0, 3)
    for number in range(before):
        write = drawn(chance, f"before {number}", at_most=16)
        commit(write, lambda w=write: run_write(ArrowRows(table_of(w[1])), store, w[0]))  # type: ignore[misc]
    others: list[Callable[[], object]] = []
    pending = []
    for number in range(chance.randint(1, 3)):
        write = drawn(chance, f"other {number}", at_most=4)
        if chance.random() < 0.85:
            other = prepared(store, write)
            pending.append(other.transaction)
            others.append(lambda w=write, o=other: commit(w, lambda: finish(o)))  # type: ignore[misc]
        else:
            rows = ArrowRows(table_of(write[1]))
            others.append(lambda w=write, r=rows: commit(w, lambda: run_write(r, store, w[0])))  # type: ignore[misc]
    ours = drawn(chance, "ours", at_most=16)
    rows = Passed(table_of(ours[1]), others)
    run_write(rows, store, ours[0])
    for transaction in pending:
        abort(transaction)  # does nothing to one that is committed
    # In whatever order: a row that is late, or a delete of nothing, leaves nothing that another could conflict with.
    orders = ([*done[:before], *order] for order in permutations([*done[before:], ours]))
    check(store, [folded(order, is_global=not per_partition) for order in orders])
    outcome = "one instant" if len(set(rows.instants)) == 1 else "several instants"
    return f"{min(3, len(rows.instants))} rounds, {outcome}"


def check(store: Store, models: list[Model]) -> None:
    rows = Table(store, load_properties(store)).to_arrow(columns=["id", "dt", "ts", "v"]).to_pylist()
    found = {models[0].name(row["id"], row["dt"]): (row["dt"], row["ts"], row["v"]) for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    assert found in [model.rows for model in models]
    assert check_record_index(store) == len(rows)
    report = check_table(store)
    assert report.damage == (), str(report)


@pytest.mark.shows("R1", "X2", "X3")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_whoever_is_passed_by_others_leaves_what_all_of_them_have_written(kind: tuple[str, bool]) -> None:
    tally: Counter[str] = Counter()
    for seed in seeds(default_count=100 if IS_SOAK else 15):
        try:
            tally[passed(kind, seed)] += 1
        except Exception as error:
            error.add_note(f"seed {seed}, {kind!r}")
            raise
    print(kind, dict(sorted(tally.items())))
    if "BUCKETLAKE_SEEDS" not in os.environ:
        assert tally["2 rounds, one instant"], "some have written again what was stale"
