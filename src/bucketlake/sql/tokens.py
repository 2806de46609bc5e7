"""A statement's words, one after the other, each with its place: what our own small parsers read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from bucketlake.errors import ConfigError

_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<name>`(?:[^`]|``)+`)
    |(?P<number>\d+(?:\.\d+)?(?!\w))
    |(?P<word>\w+)
    |(?P<sign>=>|.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(['\"\\])|''|\"\"")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    """`word`, `name` (in backticks), `text` (in quotes), `number` or `sign`; empty at the end."""
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word in capitals; empty if it is none."""
        return self.text.upper() if self.kind == "word" else ""


def tokenize(text: str) -> tuple[Token, ...]:
    """Split a statement into its tokens, without blanks and comments; the last one is the end.

    >>> [token.text for token in tokenize("CALL f(dry-run => 'no') -- now")]
    ['CALL', 'f', '(', 'dry', '-', 'run', '=>', "'no'", ')', '']
    """
    found = [
        Token(match.lastgroup or "", match[0], match.start(), match.end())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "blank"
    ]
    return (*found, Token("", "", len(text), len(text)))


def unquoted(text: str) -> str:
    r"""Return what a text in quotes says.

    A backslash stands for itself, unless it is before a quote or another backslash: `\d` in a rule means `\d`, whether
    its author had in mind that Spark wants it doubled or not.

    >>> unquoted(r"'\d\\d it''s'")
    "\\d\\d it's"
    """
    quote = text[0]
    return _ESCAPE.sub(
        lambda match: match[1] or (quote if match[0] == quote * 2 else match[0]),
        text[1:-1],
    )


class Cursor:
    """A place among the tokens of a statement, and the questions a parser asks there."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._tokens = tokenize(text)
        self._at = 0

    @property
    def token(self) -> Token:
        return self._tokens[self._at]

    def step(self) -> Token:
        """Go on; return the token left behind."""
        left = self.token
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return left

    def ahead(self, count: int) -> Token:
        """Return the token that is `count` further on."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def fail(self, expected: str, at: Token | None = None) -> NoReturn:
        token = at or self.token
        found = repr(token.text) if token.kind else "the end"
        raise ConfigError(
            f"cannot read the statement: found {found} at {place(self.text, token.start)}, expected {expected}."
        )

    def is_words(self, *words: str) -> bool:
        """Whether these words come next."""
        return all(self.ahead(count).word == word for count, word in enumerate(words))

    def may_take(self, *words: str) -> bool:
        """Step over these words if they come next."""
        if not self.is_words(*words):
            return False
        for _ in words:
            self.step()
        return True

    def take(self, *words: str) -> None:
        for word in words:
            if not self.may_take(word):
                self.fail(word)

    def is_sign(self, sign: str) -> bool:
        return self.token.kind == "sign" and self.token.text == sign

    def may_take_sign(self, sign: str) -> bool:
        is_here = self.is_sign(sign)
        if is_here:
            self.step()
        return is_here

    def take_sign(self, sign: str) -> None:
        if not self.may_take_sign(sign):
            self.fail(repr(sign))

    def take_name(self, expected: str) -> str:
        """Step over a name, plain or in backticks."""
        if self.token.kind not in ("word", "name"):
            self.fail(expected)
        token = self.step()
        return token.text[1:-1].replace("``", "`") if token.kind == "name" else token.text

    def take_text(self, expected: str) -> str:
        """Step over a text in quotes; return what it says."""
        if self.token.kind != "text":
            self.fail(expected)
        return unquoted(self.step().text)

    def take_value(self) -> str:
        """Step over a text in quotes, a number or a boolean; return what it says."""
        if self.token.kind == "text":
            return unquoted(self.step().text)
        is_negative = self.is_sign("-") and self.ahead(1).kind == "number"
        if not (is_negative or self.token.kind == "number" or self.token.word in ("TRUE", "FALSE")):
            self.fail("a value: a text in quotes, a number, TRUE or FALSE")
        sign = self.step().text if is_negative else ""
        return sign + self.step().text

    def take_names(self, expected: str) -> tuple[str, ...]:
        """Step over names in parentheses."""
        self.take_sign("(")
        names = [self.take_name(expected)]
        while self.may_take_sign(","):
            names.append(self.take_name(expected))
        self.take_sign(")")
        return tuple(names)

    def skip_parentheses(self) -> None:
        """Step over an opening parenthesis and everything to the one that closes it."""
        opened = self.token
        self.take_sign("(")
        depth = 1
        while depth:
            if not self.token.kind:
                self.fail("a ')' to close this", at=opened)
            depth += {"(": 1, ")": -1}.get(self.step().text, 0)

    def finish(self, expected: str = "the end of the statement") -> None:
        """Expect the end, after semicolons if any."""
        while self.may_take_sign(";"):
            pass
        if self.token.kind:
            self.fail(expected)


def place(text: str, start: int) -> str:
    """Spell where in a statement something is.

    >>> place("SELECT\\n  x", 9)
    'position 9 (line 2, column 3)'
    """
    line = text.count("\n", 0, start) + 1
    column = start - (text.rfind("\n", 0, start) + 1) + 1
    return f"position {start} (line {line}, column {column})"
