"""Rule types: `regex`, `range`, and those that a caller has made known to this process.

A table's metadata names the type of its rules. That name is looked up here and nowhere else: nothing is imported
because a table says so. Who uses a type of their own registers it in every program that opens the table:

    class ByYear:
        def __init__(self, expressions: str) -> None: ...
        def count_of(self, partition: str) -> int | None: ...

    bucketlake.register_rule_type("year", ByYear)

What a parser returns travels to tasks, so it must be picklable and its class importable there. Hudi does not know
such a type: a table with one is for our writers only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index.range_rules import RANGE_TYPE, RangeRules, misfit, parse_ranges
from bucketlake.index.rules import BUCKETS_MAX, RULE_TYPE, CountRules, Decision, Rules, parse_rules

BUILT_IN = (RULE_TYPE, RANGE_TYPE)

_NAME = re.compile(r"[a-z][a-z0-9_.-]*")


class OwnRules(Protocol):
    """What the parser of a caller's rule type makes of the expressions.

    Where it has a method `counts_of(partitions)` too, that is asked when many partitions are to be resolved.
    """

    def count_of(self, partition: str) -> int | None:
        """Return a partition's number of buckets, None for the table's default."""


Parser = Callable[[str], OwnRules]
"""Reads the expressions of a table, and raises ConfigError if they make no sense."""

_COUNT_MAX = 2**31 - 1
_parsers: dict[str, Parser] = {}


def register_rule_type(name: str, parse: Parser) -> None:
    """Register a type of bucket rules in this process, under the name that tables keep as the type of their rules."""
    if not _NAME.fullmatch(name) or name in BUILT_IN:
        raise ConfigError(
            f"a rule type cannot be named {name!r}: expected lower-case letters, digits, '_', '-' and '.', and not "
            f"{' or '.join(map(repr, BUILT_IN))}, which are built in."
        )
    if _parsers.setdefault(name, parse) is not parse:
        raise ConfigError(
            f"the rule type {name!r} is registered already, with {_parsers[name]!r}. Two meanings of one name would "
            f"spread a table's keys in two ways: choose another name."
        )


def read_rules(rule_type: str, expressions: str, default_count: int, *, subject: str) -> CountRules:
    """Read rules of any known type; UnsupportedError, about `subject`, if nobody has registered it."""
    return _read(rule_type, expressions, default_count, subject, _COUNT_MAX)


def declare_rules(expressions: str, default_count: int, *, rule_type: str = RULE_TYPE) -> CountRules:
    """Read rules that somebody wants to give a table: no count may be above `BUCKETS_MAX`."""
    if not 1 <= default_count <= BUCKETS_MAX:
        raise ConfigError(
            f"the default bucket count is {default_count}; expected 1 to {BUCKETS_MAX} per partition."
        )
    return _read(
        rule_type,
        expressions,
        default_count,
        "the type of the partition rules",
        BUCKETS_MAX,
    )


def check_fit(rules: CountRules, partition: Sequence[tuple[str, pa.DataType]]) -> None:
    """Raise `ConfigError` for a rule that can hold no value of the table's partition columns."""
    if isinstance(rules, RangeRules) and partition:
        fault = misfit(rules, *partition[0])
        if fault is not None:
            raise ConfigError(fault)


def _read(
    rule_type: str,
    expressions: str,
    default_count: int,
    subject: str,
    count_max: int,
) -> CountRules:
    name = rule_type.lower()
    if name == RULE_TYPE:
        return Rules(parse_rules(expressions, count_max=count_max), default_count)
    if name == RANGE_TYPE:
        return RangeRules(parse_ranges(expressions, count_max=count_max), default_count)
    if name not in _parsers:
        raise UnsupportedError(
            subject=subject,
            found=repr(rule_type),
            supported=", ".join([*BUILT_IN, *sorted(_parsers)]),
            remedy=f"If it is a type of your own, make it known first: "
            f"bucketlake.register_rule_type({name!r}, parse).",
        )
    return RegisteredRules(name, expressions, default_count, _parsers[name](expressions))


@dataclass(frozen=True, slots=True)
class RegisteredRules:
    """Rules of a caller's type, held to what all rules keep."""

    rule_type: str
    expressions: str
    default_count: int
    own: OwnRules

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RegisteredRules) and self._words == other._words

    def __hash__(self) -> int:
        return hash(self._words)

    def __str__(self) -> str:
        return f"{self.rule_type}: {self.expressions}; otherwise {self.default_count}"

    @property
    def _words(self) -> tuple[str, str, int]:
        return self.rule_type, self.expressions, self.default_count

    def count_of(self, partition: str) -> int:
        return self._checked(self.own.count_of(partition), partition)

    def counts_of(self, partitions: Sequence[str]) -> list[int]:
        many = getattr(self.own, "counts_of", None)
        counts = many(partitions) if many is not None else map(self.own.count_of, partitions)
        return [self._checked(count, p) for count, p in zip(counts, partitions, strict=True)]

    def explain(self, partition: str) -> Decision:
        is_default = self.own.count_of(partition) is None
        return Decision(partition, self.count_of(partition), None if is_default else str(self))

    def _checked(self, count: int | None, partition: str) -> int:
        found = self.default_count if count is None else int(count)
        if not 1 <= found <= BUCKETS_MAX:
            raise ConfigError(
                f"the rule type {self.rule_type!r} gives partition {partition!r} {found} buckets; expected 1 to "
                f"{BUCKETS_MAX}."
            )
        return found
