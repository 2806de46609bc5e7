"""A table without a readable hoodie.properties is lost to everybody: no crash may leave one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bucketlake.commit.metadata_table import DELISTINGS
from bucketlake.config import (
    BACKUP_PATH,
    COPY_PATH,
    PROPERTIES_PATH,
    TableProperties,
    create_properties,
    keep_copy,
    load_properties,
    lost_properties,
    parse_java_properties,
    persist,
    plan_mend,
    render_java_properties,
    run_mend,
    table_checksum,
    update_properties,
)
from bucketlake.errors import ConcurrentWriteError, CorruptTableError, NotATableError, TableExistsError
from bucketlake.metadata.places import GROWING, INDEX_BUILT, WANTED
from bucketlake.storage import LocalStore, MemoryStore, Store
from bucketlake.testing.faulty_store import FaultyStore, InjectedError

WORDS = {
    "hoodie.table.name": "orders",
    "hoodie.table.type": "COPY_ON_WRITE",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "x.y": "a = b: ü",
}


def made() -> MemoryStore:
    store = MemoryStore()
    create_properties(store, WORDS)
    return store


def raw(store: Store) -> dict[str, str]:
    return parse_java_properties(store.read(PROPERTIES_PATH), path="x")


def test_a_created_table_opens_with_its_words_and_a_checksum() -> None:
    store = made()
    properties = load_properties(store)
    assert properties.name == "orders"
    checksum = str(table_checksum(database=None, name="orders"))
    assert raw(store) == {**WORDS, "hoodie.table.checksum": checksum}


@pytest.mark.shows("X3")
def test_a_file_that_is_cut_anywhere_is_not_read_and_is_mended_from_its_copy() -> None:
    store = made()
    whole = store.read(PROPERTIES_PATH)
    complete = raw(store)
    for kept in range(len(whole)):
        store.put(PROPERTIES_PATH, whole[:kept])
        with pytest.raises(CorruptTableError, match="fsck TABLE --repair"):
            load_properties(store)
        mend = plan_mend(store)
        assert mend is not None
        assert ("hoodie.table.name" in mend.restored) == (kept < whole.index(b"hoodie.table.type"))
        run_mend(store, mend)
        assert raw(store) == complete
    assert plan_mend(store) is None


def test_no_flipped_bit_of_a_file_of_ours_is_read_as_something_else() -> None:
    store = made()
    whole = store.read(PROPERTIES_PATH)
    true = raw(store)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        store.put(PROPERTIES_PATH, bytes(flipped))
        try:
            read = load_properties(store).raw
        except CorruptTableError:
            continue
        assert true.items() <= read.items(), "it was in the first line, which says nothing"
        assert bit // 8 < whole.index(b"\n") + 1


def test_what_hudi_wrote_ends_its_lines() -> None:
    store = made()
    text = b"#Properties saved on 2026-11-15T23:33:48Z\n" + render_java_properties(raw(store))
    store.put(PROPERTIES_PATH, text[:-3])
    with pytest.raises(CorruptTableError, match="cut off"):
        load_properties(store)
    store.put(PROPERTIES_PATH, text[text.index(b"\n") + 1 : -1])  # by hand, with an editor that leaves it out
    assert load_properties(store).name == "orders"


def test_the_copy_follows_what_may_change_and_tells_what_may_not() -> None:
    store = made()
    built = raw(store) | {"hoodie.table.metadata.partitions": "files"}
    store.put(PROPERTIES_PATH, render_java_properties(built))
    assert lost_properties(store, load_properties(store)) == ()
    keep_copy(store, load_properties(store))
    damaged = built | {"hoodie.table.recordkey.fields": "ie"}
    store.put(PROPERTIES_PATH, render_java_properties(damaged))
    keep_copy(store, load_properties(store))
    assert lost_properties(store, load_properties(store)) == ("hoodie.table.recordkey.fields",)
    mend = plan_mend(store)
    assert mend is not None and mend.restored == ("hoodie.table.recordkey.fields",)
    assert "recordkey.fields=id" in str(mend)
    run_mend(store, mend)
    assert raw(store) == built, "the metadata table too"


def test_a_copy_that_was_put_late_tells_of_nothing_that_comes_and_goes() -> None:
    """Who slept puts what the properties were before others went on."""
    store = made()
    update_properties(store, {WANTED: "files", INDEX_BUILT: "1", GROWING: "1_2", DELISTINGS: "1"})
    late = store.read(COPY_PATH)
    update_properties(store, {WANTED: None, INDEX_BUILT: "2", GROWING: None, DELISTINGS: "2"})
    store.put(COPY_PATH, late)
    assert lost_properties(store, load_properties(store)) == ()
    assert plan_mend(store) is None


@pytest.mark.shows("H2", "X3")
def test_who_slept_puts_no_copy_of_what_the_properties_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rollback takes properties away. From a copy that still has them, a repair would put them back."""

    def changed_by_hudi() -> tuple[MemoryStore, TableProperties]:
        store = made()
        store.put(
            PROPERTIES_PATH,
            render_java_properties(raw(store) | {"hoodie.table.metadata.partitions": "files"}),
        )
        monkeypatch.setattr(persist, "_COPIED", {})  # as in another process
        return store, load_properties(store)

    store, seen = changed_by_hudi()
    counting = FaultyStore(store)
    keep_copy(counting, seen)
    assert lost_properties(store, seen) == ()
    for number in range(1, len(counting.operations) + 1):
        store, seen = changed_by_hudi()
        slept = FaultyStore(
            store, fails_at=number, meanwhile=lambda now: update_properties(now, {"x.y": None})
        )
        keep_copy(slept, seen)
        assert lost_properties(store, load_properties(store)) == ()
        assert plan_mend(store) is None


