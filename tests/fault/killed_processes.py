"""Processes on one table that do all there is to do, killed and held up again and again: writers, services, and others.

    python -m fault.killed_processes '<arguments as JSON>'

    writer-0 to 2    upsert batches
    service          compaction, clustering, clean, archive, savepoints
    changer          rescales or resizes, whole, cut off and resumed; builds and compacts indexes of keys and values;
                     overwrites and empties a partition of its own
    undoer           takes back the newest write, restores savepoints, rolls rescales back, aborts what is pending
    reader           reads snapshots, and pages through the increments: the only one that is let be

A writer keeps a log of its own: `begin 7` before it writes its batch 7, `done 7` after it was told that the batch is
committed, both on disk before it goes on. What a batch holds follows from its number, and one of its rows is found in
no other batch: so from the rows of a table it can be told which batches are in it, and from that what all rows must be.
Whoever takes back says what, before and after.

A process is killed, or stopped for longer than a writer lives without a beat, and goes on then. Times are shortened: a
writer is dead after two seconds without a beat, not after two minutes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from bucketlake import ConsistentBuckets, SimpleBuckets, Table, create_table
from bucketlake.commit import heartbeat, locks, recovery
from bucketlake.commit.recovery import pending_rescales
from bucketlake.errors import BucketlakeError, ConfigError, ConflictError, CorruptTableError, InstantError
from bucketlake.index.resizes import pending_resizes
from bucketlake.services import (
    here,
    look_for_resize,
    look_for_restore,
    run_resize,
    run_restore,
    schedule_resize,
)
from bucketlake.services.metadata_compaction import compact_metadata
from bucketlake.services.rescale import new_rules, rescale_table
from bucketlake.services.resize_plan import ResizeTrigger
from bucketlake.state import load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action
from bucketlake.write import job
from stand_ins.table_machine import KINDS

WRITERS = 3
MARKERS = 1_000_000
"""Keys from here on are of one batch each: MARKERS * (writer + 1) + batch."""
SHARED = 900_000
"""Keys from here on are of all writers."""
REPLACED = range(800_000, 800_005)
"""The keys of partition p9, which is replaced as a whole."""
RULES = ("p0,4", "p1,1;p0,3", "p.,3", "p9,2;p0,1")
SPLIT = ResizeTrigger(file_bytes=6_000, split_threshold=1.0, merge_threshold=0.1, max_buckets=8)
MERGE = ResizeTrigger(min_buckets=1)
DEAD_AFTER_SECONDS = 2.0

T = TypeVar("T")

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
    kind: str
    """Of the table: see `stand_ins.table_machine`."""
    seed: int
    kills: int
    """At least so many, and half as many pauses."""
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


def replacement(number: int) -> list[dict[str, Any]]:
    """What partition p9 holds once it was replaced for the n-th time; every fourth time it is emptied."""
    if number % 4 == 3:
        return []
    return [
        {"id": key, "name": f"over/{number}", "ts": number, "dt": "p9", "_hoodie_is_deleted": False}
        for key in REPLACED
    ]


def split_off(rows: Sequence[tuple[int, str]]) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Part the rows of the writers from those of partition p9."""
    return [row for row in rows if row[0] not in REPLACED], [row for row in rows if row[0] in REPLACED]


def is_whole(replaced: Sequence[tuple[int, str]]) -> bool:
    """Tell whether these rows of partition p9 are those of one replacement, or none."""
    return not replaced or (len({name for _, name in replaced}) == 1 and len(replaced) == len(REPLACED))


