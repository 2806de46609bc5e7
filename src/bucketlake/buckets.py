"""How many buckets the partitions of a table have, and how that is changed: `table.buckets`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from bucketlake import given, plans
from bucketlake.arguments import ResizeArguments, RulesArguments, resize_trigger
from bucketlake.commit.rollback import RolledBack
from bucketlake.index import RULE_TYPE, HashingConfig
from bucketlake.looks import look_at
from bucketlake.services import Clustered, Done, abort_resize, resize_table
from bucketlake.services.doubling import Doubled, double_table, undo_doubling
from bucketlake.services.rescale import (
    BUDGET_BYTES,
    Rescaled,
    RescaleRollback,
    committed_versions,
    resume_rescale,
    roll_back_rescale,
)
from bucketlake.services.resize import ROUNDS_MAX
from bucketlake.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Buckets:
    """The buckets of a table. Verbs change them; a `plan_…` says what a verb would do, and `table.run` does it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def show_config(self) -> tuple[HashingConfig, ...]:
        """Return all versions of the table's bucket rules, oldest first. The last one counts."""
        return look_at(self._store, lambda state: committed_versions(state.store, state.timeline))

    def overwrite(
        self,
        rules: str,
        *,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        **options: Unpack[RulesArguments],
    ) -> Rescaled:
        """Give the table other bucket rules, and rewrite the partitions whose counts they change.

        A table with simple buckets gets rules this way too. Writers need not stop. If the call is cut off, `resume`
        goes on with it and `abort` takes it back.
        """
        return _new_rules(rules, options, adds=False).rescale(self._store, given.tasks_of(spark, progress))

    def plan_overwrite(self, rules: str, **options: Unpack[RulesArguments]) -> plans.PlannedRescale:
        """Say what `overwrite` would do: which partitions, rows, files and bytes."""
        return _new_rules(rules, options, adds=False).plan(self._store)

    def add(
        self,
        rules: str,
        *,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        **options: Unpack[RulesArguments],
    ) -> Rescaled:
        """Put rules before those that the table has. Otherwise as `overwrite`."""
        return _new_rules(rules, options, adds=True).rescale(self._store, given.tasks_of(spark, progress))

    def plan_add(self, rules: str, **options: Unpack[RulesArguments]) -> plans.PlannedRescale:
        """Say what `add` would do."""
        return _new_rules(rules, options, adds=True).plan(self._store)

    def resume(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Rescaled:
        """Go on with a rescale that was cut off. Files that it wrote, and that are still right, stay."""
        return resume_rescale(self._store, tasks=given.tasks_of(spark, progress))

    def rollback(self, instant: str, *, with_newer: bool = False) -> RescaleRollback:
        """Undo a rescale, data and rules together. Return what was deleted.

        If other rescales came after it, the call is refused; `with_newer` undoes those first. If something else depends
        on one of them, none is undone. If the call is cut off, call it again to finish.
        """
        return roll_back_rescale(
            self._store, given.text(instant, "instant"), with_newer=given.flag(with_newer, "with_newer")
        )

    def plan_rollback(self, instant: str, *, with_newer: bool = False) -> plans.PlannedRescaleRollback:
        """Say what `rollback` would delete."""
        newer = given.flag(with_newer, "with_newer")
        return plans.plan_rescale_rollback(self._store, given.text(instant, "instant"), with_newer=newer)

    def resize(
        self,
        *,
        spark: SparkSession | None = None,
        rounds: int = ROUNDS_MAX,
        progress: bool | None = None,
        **trigger: Unpack[ResizeArguments],
    ) -> Done[Clustered]:
        """Split large buckets and merge small ones, in rounds, until nothing is left to do.

        For tables with consistent or extendible hashing. Writers and readers go on. Pending resizes come first.
        """
        tasks = given.tasks_of(spark, progress)
        rounds = given.whole_number(rounds, "rounds")
        return Done(resize_table(self._store, resize_trigger(trigger), rounds=rounds, tasks=tasks))

    def plan_resize(
        self,
        *,
        spark: SparkSession | None = None,
        progress: bool | None = None,
        **trigger: Unpack[ResizeArguments],
    ) -> plans.PlannedResize:
        """Draw the rings before and after a round, with the bytes to rewrite. Reads the keys of large buckets."""
        return plans.plan_resize(self._store, resize_trigger(trigger), tasks=given.tasks_of(spark, progress))

    def double(
        self,
        *,
        spark: SparkSession | None = None,
        rounds: int | None = None,
        progress: bool | None = None,
    ) -> Doubled:
        """Give a table of simple buckets twice as many, one bucket after the other, while writers and readers go on.

        Each split is committed on its own. With `rounds`, or if it is cut off, the next call goes on with it; until it
        is finished, Hudi reads the table and cannot write to it.
        """
        tasks = given.tasks_of(spark, progress)
        rounds = None if rounds is None else given.whole_number(rounds, "rounds")
        return double_table(self._store, rounds=rounds, tasks=tasks)

    def plan_double(self) -> plans.PlannedDoubling:
        """Say which buckets `double` has yet to split, and how many bytes that rewrites."""
        return plans.plan_double(self._store)

    def undo_double(self, *, spark: SparkSession | None = None, progress: bool | None = None) -> Doubled:
        """Take back a doubling that is not finished: merge what was split. What was written meanwhile stays."""
        return undo_doubling(self._store, tasks=given.tasks_of(spark, progress))

    def abort(self, instant: str | None = None) -> RolledBack | None:
        """Undo a rescale that was cut off, or the pending resize of an instant.

        Rows that were written meanwhile stay. Nobody may be running it. It returns None if the resize was completed
        meanwhile.
        """
        if instant is not None:
            return abort_resize(self._store, given.text(instant, "instant"))
        return self.plan_abort().run(self._store)

    def plan_abort(self, instant: str | None = None) -> plans.PlannedAbort:
        """Say what `abort` would delete."""
        return plans.plan_abort(self._store, None if instant is None else given.text(instant, "instant"))


def _new_rules(rules: str, options: RulesArguments, *, adds: bool) -> plans.NewRules:
    given.known(options, RulesArguments)
    number = options.get("bucket_number")
    return plans.NewRules(
        expressions=given.text(rules, "rules"),
        bucket_number=None if number is None else given.whole_number(number, "bucket_number"),
        rule_type=given.text(options.get("rule_type", RULE_TYPE), "rule_type"),
        budget_bytes=given.whole_number(options.get("budget_bytes", BUDGET_BYTES), "budget_bytes"),
        adds=adds,
    )