def test_without_a_copy_nothing_is_mended() -> None:
    store = made()
    store.put(COPY_PATH, store.read(COPY_PATH)[:-20])
    assert plan_mend(store) is None
    store.put(PROPERTIES_PATH, store.read(PROPERTIES_PATH)[:40])
    with pytest.raises(CorruptTableError, match="no copy"):
        plan_mend(store)


def test_a_second_creator_loses() -> None:
    store = made()
    before = store.read(PROPERTIES_PATH)
    with pytest.raises(TableExistsError, match="is a Hudi table already"):
        create_properties(store, {**WORDS, "hoodie.table.name": "other"})
    assert store.read(PROPERTIES_PATH) == before


def test_a_table_that_is_being_changed_is_not_created_over() -> None:
    store = MemoryStore()
    store.put(BACKUP_PATH, b"x=y\n")
    with pytest.raises(TableExistsError):
        create_properties(store, WORDS)


def test_nonsense_is_not_created() -> None:
    store = MemoryStore()
    with pytest.raises(CorruptTableError):
        create_properties(store, {**WORDS, "hoodie.table.type": "FAST"})
    assert store.list("", recursive=True).files == ()


def test_an_update_sets_removes_and_keeps_the_rest() -> None:
    store = made()
    update_properties(store, {"hoodie.bucket.index.num.buckets": "8", "x.y": None, "no.such": None})
    assert load_properties(store).bucket_count == 8
    assert "x.y" not in raw(store)
    assert raw(store)["hoodie.table.name"] == "orders"
    assert [file.path for file in store.list("", recursive=True).files] == [COPY_PATH, PROPERTIES_PATH]


def test_an_update_that_changes_nothing_writes_nothing() -> None:
    store = made()
    version = store.stat(PROPERTIES_PATH).version
    update_properties(store, {"x.y": WORDS["x.y"], "gone": None})
    assert store.stat(PROPERTIES_PATH).version == version


