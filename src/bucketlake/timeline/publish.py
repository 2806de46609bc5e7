"""An instant's files on the active timeline of layout 2: requested, inflight, completed.

    write_requested    T.<action>.requested    somebody intends to write
    write_inflight     T.<action>.inflight     and is at it
    publish            T_C.<action>            and is done: from here on readers see it
    delete_pending     takes the first two back

The earlier files stay when a later one comes; the furthest state counts.
"""

from __future__ import annotations

from bucketlake.config import TableProperties
from bucketlake.storage.store import Store
from bucketlake.timeline.instant import Action, InstantName, State, render_instant_name


def instant_path(properties: TableProperties, name: InstantName) -> str:
    """Return where an instant's file is on the active timeline."""
    assert properties.timeline_layout == 2, "tables of layout 1 are never written"
    return f"{properties.timeline_folder}/{render_instant_name(name)}"


def write_requested(
    store: Store, properties: TableProperties, *, instant: str, action: Action, body: bytes = b""
) -> bool:
    """Announce an instant; False if somebody else has announced one of this time and action."""
    return store.put_new(instant_path(properties, InstantName(instant, action, State.REQUESTED)), body)


def write_inflight(
    store: Store, properties: TableProperties, *, instant: str, action: Action, body: bytes = b""
) -> None:
    store.put(instant_path(properties, InstantName(instant, action, State.INFLIGHT)), body)


def publish(
    store: Store, properties: TableProperties, *, instant: str, action: Action, completed: str, body: bytes
) -> bool:
    """Complete an instant; False if it was, with this very completion time."""
    assert completed > instant, f"{instant} cannot have completed at {completed}"
    name = InstantName(instant, action, State.COMPLETED, completed)
    return store.put_new(instant_path(properties, name), body)


def delete_pending(store: Store, properties: TableProperties, *, instant: str, action: Action) -> None:
    """Take a pending instant off the timeline: the inflight file first, so that it is pending to the last."""
    for state in (State.INFLIGHT, State.REQUESTED):
        store.delete(instant_path(properties, InstantName(instant, action, state)))
