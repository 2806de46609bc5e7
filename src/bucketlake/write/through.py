"""Rows through an exchange into files: once where keys are placed, three times where they are looked up.

Where something that the table keeps is told which keys came and went, these go through it once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from bucketlake.write.exchange import Coded, Exchange, Piece, Pieces
from bucketlake.write.key_changes import leave_changes, record_changes
from bucketlake.write.recorded import write_looked_up_rows
from bucketlake.write.report import Ran, received_sum
from bucketlake.write.state import WriteState
from bucketlake.write.tag import columns_to_write, sort_by_code
from bucketlake.write.task import GroupWritten, write_groups, write_telling


def write_through(exchange: Exchange[Pieces], names: Sequence[str], plan: WriteState) -> Ran:
    """Write rows with these columns; return what was sent to the tasks that write, and what they did."""
    columns = columns_to_write(names, plan)
    if plan.index.recorded is not None:
        return write_looked_up_rows(exchange, columns, plan)
    # Tagging needs no file groups, and they are most of what there is to send.
    for_tags = replace(plan, groups={}, partitions=frozenset(), told_of_keys=(), giving_way={})
    pieces = exchange.scatter(columns, partial(sort_by_code, state=for_tags))
    if plan.told_of_keys:
        done = exchange.gather(pieces, partial(write_and_leave, state=plan), tasks=plan.tasks)
        told, recorded = record_changes(exchange, done, plan)
        return Ran(exchange.sum_of(pieces, received=received_sum(told)), told, recorded)
    said = exchange.finish(pieces, partial(write_and_say, state=plan), tasks=plan.tasks)
    written = tuple(GroupWritten(**json.loads(text)) for text in said)
    return Ran(exchange.sum_of(pieces, received=received_sum(written)), written)


def write_and_say(pieces: Iterator[Piece], state: WriteState) -> Iterator[str]:
    for group in write_groups(pieces, state):
        yield json.dumps(group.as_dict())


def write_and_leave(pieces: Iterator[Piece], state: WriteState) -> Iterator[Coded]:
    for written, changed in write_telling(pieces, state):
        yield from leave_changes(written, changed, state)
