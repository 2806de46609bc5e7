"""Consistent hashing: the ring of one partition, its versions on disk, and looking keys up on it.

    .hoodie/.bucket_index/consistent_hashing_metadata/<partition>/
        <instant>.hashing_meta    a version of the ring
        <instant>.commit          an empty marker: that version is committed

A ring is a sorted list of nodes. A node owns the hashes above its predecessor's value up to its own; hashes
above the largest value belong to the smallest node (after a merge this really happens). A node's value may
never move, and a resized node gets a new file-id prefix, so a ring that is out of date names file groups that
are gone: that is how a reader notices.

A version is written before the clustering that makes it true is committed. It counts if it is the first
(all-zero instant), has a marker, is completed on the active timeline, or is older than that. Hudi writes a
missing marker when it loads a ring; this module reads only, and writes nothing.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from bucketlake.errors import CorruptTableError
from bucketlake.index.partition import instant_of, is_initial
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline

RING_FOLDER = ".hoodie/.bucket_index/consistent_hashing_metadata"
RING_SUFFIX = ".hashing_meta"
MARKER_SUFFIX = ".commit"
INITIAL_INSTANT = "00000000000000"
HASH_MAX = 0x7FFFFFFF

_NODE_TAGS = ("NORMAL", "REPLACE", "DELETE")


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a ring: where its range ends, and the file group that holds it."""

    value: int
    file_id_prefix: str
    tag: str = "NORMAL"


