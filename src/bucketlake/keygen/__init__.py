"""Row -> record key and partition path: simple, complex, non-partitioned, timestamp, custom."""

from bucketlake.keygen.generator import KeyGenerator, PartitionField
from bucketlake.keygen.paths import NO_VALUE, escape, unescape
from bucketlake.keygen.spelling import EMPTY_PIECE, NULL_PIECE
from bucketlake.keygen.text import is_certain, never_holds_a_comma, text_of, texts_of

__all__ = [
    "EMPTY_PIECE",
    "NO_VALUE",
    "NULL_PIECE",
    "KeyGenerator",
    "PartitionField",
    "escape",
    "is_certain",
    "never_holds_a_comma",
    "text_of",
    "texts_of",
    "unescape",
]
