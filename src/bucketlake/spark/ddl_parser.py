"""Columns as a person types them, Spark's DDL, read without Spark: the mirror of `ddl`.

    columns := column ("," column)*
    column  := name [":"] type ["NOT NULL"] ["COMMENT" 'text']
    type    := word | word "(" number ["," number] ")" | ARRAY<type> | MAP<type, type> | STRUCT<columns>

Names may be quoted with backticks, words may be of any case; they mean what
they mean to Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.spark.types import PLAIN

_TOKEN = re.compile(
    r"\s*(?:(?P<name>`(?:[^`]|``)+`)|(?P<text>'[^']*'|\"[^\"]*\")|(?P<word>\w+)|(?P<sign>[<>(),:]))"
)

_WORDS = {word: kind for kind, word in PLAIN.items()} | {
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "REAL": pa.float32(),
    "TIMESTAMP_LTZ": pa.timestamp("us", tz="UTC"),
}
_DECIMALS = frozenset({"DECIMAL", "DEC", "NUMERIC"})
_SIZED_TEXT = frozenset({"CHAR", "CHARACTER", "VARCHAR"})
_DECIMAL_DIGITS_MAX = 38


def parse_ddl(text: str, *, has_zones: bool = True) -> pa.Schema:
    """Read columns from DDL text; ConfigError says where it makes no sense.

    A session may say that TIMESTAMP is one without zone: `has_zones` is False then.

    >>> parse_ddl("id BIGINT NOT NULL, tags ARRAY<STRING>")
    id: int64 not null
    tags: list<element: string>
      child 0, element: string
    """
    parser = _Parser(text, has_zones)
    fields = parser.columns()
    if parser.token:
        parser.fail("the end, or a comma and another column")
    return pa.schema(fields)


@dataclass(slots=True)
class _Parser:
    """A place in a text, and the token there: empty at the end."""

    text: str
    has_zones: bool
    token: str = ""
    kind: str = ""
    start: int = 0
    end: int = 0

    def __post_init__(self) -> None:
        self.step()

    def step(self) -> str:
        """Go to the next token; return the one left behind."""
        left = self.token
        found = _TOKEN.match(self.text, self.end)
        rest = self.text[self.end :]
        if found is None:
            self.start = self.end + len(rest) - len(rest.lstrip())
            self.token, self.kind = "", ""
            if rest.strip():
                self.fail("a name, a type or one of < > ( ) , :")
            return left
        self.kind = found.lastgroup or ""
        self.token = found[self.kind]
        self.start, self.end = found.start(self.kind), found.end()
        return left

    def fail(self, expected: str) -> NoReturn:
        found = repr(self.text[self.start :][:20]) if self.text[self.start :] else "the end"
        raise ConfigError(
            f"cannot read the columns {self.text!r}: found {found} at position {self.start}, expected {expected}. "
            f"Write them like 'id STRING, amount DECIMAL(10,2), tags ARRAY<STRING>'."
        )

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.token.upper() in words

    def take(self, sign: str) -> None:
        if self.token != sign or self.kind != "sign":
            self.fail(repr(sign))
        self.step()

    def may_take(self, sign: str) -> bool:
        is_here = self.token == sign and self.kind == "sign"
        if is_here:
            self.step()
        return is_here

    def columns(self) -> list[pa.Field]:
        fields = [self.column()]
        while self.may_take(","):
            fields.append(self.column())
        return fields

    def column(self) -> pa.Field:
        if self.kind not in ("name", "word"):
            self.fail("a column's name")
        name = self.token[1:-1].replace("``", "`") if self.kind == "name" else self.token
        self.step()
        self.may_take(":")
        kind = self.data_type()
        is_nullable = True
        if self.is_word("NOT"):
            self.step()
            if not self.is_word("NULL"):
                self.fail("NULL")
            self.step()
            is_nullable = False
        if self.is_word("COMMENT"):
            self.step()
            if self.kind != "text":
                self.fail("a comment in quotes")
            self.step()
        return pa.field(name, kind, nullable=is_nullable)

    def data_type(self) -> pa.DataType:
        word = self.token.upper() if self.kind == "word" else ""
        if word in _WORDS:
            self.step()
            return _WORDS[word if self.has_zones or word != "TIMESTAMP" else "TIMESTAMP_NTZ"]
        if word in _DECIMALS:
            return self.decimal()
        if word in _SIZED_TEXT:
            self.step()
            self.numbers(1)
            return pa.string()
        if word not in ("ARRAY", "MAP", "STRUCT"):
            self.fail(f"a type: {', '.join(PLAIN.values())}, DECIMAL(p,s), ARRAY<>, MAP<> or STRUCT<>")
        self.step()
        self.take("<")
        inside: pa.DataType
        if word == "ARRAY":
            inside = pa.list_(pa.field("element", self.data_type()))
        elif word == "MAP":
            key = self.data_type()
            self.take(",")
            inside = pa.map_(key, self.data_type())
        else:
            inside = pa.struct(self.columns())
        self.take(">")
        return inside

    def decimal(self) -> pa.DataType:
        start = self.start
        self.step()
        if self.token != "(":
            return pa.decimal128(10, 0)
        precision, scale = (*self.numbers(2), 0)[:2]
        if not 0 <= scale <= precision <= _DECIMAL_DIGITS_MAX or not precision:
            self.start = start
            self.fail(f"1 to {_DECIMAL_DIGITS_MAX} digits, and no more of them after the point")
        return pa.decimal128(precision, scale)

    def numbers(self, count_max: int) -> list[int]:
        self.take("(")
        found: list[int] = []
        while True:
            if not (self.kind == "word" and self.token.isascii() and self.token.isdigit()):
                self.fail("a number")
            found.append(int(self.step()))
            if len(found) == count_max or not self.may_take(","):
                break
        self.take(")")
        return found
