"""Catching up: rows are moved to new file groups while writers go on, and what they write is moved after.

    plan_round    which tasks are to be run, again or for the first time: pure
    catch_up      rounds of that without the lock, until little is left
    last_round    the rest, under the table's lock: nobody completes anything before the caller does
    check_whole   the new files are there as the rounds left them, and no others

Each round looks at the slices that a reader sees now, and does those tasks over whose slices are no longer what they
were. So a round is as long as what was written during the one before it, and neither writers nor the one who moves the
rows are starved: writers wait for the last round only, which is short.

A file that is written again keeps its name and is replaced on condition, never deleted: a task of an earlier round that
is still about cannot put its file back. A group that has lost all its rows meanwhile so keeps an empty file.

Who moves rows says how the slices of now make tasks; a rescale does, and who splits or merges buckets may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bucketlake.errors import CommitConflictError
from bucketlake.layout import BaseFile, data_files_of
from bucketlake.layout.names import split_path
from bucketlake.services.regroup import Regrouped, RegroupTask, regroup
from bucketlake.services.tasks import Tasks
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store, in_parallel
from bucketlake.timeline import WriteStat

ROUNDS_MAX = 8
"""Without the lock; then the rest is done under it, however much that is."""

LITTLE_BYTES = 32 << 20
"""So much to read is left to the round under the lock: a second's work or two."""

Work = Callable[[TableState], Sequence[RegroupTask]]
"""The tasks that all slices of now make; their order is of no concern."""

_Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """What the rounds so far have done."""

    done: Mapping[_Key, tuple[RegroupTask, Regrouped]] = field(default_factory=dict)
    """By the paths of the new files: the last task that wrote them, and what it did."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Path -> version of every file that was put."""
    is_resumed: bool = False
    """Whether another process was at it before."""

    @property
    def rows(self) -> int:
        return sum(result.rows for _, result in self.done.values())

    @property
    def key_hash_sum(self) -> int:
        return sum(result.key_hash_sum for _, result in self.done.values()) % (1 << 64)

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        return tuple(stat for _, result in self.done.values() for stat in result.stats)

    @property
    def replaced(self) -> dict[str, tuple[str, ...]]:
        """Partition -> the ids of the file groups that gave way."""
        found: dict[str, tuple[str, ...]] = {}
        for task, _ in self.done.values():
            ids = tuple(part.file_id for part in task.work.slices)
            found[task.work.partition] = (*found.get(task.work.partition, ()), *ids)
        return {partition: ids for partition, ids in found.items() if ids}


NOTHING_MOVED = Moved()


def plan_round(work: Iterable[RegroupTask], moved: Moved) -> tuple[RegroupTask, ...]:
    """Choose the tasks whose slices were not, or not all, what an earlier round was made of.

    New groups whose old ones are all gone are emptied.
    """
    wanted = {task.paths: task for task in work}
    for key, (task, _) in moved.done.items():
        if key not in wanted:
            wanted[key] = replace(task, work=replace(task.work, slices=()), size_bytes=0)
    due = []
    for key, task in wanted.items():
        before = moved.done.get(key)
        if before is None or before[0].origin != task.origin:
            stale = {path: moved.versions[path] for path in key if path in moved.versions}
            is_repeat = moved.is_resumed or before is not None
            due.append(replace(task, stale=stale, is_repeat=is_repeat))
    return tuple(due)


def run_round(due: Sequence[RegroupTask], moved: Moved, tasks: Tasks) -> Moved:
    results = tasks(regroup, due) if due else []
    done = {task.paths: (task, result) for task, result in zip(due, results, strict=True)}
    versions = {path: version for result in results for path, version in result.versions.items()}
    return replace(moved, done={**moved.done, **done}, versions={**moved.versions, **versions})


def catch_up(store: Store, work: Work, moved: Moved, tasks: Tasks) -> Moved:
    """Move what there is, and then what was written meanwhile, until little is left of that."""
    for _ in range(ROUNDS_MAX):
        due = plan_round(work(load_state(store)), moved)
        is_first = not moved.done
        if not due or (not is_first and sum(task.size_bytes for task in due) <= LITTLE_BYTES):
            break
        moved = run_round(due, moved, tasks)
    return moved


def last_round(state: TableState, work: Work, moved: Moved, tasks: Tasks) -> Moved:
    """Move the rest, while holding the table's lock; `state` was loaded under it."""
    moved = run_round(plan_round(work(state), moved), moved, tasks)
    check_whole(state.store, moved)
    return moved


def resumed(store: Store, paths: Iterable[str], work: Sequence[RegroupTask]) -> Moved:
    """Look at what an earlier attempt left; `paths` are the files that it announced.

    What no task of now would write is deleted.
    """
    expected = {path for task in work for path in task.paths}
    listed = sorted(paths)
    in_parallel(store.delete, [path for path in listed if path not in expected], store)
    found = in_parallel(lambda path: _version(store, path), [p for p in listed if p in expected], store)
    return Moved(versions={path: version for path, version in found if version}, is_resumed=True)


def check_whole(store: Store, moved: Moved) -> None:
    """See that the new files are as they were left: another process may have taken us for dead."""
    instants = {task.instant for task, _ in moved.done.values()}
    expected = {stat.path: moved.versions[stat.path] for stat in moved.stats}
    partitions = sorted({task.work.partition for task, _ in moved.done.values()})
    listed = [file for folder in in_parallel(store.list, partitions, store) for file in folder.files]
    present = {file.path: file.version for file in listed}
    # Logs of the same instant are what writers have put beside a resize.
    bases = (file for file in data_files_of(listed) if isinstance(file, BaseFile))
    strangers = {file.path for file in bases if file.instant in instants} - expected.keys()
    changed = [path for path, version in expected.items() if present.get(path) != version]
    for path in sorted([*changed, *strangers])[:1]:
        raise CommitConflictError(
            f"{split_path(path)[1]} in {split_path(path)[0]!r} is not as it was left: another process has gone on with "
            f"{', '.join(instants)}. Nothing of it is visible. See what became of that: bucketlake timeline."
        )


def _version(store: Store, path: str) -> tuple[str, str]:
    try:
        return path, store.stat(path).version
    except FileNotFoundError:
        return path, ""
