"""Columns to the bytes of an HFile.

The file is laid out as Hudi's `HFileWriterImpl` does it: data blocks, one level of index, no bloom filter. The same
columns give the same bytes, so that whoever repeats a write puts the same file.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bucketlake.errors import ConfigError
from bucketlake.hfile import block as blocks
from bucketlake.hfile.block import Codec, encode_block
from bucketlake.hfile.columns import ByteColumn, sealed
from bucketlake.hfile.index import IndexEntry, encode_root
from bucketlake.hfile.kernels import cut_blocks, first_descent, put_records
from bucketlake.hfile.trailer import Trailer, encode_info, encode_trailer

BLOCK_BYTES = 64 << 10
FILE_BYTES_MAX = (1 << 31) - 1
"""Hudi's reader keeps positions in 32 bits."""

KEY_BYTES_MAX = (1 << 15) - 1


def encode(
    keys: pa.Array | pa.ChunkedArray,
    values: pa.Array | pa.ChunkedArray,
    *,
    info: Mapping[str, bytes] | None = None,
    codec: Codec = Codec.GZIP,
    block_bytes: int = BLOCK_BYTES,
) -> bytes:
    """Return the HFile with these records.

    Keys are text or binary, and ascend strictly by their unsigned bytes. Values may be dictionary-encoded: a value
    that many keys share is then taken from the dictionary. `info` goes to the file info, beside what is always there.

    >>> from bucketlake.hfile import HFile, InMemory
    >>> file = HFile.open(InMemory(encode(pa.array(["a", "b"]), pa.array([b"1", b"2"]))))
    >>> file.look_up(pa.array(["b", "c"])).values.to_pylist()
    [b'2']
    """
    names = ByteColumn.of(keys, "keys of an HFile")
    codes, contents = _values(values)
    if len(codes if codes is not None else contents) != len(names):
        raise ConfigError(f"an HFile needs a value per key, and got {len(values)} for {len(names)} keys.")
    _check_keys(names)

    # Codes of none: record i has value i.
    codes = sealed(np.empty(0, np.int64) if codes is None else codes)
    starts = np.empty(len(names) + 1, np.int64)
    count, largest, raw_bytes, value_bytes = cut_blocks(
        names.offsets, codes, contents.offsets, block_bytes, starts
    )
    starts[count] = len(names)

    pieces: list[bytes] = []
    index: list[IndexEntry] = []
    size = 0
    payload = np.empty(largest, np.uint8)
    for first, stop in zip(starts[:count].tolist(), starts[1 : count + 1].tolist(), strict=True):
        length = put_records(
            names.data, names.offsets, codes, contents.data, contents.offsets, first, stop, payload
        )
        previous = index[-1][0] if index else -1
        piece = encode_block(blocks.DATA, payload[:length].data, codec, previous=previous)
        index.append((size, len(piece), names[first]))
        pieces.append(piece)
        size += len(piece)
        _check_size(size)

    root = encode_block(blocks.ROOT_INDEX, encode_root(index), codec)
    no_meta = encode_block(blocks.ROOT_INDEX, b"", codec)
    all_info = {**(info or {}), **_own_info(names, value_bytes)}
    file_info = encode_block(blocks.FILE_INFO, encode_info(all_info), codec)
    trailer = Trailer(
        load_on_open_at=size,
        file_info_at=size + len(root) + len(no_meta),
        raw_bytes=raw_bytes,
        data_index_count=count,
        meta_index_count=0,
        entry_count=len(names),
        index_levels=1,
        first_block_at=0 if count else -1,
        last_block_at=index[-1][0] if index else 0,
        codec=codec,
    )
    pieces += (root, no_meta, file_info, encode_trailer(trailer))
    _check_size(sum(map(len, pieces)))
    return b"".join(pieces)


def _values(
    values: pa.Array | pa.ChunkedArray,
) -> tuple[npt.NDArray[np.int64] | None, ByteColumn]:
    """Return the number of each record's value, None if it is the record's own, and the values."""
    what = "values of an HFile"
    if not pa.types.is_dictionary(values.type):
        return None, ByteColumn.of(values, what)
    if isinstance(values, pa.ChunkedArray):
        values = values.unify_dictionaries().combine_chunks()
        if isinstance(values, pa.ChunkedArray):  # no chunk at all
            return None, ByteColumn.of_bytes([])
    if values.null_count:
        raise ConfigError(f"{what} must not be null, and {values.null_count} are.")
    codes = values.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return codes, ByteColumn.of(values.dictionary, what)


def _check_keys(keys: ByteColumn) -> None:
    lengths = np.diff(keys.offsets)
    if len(lengths) and lengths.max() > KEY_BYTES_MAX:
        position = int(lengths.argmax())
        raise ConfigError(
            f"the key at position {position} has {lengths[position]} bytes, and an HFile holds keys of at most "
            f"{KEY_BYTES_MAX}. Shorten the record keys."
        )
    position = first_descent(keys.data, keys.offsets, True)
    if position >= 0:
        before, key = keys[position - 1], keys[position]
        what = "equal to" if before == key else "below"
        raise ConfigError(
            f"the key at position {position}, {key[:60]!r}, is {what} the one before it, {before[:60]!r}. "
            f"Keys of an HFile ascend by their UTF-8 bytes, each once: sort them and drop duplicates."
        )


def _check_size(size: int) -> None:
    if size > FILE_BYTES_MAX:
        raise ConfigError(
            "the HFile would have 2 GiB or more, which Hudi cannot read. Divide the keys among more files."
        )


def _own_info(keys: ByteColumn, value_bytes: int) -> dict[str, bytes]:
    count = len(keys)
    key_bytes = int(keys.offsets[-1] - keys.offsets[0])
    last = keys[count - 1] if count else b""
    return {
        "hfile.LASTKEY": struct.pack(">h", len(last)) + last if count else b"",
        "hfile.AVG_KEY_LEN": struct.pack(">i", key_bytes // max(1, count)),
        "hfile.AVG_VALUE_LEN": struct.pack(">i", value_bytes // max(1, count)),
        # A time of day would make every file another one.
        "hfile.CREATE_TIME_TS": struct.pack(">q", 0),
        "KEY_VALUE_VERSION": struct.pack(">i", 1),
        "MAX_MEMSTORE_TS_KEY": struct.pack(">q", 0),
    }
