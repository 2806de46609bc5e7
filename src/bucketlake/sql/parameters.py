"""Values beside a statement: `:name` with a mapping, `?` with a list, as `spark.sql` has them.

Queries take them to Spark by name. Expressions that are read apart from their statement cannot, and name columns in
place of the values; no value becomes SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bucketlake.errors import ConfigError, shown
from bucketlake.sql.tokens import Token, tokenize

_PLACE = "_bucketlake_place_{}"


def named_parameters(text: str, args: Mapping[str, Any] | Sequence[Any] | None) -> tuple[str, dict[str, Any]]:
    """Return the statement with a name for each `?`, and the values by their names.

    >>> named_parameters("SELECT '?', ?", [5])
    ("SELECT '?', :_bucketlake_place_0", {'_bucketlake_place_0': 5})
    """
    if args is None:
        return text, {}
    if isinstance(args, Mapping):
        if not all(isinstance(name, str) for name in args):
            raise ConfigError(f"args is {shown(args)}; expected a mapping of names to values, or a list.")
        return text, dict(args)
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise ConfigError(f"args is {shown(args)}; expected a mapping of names to values, or a list.")
    marks = [token for token in tokenize(text) if token.kind == "sign" and token.text == "?"]
    if len(marks) != len(args):
        raise ConfigError(f"the statement has {len(marks)} of '?', and args has {len(args)} values.")
    named = _replaced(text, ((mark, f":{_PLACE.format(n)}") for n, mark in enumerate(marks)))
    return named, {_PLACE.format(number): value for number, value in enumerate(args)}


def with_values(expression: str, args: Mapping[str, Any], spelled: Callable[[str], str]) -> str:
    """Return an expression with `spelled(name)` in place of each `:name`.

    >>> with_values("a = :x OR b = ':x'", {"x": 1}, lambda name: f"<{name}>")
    "a = <x> OR b = ':x'"
    """
    tokens = tokenize(expression)

    def marks() -> Iterator[tuple[Token, str]]:
        for colon, word in pairwise(tokens):
            if colon.text == ":" and colon.end == word.start and word.text in args:
                yield Token("", "", colon.start, word.end), spelled(word.text)

    return _replaced(expression, marks())


def _replaced(text: str, marks: Any) -> str:
    pieces, end = [], 0
    for token, new in marks:
        pieces += [text[end : token.start], new]
        end = token.end
    return "".join(pieces) + text[end:]
