"""Consistent hashing on disk: the versions of every partition's ring, and which of them counts.

    .hoodie/.bucket_index/consistent_hashing_metadata/<partition>/
        <instant>.hashing_meta    a version of the ring
        <instant>.commit          an empty marker: that version is committed

A version is written before the clustering that makes it true is committed. It counts if it is the first (all-zero
instant), has a marker, or is completed on the active timeline. One that is older than that timeline and has no marker
is told by its file groups, as Hudi does it: one of them has a base file only if it was committed. Those
that count get their markers before archiving takes away what says so.

The first version is derived from the partition's name and the table's bucket count, by every writer alike, so it
matters little who writes it down, and when.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from bucketlake.errors import CorruptTableError
from bucketlake.index.partition import instant_of, is_initial
from bucketlake.index.ring import HASH_MAX, Node, Ring, Tag, derived_prefix
from bucketlake.layout import list_files
from bucketlake.layout.names import (
    CONSISTENT_METADATA_FOLDER,
    hashing_commit_path,
    hashing_metadata_path,
    parse_base_file_name,
    parse_hashing_name,
    split_path,
)
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline

RING_SUFFIX = ".hashing_meta"
MARKER_SUFFIX = ".commit"
INITIAL_INSTANT = "00000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingMetadata:
    """One version of a partition's ring, as stored."""

    folder: ClassVar[str] = CONSISTENT_METADATA_FOLDER
    """Where versions of this kind are."""

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
        Node(value=536870912, file_id_prefix='a1ba364b-fbde-3906-b865-53e4c35f3556', tag=<Tag.NORMAL: 'NORMAL'>)
        """
        assert count > 0
        step = (HASH_MAX + count - 1) // count
        ends = [min(step * number, HASH_MAX) for number in range(1, count + 1)]
        nodes = tuple(
            Node(end, derived_prefix(start, end, partition))
            for start, end in zip([0, *ends[:-1]], ends, strict=True)
        )
        return cls(partition=partition, instant=INITIAL_INSTANT, initial_count=count, nodes=nodes)

    @classmethod
    def parse(cls, data: bytes, *, path: str) -> Self:
        """Read a `.hashing_meta`; CorruptTableError names the file and the key that makes no sense."""
        try:
            body = json.loads(data)
        except ValueError as error:
            raise corrupt_ring(path, f"bytes that are no JSON ({error})", "a JSON object") from None
        if not isinstance(body, dict):
            raise corrupt_ring(path, f"a JSON {type(body).__name__}", "a JSON object")
        nodes = typed(body, "nodes", list, path)
        if not nodes:
            raise corrupt_ring(path, "'nodes': []", "one node at least under 'nodes'")
        return cls(
            partition=typed(body, "partitionPath", str, path),
            instant=typed(body, "instant", str, path),
            initial_count=typed(body, "numBuckets", int, path),
            sequence=typed(body, "seqNo", int, path),
            nodes=tuple(_node(node, path) for node in nodes),
            version=typed(body, "version", int, path),
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
    def path(self) -> str:
        return hashing_metadata_path(self.partition, self.instant, folder=self.folder)

    @property
    def ring(self) -> Ring:
        return Ring(self.nodes)

    def resized(self, children: Iterable[Node], *, instant: str) -> Self:
        """Return the version after a resize."""
        return replace(
            self,
            instant=instant,
            sequence=self.sequence + 1,
            nodes=self.ring.with_children(children).nodes,
        )

    def refounded(self, instant: str) -> Self:
        """Return the version after all file groups were replaced: the same ranges, under ids that were never used."""
        nodes = tuple(
            Node(node.value, derived_prefix(instant, node.value, self.partition)) for node in self.ring.nodes
        )
        return replace(self, instant=instant, sequence=self.sequence + 1, nodes=nodes)


@dataclass(frozen=True, slots=True)
class StoredRings(Mapping[str, HashingMetadata]):
    """The versions that count, by partition, each read from its file when first asked for.

    Which file counts was decided when the value was made, so every task that asks sees the same version.
    """

    store: Store
    paths: Mapping[str, str]
    kind: type[HashingMetadata] = HashingMetadata
    _read: dict[str, HashingMetadata] = field(default_factory=dict, repr=False, compare=False)

    def __getitem__(self, partition: str) -> HashingMetadata:
        if partition not in self._read:
            path = self.paths[partition]
            self._read[partition] = self.kind.parse(self.store.read(path), path=path)
        return self._read[partition]

    def __contains__(self, partition: object) -> bool:
        return partition in self.paths

    def __iter__(self) -> Iterator[str]:
        return iter(self.paths)

    def __len__(self) -> int:
        return len(self.paths)


def list_rings(
    store: Store,
    timeline: Timeline,
    *,
    as_of: str | None = None,
    kind: type[HashingMetadata] = HashingMetadata,
) -> StoredRings | None:
    """Find the version of every partition's ring that counts; None for a table that has no rings of this kind at all.

    A partition whose versions are all uncommitted, or later than `as_of`, has no ring.
    """
    folders = _versions_by_partition(store, kind)
    if not folders:
        return None
    paths: dict[str, str] = {}
    for partition, names in folders.items():
        instant = choose_ring(names, timeline, _by_its_files(store, partition, kind), as_of=as_of)
        if instant is not None:
            paths[partition] = hashing_metadata_path(partition, instant, folder=kind.folder)
    return StoredRings(store, paths, kind)


def choose_ring(
    names: Iterable[str],
    timeline: Timeline,
    has_base_file: Callable[[str], bool],
    *,
    as_of: str | None = None,
) -> str | None:
    """Return the instant of the newest version in one partition's folder that counts, None if none does.

    `has_base_file` is asked of a version which nothing else tells of: whether one of its file groups has one.
    """
    names = list(names)
    marked = {instant_of(name) for name in names if name.endswith(MARKER_SUFFIX)}
    completed = {i.requested for i in timeline.completed(Action.COMMIT, Action.REPLACE_COMMIT)}
    start = timeline.start
    stored = sorted(
        (
            instant
            for name in names
            if name.endswith(RING_SUFFIX) and (instant := name.removesuffix(RING_SUFFIX)).isdigit()
        ),
        reverse=True,
    )
    for instant in stored:
        if is_initial(instant):
            return instant
        if as_of is not None and instant > as_of:
            continue
        if instant in marked or instant in completed:
            return instant
        if start is not None and instant < start and has_base_file(instant):
            return instant
    return None


def list_markers(
    store: Store, timeline: Timeline, *, kind: type[HashingMetadata] = HashingMetadata
) -> tuple[str, ...]:
    """Name the markers that versions lack which count."""
    found: list[str] = []
    for partition, names in _versions_by_partition(store, kind).items():
        instant = choose_ring(names, timeline, _by_its_files(store, partition, kind))
        if instant is not None and not is_initial(instant) and instant + MARKER_SUFFIX not in names:
            found.append(hashing_commit_path(partition, instant, folder=kind.folder))
    return tuple(found)


def outdated_rings(
    store: Store, timeline: Timeline, *, before: str, kind: type[HashingMetadata] = HashingMetadata
) -> tuple[str, ...]:
    """Name the files of versions that were followed, before an instant, by one that counts; their markers too.

    The version that the instant itself may have followed stays: the instant can be taken back.
    """
    found: list[str] = []
    for partition, names in _versions_by_partition(store, kind).items():
        older = [name for name in names if instant_of(name) < before]
        kept = choose_ring(older, timeline, _by_its_files(store, partition, kind))
        if kept is None:
            continue
        # Markers first: one that is newest and has no version is what Hudi stumbles on.
        for name in sorted(names, key=lambda name: name.endswith(RING_SUFFIX)):
            if instant_of(name) < kept:
                found.append("/".join(filter(None, (kind.folder, partition, name))))
    return tuple(found)


def ring_files_of(
    store: Store, instant: str, *, kind: type[HashingMetadata] = HashingMetadata
) -> tuple[str, ...]:
    """Name the files of the ring versions of an instant, what says that they count before what it is said of."""
    files = store.list(kind.folder, recursive=True).files
    found = [(parse_hashing_name(split_path(file.path)[1]), file.path) for file in files]
    named = [(name[1] != "commit", path) for name, path in found if name is not None and name[0] == instant]
    return tuple(path for _, path in sorted(named))


def _versions_by_partition(store: Store, kind: type[HashingMetadata]) -> dict[str, list[str]]:
    """Name the files in the folder of every partition that has a version at all."""
    folders: dict[str, list[str]] = {}
    for file in store.list(kind.folder, recursive=True).files:
        partition, _, name = file.path[len(kind.folder) + 1 :].rpartition("/")
        folders.setdefault(partition, []).append(name)
    return {p: names for p, names in folders.items() if any(name.endswith(RING_SUFFIX) for name in names)}


def _by_its_files(store: Store, partition: str, kind: type[HashingMetadata]) -> Callable[[str], bool]:
    def has_base_file(instant: str) -> bool:
        path = hashing_metadata_path(partition, instant, folder=kind.folder)
        try:
            owners = frozenset(kind.parse(store.read(path), path=path).ring.prefixes)
        except CorruptTableError:
            return False  # Hudi was cut off while writing it, and so before it could commit
        names = (split_path(file.path)[1] for file in list_files(store, [partition])[partition])
        bases = (parse_base_file_name(name) for name in names)
        return any(base.file_id.rpartition("-")[0] in owners for base in bases if base is not None)

    return has_base_file


def _node(body: object, path: str, *, may_go: bool = False) -> Node:
    if not isinstance(body, dict):
        raise corrupt_ring(path, f"{body!r} among 'nodes'", "a JSON object")
    value = typed(body, "value", int, path)
    if not 0 <= value <= HASH_MAX:
        raise corrupt_ring(path, f"'value': {value} in a node", f"a number from 0 to {HASH_MAX}")
    tag = typed(body, "tag", str, path)
    if tag not in tuple(Tag):
        raise corrupt_ring(path, f"'tag': {tag!r} in a node", f"one of {', '.join(Tag)}")
    if tag == Tag.DELETE and may_go:
        return Node(value, "", Tag.DELETE)
    prefix = typed(body, "fileIdPrefix", str, path)
    if not prefix:
        raise corrupt_ring(path, "'fileIdPrefix': '' in a node", "a file-id prefix")
    return Node(value, prefix, Tag(tag))


def encode_children(children: Iterable[Node]) -> str:
    """Write the children of a resize as a clustering plan has them."""
    return json.dumps(
        [
            {"value": node.value, "fileIdPrefix": node.file_id_prefix or None, "tag": str(node.tag)}
            for node in children
        ]
    )


def decode_children(text: str, *, path: str) -> tuple[Node, ...]:
    """Read the children of a resize; `path` is that of the plan, for the error."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise corrupt_ring(path, f"child nodes that are no JSON ({error})", "a JSON array") from None
    if not isinstance(body, list):
        raise corrupt_ring(path, f"child nodes as a JSON {type(body).__name__}", "a JSON array")
    return tuple(_node(node, path, may_go=True) for node in body)


def typed(body: Mapping[str, Any], key: str, kind: type, path: str) -> Any:
    value = body.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        found = f"{key!r}: {value!r}" if key in body else f"no key {key!r}"
        raise corrupt_ring(path, found, f"{kind.__name__} under {key!r}")
    return value


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def corrupt_ring(path: str, found: str, expected: str) -> CorruptTableError:
    return CorruptTableError(
        path=path,
        found=found,
        expected=expected,
        remedy="Restore the file from a copy; Hudi cannot write to the partition without it.",
    )