def rows_in(table: Table) -> list[tuple[int, str]]:
    rows = table.to_arrow(columns=["id", "name"])
    return sorted(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def shorten_times(set_to: Callable[[Any, str, Any], None] = setattr) -> None:
    dead_ms = int(1000 * DEAD_AFTER_SECONDS)
    set_to(locks, "VALID_MS", dead_ms)
    set_to(locks, "RENEW_SECONDS", 0.4)
    set_to(heartbeat, "DEAD_AFTER_MS", dead_ms)
    # Longer than anybody is held up, with what a busy machine adds: a file that is put later waits for an archive.
    set_to(recovery, "KEPT_MS", 5 * dead_ms)


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

    def instants(self, word: str) -> set[str]:
        return {instant for line in self.lines() if line[0] == word for instant in line[1:]}


def write_on(arguments: Arguments, writer: int) -> None:
    log = Log(arguments.folder, f"writer-{writer}")
    number = max(log.numbers("begin"), default=-1)
    table = open_table(arguments)
    while not _is_over(arguments):
        number += 1
        log.say(f"begin {number}")
        rows = pa.Table.from_pylist(batch(writer, number), SCHEMA)
        done = attempt(arguments, log, number, partial(table.upsert, rows))
        if done is not None:
            log.say(f"done {number} {done.instant} {done.completed}")
        _let_others_undo()


def attempt(arguments: Arguments, log: Log, what: object, act: Callable[[], T]) -> T | None:
    """Do something that may be refused; None if it was."""
    began = time.monotonic()
    # An object store tells the time of a beat in whole seconds: a writer may look dead up to one earlier.
    dead_after = DEAD_AFTER_SECONDS - (1.0 if arguments.options else 0.0)
    try:
        return act()
    except (ConflictError, InstantError):
        log.say(f"conflict {what}")
    except ConfigError as error:
        if "partition" not in str(error):
            raise
        log.say(f"conflict {what}")  # what is to be emptied is not there
    except (FileNotFoundError, BucketlakeError) as error:
        if time.monotonic() - began < dead_after:
            raise
        log.say(f"late {what} {type(error).__name__}")  # taken for dead, and tidied up after
    return None


def is_calm() -> bool:
    """Tell whether writers wait: beside a write that is under way, or died just now, nothing can be taken back."""
    return time.time() % 10 > 4


def _let_others_undo() -> None:
    while is_calm():
        time.sleep(0.05)


def repeat(
    arguments: Arguments,
    log: Log,
    acts: Mapping[str, Callable[[], object]],
    *,
    nap: float,
    waits: bool = True,
) -> None:
    chance = random.Random(os.getpid())
    while not _is_over(arguments):
        if waits:
            _let_others_undo()
        name = chance.choice(sorted(acts))
        if attempt(arguments, log, name, acts[name]) is not None:
            log.say(f"done {name}")
        time.sleep(chance.uniform(0.0, nap))


def serve_on(arguments: Arguments) -> None:
    table = open_table(arguments)
    acts: dict[str, Callable[[], object]] = {
        "clean": lambda: table.clean(retain_commits=30),
        "archive": lambda: table.archive(keep_min=32, keep_max=34),
        "savepoint": lambda: table.savepoint() if len(table.savepoints()) < 2 else None,
        "delete_savepoint": lambda: _delete_savepoint(table),
    }
    kind = KINDS[arguments.kind]
    if not kind.has_ring:
        acts["cluster"] = lambda: table.cluster(by="name")
    if kind.is_mor:
        acts["compact"] = lambda: table.compact()
    repeat(arguments, Log(arguments.folder, "service"), acts, nap=0.2)


def _delete_savepoint(table: Table) -> object:
    found = table.savepoints()
    return table.delete_savepoint(found[0].instant) if found else None


def change_on(arguments: Arguments) -> None:
    table, log = open_table(arguments), Log(arguments.folder, "changer")
    chance = random.Random(os.getpid())

    def replace_partition() -> object:
        number = max(log.numbers("begin"), default=-1) + 1
        rows = pa.Table.from_pylist(replacement(number), SCHEMA)
        log.say(f"begin {number}")
        done = attempt(
            arguments,
            log,
            number,
            lambda: table.overwrite(rows) if rows.num_rows else table.delete_partitions(["p9"]),
        )
        if done is not None and done.instant is not None:
            log.say(f"replaced {number} {done.instant}")
        return done

    acts: dict[str, Callable[[], object]] = {"replacement": replace_partition}
    store = table.store
    kind = KINDS[arguments.kind]
    if kind.has_ring:
        acts |= {
            "resize": lambda: table.buckets.resize(rounds=1, **_arguments(chance.choice((SPLIT, MERGE)))),
            "plan": lambda: schedule_resize(store, look_for_resize(store, chance.choice((SPLIT, MERGE)))),
            "run": lambda: [run_resize(store, i) for i in sorted(_pending_resizes(store))],
        }
    elif not kind.has_record_index:
        acts |= {
            "overwrite": lambda: table.buckets.overwrite(chance.choice(RULES)),
            "add": lambda: table.buckets.add(chance.choice(RULES)),
            "cut off": lambda: _cut_off(store, chance.choice(RULES)),
            "resume": lambda: table.buckets.resume(),
        }
    if kind.has_record_index or kind.indexed:
        acts |= {
            "build": lambda: table.metadata.build(),  # what a rebuild or a restore that was killed has left
            "rebuild": lambda: table.metadata.rebuild(),
            "index compaction": lambda: compact_metadata(store),
        }
    repeat(arguments, log, acts, nap=0.5)


def _arguments(trigger: ResizeTrigger) -> dict[str, Any]:
    names = ("file_bytes", "split_threshold", "merge_threshold", "min_buckets", "max_buckets")
    return {name: getattr(trigger, name) for name in names}


def _pending_resizes(store: Store) -> Mapping[str, object]:
    return pending_resizes(store, load_state(store).timeline)


def _cut_off(store: Store, expressions: str) -> object:
    """Begin a rescale and leave it, for others to resume or abort."""

    def dying(function: Callable[[Any], Any], items: Sequence[Any], /) -> list[Any]:
        here(function, items[:1])
        raise KeyboardInterrupt

    rules, _ = new_rules(load_state(store), expressions, default_count=None, rule_type="regex", adds=False)
    try:
        return rescale_table(store, rules, tasks=dying)
    except KeyboardInterrupt:
        return "cut off"


def undo_on(arguments: Arguments) -> None:
    table, log = open_table(arguments), Log(arguments.folder, "undoer")
    chance = random.Random(os.getpid())
    store = table.store

    def roll_back() -> object:
        timeline = load_state(store).timeline
        if not timeline.writes:
            return None
        newest = max(timeline.writes, key=lambda i: i.completed or "").requested
        if newest in timeline.savepoints and chance.random() < 0.5:
            table.delete_savepoint(newest)  # it would be refused
        log.say(f"undoing {newest}")
        done = table.rollback(newest)
        log.say(f"undone {newest}")
        return done

    def restore() -> object:
        savepoints = table.savepoints()
        if not savepoints:
            table.savepoint()  # for the next time
            return None
        order = look_for_restore(load_state(store), savepoints[-1].instant)
        gone = " ".join(instant.requested for instant in order.instants)
        log.say(f"undoing {gone}")
        done = run_restore(order, store)
        log.say(f"undone {gone}")
        return done

    def abort() -> object:
        timeline = load_state(store).timeline
        pending = [i.requested for i in timeline.pending(Action.COMPACTION, Action.CLUSTERING)]
        if pending_rescales(store, timeline):
            return table.buckets.abort()
        return table.rollback(chance.choice(pending)) if pending else None

    acts: dict[str, Callable[[], object]] = {"rollback": roll_back, "restore": restore, "abort": abort}
    kind = KINDS[arguments.kind]
    if not kind.has_ring and not kind.has_record_index:

        def roll_back_rescales() -> object:
            rescales = [v.instant for v in table.buckets.show_config() if v.instant.strip("0")]
            several = chance.random() < 0.5
            instant = rescales[-2:][0] if several else rescales[-1]
            return table.buckets.rollback(instant, with_newer=several)

        acts["rollback of rescales"] = lambda: (
            roll_back_rescales() if table.buckets.show_config()[1:] else None
        )
    repeat(arguments, log, acts, nap=0.3, waits=False)


def read_on(arguments: Arguments) -> None:
    """See whole batches only, at any moment; and every batch once, in the increments."""
    log = Log(arguments.folder, "reader")
    table = open_table(arguments)
    page_end = "0"
    while not _is_over(arguments):
        check_snapshot(table, log)
        page_end = read_page(table, log, page_end)
        time.sleep(0.2)
    log.say(f"ended {page_end}")


def check_snapshot(table: Table, log: Log) -> None:
    try:
        found = rows_in(table)
    except (FileNotFoundError, BucketlakeError) as gone:
        # Cleaned, or taken back, while it read: a reader has as long as files are kept.
        log.say(f"gone {type(gone).__name__}")
        return
    batches, replaced = split_off(found)
    expected = rows_after(batches_in([key for key, _ in batches]))
    log.say(
        "sound"
        if batches == expected and is_whole(replaced)
        else f"wrong {sorted(set(batches) ^ set(expected))} {replaced}"
    )


def read_page(table: Table, log: Log, begin: str) -> str:
    """Read what was completed since `begin`, and return where the next page begins."""
    end = max((entry.completed or "" for entry in table.timeline()), default="")
    if end <= begin:
        return begin
    try:
        keys = table.to_arrow(columns=["id"], begin=begin, end=end)["id"].to_pylist()
    except ConfigError as gone:
        if "not all there yet" in str(gone):
            log.say("early")
            return begin
        log.say(f"skipped {begin} {end}")  # cleaned
        return end
    except (FileNotFoundError, CorruptTableError):
        log.say("gone while it was read")
        return begin
    for writer, number in sorted(batches_in(keys)):
        log.say(f"saw {writer} {number}")
    return end


def _is_over(arguments: Arguments) -> bool:
    return (Path(arguments.folder) / "over").exists()


def _warm_up() -> None:
    """Compile what is compiled at its first use, once for all children."""
    for table_type in ("MERGE_ON_READ", "COPY_ON_WRITE"):
        for index in (SimpleBuckets(2), ConsistentBuckets(2)):
            table = create_table(
                f"memory://warm-{table_type}-{type(index).__name__}", SCHEMA, key="id", partition="dt", ordering="ts",
                index=index, table_type=table_type,
            )  # fmt: skip
            for number in range(5):
                table.upsert(pa.Table.from_pylist(batch(0, number), SCHEMA))
            rows_in(table)
            if table_type == "MERGE_ON_READ":
                table.compact()


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
            roles = {"service": serve_on, "changer": change_on, "undoer": undo_on, "reader": read_on}
            roles[kind](arguments)
    except BaseException as fault:
        steps = traceback.extract_tb(fault.__traceback__)
        way = " < ".join(f"{Path(s.filename).name}:{s.lineno} {s.name}" for s in reversed(steps))
        Log(arguments.folder, "faults").say(
            f"{role}: {type(fault).__name__}: {fault} < {way}".replace("\n", " ")
        )
        os._exit(1)
    os._exit(0)


def main(arguments: Arguments) -> None:
    shorten_times()
    heartbeat.Heartbeat.__init__.__kwdefaults__["every_seconds"] = 0.4
    _warm_up()
    chance = random.Random(arguments.seed)
    roles = [*(f"writer-{number}" for number in range(WRITERS)), "service", "changer", "undoer"]
    children = {role: _start(arguments, role) for role in [*roles, "reader"]}
    fates: Counter[str] = Counter()
    stopped: dict[str, float] = {}
    """Until when."""
    until = time.monotonic() + arguments.seconds
    while (
        time.monotonic() < until
        or fates["killed"] < arguments.kills
        or fates["held up"] < arguments.kills // 2
    ):
        time.sleep(chance.uniform(0.1, 0.6))
        _continue(children, stopped, now=time.monotonic())
        if is_calm() and chance.random() < 0.85:
            continue  # else hardly anything is taken back to its end
        busy = ["undoer"] if is_calm() else roles
        role = chance.choice([role for role in busy if role not in stopped] or roles[:1])
        if len(stopped) < 2 and role not in stopped and chance.random() < 0.4:
            os.kill(children[role], signal.SIGSTOP)
            stopped[role] = time.monotonic() + DEAD_AFTER_SECONDS * chance.uniform(0.8, 2.0)
            fates["held up"] += 1
        else:
            os.kill(children[role], signal.SIGKILL)
            os.waitpid(children[role], 0)
            stopped.pop(role, None)
            fates["killed"] += 1
            children[role] = _start(arguments, role)
    _continue(children, stopped, now=float("inf"))
    (Path(arguments.folder) / "over").touch()
    for child in children.values():
        os.waitpid(child, 0)
    (Path(arguments.folder) / "fates.json").write_text(json.dumps(fates))


def _continue(children: Mapping[str, int], stopped: dict[str, float], *, now: float) -> None:
    for role in [role for role, until in stopped.items() if until <= now]:
        os.kill(children[role], signal.SIGCONT)
        del stopped[role]


if __name__ == "__main__":
    main(Arguments(**json.loads(sys.argv[1])))
