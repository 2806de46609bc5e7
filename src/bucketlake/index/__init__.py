"""Where does a key live? Bucket hashes, rules, rings, and the index a table has."""

from bucketlake.index.consistent import HashingMetadata, Node, Ring, StoredRings, choose_ring, list_rings
from bucketlake.index.hashing import (
    bucket_of,
    cannot_disturb,
    hash_pieces,
    pieces_from_hash_values,
    ring_hash_of,
)
from bucketlake.index.hashing_arrow import buckets_of, ring_hashes_of
from bucketlake.index.index import (
    ConsistentBuckets,
    Index,
    NoIndex,
    PartitionBuckets,
    Pieces,
    SimpleBuckets,
    verify,
)
from bucketlake.index.partition import (
    ConfigVersions,
    HashingConfig,
    choose_version,
    list_versions,
    load_config,
)
from bucketlake.index.resolve import resolve_index
from bucketlake.index.rules import Rule, Rules, parse_rules

__all__ = [
    "ConfigVersions",
    "ConsistentBuckets",
    "HashingConfig",
    "HashingMetadata",
    "Index",
    "NoIndex",
    "Node",
    "PartitionBuckets",
    "Pieces",
    "Ring",
    "Rule",
    "Rules",
    "SimpleBuckets",
    "StoredRings",
    "bucket_of",
    "buckets_of",
    "cannot_disturb",
    "choose_ring",
    "choose_version",
    "hash_pieces",
    "list_rings",
    "list_versions",
    "load_config",
    "parse_rules",
    "pieces_from_hash_values",
    "resolve_index",
    "ring_hash_of",
    "ring_hashes_of",
    "verify",
]
