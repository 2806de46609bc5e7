"""The machine of `test_table_machine` finds faults that tables once had, when they are put back. For soaks only.

Each is told with the seed and the number of steps that found it. A fault that is no longer found says that the machine
has become blind, or that the code which it was put into has moved.

Some faults do not show in it, and have tests of their own only. Processes of the machine share what they keep in
memory, so an archive beside a look takes nothing from it (`tests/unit/test_looks_beside_archive.py`). A commit that is
decided and late is nearly always published by the next comer (`tests/unit/read/test_incremental.py`). A ring's write
that is run again whole is only slower (`tests/unit/commit/test_conflicts.py`), and so is a lock that is waited for
(`tests/unit/commit/test_locks.py`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from bucketlake import buckets
from bucketlake import table as tables
from bucketlake.index import fingerprint, resolve, rings_keeper, rules_keeper
from bucketlake.index.index import Index, NoIndex
from bucketlake.index.keeper import NOTHING, Undoing, Upkeep
from bucketlake.index.partition import list_versions, load_rules
from bucketlake.layout import DataFile, FileSlice
from bucketlake.layout.names import recorded_counts_path
from bucketlake.read import plan as read_plan
from bucketlake.services import archive, rescale, resize_plan
from bucketlake.services.archive import Stop
from bucketlake.state import TableState
from bucketlake.storage import Store
from bucketlake.timeline import Action
from stand_ins.table_machine import TALLY, replay, run_history

STEPS_MAX = 20_000
UNDOING = "roll back,restore,roll back rescale,unwind,restore any,finish plans,unwind rescales"
PLAIN = "overwrite,delete partition,delete,clustering,compaction,kill,time passes,look,cut off rescale,delete savepoint"
OTHERS = "increments,pages,past,dry runs,bad policy"
METADATA = "metadata table"


@dataclass(frozen=True)
class Fault:
    name: str
    put_back: Callable[[pytest.MonkeyPatch], None]
    kinds: tuple[str, ...]
    says: str
    """What the machine says of it."""
    without: str = OTHERS
    steps: int = 50
    """Of a history: few where it is the beginning of one that matters."""
    script: str = ""
    """The steps of all histories, each with its slot; what they do is drawn. For what would seldom meet."""

    def run(self, kind: str, seed: int) -> None:
        without = frozenset(self.without.split(","))
        if not self.script:
            run_history(kind, seed, count=self.steps, without=without)
            return
        chance = Random(f"{self.script} {seed}")
        names = (word.rsplit(" ", 1) for word in self.script.split(", "))
        replay(kind, [(name, int(slot), chance.getrandbits(30)) for name, slot in names], without=without)


def _keeps_no_virtual_rows(patch: pytest.MonkeyPatch) -> None:
    before_taking_back = rings_keeper.RingsKeeper.before_taking_back

    def mutant(self: Any, store: Any, properties: Any, timeline: Any, undone: Any) -> Undoing:
        undoing = before_taking_back(self, store, properties, timeline, undone)
        return undoing if undone.commit is None else replace(undoing, upkeep=NOTHING)

    patch.setattr(rings_keeper.RingsKeeper, "before_taking_back", mutant)


def _forgets_the_count(patch: pytest.MonkeyPatch) -> None:
    settings_of = rules_keeper.settings_of
    patch.setattr(
        rules_keeper, "settings_of", lambda props, rules: settings_of(props, rules) if rules.version else {}
    )
    for module in (resolve, fingerprint):
        patch.setattr(module, "simple_count", lambda properties: properties.bucket_count)


def _leaves_archived_rules(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(rules_keeper, "version_to_bring_back", lambda *given, **how: None)


def _keeps_records_of_the_undone(patch: pytest.MonkeyPatch) -> None:
    after_taking_back = rules_keeper.RulesKeeper.after_taking_back

    def mutant(self: Any, store: Store, *, instant: str, action: Action) -> Upkeep:
        upkeep = after_taking_back(self, store, instant=instant, action=action)
        kept = tuple(path for path in upkeep.deletes if path != recorded_counts_path(instant))
        return replace(upkeep, deletes=kept)

    patch.setattr(rules_keeper.RulesKeeper, "after_taking_back", mutant)
    patch.setattr(rules_keeper, "dead_records", lambda *given: ())


def _refuses_beside_an_upgrade(patch: pytest.MonkeyPatch) -> None:
    resolve_index = fingerprint.resolve_index

    def mutant(state: TableState, *said: Any, **how: Any) -> Index:
        versions = list_versions(state.store, with_archived=False)
        if versions and load_rules(state.store, state.timeline).rules is None:
            return NoIndex("none of its rules counts")
        return resolve_index(state, *said, **how)

    patch.setattr(fingerprint, "resolve_index", mutant)


def _takes_back_one_after_the_other(patch: pytest.MonkeyPatch) -> None:
    roll_back_rescale = rescale.roll_back_rescale

    def mutant(store: Store, instant: str, *, with_newer: bool = False) -> object:
        newest = None
        while with_newer and newest != instant:
            versions = tables.Table(store, tables.load_properties(store)).buckets.show_config()
            newest = versions[-1].instant
            if newest > instant:
                roll_back_rescale(store, newest)
        return roll_back_rescale(store, instant)

    patch.setattr(buckets, "roll_back_rescale", mutant)


def _aborts_where_it_plans(patch: pytest.MonkeyPatch) -> None:
    abort = tables.Buckets.abort
    plan = tables.Buckets.plan_abort

    def mutant(self: Any, instant: str | None = None) -> object:
        return abort(self, instant) if instant is not None else plan(self)

    patch.setattr(tables.Buckets, "plan_abort", mutant)


def _archives_by_requested_times(patch: pytest.MonkeyPatch) -> None:
    def mutant(state: TableState, groups: object) -> Iterable[Stop]:  # it did not look at files
        clean = archive._last_clean(state)
        first = "" if clean is None else min(clean.requested, clean.earliest_kept or clean.requested)
        first = min([first, *state.timeline.savepoints])
        for replacement in state.timeline.completed(Action.REPLACE_COMMIT):
            if replacement.requested >= first:
                yield Stop(replacement.requested, "no clean has deleted what it replaced")

    patch.setattr(archive, "_replacement_stops", mutant)
    patch.setattr(archive, "_savepoint_stops", lambda timeline: [
        Stop(savepoint, "a savepoint") for savepoint in timeline.savepoints
    ])  # fmt: skip


def _reads_intervals_by_requested_times(patch: pytest.MonkeyPatch) -> None:
    def mutant(state: TableState, requested: str, end: str | None, known: object = None) -> bool:
        return requested in state.view.completions and (end is None or requested <= end)

    patch.setattr(read_plan, "is_completed_by", mutant)


def _reads_no_log_across_the_plan_of_a_compaction(patch: pytest.MonkeyPatch) -> None:
    plan_changes, cut = read_plan._plan_changes, read_plan.changed_slices_of
    planned: dict[tuple[str, str], str] = {}

    def plan(state: TableState, *given: Any, **how: Any) -> Any:
        planned.clear()
        planned.update(state.view.pending_compactions)
        return plan_changes(state, *given, **how)

    def mutant(
        partition: str, files: Iterable[DataFile], completions: Any, **how: Any
    ) -> tuple[FileSlice, ...]:
        def is_across(file: DataFile) -> bool:
            plan = planned.get((partition, file.file_id), "")
            return file.instant < plan < completions.get(file.instant, "")

        return cut(partition, [file for file in files if not is_across(file)], completions, **how)

    patch.setattr(read_plan, "_plan_changes", plan)
    patch.setattr(read_plan, "changed_slices_of", mutant)


def _takes_any_split_point(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        resize_plan, "_split_point", lambda state, place, hashes, policy: policy(state.ring, place, hashes)
    )


FAULTS = (
    Fault(
        "rows that only a child log has go with a completed resize",
        _keeps_no_virtual_rows,
        ("ring virtual",),
        r"no such file.*\.log\.|rows: found|after a write|cannot be read",
    ),
    Fault(
        "the count does not come back with an upgrade that is taken back",
        _forgets_the_count,
        ("simple cow", "simple mor"),
        "no version of the table's bucket rules|does not say how its keys",
    ),
    Fault(
        "rules that were archived do not come back",
        _leaves_archived_rules,
        ("rules cow", "rules mor"),
        "no version of the table's bucket rules|but Rules",
        without=f"{OTHERS},{PLAIN},savepoint,restore,roll back,unwind,finish plans",
    ),
    Fault(
        "recorded counts of what was taken back come alive",
        _keeps_records_of_the_undone,
        ("rules cow", "rules mor"),
        "was given . buckets",
    ),
    Fault(
        "an upgrade that is under way keeps writers out",
        _refuses_beside_an_upgrade,
        ("simple cow", "simple mor"),
        "the index of .* is none|none of its rules counts|does not say how|no version",
        without=f"{OTHERS},{UNDOING},copies,overwrite,delete partition,delete,clustering,compaction,load",
        steps=6,
    ),
    Fault(
        "several rescales are taken back one after the other",
        _takes_back_one_after_the_other,
        ("rules cow", "rules mor"),
        "half done|is gone|did not foresee",
    ),
    Fault(
        "a dry run aborts",
        _aborts_where_it_plans,
        ("ring cow", "ring dual"),
        "a dry run has changed something",
        without="increments,pages,past,bad policy",
    ),
    Fault(
        "an archive brings back what was replaced",
        _archives_by_requested_times,
        ("rules cow", "rules mor"),
        "rows: found|a key is there twice|after a write|two file groups|both of bucket|ring",
        without=f"{OTHERS},{PLAIN},{UNDOING},{METADATA},write,abort plans,savepoint,clean",
        steps=14,
    ),
    Fault(
        "an interval ends between a write and the replacement that it ran beside",
        _reads_intervals_by_requested_times,
        ("rules cow", "ring cow", "ring dual"),
        "does not show",
        without=f"{UNDOING},past,pages,dry runs,bad policy",
    ),
    Fault(
        "an interval misses a commit across the plan of a compaction that is pending",
        _reads_no_log_across_the_plan_of_a_compaction,
        ("simple mor", "ring dual"),
        "does not show",
        without="copies,past,pages",
        script="load 0, upsert 0, upsert 1, compaction 2, finish 2, finish 1" + 8 * ", finish 0",
    ),
    Fault(
        "a split point lies outside of its bucket",
        _takes_any_split_point,
        ("ring cow",),
        "in a node|outside of its bucket|outside the range",
        without="increments,pages,past",
    ),
)


@pytest.mark.shows("X9")
@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name.replace(" ", "-") for fault in FAULTS])
def test_a_fault_that_is_put_back_is_found(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.put_back(monkeypatch)
    TALLY.clear()
    for seed in itertools.count():
        for kind in fault.kinds:
            before = TALLY["steps"]
            if before > STEPS_MAX:
                pytest.fail(f"not found in {before} steps")
            try:
                fault.run(kind, seed)
            except Exception as error:
                if re.search(fault.says, str(error)):
                    steps = TALLY["steps"]
                    print(
                        f"{fault.name}: {kind} {seed}, {steps - before} steps; {steps} in all: {error}"[:400]
                    )
                    return
