"""A look at a table that others change meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from bucketlake.errors import DamagedFileError
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store

Seen = TypeVar("Seen")

_LOOKS_MAX = 8
"""Each look is at another moment: to miss so often, a commit must have gone in each of them."""


def look_at(store: Store, look: Callable[[TableState], Seen]) -> Seen:
    """Look at the table as it is now.

    Again if a file is gone: an archive, a clean or a rollback may have taken it since the timeline was read.
    """
    for _ in range(_LOOKS_MAX - 1):
        with suppress(DamagedFileError, FileNotFoundError):
            return look(load_state(store))
    return look(load_state(store))