@dataclass(frozen=True, slots=True)
class Ring:
    """The nodes of one partition, by ascending value."""

    nodes: tuple[Node, ...]
    _values: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.nodes, "a ring without nodes owns no key"
        by_value = {
            node.value: node for node in self.nodes
        }  # of equal values the last counts, as in a TreeMap
        nodes = tuple(by_value[value] for value in sorted(by_value))
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "_values", np.array([node.value for node in nodes], np.int64))

    @property
    def prefixes(self) -> tuple[str, ...]:
        return tuple(node.file_id_prefix for node in self.nodes)

    def node_of(self, ring_hash: int) -> Node:
        """Return the owner of a hash: the first node at or above it, or the smallest.

        >>> Ring((Node(10, "a"), Node(20, "b"))).node_of(21).file_id_prefix
        'a'
        """
        return self.nodes[bisect_left(self.nodes, ring_hash, key=lambda node: node.value) % len(self.nodes)]

    def nodes_of(self, ring_hashes: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Return the place in `nodes` of every hash's owner: `node_of`, a column at a time."""
        places = np.searchsorted(self._values, ring_hashes, side="left")
        places[places == len(self.nodes)] = 0
        return places.astype(np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingMetadata:
    """One version of a partition's ring, as stored."""

    partition: str
    instant: str
    initial_count: int
    """How many nodes the first version had. Hudi never updates it."""
    sequence: int = 0
    """How many resizes the ring has had."""
    nodes: tuple[Node, ...]
    version: int = 0

    @classmethod
    def initial(cls, partition: str, count: int) -> Self:
        """Return the first version: equal ranges, and file-group ids that every creator derives alike.

        >>> HashingMetadata.initial("p0", 4).nodes[0]
        Node(value=536870912, file_id_prefix='a1ba364b-fbde-3906-b865-53e4c35f3556', tag='NORMAL')
        """
        assert count > 0
        step = (HASH_MAX + count - 1) // count
        ends = [min(step * number, HASH_MAX) for number in range(1, count + 1)]
        nodes = tuple(
            Node(end, _derived_prefix(partition, start, end))
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        )
        return cls(partition=partition, instant=INITIAL_INSTANT, initial_count=count, nodes=nodes)

    @classmethod
    def parse(cls, data: bytes, *, path: str) -> Self:
        """Read a `.hashing_meta`; CorruptTableError names the file and the key that makes no sense."""
        try:
            body = json.loads(data)
        except ValueError as error:
            raise _corrupt(path, f"bytes that are no JSON ({error})", "a JSON object") from None
        if not isinstance(body, dict):
            raise _corrupt(path, f"a JSON {type(body).__name__}", "a JSON object")
        nodes = _typed(body, "nodes", list, path)
        if not nodes:
            raise _corrupt(path, "'nodes': []", "one node at least under 'nodes'")
        return cls(
            partition=_typed(body, "partitionPath", str, path),
            instant=_typed(body, "instant", str, path),
            initial_count=_typed(body, "numBuckets", int, path),
            sequence=_typed(body, "seqNo", int, path),
            nodes=tuple(_node(node, path) for node in nodes),
            version=_typed(body, "version", int, path),
        )

    def render(self) -> bytes:
        """Write it as Hudi does, blank for blank."""
        nodes = ", ".join(
            "{\n"
            f'    "value" : {node.value},\n'
            f'    "fileIdPrefix" : {_json(node.file_id_prefix)},\n'
            f'    "tag" : {_json(node.tag)}\n'
            "  }"
            for node in self.nodes
        )
        return (
            "{\n"
            f'  "version" : {self.version},\n'
            f'  "partitionPath" : {_json(self.partition)},\n'
            f'  "instant" : {_json(self.instant)},\n'
            f'  "numBuckets" : {self.initial_count},\n'
            f'  "seqNo" : {self.sequence},\n'
            f'  "nodes" : [ {nodes} ]\n'
            "}"
        ).encode()

    @property
    def ring(self) -> Ring:
        return Ring(self.nodes)


@dataclass(frozen=True, slots=True)
class StoredRings(Mapping[str, Ring]):
    """The rings of a table by partition, each read from its file when first asked for.

    Which file counts was decided when the value was made, so every task that asks sees the same version.
    """

    store: Store
    paths: Mapping[str, str]
    _read: dict[str, Ring] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, partition: str) -> Ring:
        if partition not in self._read:
            path = self.paths[partition]
            self._read[partition] = HashingMetadata.parse(self.store.read(path), path=path).ring
        return self._read[partition]

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def list_rings(store: Store, timeline: Timeline, *, as_of: str | None = None) -> StoredRings | None:
    """Find the version of every partition's ring that counts; None for a table that has no rings at all.

    A partition whose versions are all uncommitted, or later than `as_of`, has no ring.
    """
    folders: dict[str, list[str]] = {}
    for file in store.list(RING_FOLDER, recursive=True).files:
        partition, _, name = file.path[len(RING_FOLDER) + 1 :].rpartition("/")
        folders.setdefault(partition, []).append(name)
    folders = {p: names for p, names in folders.items() if any(name.endswith(RING_SUFFIX) for name in names)}
    if not folders:
        return None
    paths: dict[str, str] = {}
    for partition, names in folders.items():
        instant = choose_ring(names, timeline, as_of=as_of)
        if instant is not None:
            paths[partition] = "/".join(
                part for part in (RING_FOLDER, partition, instant + RING_SUFFIX) if part
            )
    return StoredRings(store, paths)


def choose_ring(names: Iterable[str], timeline: Timeline, *, as_of: str | None = None) -> str | None:
    """Return the instant of the newest version in one partition's folder that counts, None if none does."""
    names = list(names)
    marked = {instant_of(name) for name in names if name.endswith(MARKER_SUFFIX)}
    completed = {i.requested for i in timeline.completed(Action.COMMIT, Action.REPLACE_COMMIT)}
    start = timeline.start
    valid = [
        instant
        for name in names
        if name.endswith(RING_SUFFIX)
        and (instant := name.removesuffix(RING_SUFFIX)).isdigit()
        and (is_initial(instant) or as_of is None or instant <= as_of)
        and (
            is_initial(instant)
            or instant in marked
            or instant in completed
            or (start is not None and instant < start)
        )
    ]
    return max(valid, default=None)


def _derived_prefix(partition: str, start: int, end: int) -> str:
    """Java's `UUID.nameUUIDFromBytes` over the range and the partition."""
    name = start.to_bytes(8, "big") + end.to_bytes(8, "big") + partition.encode("utf-8")
    return str(UUID(bytes=hashlib.md5(name, usedforsecurity=False).digest(), version=3))


def _node(body: object, path: str) -> Node:
    if not isinstance(body, dict):
        raise _corrupt(path, f"{body!r} among 'nodes'", "a JSON object")
    value = _typed(body, "value", int, path)
    if not 0 <= value <= HASH_MAX:
        raise _corrupt(path, f"'value': {value} in a node", f"a number from 0 to {HASH_MAX}")
    tag = _typed(body, "tag", str, path)
    if tag not in _NODE_TAGS:
        raise _corrupt(path, f"'tag': {tag!r} in a node", f"one of {', '.join(_NODE_TAGS)}")
    prefix = _typed(body, "fileIdPrefix", str, path)
    if not prefix:
        raise _corrupt(path, "'fileIdPrefix': '' in a node", "a file-id prefix")
    return Node(value, prefix, tag)


def _typed(body: Mapping[str, Any], key: str, kind: type, path: str) -> Any:
    value = body.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = f"{key!r}: {value!r}" if key in body else f"no key {key!r}"
        raise _corrupt(path, found, f"{kind.__name__} under {key!r}")
    return value


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _corrupt(path: str, found: str, expected: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=found,
        expected=expected,
        remedy="Restore the file from a copy; Hudi cannot write to the partition without it.",
    )
