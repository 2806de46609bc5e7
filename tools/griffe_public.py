"""What the reference leaves out: the parameter that gives words of older versions a clear error."""

from __future__ import annotations

from typing import Any

import griffe


class PublicSignatures(griffe.Extension):
    """Hide `**gone` from signatures."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        if "gone" in func.parameters:
            del func.parameters["gone"]
