"""What must hold of a metadata table whenever anybody looks: it is in step, and lists what is committed, with sizes."""

from __future__ import annotations

from bucketlake.commit.metadata_build import committed_files
from bucketlake.commit.metadata_table import is_listed
from bucketlake.layout.names import split_path
from bucketlake.metadata.listing import list_by_metadata
from bucketlake.metadata.step import look_at_step
from bucketlake.state import TableState, load_state
from bucketlake.storage import Store
from bucketlake.timeline import Action, read_cleaner_plan


def check_metadata(store: Store, *, is_hudis: bool = False) -> bool:
    """Hold the metadata table against the folders; False if the table has none.

    One that Hudi keeps may list what was rolled back, if it was there when the metadata table was made.
    """
    state = load_state(store)
    if not is_listed(state.properties):
        return False
    step = look_at_step(store, state.properties)
    assert step.is_kept, f"the metadata table is {step}"
    told, found = told_by_metadata(state), {p: files for p, files in committed_files(state).items() if files}
    half_gone = _named_by_pending_cleans(state) | (_of_no_instant(state) if is_hudis else frozenset())
    for partition in told.keys() | found.keys():
        listed = told.get(partition, {})
        there = found.get(partition, {})
        lost = {name: size for name, size in listed.items() if there.get(name) != size} if listed else {}
        lost = {name: size for name, size in lost.items() if (partition, name) not in half_gone}
        unknown = {name: size for name, size in there.items() if listed.get(name) != size}
        assert not lost and not unknown, f"{partition}: metadata has {lost}, folder has {unknown}"
    return True


def told_by_metadata(state: TableState) -> dict[str, dict[str, int]]:
    """Partition -> file name -> size, as the metadata table says; partitions without files left out."""
    listed = list_by_metadata(state.store, state.properties, state.timeline, None)
    assert listed is not None
    return {
        partition: {split_path(file.path)[1]: file.size_bytes for file in files}
        for partition, files in listed.items()
        if files
    }


def _named_by_pending_cleans(state: TableState) -> frozenset[tuple[str, str]]:
    """A clean deletes first, and tells then."""
    return frozenset(
        (partition, name)
        for instant in state.timeline.pending(Action.CLEAN)
        for partition, names in read_cleaner_plan(state.store, instant).files.items()
        for name in names
    )


def _of_no_instant(state: TableState) -> frozenset[tuple[str, str]]:
    listed = list_by_metadata(state.store, state.properties, state.timeline, None) or {}
    return frozenset(
        split_path(file.path)
        for files in listed.values()
        for file in files
        if not state.view.is_committed(file.instant)
    )
