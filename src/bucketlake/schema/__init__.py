"""Column types: what Avro declares, what Arrow holds, and how an old file fits a newer table."""

from bucketlake.schema.align import align
from bucketlake.schema.avro import AvroKind, AvroNode, avro_to_arrow, parse_avro
from bucketlake.schema.meta import META_COLUMNS, RECORD_KEY_COLUMN, with_meta_columns

__all__ = [
    "META_COLUMNS",
    "RECORD_KEY_COLUMN",
    "AvroKind",
    "AvroNode",
    "align",
    "avro_to_arrow",
    "parse_avro",
    "with_meta_columns",
]
