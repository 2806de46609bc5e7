"""Rows pass the three stages of an exchange while a task of one stage is run twice: every row counts once.

The first attempt fails when it has done its work. Or, where Spark starts a second attempt beside a slow one, it waits
until that was taken, and then goes on to its end. Either way it has left pieces that nobody counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bucketlake.spark.exchange import ByFiles, ByShuffle
from bucketlake.spark.write import FrameRows
from bucketlake.storage import Handover
from bucketlake.write import GROUP_BITS, Coded, KeySum, Piece
from spark.faults import Fault
from spark.orders import Place
from spark.processes import is_running, wait_until_gone

WAYS = ("files", "shuffle")
STAGES = ("first", "middle", "last")


def cut_by_remainder(rows: pa.Table, *, fault: Fault | None = None, by: int) -> Coded:
    """Give numbers the codes of their remainders, each a task of its own."""
    numbers = rows.column("id").to_numpy()
    codes = (numbers % by) << GROUP_BITS | (numbers % by)
    order = np.argsort(codes, kind="stable")
    chosen = rows.combine_chunks().to_batches()[0].take(pa.array(order))
    if fault is not None:
        fault.go_off()
    return Coded(chosen, codes[order], numbers[order].astype(np.uint64), {})


def pass_on(pieces: Iterator[Piece], *, fault: Fault | None, by: int) -> Iterator[Coded]:
    for piece in pieces:
        assert len(set((piece.rows.column("id").to_numpy() % 7).tolist())) == 1
        yield cut_by_remainder(pa.Table.from_batches([piece.rows]), by=by)
    if fault is not None:
        fault.go_off()


def say_runs(pieces: Iterator[Piece], *, fault: Fault | None) -> Iterator[str]:
    for code, run in groupby(pieces, key=lambda piece: piece.code):
        numbers = [number for piece in run for number in piece.rows.column("id").to_pylist()]
        yield json.dumps([code & 0xFF, sorted(numbers)])
    if fault is not None:
        fault.go_off()


def an_exchange_brings_every_row_once(place: Place, way: str, stage: str, waits: bool) -> None:
    folder = Path(place.root) / f"exchange {way} {stage} {waits}"
    fault = Fault(folder=folder / "fault", step="tag", waits=waits)
    faults = {name: fault if name == stage else None for name in STAGES}
    rows = FrameRows(place.spark.range(0, 1_000, 1, 3))
    handover = Handover(folder / "pieces") if way == "files" else None
    with ExitStack() as stack:
        exchange: Any
        if handover is not None:
            stack.enter_context(handover.opened())
            exchange = ByFiles(place.spark, rows.packed, handover)
        else:
            exchange = stack.enter_context(closing(ByShuffle(place.spark, rows.packed)))
        first = exchange.scatter(["id"], partial(cut_by_remainder, fault=faults["first"], by=7))
        second = exchange.gather(first, partial(pass_on, fault=faults["middle"], by=5), tasks=7)
        facts = exchange.facts(second)
        if waits and stage != "last":
            let_the_slow_one_end(fault, handover)
        assert sum(facts["rows"].to_pylist()) == 1_000
        assert sum(facts["key_hash_sum"].to_pylist()) == sum(range(1_000))
        codes = facts["code"].to_numpy()
        moved = exchange.recoded(second, codes ^ 1, [("p", f"{code & 0xFF}") for code in codes.tolist()])
        said = exchange.finish(moved, partial(say_runs, fault=faults["last"]), tasks=6)
        if waits and stage == "last":
            let_the_slow_one_end(fault, None)
        total = sum(range(1_000))
        assert exchange.sum_of(first, received=KeySum(1_000, total)) == KeySum(1_000, total)
    found = dict(json.loads(text) for text in said)
    assert len(said) == len(found) == 5, "a code in one run of one task"
    assert found == {n ^ 1: list(range(n, 1_000, 5)) for n in range(5)}
    assert fault.happened.exists(), "the fault was not met"


def let_the_slow_one_end(fault: Fault, handover: Handover | None) -> None:
    """Let an attempt that another one has overtaken do what was left to be done."""
    (worker, *_) = fault.pids
    assert is_running(worker), "the slow attempt was waited for"
    before = handover and sorted(handover.folder.iterdir())
    fault.go.touch()
    wait_until_gone([worker])
    if handover is not None:
        assert sorted(handover.folder.iterdir()) != before, "the slow attempt has left its list of pieces"
