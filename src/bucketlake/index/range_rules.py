"""Rules by ranges of the partition's value: `[low,high],N;[low,high],N`, the first that holds the value wins.

    rules := rule (";" rule)*
    rule  := "[" bound? "," bound? "]" "," N      both ends belong to the range; one may be left open
    bound := date | number | text                 2026-06-01, -7, or anything else without , ; [ ]

The value is that of the first partition column: the first part of the path, without `dt=` before it. Dates are compared
with values that begin with a day (`2026-06-18`, `2026-06-18-07`), and with paths that are one (`2026/06/18`); numbers
with whole numbers; text with any value, by code points. A value of another type is in no such range.

    >>> rules = RangeRules(parse_ranges("[2026-06-01,2026-06-30],64;[2026-01-01,],16"), 4)
    >>> rules.counts_of(["2026-06-18", "dt=2026-07-01", "2025/12/31", "eu"])
    [64, 16, 4, 4]
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError
from bucketlake.index.resolved_counts import remembered
from bucketlake.index.rules import Decision

RANGE_TYPE = "range"

_NO_RULE = -1
_RULE = re.compile(r"\s*\[([^\[\],;]*),([^\[\],;]*)\]\s*(,?)\s*([^;]*?)\s*(?=;|$)", re.ASCII)
_COUNT = re.compile(r"\+?[0-9]{1,10}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_NUMBER = re.compile(r"-?[0-9]{1,18}")

Bound = datetime.date | int | str


class BoundKind(StrEnum):
    DATE = "date"
    NUMBER = "number"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class RangeRule:
    """One rule: partitions whose value lies between the bounds have `count` buckets."""

    text: str
    """As declared, without the count."""
    count: int
    kind: BoundKind
    low: Bound | None
    high: Bound | None


@dataclass(frozen=True, slots=True)
class RangeRules:
    """Bucket counts by ranges, with a default for partitions that are in none."""

    rules: tuple[RangeRule, ...]
    default_count: int
    _name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_name", str(self))

    def __str__(self) -> str:
        return f"{RANGE_TYPE}: {self.expressions}; otherwise {self.default_count}"

    @property
    def rule_type(self) -> str:
        return RANGE_TYPE

    @property
    def expressions(self) -> str:
        return ";".join(f"{rule.text},{rule.count}" for rule in self.rules)

    def count_of(self, partition: str) -> int:
        return remembered(self._name, [partition], self._resolve)[0]

    def counts_of(self, partitions: Sequence[str]) -> list[int]:
        return remembered(self._name, partitions, self._resolve)

    def explain(self, partition: str) -> Decision:
        """Say which range decides, and which later ones hold the value too.

        >>> print(RangeRules(parse_ranges("[0,9],4;[5,20],8"), 2).explain("shard=7"))
        shard=7: 4 buckets, by rule 1: [0,9], before rule 2
        """
        holding = [n for n, holds in enumerate(self._holding([partition])) if holds[0]]
        if not holding:
            return Decision(partition, self.default_count, None)
        first, *others = holding
        rule = self.rules[first]
        return Decision(partition, rule.count, rule.text, first + 1, tuple(n + 1 for n in others))

    def _resolve(self, partitions: Sequence[str]) -> list[int]:
        counts = np.full(len(partitions), self.default_count, np.int64)
        for rule, holds in reversed(list(zip(self.rules, self._holding(partitions), strict=True))):
            counts[holds] = rule.count  # from the last to the first, so that the first wins
        return [int(count) for count in counts]

    def _holding(self, partitions: Sequence[str]) -> list[np.ndarray]:
        """Return of every rule which partitions it holds."""
        values = _values(pa.array(partitions, pa.string()))
        return [_within(values[rule.kind], rule) for rule in self.rules]


def _values(paths: Any) -> dict[BoundKind, Any]:
    """Read the partitions' values as each kind; null where one is of another."""
    bare = pc.replace_substring_regex(paths, r"(^|/)[^/=]*=", r"\1")
    text = pc.replace_substring_regex(bare, r"/.*$", "")
    is_number = pc.match_substring_regex(text, r"^-?[0-9]{1,18}$")
    day = pc.replace_substring_regex(bare, r"^([0-9]{4})/([0-9]{2})/([0-9]{2})(/.*)?$", r"\1-\2-\3")
    begins_with_day = pc.match_substring_regex(day, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([^0-9]|$)")
    days = pc.if_else(begins_with_day, pc.utf8_slice_codeunits(day, 0, 10), None)
    read = pc.cast(pc.strptime(days, format="%Y-%m-%d", unit="s", error_is_null=True), pa.date32())
    is_a_day = pc.equal(
        pc.cast(read, pa.string()), days
    )  # Arrow takes the 30th of February for the 2nd of March
    return {
        BoundKind.TEXT: text,
        BoundKind.NUMBER: pc.cast(pc.if_else(is_number, text, None), pa.int64()),
        BoundKind.DATE: pc.if_else(is_a_day, read, None),
    }


def _within(values: Any, rule: RangeRule) -> np.ndarray:
    holds = pc.is_valid(values)
    if rule.low is not None:
        holds = pc.and_(holds, pc.greater_equal(values, pa.scalar(rule.low, values.type)))
    if rule.high is not None:
        holds = pc.and_(holds, pc.less_equal(values, pa.scalar(rule.high, values.type)))
    found: np.ndarray = pc.fill_null(holds, False).to_numpy(zero_copy_only=False)
    return found


def parse_ranges(expressions: str, *, count_max: int = 2**31 - 1) -> tuple[RangeRule, ...]:
    """Read rules as declared; ConfigError tells the position of a fault, counted from 0."""
    rules: list[RangeRule] = []
    text = expressions.rstrip(";")
    at = 0
    while True:
        found = _RULE.match(text, at)
        if found is None:
            raise _fault(expressions, at, "a range [low,high], a comma and a bucket count")
        rules.append(_rule(expressions, found, count_max))
        at = found.end() + 1
        if found.end() == len(text):
            return tuple(rules)


def _rule(expressions: str, found: re.Match[str], count_max: int) -> RangeRule:
    if not found[3] or not _COUNT.fullmatch(found[4]):
        raise _fault(expressions, found.end(2) + 1, f"',' and a bucket count (found {found[4]!r})")
    count = int(found[4])
    if not 0 < count <= count_max:
        raise _fault(expressions, found.start(4), f"a bucket count from 1 to {count_max} (found {count})")
    ends = [(found[n].strip(), found.start(n)) for n in (1, 2)]
    bounds = [_bound(expressions, word, at) if word else None for word, at in ends]
    kinds = {bound[0] for bound in bounds if bound is not None}
    if not kinds:
        raise _fault(expressions, found.start(1), "a bound at one end at least; the default is for the rest")
    if len(kinds) > 1:
        words = " and ".join(f"a {bound[0]}" for bound in bounds if bound is not None)
        raise _fault(expressions, found.start(1), f"two bounds of one type (found {words})")
    low, high = (None if bound is None else bound[1] for bound in bounds)
    if low is not None and high is not None and low > high:  # type: ignore[operator] # they are of one type
        raise _fault(expressions, found.start(1), f"a range that runs upwards: no value is in [{low},{high}]")
    text = f"[{ends[0][0]},{ends[1][0]}]"
    return RangeRule(text, count, kinds.pop(), low, high)


def _bound(expressions: str, word: str, at: int) -> tuple[BoundKind, Bound]:
    if _NUMBER.fullmatch(word):
        return BoundKind.NUMBER, int(word)
    if not _DAY.fullmatch(word):
        return BoundKind.TEXT, word
    try:
        return BoundKind.DATE, datetime.date.fromisoformat(word)
    except ValueError:
        raise _fault(expressions, at, f"a day of the calendar (found {word})") from None


def misfit(rules: RangeRules, column: str, type_: pa.DataType) -> str | None:
    """Say which rule can hold no value of a partition column of this type; None if there is none."""
    fits: dict[BoundKind, bool] = {
        BoundKind.DATE: not (pa.types.is_integer(type_) or pa.types.is_boolean(type_)),
        BoundKind.NUMBER: not (pa.types.is_date(type_) or pa.types.is_boolean(type_)),
        BoundKind.TEXT: pa.types.is_string(type_) or pa.types.is_large_string(type_),
    }
    for number, rule in enumerate(rules.rules):
        if not fits[rule.kind]:
            return (
                f"rule {number + 1} of {rules.expressions!r}, {rule.text}, is a range of {rule.kind} values, and the "
                f"partition column {column!r} is {type_}: no value would be in it. Give bounds of that type."
            )
    return None


def _fault(expressions: str, at: int, expected: str) -> ConfigError:
    return ConfigError(
        f"the partition rules {expressions!r} have a fault at position {at}: expected {expected}. "
        f"Ranges are written [low,high],count;[low,high],count"
    )
