"""Column types: what Avro declares, what Arrow holds, and how an old file fits a newer table."""

from bucketlake.schema.align import align
from bucketlake.schema.avro import AvroKind, AvroNode, avro_to_arrow, parse_avro
from bucketlake.schema.avro_writer import arrow_to_avro, storable
from bucketlake.schema.evolve import evolve, fit_rows
from bucketlake.schema.key_hash import key_hash_sum, key_hashes
from bucketlake.schema.meta import (
    COMMIT_TIME_COLUMN,
    FILE_NAME_COLUMN,
    META_COLUMNS,
    PARTITION_PATH_COLUMN,
    RECORD_KEY_COLUMN,
    named_in,
    numbered,
    with_constants,
    with_meta_columns,
)
from bucketlake.schema.names import RESERVED, check_names
from bucketlake.schema.nulls import all_nullable, find_null_element
from bucketlake.schema.sizes import bytes_of

__all__ = [
    "COMMIT_TIME_COLUMN",
    "FILE_NAME_COLUMN",
    "META_COLUMNS",
    "PARTITION_PATH_COLUMN",
    "RECORD_KEY_COLUMN",
    "RESERVED",
    "AvroKind",
    "AvroNode",
    "align",
    "all_nullable",
    "arrow_to_avro",
    "avro_to_arrow",
    "bytes_of",
    "check_names",
    "evolve",
    "find_null_element",
    "fit_rows",
    "key_hash_sum",
    "key_hashes",
    "named_in",
    "numbered",
    "parse_avro",
    "storable",
    "with_constants",
    "with_meta_columns",
]
