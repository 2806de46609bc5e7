"""What became of each batch of a stream: a line in the log, a row in a table, figures for Prometheus.

All of it stands in the commits. So it is there after a restart, on any machine, and goes back with what it tells of.
Commits that were archived are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from bucketlake.commit.operation import Operation, action_of
from bucketlake.commit.stream import Batch, stream_record
from bucketlake.services.backlog import Backlog
from bucketlake.state import TableState
from bucketlake.storage import Store, in_parallel, render_bytes
from bucketlake.timeline import Instant, elapsed_ms, read_commit_metadata
from bucketlake.write import CommitSummary
from bucketlake.write.report import COUNTS

STAGES = ("begin", "plan", "write", "commit")

SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("name", pa.string()),
        ("batch", pa.int64()),
        ("instant", pa.string()),
        ("completed", pa.string()),
        ("rows", pa.int64()),
        *((name, pa.int64()) for name in COUNTS),
        *((f"{stage}_seconds", pa.float64()) for stage in STAGES),
        ("seconds", pa.float64()),
        ("behind_times", pa.float64()),
    ]
)
"""A row of `batches_of`. Its `seconds` go from when its instant was drawn to its completion; `behind_times` is how far
services were behind when the process last looked, null before it has."""


def batches_of(state: TableState) -> pa.Table:
    """Return a row for each batch of a stream that the active timeline has, in the order of their completion."""
    action = action_of(Operation.UPSERT, state.properties.table_type)
    told = in_parallel(lambda i: _row(state.store, i), state.timeline.completed(action), state.store)
    rows = sorted((row for row in told if row is not None), key=lambda row: str(row["completed"]))
    return pa.Table.from_pylist(rows, SCHEMA)


def _row(store: Store, instant: Instant) -> dict[str, Any] | None:
    try:
        told = stream_record(read_commit_metadata(store, instant).extra)
    except FileNotFoundError:
        return None  # taken back, or archived, since the timeline was listed
    if told is None:
        return None
    stages = {stage: float(taken) for stage, taken in dict(told.get("seconds", {})).items()}
    whole = elapsed_ms(instant.requested, instant.completed or instant.requested) / 1000
    # What the commit itself took is not in it; it is the rest.
    stages["commit"] = round(max(0.0, whole - stages.get("plan", 0.0) - stages.get("write", 0.0)), 3)
    return {
        "stream": told["stream"],
        "name": str(told.get("name", "")),
        "batch": told["batch"],
        "instant": instant.requested,
        "completed": instant.completed,
        **{name: int(told.get(name, 0)) for name in ("rows", *COUNTS)},
        **{f"{stage}_seconds": stages.get(stage, 0.0) for stage in STAGES},
        "seconds": whole,
        "behind_times": told.get("behind"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStatus:
    """One stream into a table, as far as the active timeline tells."""

    stream: str
    name: str
    batch: int
    """The newest that is committed."""
    completed: str
    """When it was."""
    batches: int
    """So many are on the active timeline."""
    rows: int
    """In those."""
    rows_per_second: float
    """While batches were written."""
    p50_seconds: float
    p95_seconds: float
    """Of a batch, from when its instant was drawn to its completion."""
    behind_times: float
    """How far compaction is behind; 1: due now. See `Backlog`."""


def stream_statuses(batches: pa.Table, behind: Backlog) -> tuple[StreamStatus, ...]:
    """Sum up the batches of each stream."""
    by_stream: dict[str, list[dict[str, Any]]] = {}
    for row in batches.to_pylist():
        by_stream.setdefault(row["stream"], []).append(row)
    return tuple(_status(rows, behind) for rows in by_stream.values())


def _status(rows: list[dict[str, Any]], behind: Backlog) -> StreamStatus:
    newest = max(rows, key=lambda row: row["batch"])
    seconds = sorted(row["seconds"] for row in rows)
    given = sum(row["rows"] for row in rows)
    return StreamStatus(
        stream=newest["stream"],
        name=newest["name"],
        batch=newest["batch"],
        completed=newest["completed"],
        batches=len(rows),
        rows=given,
        rows_per_second=given / max(sum(seconds), 0.001),
        p50_seconds=_quantile(seconds, 0.5),
        p95_seconds=_quantile(seconds, 0.95),
        behind_times=round(behind.times, 2),
    )


def _quantile(ascending: list[float], share: float) -> float:
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))]


def prometheus_text(batches: pa.Table, behind: Backlog, table: str) -> str:
    """Write figures of each stream, of its newest batch, in Prometheus's text format."""
    rows = batches.to_pylist()
    newest = {row["stream"]: row for row in rows}
    lines = list(
        _gauge(
            "bucketlake_backlog_times",
            "How far behind compaction is; 1: due now.",
            [({}, behind.times)],
            table,
        )
    )
    for name in ("batch", "rows", *COUNTS, "seconds", *(f"{stage}_seconds" for stage in STAGES)):
        values = [({"stream": r["stream"], "name": r["name"]}, r[name]) for r in newest.values()]
        lines += _gauge(
            f"bucketlake_stream_{name}", f"Of the newest batch: {name.replace('_', ' ')}.", values, table
        )
    return "\n".join(lines) + "\n"


def _gauge(
    name: str, helps: str, values: Iterable[tuple[Mapping[str, str], float]], table: str
) -> Iterator[str]:
    yield f"# HELP {name} {helps}"
    yield f"# TYPE {name} gauge"
    for labels, value in values:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"table": table, **labels}.items())
        yield f"{name}{{{told}}} {value:g}" if isinstance(value, float) else f"{name}{{{told}}} {value}"


def _escaped(text: str) -> str:
    r"""Escape a label's value.

    >>> _escaped('a"b')
    'a\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def line_of(batch: Batch, summary: CommitSummary, *, seconds: float) -> str:
    """Say in a line what became of a batch."""
    head = f"batch {batch.number} of {batch.name or batch.stream}"
    if summary.instant is None:
        return f"{head}: {summary.rows:,} rows, nothing to commit; {seconds:.2f} s"
    counts = ", ".join(f"{getattr(summary, name):,} {name}" for name in COUNTS[:-2] if getattr(summary, name))
    stages = ", ".join(f"{stage} {taken:.2f}" for stage, taken in summary.seconds.items())
    behind = "" if batch.behind is None else f"; services {batch.behind:.1f} times behind"
    return (
        f"{head}: {summary.instant}, {summary.rows:,} rows ({counts}), {summary.files:,} files, "
        f"{render_bytes(summary.bytes)}; {seconds:.2f} s ({stages}){behind}"
    )
