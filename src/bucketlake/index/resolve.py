"""Which index does a table have? What the table says first, what the caller says where it is silent.

    a `.hashing_config` that counts   -> partition-level buckets
    rings                             -> consistent hashing
    the word of extendible hashing    -> that, with the directories there are
    a bucket count, or rules          -> simple or partition-level buckets
    a record-level index              -> that, as the table says or as its metadata table lists it
    nothing                           -> no index

Hudi stores no bucket count, so for most of its tables the caller's word is all there is; `verify` can check
it against the keys of a file group. Where the table says something too, the caller may repeat it but not
contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bucketlake.config import RECORD_LEVEL, BucketEngine, TableProperties
from bucketlake.errors import BucketlakeError, ConfigError, UnsupportedError
from bucketlake.index.consistent import list_rings
from bucketlake.index.doubling import count_before, had_others
from bucketlake.index.dynamic import has_dynamic_buckets, resolve_dynamic_index
from bucketlake.index.engines import IndexValue, registered_engine
from bucketlake.index.extendible import DirectoryIndex, DirectoryMetadata
from bucketlake.index.index import Index, NoIndex
from bucketlake.index.partition import NO_VERSIONS, HashingConfig, instant_of, load_chosen
from bucketlake.index.record_level import resolve_record_index
from bucketlake.index.recorded import RecordedIndex
from bucketlake.index.rings import GrowingBuckets, RingIndex
from bucketlake.index.rule_types import read_rules
from bucketlake.index.ruled import PartitionBuckets, RuledIndex
from bucketlake.index.rules import RULE_TYPE, CountRules
from bucketlake.index.simple import SimpleBuckets, SimpleIndex
from bucketlake.metadata.places import RECORD_INDEX
from bucketlake.state import TableState

_BUCKETS = "hoodie.bucket.index.num.buckets"
_HASH_FIELDS = "hoodie.bucket.index.hash.field"
COUNT_BEFORE_KEY = "bucketlake.buckets.before"
"""A table property: the bucket count that all partitions had before the table got rules. Default: none. We set it.

