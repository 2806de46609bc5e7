"""Rows through an exchange into files: once where keys are placed, three times where they are looked up."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from bucketlake.write.exchange import Exchange, KeySum, Piece, Pieces
from bucketlake.write.recorded import write_looked_up_rows
from bucketlake.write.report import received_sum
from bucketlake.write.state import WriteState
from bucketlake.write.tag import columns_to_write, sort_by_code
from bucketlake.write.task import GroupWritten, write_groups


def write_through(
    exchange: Exchange[Pieces], names: Sequence[str], plan: WriteState
) -> tuple[KeySum, tuple[GroupWritten, ...]]:
    """Write rows with these columns; return what was sent to the tasks that write, and what they did."""
    columns = columns_to_write(names, plan)
    if plan.index.recorded is not None:
        return write_looked_up_rows(exchange, columns, plan)
    # Tagging needs no file groups, and they are most of what there is to send.
    for_tags = replace(plan, groups={}, partitions=frozenset())
    pieces = exchange.scatter(columns, partial(sort_by_code, state=for_tags))
    said = exchange.finish(pieces, partial(write_and_say, state=plan), tasks=plan.tasks)
    written = tuple(GroupWritten(**json.loads(text)) for text in said)
    return exchange.sum_of(pieces, received=received_sum(written)), written


def write_and_say(pieces: Iterator[Piece], state: WriteState) -> Iterator[str]:
    for group in write_groups(pieces, state):
        yield json.dumps(group.as_dict())
