"""Three writers, a service and a reader on one table, each a process; all but the reader are killed again and again.

    python -m fault.killed_processes '<arguments as JSON>'

A writer keeps a log of its own: `begin 7` before it writes its batch 7, `done 7` after it was told that the batch is
committed, both on disk before it goes on. What a batch holds follows from its number, and one of its rows is found in
no other batch: so from the rows of a table it can be told which batches are in it, and from that what all rows must be.

Times are shortened: a writer is dead after two seconds without a beat, not after two minutes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bucketlake import Table, create_table
from bucketlake.commit import heartbeat, locks, recovery
from bucketlake.errors import BucketlakeError, ConflictError
from bucketlake.services import Retention, archive_table, clean_table, compact_table
from bucketlake.write import job

WRITERS = 3
MARKERS = 1_000_000
"""Keys from here on are of one batch each: MARKERS * (writer + 1) + batch."""
SHARED = 900_000
"""Keys from here on are of all writers."""

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("ts", pa.int64()),
        ("dt", pa.string()),
        ("_hoodie_is_deleted", pa.bool_()),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    uri: str
    options: Mapping[str, str]
    folder: str
    """For logs."""
    table_type: str
    seed: int
    kills: int
    """At least so many."""
    seconds: float
    """And for so long."""


def as_text(arguments: Arguments) -> str:
    return json.dumps(asdict(arguments))


def batch(writer: int, number: int) -> list[dict[str, Any]]:
    """What a writer writes: its marker, keys of its own, of which every fifth batch deletes some, and shared keys."""
    chance = random.Random(writer * 1_000_003 + number)
    ts = number * WRITERS + writer
    own = chance.sample(range(20), 4)
    shared = chance.sample(range(10), 3)
    is_deleting = number % 5 == 4
    rows = [(MARKERS * (writer + 1) + number, False)]
    rows += [(10_000 * writer + key, is_deleting) for key in own]
    rows += [(SHARED + key, False) for key in shared]
    return [
        {
            "id": key,
            "name": f"{writer}/{number}",
            "ts": ts,
            "dt": f"p{key % 2}",
            "_hoodie_is_deleted": is_deleted,
        }
        for key, is_deleted in rows
    ]


def batches_in(keys: list[int]) -> set[tuple[int, int]]:
    """Tell which batches a table holds, by their markers."""
    return {(key // MARKERS - 1, key % MARKERS) for key in keys if key >= MARKERS}


def rows_after(batches: set[tuple[int, int]]) -> list[tuple[int, str]]:
    """Return key and name of every row of a table that holds these batches: of each key the newest."""
    newest: dict[int, dict[str, Any]] = {}
    for writer, number in batches:
        for row in batch(writer, number):
            if row["id"] not in newest or newest[row["id"]]["ts"] < row["ts"]:
                newest[row["id"]] = row
    return sorted((key, row["name"]) for key, row in newest.items() if not row["_hoodie_is_deleted"])


def rows_in(table: Table) -> list[tuple[int, str]]:
    rows = table.to_arrow(columns=["id", "name"])
    return sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def shorten_times(set_to: Callable[[Any, str, Any], None] = setattr) -> None:
    set_to(locks, "VALID_MS", 3_000)
    set_to(locks, "RENEW_SECONDS", 0.5)
    set_to(heartbeat, "DEAD_AFTER_MS", 3_000)
    set_to(recovery, "KEPT_MS", 6_000)


def open_table(arguments: Arguments) -> Table:
    return Table.open(arguments.uri, storage_options=arguments.options or None)


class Log:
    """Lines that are on disk when `say` returns."""

    def __init__(self, folder: str, name: str) -> None:
        self.path = Path(folder) / f"{name}.log"

    def say(self, line: str) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{line}\n".encode())
        os.fsync(descriptor)
        os.close(descriptor)

    def lines(self) -> list[list[str]]:
        return [line.split(" ") for line in self.path.read_text().splitlines()] if self.path.exists() else []

    def numbers(self, word: str) -> set[int]:
        return {int(line[1]) for line in self.lines() if line[0] == word}


def write_on(arguments: Arguments, writer: int) -> None:
    log = Log(arguments.folder, f"writer-{writer}")
    number = max(log.numbers("begin"), default=-1)
    table = open_table(arguments)
    while not _is_over(arguments):
        number += 1
        log.say(f"begin {number}")
        try:
            table.upsert(pa.Table.from_pylist(batch(writer, number), SCHEMA))
        except ConflictError:
            log.say(f"conflict {number}")
        else:
            log.say(f"done {number}")


def serve_on(arguments: Arguments) -> None:
    log = Log(arguments.folder, "service")
    store = open_table(arguments).store
    acts: dict[str, Callable[[], object]] = {
        "clean": lambda: clean_table(store, retain=Retention(commits=3)),
        "archive": lambda: archive_table(store, keep_min=4, keep_max=6),
    }
    if arguments.table_type == "MERGE_ON_READ":
        acts = {"compact": lambda: compact_table(store), **acts}
    while not _is_over(arguments):
        for name, act in acts.items():
            try:
                act()
            except ConflictError:
                log.say(f"conflict {name}")
            else:
                log.say(f"done {name}")


def read_on(arguments: Arguments) -> None:
    """See whole batches only, at any moment."""
    log = Log(arguments.folder, "reader")
    table = open_table(arguments)
    while not _is_over(arguments):
        try:
            found = rows_in(table)
        except (FileNotFoundError, BucketlakeError) as gone:
            log.say(
                f"gone {type(gone).__name__}"
            )  # cleaned while it read: a reader has as long as files are kept
            continue
        expected = rows_after(batches_in([key for key, _ in found]))
        log.say("sound" if found == expected else f"wrong {sorted(set(found) ^ set(expected))}")
        time.sleep(0.2)


def _is_over(arguments: Arguments) -> bool:
    return (Path(arguments.folder) / "over").exists()


def _warm_up() -> None:
    """Compile what is compiled at its first use, once for all children."""
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        table = create_table(
            None, f"memory://warm-{table_type}", SCHEMA, key="id", partition="dt", ordering="ts", buckets=2,
            table_type=table_type,
        )  # fmt: skip
        for number in range(5):
            table.upsert(pa.Table.from_pylist(batch(0, number), SCHEMA))
        rows_in(table)
        if table_type == "MERGE_ON_READ":
            compact_table(table.store)


def _start(arguments: Arguments, role: str) -> int:
    child = os.fork()
    if child:
        return child
    try:
        for chance in (locks._chance, job._chance):
            chance.seed(os.getpid())
        kind, _, number = role.partition("-")
        if kind == "writer":
            write_on(arguments, int(number))
        else:
            {"service": serve_on, "reader": read_on}[kind](arguments)
    except BaseException as fault:
        Log(arguments.folder, "faults").say(f"{role}: {type(fault).__name__}: {fault}".replace("\n", " "))
        os._exit(1)
    os._exit(0)


def main(arguments: Arguments) -> None:
    shorten_times()
    heartbeat.Heartbeat.__init__.__kwdefaults__["every_seconds"] = 0.5
    _warm_up()
    chance = random.Random(arguments.seed)
    roles = [*(f"writer-{number}" for number in range(WRITERS)), "service"]
    children = {role: _start(arguments, role) for role in [*roles, "reader"]}
    killed: Counter[str] = Counter()
    until = time.monotonic() + arguments.seconds
    while time.monotonic() < until or killed.total() < arguments.kills:
        time.sleep(chance.uniform(0.2, 1.2))
        role = chance.choice(roles)
        os.kill(children[role], signal.SIGKILL)
        os.waitpid(children[role], 0)
        killed[role] += 1
        children[role] = _start(arguments, role)
    (Path(arguments.folder) / "over").touch()
    for child in children.values():
        os.waitpid(child, 0)
    (Path(arguments.folder) / "killed.json").write_text(json.dumps(killed))


if __name__ == "__main__":
    main(Arguments(**json.loads(sys.argv[1])))