The commit that brought the rules has it too.
"""


def resolve_index(state: TableState, index: IndexValue | None = None, *, as_of: str | None = None) -> Index:
    """Return a table's index.

    `index` tells what the table keeps to itself; ConfigError names both values where it doesn't and they differ. With
    `as_of`, an instant, the layout is that of the time. Rules that are stored but can't be read by us give no index,
    with the reason.
    """
    properties = state.properties
    # How many buckets a ring began with is none of a reader's business: the table's files tell the ring.
    buckets = None if isinstance(index, GrowingBuckets) else said_count(index)
    rules = said_rules(index)
    if rules is not None:
        read_rules(RULE_TYPE, rules, buckets or 1, subject="the rules")
    fields = _hash_fields(properties, said_fields(index))
    if not fields:
        if buckets is not None:
            raise ConfigError(
                "the table has no record key fields, so it can't have buckets. Drop the options."
            )
        return NoIndex(reason="the table's keys were generated")

    if as_of is not None and had_others(properties, as_of):
        return NoIndex(fields, "its buckets were doubled since")
    # A table that says which engine it has is not asked for what the others keep.
    engine = properties.engine
    if engine in RECORD_LEVEL:
        if buckets is not None:
            raise ConfigError(
                f"the table has a record-level index, and the options say buckets={buckets}, rules={rules!r}. Its "
                f"index knows where keys live; drop the options."
            )
        resolve = resolve_dynamic_index if has_dynamic_buckets(properties) else resolve_record_index
        return resolve(state, as_of)
    if engine is not None and engine not in tuple(BucketEngine):
        return _of_registered(state, engine, as_of, is_told=buckets is not None)
    if engine == BucketEngine.EXTENDIBLE_HASHING:
        if buckets is not None:
            raise ConfigError(
                f"the table uses extendible hashing, and the options say buckets={buckets}, rules={rules!r}. "
                f"Its directories know the layout; drop the options."
            )
        directories = list_rings(state.store, state.timeline, as_of=as_of, kind=DirectoryMetadata)
        return DirectoryIndex(
            directories or {}, fields, properties.bucket_count, doubled=count_before(properties)
        )
    may_have_rules = engine != BucketEngine.CONSISTENT_HASHING
    versions, found = (
        load_chosen(state.store, state.timeline, as_of=as_of) if may_have_rules else (NO_VERSIONS, None)
    )
    if found is not None:
        path, config = found
        _check_config(config, path, buckets=buckets, rules=rules)
        try:
            return RuledIndex(config.rules(path=path), fields, instant_of(path))
        except UnsupportedError as error:
            return NoIndex(fields, f"its rules can't be read: {error}")
    may_have_rings = engine != BucketEngine.SIMPLE
    rings = list_rings(state.store, state.timeline, as_of=as_of) if may_have_rings else None
    if rings is not None or engine == BucketEngine.CONSISTENT_HASHING:
        if buckets is not None:
            raise ConfigError(
                f"the table uses consistent hashing, and the options say buckets={buckets}, rules={rules!r}. "
                f"Its rings know the layout; drop the options."
            )
        is_ours = engine == BucketEngine.CONSISTENT_HASHING
        return RingIndex(
            rings if rings is not None else {}, fields, properties.bucket_count if is_ours else None
        )
    stored = simple_count(properties)
    if versions and buckets is None and stored is None:
        return NoIndex(fields, "none of its versions of bucket rules counts at this time")

    # Of a table that is getting rules, or has lost them again, the count holds that it had before.
    count = _agreed(_BUCKETS, stored, buckets)
    if rules is not None and count is not None:
        return RuledIndex(read_rules(RULE_TYPE, rules, count, subject="the rules"), fields)
    if count is not None and (buckets is not None or properties.index_type in (None, "BUCKET")):
        return SimpleIndex(count, fields)
    if count is None and RECORD_INDEX in properties.metadata_partitions:
        return resolve_record_index(state, as_of)
    return NoIndex(fields)


def recorded_of_table(state: TableState, index: Index) -> RecordedIndex | None:
    """Return what has recorded where every key of the table lives: its index, or the one beside its buckets."""
    found = index.recorded
    if found is None and RECORD_INDEX in state.properties.metadata_partitions:
        found = resolve_record_index(state).recorded
    return found if found is not None and found.is_global else None


def said_count(index: IndexValue | None) -> int | None:
    """Return how many buckets a caller says that a partition has, by default or at first."""
    if isinstance(index, PartitionBuckets):
        return index.default
    return index.count if isinstance(index, SimpleBuckets | GrowingBuckets) else None


def said_rules(index: IndexValue | None) -> str | None:
    """Return a caller's rules, if they are of the one type that tables of Hudi's have too."""
    is_regex = isinstance(index, PartitionBuckets) and index.rule_type.lower() == RULE_TYPE
    return index.rules if isinstance(index, PartitionBuckets) and is_regex else None


def said_fields(index: IndexValue | None) -> tuple[str, ...] | None:
    """Return the hash fields that a caller names, None if he names none."""
    return index.hash_fields or None if index is not None else None


def _of_registered(state: TableState, word: str, as_of: str | None, *, is_told: bool) -> Index:
    found = registered_engine(word)
    if found is None:
        return NoIndex(reason=f"its engine {word} is not registered here")
    if is_told:
        raise ConfigError(
            f"the table's engine {word} knows where its keys live; drop what was said of buckets."
        )
    return found.resolve(state, as_of)


def simple_count(properties: TableProperties) -> int | None:
    """Return the count that all partitions have as long as no rules count, None if the table says none."""
    if properties.bucket_count is not None:
        return properties.bucket_count
    before = properties.raw.get(COUNT_BEFORE_KEY, "").strip()
    return int(before) if before.isdigit() else None


def _hash_fields(properties: TableProperties, asked: Sequence[str] | None) -> tuple[str, ...]:
    stored = properties.hash_fields
    if asked is not None and stored is not None and set(asked) != set(stored):
        raise _differs(_HASH_FIELDS, stored=",".join(stored), asked=",".join(asked))
    keys = properties.record_key_fields
    fields = tuple(asked or stored or keys)
    strangers = sorted(set(fields) - set(keys))
    if strangers:
        raise ConfigError(
            f"the hash fields are {', '.join(fields)}, and {', '.join(strangers)} is not among the record "
            f"key fields {', '.join(keys) or '(none)'}. A bucket is hashed from the key: name fields of it."
        )
    return fields


def _check_config(config: HashingConfig, path: str, *, buckets: int | None, rules: str | None) -> None:
    if buckets is not None and buckets != config.default_count:
        raise _differs(
            f"the default bucket count of {path}", stored=str(config.default_count), asked=str(buckets)
        )
    if rules is not None and rules != config.expressions and not _reads_the_same(rules, config, path):
        raise _differs(f"the rules of {path}", stored=config.expressions, asked=rules)


def says_the_same(text: str, rules: CountRules) -> bool:
    """Tell whether rules that a caller gave are these, blanks aside."""
    try:
        return read_rules(rules.rule_type, text, rules.default_count, subject="the rules") == rules
    except BucketlakeError:
        return False


def _reads_the_same(text: str, config: HashingConfig, path: str) -> bool:
    try:
        return says_the_same(text, config.rules(path=path))
    except BucketlakeError:
        return False


def _agreed(name: str, stored: int | None, asked: int | None) -> int | None:
    if stored is not None and asked is not None and stored != asked:
        raise _differs(name, stored=str(stored), asked=str(asked))
    return stored if asked is None else asked


def _differs(name: str, *, stored: str, asked: str) -> ConfigError:
    return ConfigError(
        f"{name}: the table says {stored!r}, and the option {asked!r}. "
        f"Reading by the option would miss rows. Drop it."
    )
