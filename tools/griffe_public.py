"""What the reference shows otherwise than the code has it.

A parameter that gives words of older versions a clear error is left out. Examples of a prompt are shown as code.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLES = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> )\S.*\n?)*)+", re.MULTILINE)


class PublicSignatures(griffe.Extension):
    """Hide `**gone` from signatures, and fence doctests, which Markdown takes for quotations."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if "gone" in func.parameters:
            del func.parameters["gone"]

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Put a fence around examples.

    >>> fenced("Add one.\\n\\n>>> 1 + 1\\n2\\n")
    'Add one.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    return _EXAMPLES.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)
