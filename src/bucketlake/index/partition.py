"""Versions of a partition-level table's rules, `<instant>.hashing_config`, and which of them counts.

    .hoodie/.bucket_index/partition_bucket_index_meta/configs/    where Hudi keeps them
    .hoodie/.bucket_index/partition_bucket_index_meta/archive/    older ones, for reads of the past
    .hoodie/.hashing_meta/                                        the RFC's place, read for migration

A version is written before the rescale that it belongs to is committed, so a file alone proves nothing. The
timeline decides: the newest version whose replacecommit is completed on the active timeline, else the newest
from before the active timeline's start. A pending or rolled-back rescale's version is neither.

A table's first version is put there when it is made, under the all-zero instant; later ones are a rescale's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from bucketlake.errors import ConfigError, CorruptTableError, UnsupportedError
from bucketlake.index.rule_types import read_rules
from bucketlake.index.rules import RULE_TYPE, CountRules
from bucketlake.layout.names import (
    HASHING_CONFIG_ARCHIVE_FOLDER,
    HASHING_CONFIG_DRAFT_FOLDER,
    HASHING_CONFIG_FOLDER,
)
from bucketlake.storage import Store
from bucketlake.timeline import Action, Timeline

CONFIG_FOLDER = HASHING_CONFIG_FOLDER
ARCHIVE_FOLDER = HASHING_CONFIG_ARCHIVE_FOLDER
RFC_FOLDER = HASHING_CONFIG_DRAFT_FOLDER
INITIAL_INSTANT = "00000000000000000"
"""Of the version that a table is made with: 17 zeros, as the RFC has it. Hudi has 14; both are read."""
CONFIG_SUFFIX = ".hashing_config"

_LOOKS_MAX = 3
_REMEDY = "Restore the file from a copy, or name the rules yourself when you open the table."


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingConfig:
    """One version of a table's rules, as stored."""

    expressions: str
    default_count: int
    rule_type: str = RULE_TYPE
    version: int = 1
    instant: str

    @classmethod
    def parse(cls, data: bytes, *, path: str) -> Self:
        """Read a `.hashing_config`, in Hudi's spelling or the RFC's. The file's name says the instant."""
        try:
            body = json.loads(data)
        except ValueError as error:
            raise _corrupt(path, f"bytes that are no JSON ({error})", "a JSON object") from None
        if not isinstance(body, dict):
            raise _corrupt(path, f"a JSON {type(body).__name__}", "a JSON object")
        return cls(
            expressions=_text(body, "expressions", path=path),
            default_count=_count(body, "defaultBucketNumber", "default_bucket_number", path=path),
            rule_type=_text(body, "rule", path=path, default=RULE_TYPE),
            version=_count(body, "version", path=path, default=1),
            instant=instant_of(path),
        )

    def render(self) -> bytes:
        """Write it as Hudi does, blank for blank."""
        pairs = {
            "expressions": self.expressions,
            "defaultBucketNumber": self.default_count,
            "rule": self.rule_type,
            "version": self.version,
            "instant": self.instant,
        }
        lines = [
            f"  {json.dumps(key)} : {json.dumps(value, ensure_ascii=False)}" for key, value in pairs.items()
        ]
        return ("{\n" + ",\n".join(lines) + "\n}").encode("utf-8")

    def rules(self, *, path: str) -> CountRules:
        """Read the expressions. CorruptTableError if no engine could, UnsupportedError if we can't."""
        try:
            return read_rules(
                self.rule_type, self.expressions, self.default_count, subject=f"the rule type in {path}"
            )
        except ConfigError as error:
            raise _corrupt(
                path, f"in the key 'expressions': {error}", "rules expression,count;..."
            ) from error


@dataclass(frozen=True, slots=True)
class VersionedRules:
    """Rules, and the instant of the version that they are from."""

    version: str = ""
    """Empty: the table has none."""
    rules: CountRules | None = None
    """None: there are none, or they are of a kind that we can't read."""


NO_RULES = VersionedRules()


@dataclass(frozen=True, slots=True)
class ConfigVersions:
    """Which versions a table has, by instant: the path of each. Nothing is read yet."""

    active: Mapping[str, str]
    archived: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.active)

    def choose(self, timeline: Timeline, *, as_of: str | None = None) -> str | None:
        """Return the path of the version that counts, None if none does.

        With `as_of`, versions of later rescales are left out, and archived ones (all committed once) let in.
        """
        chosen = choose_version(self.active, timeline, as_of=as_of)
        counting = {} if chosen is None else {chosen: self.active[chosen]}
        if as_of is not None:
            counting = {i: path for i, path in self.archived.items() if i <= as_of} | counting
        return counting[max(counting)] if counting else None


