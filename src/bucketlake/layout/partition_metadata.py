"""The file that makes a folder a partition: which write made it, and how many folders deep it lies.

Hudi's readers list a table by these files; without one the rows of a folder are not seen. It is Java `.properties`
text, of two pairs.
"""

from __future__ import annotations

from bucketlake.config import parse_java_properties

_INSTANT = "commitTime"
_DEPTH = "partitionDepth"


def render_partition_metadata(instant: str, depth: int) -> bytes:
    """Write the file; `depth` counts the folders between the table's root and the partition.

    >>> render_partition_metadata("20240102030405678", 1)
    b'#partition metadata\\ncommitTime=20240102030405678\\npartitionDepth=1\\n'
    """
    assert depth >= 0
    return f"#partition metadata\n{_INSTANT}={instant}\n{_DEPTH}={depth}\n".encode()


def partition_depth(partition: str) -> int:
    """Return how many folders deep a partition lies.

    >>> partition_depth(""), partition_depth("dt=1/hh=2")
    (0, 2)
    """
    return partition.count("/") + 1 if partition else 0


def created_by(data: bytes, *, path: str) -> str | None:
    """Return the instant that made the partition, None if the file does not say."""
    return parse_java_properties(data, path=path).get(_INSTANT)
