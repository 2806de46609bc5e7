"""Rules that give partitions their bucket counts: `regex,N;regex,N`, the first that is found wins.

Hudi evaluates a rule with Java's `Matcher.find()` on the partition path. We evaluate it with RE2 (through
Arrow), which has no backtracking and so no rule that never ends. The two read most syntax alike; the grammar
here is the part where they do, and everything else is refused with its position, because a rule read
differently by two engines would split a partition's layout:

    rules       := rule (";" rule)*
    rule        := alternatives "," N
    alternatives:= branch ("|" branch)*
    branch      := (atom quantifier?)*
    atom        := character | "." | "^" | "$" at the end | escape | class | "(" "?:"? alternatives ")"
    quantifier  := ("*" | "+" | "?" | "{" number "}") "?"?
    escape      := \\d \\D \\w \\W \\s \\S (ASCII) | \\t \\n \\r \\f | "\\" and a punctuation mark
    class       := "[" "^"? (character | escape | range)+ "]"

A rule holds no comma and no semicolon. A repetition without bound inside another, or around alternatives, is
refused as well: Java could backtrack over it for hours.

This is the rule type `regex`; `range_rules` has another. More are made known by whoever calls us (`rule_types`). All
answer as `CountRules`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketlake.errors import ConfigError, UnsupportedError
from bucketlake.index.resolved_counts import remembered

RULE_TYPE = "regex"

BUCKETS_MAX = 65_536
"""More per partition than anybody needs: ids have room for eight digits, but every bucket is a file."""

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's trim() takes off
_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_REPEATS_MAX = 1000
_COUNT_MAX = 2**31 - 1
_NO_RULE = -1


class CountRules(Protocol):
    """How many buckets a partition has. A value: hashable, picklable, the same answer everywhere and every time."""

    @property
    def rule_type(self) -> str: ...

    @property
    def expressions(self) -> str:
        """As declared."""

    @property
    def default_count(self) -> int:
        """Of partitions that no rule decides."""

    def count_of(self, partition: str) -> int:
        """Return the number of buckets of a partition."""

    def counts_of(self, partitions: Sequence[str]) -> list[int]:
        """Return the same for many partitions, in one go."""

    def explain(self, partition: str) -> Decision:
        """Say what decides a partition's count."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Why a partition has as many buckets as it has; prints as a line."""

    partition: str
    count: int
    rule: str | None
    """The expression that was found first; None: the default."""
    number: int | None = None
    """Which one of them, from 1."""
    also: tuple[int, ...] = ()
    """Later rules that would have decided it too."""

    def __str__(self) -> str:
        return f"{self.partition or '(not partitioned)'}: {self.count} buckets, {self.reason}"

    @property
    def reason(self) -> str:
        if self.rule is None:
            return "the default: no rule is found in the path"
        if self.number is None:
            return f"by {self.rule}"
        after = f", before rule {', '.join(map(str, self.also))}" if self.also else ""
        return f"by rule {self.number}: {self.rule}{after}"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: partitions in which `expression` is found have `count` buckets."""

    expression: str
    """As declared."""
    count: int
    re2: str = field(repr=False)
    """The same in RE2's syntax."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Bucket counts by regular expressions, with a default for partitions that none is found in.

    >>> print(Rules(parse_rules("2024-01-0[12],4;2024-.*,8"), 2))
    2024-01-0[12],4;2024-.*,8; otherwise 2
    """

    rules: tuple[Rule, ...]
    default_count: int
    _name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_name", str(self))

    def __str__(self) -> str:
        return f"{self.expressions}; otherwise {self.default_count}"

    @property
    def rule_type(self) -> str:
        return RULE_TYPE

    @property
    def expressions(self) -> str:
        return ";".join(f"{rule.expression},{rule.count}" for rule in self.rules)

    def count_of(self, partition: str) -> int:
        """Return the number of buckets of a partition.

        >>> Rules(parse_rules("2024-01-0[12],4;2024-.*,8"), 2).count_of("dt=2024-01-02")
        4
        """
        return remembered(self._name, [partition], self._resolve)[0]

    def counts_of(self, partitions: Sequence[str]) -> list[int]:
        return remembered(self._name, partitions, self._resolve)

    def explain(self, partition: str) -> Decision:
        """Say which rule decides.

        >>> print(Rules(parse_rules("2024-01-0[12],4;2024-.*,8"), 2).explain("dt=2024-03-01"))
        dt=2024-03-01: 8 buckets, by rule 2: 2024-.*
        """
        found = int(self._deciding([partition])[0])
        if found == _NO_RULE:
            return Decision(partition, self.default_count, None)
        return Decision(partition, self.rules[found].count, self.rules[found].expression, found + 1)

    def _resolve(self, partitions: Sequence[str]) -> list[int]:
        # The default comes last, where the number of no rule leads.
        counts = np.array([*(rule.count for rule in self.rules), self.default_count])
        resolved: list[int] = counts[self._deciding(partitions)].tolist()
        return resolved

    def _deciding(self, partitions: Sequence[str]) -> np.ndarray:
        """Find the number of the rule that decides each partition, a rule at a time over those still open."""
        decided = np.full(len(partitions), _NO_RULE)
        still_open = np.arange(len(partitions))
        paths = pa.array(partitions, pa.string())
        for number, rule in enumerate(self.rules):
            if not len(still_open):
                break
            is_found = pc.match_substring_regex(paths, rule.re2)
            found = is_found.to_numpy(zero_copy_only=False)
            decided[still_open[found]] = number
            still_open = still_open[~found]
            paths = paths.filter(pc.invert(is_found))
        return decided


def parse_rules(expressions: str, *, count_max: int = _COUNT_MAX) -> tuple[Rule, ...]:
    """Read rules as declared.

    ConfigError for what no engine could use (no number, nothing to match), UnsupportedError for regular
    expressions outside the grammar above; both tell the position, counted from 0.

    >>> [(rule.expression, rule.count) for rule in parse_rules("2024-.*,8")]
    [('2024-.*', 8)]
    """
    rules: list[Rule] = []
    start = 0
    # Java's split drops what is empty at the end, so a closing semicolon is no fault.
    for text in expressions.rstrip(";").split(";"):
        rules.append(_parse_rule(expressions, text, start, count_max))
        start += len(text) + 1
    return tuple(rules)


def _parse_rule(expressions: str, text: str, start: int, count_max: int) -> Rule:
    expression, comma, number = text.partition(",")
    if not comma:
        raise _fault(expressions, start + len(text), "a comma and a bucket count after the expression")
    number_start = start + len(expression) + 1
    if not re.fullmatch(r"\+?[0-9]{1,10}", number.strip(_BLANKS)):
        raise _fault(expressions, number_start, f"a bucket count (found {number!r}), then ';' or the end")
    count = int(number.strip(_BLANKS))
    if not 0 < count <= count_max:
        raise _fault(expressions, number_start, f"a bucket count from 1 to {count_max} (found {count})")
    stripped = expression.strip(_BLANKS)
    if not stripped:
        raise _fault(expressions, start, "an expression before the comma")
    first = start + expression.index(stripped)
    return Rule(stripped, count, _Reader(expressions, first, first + len(stripped)).read())


class _Reader:
    """Reads one expression left to right and writes it in RE2's syntax."""

    def __init__(self, text: str, start: int, stop: int) -> None:
        self.text = text
        self.at = start
        self.stop = stop
        self.depth = 0

    def read(self) -> str:
        written, _ = self._alternatives()
        if self.at < self.stop:
            raise self._bad("an opening '(' for this ')'")
        return written

    def _peek(self) -> str:
        return self.text[self.at] if self.at < self.stop else ""

    def _take(self) -> str:
        character = self._peek()
        self.at += 1
        return character

    def _alternatives(self) -> tuple[str, bool]:
        """Return what was read, and whether repeating it without bound could make Java backtrack."""
        written, risky = self._branch()
        while self._peek() == "|":
            self._take()
            branch, _ = self._branch()
            written, risky = f"{written}|{branch}", True
        return written, risky

    def _branch(self) -> tuple[str, bool]:
        written, risky = "", False
        while self._peek() not in ("", "|", ")"):
            start = self.at
            atom, can_repeat, atom_is_risky = self._atom()
            quantifier, unbounded = self._quantifier()
            if quantifier and not can_repeat:
                raise self._refused("a repeated anchor", start)
            if unbounded and atom_is_risky:
                raise self._refused("a repetition around a repetition or around alternatives", start)
            written += atom + quantifier
            risky = risky or atom_is_risky or bool(quantifier)
        return written, risky

    def _atom(self) -> tuple[str, bool, bool]:
        """Return the atom, whether it may be repeated, and whether repeating it is risky."""
        start = self.at
        character = self._take()
        match character:
            case ".":
                return f"[^{_LINE_ENDS}]", True, False
            case "^":
                return r"\A", False, False
            case "$":
                self._check_nothing_follows(start)
                # Java's $ also stands before a line end that closes the text.
                return rf"(?:\r\n|[{_LINE_ENDS}])?\z", False, False
            case "[":
                return self._class(start), True, False
            case "(":
                return self._group(start)
            case "\\":
                return self._escape(start), True, False
            case "*" | "+" | "?" | "{":
                raise self._bad(f"something to repeat before {character!r}", start)
            case "}" | "]":
                raise self._refused(f"a bare {character!r}; write \\{character}", start)
            case _:
                return _literal(character), True, False

    def _group(self, start: int) -> tuple[str, bool, bool]:
        if self._peek() == "?":
            self._take()
            if self._take() != ":":
                raise self._refused("a group that begins with (? and is not (?:", start)
        self.depth += 1
        written, risky = self._alternatives()
        self.depth -= 1
        if self._take() != ")":
            raise self._bad("a closing ')' for this '('", start)
        return f"(?:{written})", True, risky

    def _quantifier(self) -> tuple[str, bool]:
        start = self.at
        character = self._peek()
        if character not in ("*", "+", "?", "{") or not character:
            return "", False
        self._take()
        written = character
        if character == "{":
            match = re.compile(r"([0-9]{1,9})\}").match(self.text, self.at, self.stop)
            if match is None:
                raise self._bad("a number and '}' after '{'", start)
            if int(match[1]) > _REPEATS_MAX:
                raise self._refused(f"a repetition of more than {_REPEATS_MAX}", start)
            written += match[0]
            self.at = match.end()
        if self._peek() == "?":
            written += self._take()
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            raise self._refused("a possessive or doubled quantifier", self.at)
        return written, character in "*+"

    def _escape(self, start: int) -> str:
        character = self._take()
        if character and character in "dDwWsS":
            # RE2's \s lacks the vertical tab that Java's has.
            return {"s": r"[\t\n\v\f\r ]", "S": r"[^\t\n\v\f\r ]"}.get(character, "\\" + character)
        return self._escaped_character(character, start)

    def _escaped_character(self, character: str, start: int) -> str:
        if character and character in "tnrf":
            return "\\" + character
        if not character:
            raise self._bad("a character after '\\'", start)
        if character.isalnum() or not character.isascii():
            raise self._refused(f"the escape \\{character}", start)
        return _literal(character)

    def _class(self, start: int) -> str:
        written = "["
        if self._peek() == "^":
            written += self._take()
        items = 0
        while self._peek() != "]":
            if self.at >= self.stop:
                raise self._bad("a closing ']' for this '['", start)
            written += self._class_item()
            items += 1
        self._take()
        if not items:
            raise self._refused("an empty class", start)
        return written + "]"

    def _class_item(self) -> str:
        start = self.at
        first = self._take()
        if first == "\\" and self._peek() and self._peek() in "dDwWS":
            if self._peek() == "S":
                raise self._refused("the escape \\S inside a class", start)
            return "\\" + self._take()
        if first == "\\" and self._peek() == "s":
            self._take()
            return r"\t\n\v\f\r "
        low = self._class_character(first, start)
        if self._peek() != "-" or self.text[self.at + 1 : self.at + 2] in ("]", ""):
            return low
        self._take()
        high_start = self.at
        high = self._class_character(self._take(), high_start)
        if _point(low) > _point(high):
            raise self._bad("a range that runs upwards", start)
        return f"{low}-{high}"

    def _class_character(self, character: str, start: int) -> str:
        if character == "\\":
            return self._escaped_character(self._take(), start)
        if character in ("[", "&", "^") or not character:
            raise self._refused(f"a bare {character!r} inside a class; write \\{character}", start)
        return _literal(character)

    def _check_nothing_follows(self, start: int) -> None:
        rest = self.text[self.at : self.stop]
        if self.depth == 0 and (not rest or rest.startswith("|")):
            return
        if self.depth > 0 and rest == ")" * self.depth:
            return
        raise self._refused("a '$' that is not at the end", start)

    def _bad(self, expected: str, at: int | None = None) -> ConfigError:
        return _fault(self.text, self.at if at is None else at, expected)

    def _refused(self, found: str, at: int) -> UnsupportedError:
        return UnsupportedError(
            subject=f"the partition rules {self.text!r}, at position {at},",
            found=found,
            supported="what Java and RE2 read alike (docs/formats/bucket-metadata.md)",
            remedy="Write the rule without it.",
        )


def _literal(character: str) -> str:
    return (
        "\\" + character if character.isascii() and not character.isalnum() and character > " " else character
    )


def _point(written: str) -> int:
    return {"\\t": 9, "\\n": 10, "\\f": 12, "\\r": 13}.get(written, ord(written[-1]))


def _fault(expressions: str, at: int, expected: str) -> ConfigError:
    return ConfigError(
        f"the partition rules {expressions!r} have a fault at position {at}: expected {expected}. "
        f"Rules are written expression,count;expression,count"
    )
