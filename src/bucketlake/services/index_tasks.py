"""What tasks do for an index that is being built: keys of entries of file slices -> runs -> files of shards.

    leave_run    one file slice: the keys of the entries that its live rows have, cut by shard, as one file
    put_base     one shard: the runs of all slices that have keys in it, as its base file
    put_log      one shard: what became of its keys where file groups have changed since, as a log over that

A run is an Arrow file with a batch per shard that has keys of the slice, and says of each how many there are and the
sum of their hashes. It is named after what it was read from, so who comes second finds it there. Whoever has put a file
of a shard reads it again, compares it with what the runs tell, and only then leaves word (`Told`) that it is done.

A task holds the keys of one slice, or one shard.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake import hfile
from bucketlake.basefile import FileFacts, read_footer
from bucketlake.basefile.footer import ROWS_KEY
from bucketlake.errors import CorruptTableError, ProofError
from bucketlake.layout import DataFile, FileSlice
from bucketlake.layout.names import (
    WRITE_TOKEN,
    BaseFileName,
    LogFileName,
    render_index_base_file_name,
    render_log_file_name,
)
from bucketlake.metadata.change import IndexFile
from bucketlake.metadata.listing import ShardSlice
from bucketlake.metadata.places import folder_of
from bucketlake.metadata.record_index import Location, Locations
from bucketlake.metadata.record_shard import ShardEntries, find_twice, join_entries
from bucketlake.read import ReadContext, read_slice
from bucketlake.schema import key_hash_sum
from bucketlake.services.index_kind import IndexKind
from bucketlake.storage import FileStat, Store, in_parallel, open_input

_FACTS = b"bucketlake"
_MODULUS = 1 << 64
_TEXT_BYTES_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Sum:
    """How many keys there are, and the sum of their hashes, modulo 2**64."""

    rows: int = 0
    key_hash_sum: int = 0

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.rows + other.rows, (self.key_hash_sum + other.key_hash_sum) % _MODULUS)

    def __sub__(self, other: Sum) -> Sum:
        return Sum(self.rows - other.rows, (self.key_hash_sum - other.key_hash_sum) % _MODULUS)


def sum_of(keys: Any) -> Sum:
    return Sum(len(keys), key_hash_sum(keys))


def total(sums: Iterable[Sum]) -> Sum:
    return sum(sums, Sum())


@dataclass(frozen=True, slots=True)
class Run:
    """The keys of one file slice, as a file."""

    name: str
    keys: Sum


def run_name(file_slice: FileSlice, shards: int, kind: IndexKind) -> str:
    """Name a run after the files of the slice, what is read of them, and how many shards its keys are cut into."""
    every: list[DataFile] = [*file_slice.log_files]
    if file_slice.base_file is not None:
        every.append(file_slice.base_file)
    files = [(file.path, file.size_bytes) for file in every]
    said = json.dumps([file_slice.partition, file_slice.file_id, kind.columns, shards, files])
    return hashlib.sha256(said.encode()).hexdigest()[:40]


def runs_folder(kind: IndexKind) -> str:
    return f"{kind.folder}/runs"


def run_path(kind: IndexKind, name: str) -> str:
    return f"{runs_folder(kind)}/{name}.arrow"


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceTask:
    """A file slice whose entries are to be made. Frozen and picklable."""

    kind: IndexKind
    context: ReadContext
    slice: FileSlice
    shards: int
    instant_ms: int
    is_needed: bool = False
    """Whether the table finds its keys by the index."""

    @property
    def name(self) -> str:
        return run_name(self.slice, self.shards, self.kind)

    @property
    def size_bytes(self) -> int:
        return self.slice.size_bytes


def leave_run(task: SliceTask) -> Run | None:
    """Make the entries of a slice's live rows, and leave them by shard; None if files of it are gone by now."""
    try:
        keys = _live_keys(task)
    except FileNotFoundError:
        return None
    task.kind.check(keys, is_needed=task.is_needed)
    order = hfile.ascending(keys)
    keys = keys if order is None else keys.take(pa.array(order))
    numbers = task.kind.shards_of(keys, task.shards)
    by_shard = np.argsort(numbers, kind="stable")
    keys, numbers = keys.take(pa.array(by_shard)), numbers[by_shard]
    found, starts, counts = np.unique(numbers, return_index=True, return_counts=True)
    parts = [keys.slice(*span) for span in zip(starts.tolist(), counts.tolist(), strict=True)]
    sums = [sum_of(part) for part in parts]
    facts = {
        "partition": task.slice.partition,
        "file_id": task.slice.file_id,
        "instant_ms": task.instant_ms,
        "shards": [(n, s.rows, s.key_hash_sum) for n, s in zip(found.tolist(), sums, strict=True)],
    }
    schema = pa.schema([pa.field("key", keys.type)], metadata={_FACTS: json.dumps(facts)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for part in parts:
            writer.write_batch(pa.RecordBatch.from_arrays([part], schema=schema))
    task.context.store.put_new(run_path(task.kind, task.name), sink.getvalue().to_pybytes())
    return Run(task.name, total(sums))


def _live_keys(task: SliceTask) -> pa.Array:
    """Return the keys of the entries; the record keys that they are made of are those that the base file tells of."""
    made, read = [], Sum()
    for batch in read_slice(task.slice, task.context):
        read += sum_of(batch.column(0))
        made.append(task.kind.keys_of(pa.Table.from_batches([batch])))
    text_bytes = sum(column.nbytes for column in made)
    kind = pa.large_string() if text_bytes > _TEXT_BYTES_MAX else pa.string()
    base = task.slice.base_file
    if base is not None and not task.slice.log_files:
        footer = read_footer(task.context.store, base.path)
        if ROWS_KEY in footer.metadata:
            said = FileFacts.of_footer(footer.metadata, path=base.path)
            if Sum(said.rows, said.key_hash_sum) != read:
                raise CorruptTableError(
                    path=base.path,
                    found=f"{read.rows:,} rows, whose keys are not those that the file tells of",
                    expected=f"{said.rows:,} rows with the key sum {said.key_hash_sum}",
                    remedy="Check the table: `bucketlake fsck`.",
                )
    return pa.concat_arrays([pa.array([], kind), *(column.cast(kind) for column in made)])


def read_run(store: Store, kind: IndexKind, name: str) -> Run:
    """Read what a run says of itself."""
    with open_input(store, run_path(kind, name)) as source:
        facts = json.loads(pa.ipc.open_file(source).schema.metadata[_FACTS])
    return Run(name, total(Sum(rows, hashes) for _, rows, hashes in facts["shards"]))


@dataclass(frozen=True, slots=True)
class _Part:
    """The keys that a run has in one shard, and what it says of them."""

    entries: ShardEntries
    told: Sum


def _read_parts(task: ShardTask, runs: Sequence[str]) -> list[_Part]:
    return in_parallel(lambda name: _read_part(task, name), runs, task.store)


def _read_part(task: ShardTask, name: str) -> _Part:
    with open_input(task.store, run_path(task.kind, name)) as source:
        reader = pa.ipc.open_file(source)
        facts = json.loads(reader.schema.metadata[_FACTS])
        place = Location(facts["partition"], facts["file_id"], facts["instant_ms"])
        for position, (number, rows, hashes) in enumerate(facts["shards"]):
            if number == task.shard:
                keys = reader.get_batch(position).column(0)
                locations = Locations(np.zeros(len(keys), np.int32), (place,))
                return _Part(ShardEntries(keys, locations), Sum(rows, hashes))
    return _Part(ShardEntries(pa.array([], pa.string()), Locations(np.empty(0, np.int32), ())), Sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was put for one shard in one round, and found to be right."""

    file_id: str
    round: int
    """0: the base file."""
    files: tuple[IndexFile, ...]
    keys: Sum
    """By how much the shard has grown, or shrunk."""

    def as_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of_json(cls, data: bytes) -> Told:
        facts = json.loads(data)
        return cls(
            file_id=facts["file_id"],
            round=facts["round"],
            files=tuple(IndexFile(**file) for file in facts["files"]),
            keys=Sum(**facts["keys"]),
        )


def told_folder(kind: IndexKind, instant: str) -> str:
    return f"{kind.folder}/told/{instant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardTask:
    """One shard whose file is to be put: of all slices, or of what has changed. Frozen and picklable."""

    kind: IndexKind
    store: Store
    instant: str
    file_id: str
    shard: int
    """Its number, among those of the table or of its partition."""
    runs: tuple[str, ...]
    """Of the slices as they are."""
    size_bytes: int
    round: int = 0
    outdated: tuple[str, ...] = ()
    """Of the slices of the same file groups as they were before."""
    before: ShardSlice | None = None
    """What there is of the shard; None: nothing."""

    def base_path(self) -> str:
        name = render_index_base_file_name(BaseFileName(self.file_id, WRITE_TOKEN, self.instant))
        return f"{folder_of(self.kind.partition)}/{name}"

    def log_path(self) -> str:
        # Version 1 is for the first round's: a shard without keys has a log that says nothing, and may get another.
        name = render_log_file_name(LogFileName(self.file_id, self.instant, self.round + 1, WRITE_TOKEN))
        return f"{folder_of(self.kind.partition)}/{name}"


def put_base(task: ShardTask) -> Told:
    """Put the base file of a shard; a log that says nothing, if it has no keys."""
    parts = _read_parts(task, task.runs)
    expected = total(part.told for part in parts)
    entries = join_entries([part.entries for part in parts])
    _check_once(entries, task)
    _check_sum(sum_of(entries.keys), expected, task, "read from the runs")
    groups = _by_group(entries)
    if not len(entries):
        return _tell(
            task, task.log_path(), task.kind.encode_log(task.instant, None, None), Sum(), Sum(), Sum()
        )
    path, image = task.base_path(), task.kind.encode_base(entries)
    del entries, parts
    task.store.put_new(path, image)
    stat = task.store.stat(path)
    found = task.kind.read(task.store, ShardSlice(stat, ()))
    _check_sum(sum_of(found.keys), expected, task, "found in its base file")
    if task.kind.knows_places and _by_group(found) != groups:
        raise ProofError(f"{path} has keys in other file groups than was told. {_NOTHING}")
    return _told(task, stat, came=expected, gone=Sum(), grown=expected)


def put_log(task: ShardTask) -> Told:
    """Put a log with what became of the keys of a shard where file groups have changed."""
    new, old = (_read_parts(task, runs) for runs in (task.runs, task.outdated))
    expected = total(part.told for part in new) - total(part.told for part in old)
    now = join_entries([part.entries for part in new])
    was = join_entries([part.entries for part in old])
    _check_once(now, task)
    names = _numbers(now, was)
    at = pc.index_in(now.keys.cast(pa.large_string()), value_set=was.keys.cast(pa.large_string()))
    is_known = at.is_valid().to_numpy(zero_copy_only=False)
    stays = is_known.copy()
    if task.kind.knows_places:
        stays[is_known] = names[0][is_known] == names[1][at.drop_null().to_numpy()]
    came = ShardEntries(
        now.keys.filter(pa.array(~stays)), Locations(now.locations.codes[~stays], now.locations.distinct)
    )
    is_gone = pc.invert(
        pc.is_in(was.keys.cast(pa.large_string()), value_set=now.keys.cast(pa.large_string()))
    )
    gone = was.keys.filter(is_gone)
    new_here = ~is_known
    _check_strangers(now, new_here, task)
    fresh, left = sum_of(now.keys.filter(pa.array(new_here))), sum_of(gone)
    _check_sum(fresh - left, expected, task, "come and gone")
    if not len(came) and not len(gone) and task.before is not None:
        return _kept(task, Told(file_id=task.file_id, round=task.round, files=(), keys=expected))
    data = task.kind.encode_log(task.instant, came, gone)
    return _tell(task, task.log_path(), data, sum_of(came.keys), left, expected)


def _tell(task: ShardTask, path: str, data: bytes, came: Sum, gone: Sum, grown: Sum) -> Told:
    """Put a log, and see that it says what it should."""
    task.store.put_new(path, data)
    stat = task.store.stat(path)
    _check_sum(sum_of(task.kind.logged(task.store, stat)), came + gone, task, "found in its log")
    here = task.kind.read(task.store, ShardSlice(None, (stat,)))
    _check_sum(sum_of(here.keys), came, task, "found to have come, in its log")
    return _told(task, stat, came=came, gone=gone, grown=grown)


def _told(task: ShardTask, stat: FileStat, *, came: Sum, gone: Sum, grown: Sum) -> Told:
    file = IndexFile(
        path=stat.path,
        size_bytes=stat.size_bytes,
        came=came.rows,
        gone=gone.rows,
        key_hash_sum=(came + gone).key_hash_sum,
    )
    return _kept(task, Told(file_id=task.file_id, round=task.round, files=(file,), keys=grown))


def _kept(task: ShardTask, told: Told) -> Told:
    path = f"{told_folder(task.kind, task.instant)}/{task.file_id}.{task.round}.json"
    task.store.put(path, told.as_json())
    return told


def _by_group(entries: ShardEntries) -> dict[tuple[str, str], int]:
    counts = np.bincount(entries.locations.codes, minlength=len(entries.locations.distinct)).tolist()
    found: dict[tuple[str, str], int] = {}
    for place, count in zip(entries.locations.distinct, counts, strict=True):
        group = place.partition, place.file_id
        found[group] = found.get(group, 0) + count
    return {group: count for group, count in found.items() if count}


def _numbers(*parts: ShardEntries) -> list[npt.NDArray[np.int64]]:
    """Number the file groups of entries, whenever their slices began."""
    known: dict[tuple[str, str], int] = {}
    found = []
    for part in parts:
        of_code = [known.setdefault((p.partition, p.file_id), len(known)) for p in part.locations.distinct]
        found.append(np.array(of_code, np.int64)[part.locations.codes])
    return found


def _check_once(entries: ShardEntries, task: ShardTask) -> None:
    twice = find_twice(entries)
    if twice is not None:
        raise task.kind.found_twice(task.store, *twice)


def _check_strangers(now: ShardEntries, is_new: npt.NDArray[np.bool_], task: ShardTask) -> None:
    """Refuse entries that came with a file group, and that one has which has not changed."""
    if task.before is None or not is_new.any():
        return
    keys = now.keys.filter(pa.array(is_new))
    found = task.kind.look_up(task.store, task.before, keys)
    if (found.codes >= 0).any():
        first = int(np.argmax(found.codes >= 0))
        here = now.locations.distinct[now.locations.codes[is_new][first]]
        there = found.distinct[found.codes[first]]
        raise task.kind.found_twice(task.store, keys[first].as_py(), there, here)


_NOTHING = "Nothing was listed. Build the index again: what there is of it is thrown away."


def _check_sum(found: Sum, expected: Sum, task: ShardTask, what: str) -> None:
    if found != expected:
        raise ProofError(
            f"{task.file_id}: {found.rows:,} keys with the sum {found.key_hash_sum} were {what}, and the file slices "
            f"tell of {expected.rows:,} with {expected.key_hash_sum}. {_NOTHING}"
        )
