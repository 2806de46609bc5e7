"""Four processes that upsert the same new keys into dynamic buckets, and are killed again and again.

    python -m fault.killed_bucket_writers '<arguments as JSON>'

Batch n of every writer has the same keys, of which half came with the batch before. Nobody runs ahead: whoever is
behind goes on where the others are. So each bucket is opened, and filled up, by several at once. All keep what they
can of the index in one folder.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketlake import DynamicBuckets, create_table
from bucketlake.commit import heartbeat, locks
from bucketlake.write import job
from fault.killed_processes import Arguments, Log, attempt, open_table, shorten_times

WRITERS = 4
KEYS_OF_BATCH = 8
KEYS_PER_BUCKET = 10
INDEX = DynamicBuckets(assigners=2, keys_per_bucket=KEYS_PER_BUCKET)
SCHEMA = pa.schema([("id", pa.string()), ("dt", pa.string()), ("ts", pa.int64()), ("name", pa.string())])


def keys_of(number: int) -> range:
    first = number * KEYS_OF_BATCH // 2
    return range(first, first + KEYS_OF_BATCH)


def ts_of(writer: int, number: int) -> int:
    return number * WRITERS + writer


def batch(writer: int, number: int) -> pa.Table:
    ts = ts_of(writer, number)
    rows = [
        {"id": f"k{key}", "dt": f"p{key % 2}", "ts": ts, "name": f"{writer}/{number}"}
        for key in keys_of(number)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def log_of(arguments: Arguments, writer: int) -> Log:
    return Log(arguments.folder, f"writer-{writer}")


def write_on(arguments: Arguments, writer: int) -> None:
    log, table = log_of(arguments, writer), open_table(arguments)
    logs = [log_of(arguments, other) for other in range(WRITERS)]
    number = max(log.numbers("begin"), default=-1)
    while not (Path(arguments.folder) / "over").exists():
        number = max(number + 1, *(max(other.numbers("begin"), default=0) for other in logs))
        log.say(f"begin {number}")
        done = attempt(arguments, log, number, partial(table.upsert, batch(writer, number)))
        if done is not None:
            log.say(f"done {number}")


def _start(arguments: Arguments, writer: int) -> int:
    child = os.fork()
    if child:
        return child
    try:
        for chance in (locks._chance, job._chance):
            chance.seed(os.getpid())
        write_on(arguments, writer)
    except BaseException as fault:
        steps = traceback.extract_tb(fault.__traceback__)
        way = " < ".join(f"{Path(s.filename).name}:{s.lineno} {s.name}" for s in reversed(steps))
        Log(arguments.folder, "faults").say(f"{type(fault).__name__}: {fault} < {way}".replace("\n", " "))
        os._exit(1)
    os._exit(0)


def _warm_up() -> None:
    """Compile what is compiled at its first use, once for all children."""
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        table = create_table(
            f"memory://warm-{table_type}", SCHEMA, key="id", partition="dt", ordering="ts", index=INDEX,
            table_type=table_type,
        )  # fmt: skip
        for number in range(3):
            table.upsert(batch(0, number))


def main(arguments: Arguments) -> None:
    shorten_times()
    heartbeat.Heartbeat.__init__.__kwdefaults__["every_seconds"] = 0.4
    _warm_up()
    chance = random.Random(arguments.seed)
    children = {writer: _start(arguments, writer) for writer in range(WRITERS)}
    until, kills = time.monotonic() + arguments.seconds, 0
    while time.monotonic() < until or kills < arguments.kills:
        time.sleep(chance.uniform(0.2, 0.8))
        writer = chance.randrange(WRITERS)
        os.kill(children[writer], signal.SIGKILL)
        os.waitpid(children[writer], 0)
        kills += 1
        children[writer] = _start(arguments, writer)
    (Path(arguments.folder) / "over").touch()
    for child in children.values():
        os.waitpid(child, 0)
    (Path(arguments.folder) / "kills.json").write_text(json.dumps(kills))


def check_rows(arguments: Arguments, rows: list[Mapping[str, Any]]) -> dict[str, int]:
    """Hold the rows against what the writers were told; return how many batches were begun and told."""
    logs = [log_of(arguments, writer) for writer in range(WRITERS)]
    begun = {(writer, n) for writer, log in enumerate(logs) for n in log.numbers("begin")}
    told = {(writer, n) for writer, log in enumerate(logs) for n in log.numbers("done")}
    refused = {(writer, n) for writer, log in enumerate(logs) for n in log.numbers("conflict")}
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    for row in rows:
        writer, number = (int(part) for part in row["name"].split("/"))
        assert (writer, number) in begun - refused, row
        assert row["ts"] == ts_of(writer, number)
        assert int(row["id"][1:]) in keys_of(number), row
    for writer, number in told:
        for key in keys_of(number):
            assert found[f"k{key}"]["ts"] >= ts_of(writer, number), f"lost: {key} of {writer}/{number}"
    return {"commits told": len(told), "commits begun": len(begun), "refused": len(refused)}


if __name__ == "__main__":
    main(Arguments(**json.loads(sys.argv[1])))
