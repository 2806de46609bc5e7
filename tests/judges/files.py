"""The files of a table, before and after: what must not change did not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bucketlake.layout.names import TEMPORARY_FOLDER
from bucketlake.storage import Store


def listing(store: Store, *, markers: bool = True) -> dict[str, tuple[int, bytes]]:
    """Return path -> size and content of every file; without markers, which a write that was taken back may leave."""
    return {
        file.path: (file.size_bytes, store.read(file.path))
        for file in store.list("", recursive=True).files
        if markers or not file.path.startswith(f"{TEMPORARY_FOLDER}/")
    }


@contextmanager
def unchanged(store: Store, *, markers: bool = True) -> Iterator[None]:
    """Fail unless the block leaves every file as it was; `markers=False` lets it leave some of those."""
    before = listing(store, markers=markers)
    yield
    after = listing(store, markers=markers)
    differing = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    assert differing == [], "the table was changed"
