"""Where does a key live? Bucket hashes, rules, rings, and the index a table has."""

from bucketlake.index.consistent import (
    HashingMetadata,
    StoredRings,
    choose_ring,
    decode_children,
    encode_children,
    list_rings,
)
from bucketlake.index.directory import Bucket, Directory
from bucketlake.index.dynamic import DynamicBuckets, DynamicIndex
from bucketlake.index.engines import Engine, IndexValue, NewTable, register_engine
from bucketlake.index.extendible import DirectoryIndex, DirectoryMetadata, ExtendibleBuckets
from bucketlake.index.hashing import (
    bucket_of,
    cannot_disturb,
    hash_pieces,
    pieces_from_hash_values,
    ring_hash_of,
    shard_of,
)
from bucketlake.index.hashing_arrow import buckets_of, ring_hashes_of, shards_of
from bucketlake.index.index import (
    BUCKETS_DEFAULT,
    Index,
    NoIndex,
    Pieces,
    Place,
    PlacedIndex,
    RescalableIndex,
    ResizableIndex,
)
from bucketlake.index.listed import ENTRIES
from bucketlake.index.partition import (
    INITIAL_INSTANT,
    NO_RULES,
    ConfigVersions,
    HashingConfig,
    VersionedRules,
    choose_version,
    current_version,
    list_versions,
    load_config,
    load_rules,
)
from bucketlake.index.record_level import RecordIndex, RecordLevelIndex
from bucketlake.index.recorded import Fill, NewKeys, RecordedIndex
from bucketlake.index.resolve import recorded_of_table, resolve_index, says_the_same
from bucketlake.index.ring import (
    Node,
    Ring,
    Tag,
    derived_prefix,
    halving_point,
    merge,
    split,
)
from bucketlake.index.rings import ConsistentBuckets, RingIndex, after_resize
from bucketlake.index.rule_types import check_fit, declare_rules, read_rules, register_rule_type
from bucketlake.index.ruled import PartitionBuckets, RuledIndex
from bucketlake.index.rules import BUCKETS_MAX, RULE_TYPE, CountRules, Decision, Rule, Rules, parse_rules
from bucketlake.index.secondary import (
    EntryPlace,
    SecondaryIndex,
    is_certain_for_reads,
    secondary_indexes_for_reads,
    secondary_indexes_of,
)
from bucketlake.index.simple import SimpleBuckets, SimpleIndex

__all__ = [
    "BUCKETS_DEFAULT",
    "BUCKETS_MAX",
    "ENTRIES",
    "INITIAL_INSTANT",
    "NO_RULES",
    "RULE_TYPE",
    "Bucket",
    "ConfigVersions",
    "ConsistentBuckets",
    "CountRules",
    "Decision",
    "Directory",
    "DirectoryIndex",
    "DirectoryMetadata",
    "DynamicBuckets",
    "DynamicIndex",
    "Engine",
    "EntryPlace",
    "ExtendibleBuckets",
    "Fill",
    "HashingConfig",
    "HashingMetadata",
    "Index",
    "IndexValue",
    "NewKeys",
    "NewTable",
    "NoIndex",
    "Node",
    "PartitionBuckets",
    "Pieces",
    "Place",
    "PlacedIndex",
    "RecordIndex",
    "RecordLevelIndex",
    "RecordedIndex",
    "RescalableIndex",
    "ResizableIndex",
    "Ring",
    "RingIndex",
    "Rule",
    "RuledIndex",
    "Rules",
    "SecondaryIndex",
    "SimpleBuckets",
    "SimpleIndex",
    "StoredRings",
    "Tag",
    "VersionedRules",
    "after_resize",
    "bucket_of",
    "buckets_of",
    "cannot_disturb",
    "check_fit",
    "choose_ring",
    "choose_version",
    "current_version",
    "declare_rules",
    "decode_children",
    "derived_prefix",
    "encode_children",
    "halving_point",
    "hash_pieces",
    "is_certain_for_reads",
    "list_rings",
    "list_versions",
    "load_config",
    "load_rules",
    "merge",
    "parse_rules",
    "pieces_from_hash_values",
    "read_rules",
    "recorded_of_table",
    "register_engine",
    "register_rule_type",
    "resolve_index",
    "ring_hash_of",
    "ring_hashes_of",
    "says_the_same",
    "secondary_indexes_for_reads",
    "secondary_indexes_of",
    "shard_of",
    "shards_of",
    "split",
]
