"""A log file that stands for others: one block, which names files of the same folder.

A write to a bucket that is being resized can leave its rows with the file groups that take the bucket's place, and put
a reference into the old one's log, so that who reads the old one finds them. The block's type is a number that Hudi
refuses: one that it passed over would lose rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from bucketlake.errors import CorruptTableError
from bucketlake.logfile.frame import Block, BlockType, HeaderKey, encode_block


def encode_reference(files: Sequence[str], *, instant: str, avro_schema: str) -> bytes:
    """Return a log file that stands for what `files` say."""
    header = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: avro_schema}
    return encode_block(BlockType.REFERENCE, header, json.dumps(list(files)).encode())


def decode_reference(block: Block, *, path: str) -> tuple[str, ...]:
    """Read which files a reference stands for; `path` is that of the file it is in, for the error."""
    try:
        names = json.loads(bytes(block.content))
        if not isinstance(names, list) or not all(
            isinstance(name, str) and "/" not in name for name in names
        ):
            raise ValueError(f"{names!r}")
    except ValueError as fault:
        raise CorruptTableError(
            path=path,
            found=f"a reference that names no files ({fault}), at byte {block.offset}",
            expected="a JSON array of file names",
            remedy="Restore the file from a copy, or roll back the commit that wrote it.",
        ) from None
    return tuple(names)