NO_VERSIONS = ConfigVersions({}, {})


def list_versions(store: Store, *, with_archived: bool = True) -> ConfigVersions:
    """List the versions of a table's rules; none for a table that is not partition-level.

    Archived ones matter to reads of the past only.
    """
    return ConfigVersions(
        active=_versions_in(store, RFC_FOLDER) | _versions_in(store, CONFIG_FOLDER),
        archived=_versions_in(store, ARCHIVE_FOLDER) if with_archived else {},
    )


def load_config(store: Store, path: str) -> HashingConfig:
    return HashingConfig.parse(store.read(path), path=path)


def current_version(store: Store, timeline: Timeline) -> str:
    """Return the instant of the version that counts now, empty if none does."""
    path = list_versions(store, with_archived=False).choose(timeline)
    return "" if path is None else instant_of(path)


def load_rules(store: Store, timeline: Timeline) -> VersionedRules:
    """Return the rules that count now."""
    _, found = load_chosen(store, timeline)
    if found is None:
        return NO_RULES
    path, config = found
    try:
        return VersionedRules(instant_of(path), config.rules(path=path))
    except UnsupportedError:
        return VersionedRules(instant_of(path))


def load_chosen(
    store: Store, timeline: Timeline, *, as_of: str | None = None
) -> tuple[ConfigVersions, tuple[str, HashingConfig] | None]:
    """Return the versions that there are, and the one that counts with its path, if one does."""
    for attempt in range(_LOOKS_MAX):
        versions = list_versions(store, with_archived=as_of is not None)
        path = versions.choose(timeline, as_of=as_of)
        if path is None and versions and as_of is None:
            # An archive may have moved, since the timeline was listed, what counts by it.
            versions = list_versions(store)
            every = {**versions.archived, **versions.active}
            chosen = choose_version(every, timeline)
            path = None if chosen is None else every[chosen]
        try:
            return versions, None if path is None else (path, load_config(store, path))
        except FileNotFoundError:
            # Taken back, or moved to the archive, since they were listed.
            if attempt + 1 == _LOOKS_MAX:
                raise
    raise AssertionError("the last look returns or raises")


def choose_version(instants: Iterable[str], timeline: Timeline, *, as_of: str | None = None) -> str | None:
    """Return the instant of the version that counts.

    The all-zero instant is that of the table's creation: it lies before any start.
    """
    candidates = sorted(i for i in instants if as_of is None or i <= as_of or is_initial(i))
    completed = {instant.requested for instant in timeline.completed(Action.REPLACE_COMMIT)}
    committed = [instant for instant in candidates if instant in completed]
    if committed:
        return committed[-1]
    start = timeline.start
    older = [i for i in candidates if is_initial(i) or (start is not None and i < start)]
    return older[-1] if older else None


def is_initial(instant: str) -> bool:
    """Tell the instant that stands for a table's creation: zeros, 14 of them in Hudi and 17 in the RFC."""
    return not instant.strip("0")


def instant_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _versions_in(store: Store, folder: str) -> dict[str, str]:
    paths = [file.path for file in store.list(folder).files if file.path.endswith(CONFIG_SUFFIX)]
    return {instant: path for path in paths if (instant := instant_of(path)).isdigit()}


_ABSENT: Any = object()


def _text(body: Mapping[str, Any], key: str, *, path: str, default: str = _ABSENT) -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise _corrupt(path, _found(body, key), f"text under {key!r}")
    return value


def _count(body: Mapping[str, Any], *keys: str, path: str, default: int = _ABSENT) -> int:
    key = next((key for key in keys if key in body), keys[0])
    value = body.get(key, default)
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value):  # the RFC's example has quotes
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise _corrupt(path, _found(body, key), f"a whole number above zero under {key!r}")
    return value


def _found(body: Mapping[str, Any], key: str) -> str:
    return f"{key!r}: {body[key]!r}" if key in body else f"no key {key!r}"


def _corrupt(path: str, found: str, expected: str) -> CorruptTableError:
    return CorruptTableError(path=path, found=found, expected=expected, remedy=_REMEDY)
