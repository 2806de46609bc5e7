"""Log blocks as Hudi writes them: without a checksum, and with whatever in the header."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from bucketlake.logfile import BlockType, HeaderKey


def hudi_block(type: BlockType, header: Mapping[HeaderKey, str], content: bytes) -> bytes:
    texts = {key: text.encode() for key, text in header.items()}
    pairs = b"".join(struct.pack(">ii", key, len(text)) + text for key, text in texts.items())
    body = (
        struct.pack(">iii", 1, type, len(texts))
        + pairs
        + struct.pack(">q", len(content))
        + content
        + bytes(4)
    )
    size = len(body) + 8
    return b"#HUDI#" + struct.pack(">q", size) + body + struct.pack(">q", size + 6)
