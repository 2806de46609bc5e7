"""`bucketlake repair`: mend what indexes have wrong of keys and values, and keys with several rows."""

from __future__ import annotations

from dataclasses import asdict

from bucketlake.cli.app import AsJson, Storage, TablePath, app, open_table
from bucketlake.cli.screen import Screen
from bucketlake.cli.services import HINT, OnSpark, Yes, session_if


@app.command(epilog="Example: bucketlake repair /data/orders --yes")
def repair(
    table: TablePath,
    yes: Yes = False,
    spark: OnSpark = False,
    as_json: AsJson = False,
    storage: Storage = None,
) -> None:
    """Mend wrong entries of indexes, and keys with several rows. Says what it would do unless --yes.

    Reads every key, and every indexed value. It is one commit: `bucketlake rollback` takes it back.
    """
    opened = open_table(table, storage)
    session = session_if(spark)
    plan = opened.plan_repair(spark=session)
    done = opened.run(plan, spark=session) if yes and not plan.is_empty else None
    work = plan.work
    facts = {
        "done": done is not None,
        "instant": None if done is None else done.instant,
        "rows": work.rows,
        "entries": work.entries,
        **{kind.name.lower(): count for kind, count in (done or work).counts.items()},
        "keys": [asdict(fault) for fault in (done or work).mends],
        "values": [asdict(fault) for fault in (done or work).values],
        "left": [asdict(fault) for fault in work.left],
        "debris": [path for files in work.debris.values() for path in files],
    }
    lines = [str(plan), *([str(done)] if done is not None else [])]
    if not yes and not plan.is_empty:
        lines.append(HINT)
    Screen(as_json).show(facts, "\n".join(lines))
