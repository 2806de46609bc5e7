"""Upkeep: what a table gets by default, so that its thousandth commit costs what its hundredth did.

Who looks after a table is a property of it (`config.MaintenanceMode`). If its writers do, a write whose number on the
timeline is a multiple of `EVERY` is followed by a round. The number is known from the commit: the other writes ask the
store for nothing. A round looks at the partitions that the writes on the timeline have touched. Something can have
become due in those only, and the writes themselves have listed about as many.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from bucketlake.config import (
    MaintenanceMode,
    TableProperties,
    keep_commits,
    load_properties,
    maintenance_mode,
    parse_maintenance_mode,
)
from bucketlake.errors import ConfigError
from bucketlake.services.clean import Retention
from bucketlake.services.compaction import CompactionTrigger
from bucketlake.services.maintenance import Maintenance, run_maintenance
from bucketlake.services.tasks import Tasks, here
from bucketlake.state import touched_lately
from bucketlake.storage import Store
from bucketlake.write import CommitSummary

EVERY = 15
"""A round with a compaction costs about as much as eight upserts of a few rows, one without as much as three. After
every twentieth write, a read that merges the logs of all of them took twice the CPU of one of ten logs."""

DEFAULT = Maintenance(
    # A reader merges about 25 small logs per file group at most, where it would merge them one by one for ever. With a
    # base file of more than ten MiB it waits for a log per MiB: reading the file outweighs them, and rewriting it for
    # less would cost more than all the writes that it is for.
    compact=CompactionTrigger(delta_commits=10, base_bytes=1 << 20),
    # Three times what Hudi keeps. Each kept write is three files to list on the timeline for every commit and every
    # read, and in a copy-on-write table a file per bucket besides.
    clean=Retention(commits=30),
    # What can be read as of its time stays on the timeline. At the sixtieth write half of it goes: every folder of the
    # table is listed for that, so it must not come often.
    archive=(30, 59),
)

_log = logging.getLogger("bucketlake.services")

Asked = Maintenance | MaintenanceMode | None
"""What a caller wants after a write; None: what the table says."""


def asked_maintenance(value: object) -> Asked:
    """Check what a caller gave: a `Maintenance`, a word, or None."""
    if isinstance(value, str):
        return parse_maintenance_mode(value)
    if isinstance(value, Maintenance | None):
        return value
    raise ConfigError(
        f"maintenance is {value!r}; expected a bucketlake.Maintenance, one of {', '.join(MaintenanceMode)}, or None: "
        f"as the table says."
    )


def maintenance_of(properties: TableProperties) -> Maintenance:
    """Return what a table gets, whoever runs it: the default, with the history that the table asks for."""
    kept = keep_commits(properties)
    assert DEFAULT.archive is not None
    keep_min, keep_max = DEFAULT.archive
    if kept is None:
        return DEFAULT
    return replace(DEFAULT, clean=Retention(commits=kept), archive=(kept, kept + keep_max - keep_min))


def look_after(store: Store, summary: CommitSummary, asked: Asked, *, tasks: Tasks = here) -> CommitSummary:
    """Do what is due after a commit, and add it to the summary. The write is committed: nothing here fails it.

    A `Maintenance` is run after every commit, and looks at all partitions.
    """
    if summary.instant is None:
        return summary
    if isinstance(asked, Maintenance):
        done = run_maintenance(store, asked, tasks=tasks)
    elif not summary.number or summary.number % EVERY:
        return summary
    else:
        try:
            properties = load_properties(store)
            mode = maintenance_mode(properties) if asked is None else asked
            policy = maintenance_of(properties)
        except Exception as fault:
            _log.warning("%s: what is due was not looked for: %s", store.uri, fault)
            return replace(summary, services=(f"maintenance failed: {fault}",))
        if mode is not MaintenanceMode.INLINE:
            return summary
        done = run_maintenance(store, policy, tasks=tasks, look_at=touched_lately)
    seconds = {**summary.seconds, "services": done.seconds}
    return replace(summary, seconds=seconds, services=tuple(map(str, done.steps)))
