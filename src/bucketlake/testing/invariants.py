"""What is true of every table between two writes, whatever happened to it before.

    rows        a key has one live row in its partition, and lies in the bucket that its hash says
    groups      a bucket has one file group
    files       who lists the folders and who follows the timeline sees the same files
    proofs      what footers and commits say of rows and keys is what is in the files

It is what `bucketlake fsck` checks, for tests: of this library, and of whatever else writes to the same tables. What
a dead writer leaves for the next one to take away breaks no law.
"""

from __future__ import annotations

from bucketlake.index.fingerprint import writing_index
from bucketlake.services.fsck import Kind, check_table
from bucketlake.state import load_state
from bucketlake.table import Table


def check_invariants(table: Table) -> None:
    """Raise `AssertionError` unless the table is sound. It must say where its keys live, and nobody may write to it."""
    writing_index(load_state(table.store))
    report = check_table(table.store)
    left = (Kind.UNFINISHED, Kind.LEFT_MARKERS)
    assert all(finding.kind in left for finding in report.findings), str(report)
