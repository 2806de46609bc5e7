"""What tasks leave for each other: a file that outlives its job fills the disk, one that is lost loses rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketlake.storage import (
    Handover,
    LocalStore,
    MemoryStore,
    Store,
    handover_in,
    left_handovers,
    remove_handover,
)


def leave(handover: Handover, data: bytes) -> str:
    name, file = handover.create()
    with file:
        file.write(data)
    return name


def in_folder(store: Store, folder: str) -> Handover:
    found = handover_in(store, folder)
    assert found is not None
    return found


def test_a_file_is_found_by_its_name_as_long_as_the_job_runs(tmp_path: Path) -> None:
    handover = in_folder(LocalStore(tmp_path), "pieces/1")
    with handover.opened():
        names = [leave(handover, data) for data in (b"one", b"two")]
        assert [handover.open(name).read() for name in names] == [b"one", b"two"]
    with pytest.raises(FileNotFoundError):
        handover.open(names[0])


def test_a_job_that_fails_leaves_nothing(tmp_path: Path) -> None:
    handover = in_folder(LocalStore(tmp_path), "pieces/1")
    with pytest.raises(ZeroDivisionError), handover.opened():
        leave(handover, b"one")
        raise ZeroDivisionError
    assert left_handovers(LocalStore(tmp_path), "pieces") == ()


def test_a_task_that_outlives_its_job_leaves_nothing(tmp_path: Path) -> None:
    handover = in_folder(LocalStore(tmp_path), "pieces/1")
    with handover.opened():
        _, file = handover.create()
    with file:
        file.write(b"late")
    with pytest.raises(FileNotFoundError):
        handover.create()
    assert left_handovers(LocalStore(tmp_path), "pieces") == ()


def test_what_a_killed_job_left_is_named_and_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    dead, alive = in_folder(store, "pieces/1"), in_folder(store, "pieces/2")
    (tmp_path / "pieces/1").mkdir(parents=True)
    leave(dead, b"one")
    with alive.opened():
        name = leave(alive, b"two")
        assert left_handovers(store, "pieces") == ("1", "2")
        remove_handover(store, "pieces/1")
        assert left_handovers(store, "pieces") == ("2",)
        assert alive.open(name).read() == b"two"


def test_a_store_that_is_not_on_a_disk_has_none() -> None:
    assert handover_in(MemoryStore(), "pieces/1") is None
    assert left_handovers(MemoryStore(), "pieces") == ()
