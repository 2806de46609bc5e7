"""Which paths a store accepts.

A path often comes out of the table's own metadata, so it is not to be trusted: a commit file that says
`../../etc/passwd` must not be followed. Every store checks its paths here, before anything else.
"""

from __future__ import annotations

from bucketlake.errors import UnsafePathError

_EXPECTED = "a path below the table's root, with '/' between its names"


def check_path(path: str) -> None:
    """Refuse a path that is not plainly a file or folder below the root.

    >>> check_path("day=2024-01-02/it's 100%.parquet")
    >>> check_path("day/../../secret")
    Traceback (most recent call last):
    bucketlake.errors.UnsafePathError: 'day/../../secret': found the name '..', ...
    """
    if path.startswith("/"):
        raise unsafe(path, "an absolute path")
    if "\\" in path:
        raise unsafe(path, "a backslash")
    if "\0" in path:
        raise unsafe(path, "a NUL character")
    for name in path.split("/"):
        if name == "":
            raise unsafe(path, "an empty name")
        if name in (".", ".."):
            raise unsafe(path, f"the name {name!r}")


def unsafe(path: str, found: str) -> UnsafePathError:
    """Build the error for a path that leads, or may lead, out of the root."""
    return UnsafePathError(
        path=repr(path),
        found=found,
        expected=_EXPECTED,
        remedy="Nothing was read or written. If the table's metadata holds this path, do not trust it.",
    )


def below(folder: str, name: str) -> str:
    """Return the path of `name` in `folder`, where the empty folder is the root.

    >>> below("", "a"), below("a", "b")
    ('a', 'a/b')
    """
    return f"{folder}/{name}" if folder else name
