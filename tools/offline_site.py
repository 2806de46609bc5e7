"""A hook of mkdocs: no page of the docs may fetch a script, a style, a font or an image from the network.

Links that a reader may click are fine.
"""

from __future__ import annotations

import re
from typing import Any

from mkdocs.exceptions import PluginError

_TAG = re.compile(r"<(?:script|link|img|iframe|source|video|audio|object|embed)\b[^>]*>")
_ADDRESS = re.compile(r"""\b(?:src|href|srcset|data)=["']?((?:https?:)?//[^"'\s>]+)""")
_MERMAID = 'class="mermaid"'
"""A diagram, for which the theme fetches a script."""


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that is not whole without the network."""
    if found := fetched(output):
        raise PluginError(f"{page.file.src_uri} would fetch {', '.join(found)} from the network.")
    return output


def fetched(html: str) -> list[str]:
    """Return what a browser would fetch from elsewhere to show a page.

    >>> fetched('<a href="https://a.example"> <script src="https://b.example/x.js"></script> <img src=plot.svg>')
    ['https://b.example/x.js']
    """
    tags = [tag for tag in _TAG.findall(html) if 'rel="canonical"' not in tag]
    found = [address for tag in tags for address in _ADDRESS.findall(tag)]
    return found + (["a script for diagrams"] if _MERMAID in html else [])