def test_an_update_to_nonsense_is_refused_before_anything_is_written() -> None:
    store = made()
    before = store.read(PROPERTIES_PATH)
    with pytest.raises(CorruptTableError):
        update_properties(store, {"hoodie.bucket.index.num.buckets": "many"})
    assert store.read(PROPERTIES_PATH) == before
    assert [file.path for file in store.list("", recursive=True).files] == [COPY_PATH, PROPERTIES_PATH]


def test_no_table_no_update() -> None:
    with pytest.raises(NotATableError):
        update_properties(MemoryStore(), {"a": "b"})


@pytest.mark.parametrize("took_effect", [False, True])
def test_an_update_killed_at_any_operation_leaves_the_old_or_the_new_properties(took_effect: bool) -> None:
    counting = FaultyStore(made())
    update_properties(counting, {"x.y": "new"})
    assert len(counting.operations) >= 6
    for number in range(1, len(counting.operations) + 1):
        store = made()
        with pytest.raises(InjectedError):
            update_properties(
                FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True), {"x.y": "new"}
            )
        assert load_properties(store).raw["x.y"] in ("new", WORDS["x.y"])
        update_properties(
            store, {"x.y": load_properties(store).raw["x.y"]}
        )  # the next comer finds nothing to do
        assert lost_properties(store, load_properties(store)) == (), "the copy follows what was cut off"
        update_properties(store, {"x.y": "later"})
        assert load_properties(store).raw["x.y"] == "later"
        assert [file.path for file in store.list("", recursive=True).files] == [COPY_PATH, PROPERTIES_PATH]


@pytest.mark.parametrize("torn", [None, b"", b"hoodie.table.name=ord"])
@pytest.mark.parametrize("took_effect", [False, True])
def test_hudi_cut_off_in_an_update_is_recovered_even_if_we_are_cut_off_too(
    torn: bytes | None, took_effect: bool
) -> None:
    def cut_off() -> MemoryStore:
        store = made()
        store.put(BACKUP_PATH, store.read(PROPERTIES_PATH))
        store.delete(PROPERTIES_PATH)
        if torn is not None:
            store.put(PROPERTIES_PATH, torn)
        return store

    counting = FaultyStore(cut_off())
    update_properties(counting, {"x.y": "new"})
    for number in range(1, len(counting.operations) + 1):
        store = cut_off()
        with pytest.raises(InjectedError):
            update_properties(
                FaultyStore(store, fails_at=number, took_effect=took_effect, is_dead=True), {"x.y": "new"}
            )
        assert load_properties(store).raw["x.y"] in ("new", WORDS["x.y"])
        update_properties(store, {"x.y": "later"})
        assert load_properties(store).raw["x.y"] == "later"


class _Meddling(FaultyStore):
    """Somebody else changes the file right before we replace it."""

    def replace_if(self, path: str, data: bytes | Path, version: str) -> bool:
        self.inner.put(path, self.inner.read(path) + b"other=writer\n")
        return super().replace_if(path, data, version)


def test_a_change_by_another_writer_is_not_overwritten() -> None:
    store = made()
    with pytest.raises(ConcurrentWriteError, match="changed by another writer"):
        update_properties(_Meddling(store), {"x.y": "new"})
    assert raw(store)["other"] == "writer"
    assert raw(store)["x.y"] == WORDS["x.y"]
    assert [file.path for file in store.list("", recursive=True).files] == [COPY_PATH, PROPERTIES_PATH]


def test_the_properties_of_hudi_survive_an_update(
    golden_table: Callable[[str], Path], tmp_path: Path
) -> None:
    text = (golden_table("mor_partition_bucket") / PROPERTIES_PATH).read_bytes()
    store = LocalStore(tmp_path)
    store.put(PROPERTIES_PATH, text)
    (tmp_path / ".hoodie/.hoodie.properties.crc").write_bytes(b"crc")
    before = raw(store)
    update_properties(store, {"a": "b"})
    assert raw(store) == {**before, "a": "b"}
    assert not (tmp_path / ".hoodie/.hoodie.properties.crc").exists(), "Hadoop would hold it against the file"
