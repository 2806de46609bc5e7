"""The layout fingerprint: what decides where a key lives, as the table itself says it.

    hoodie.index.type                BUCKET, or a record-level index
    hoodie.index.bucket.engine       SIMPLE, CONSISTENT_HASHING, EXTENDIBLE_HASHING; DYNAMIC beside a record-level index
    hoodie.bucket.index.num.buckets  how many buckets a partition has, or begins with; absent if rules say it
    hoodie.bucket.index.hash.field   which fields of the key are hashed
    hoodie.bucket.index.partition.rule.type   regex, if rules give partitions their counts; else absent
    bucketlake.key.encoding          value, or field:value
    hoodie.datasource.write.recordkey.field   the key again, as a writer is told it

Hudi has the first four as options of a write and keeps none of them: a writer with another count puts keys that the
table has into new file groups, as duplicates, and nobody notices. So they are kept in `hoodie.properties`, under
Hudi's own names (a key that Hudi does not know there survives its rewrites), and a writer that says otherwise is
refused. A table without them is refused too, until it was adopted.

Hudi takes what it finds there for options that nobody gave it: its writers then keep to the count too. Its SQL
procedures look for the key fields beside the index type, hence the last line: without it they end in a null pointer.

Neither the rules nor their default count are among the properties. They have versions, one file each
(`index/partition.py`), which Hudi's writers follow whatever they are told. A copy here would be out of date after the
first rescale, and Hudi refuses to rescale to another default than the properties say. That there are rules is said
here too: a table that lost them must not pass for one of simple buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from bucketlake.config import (
    PROPERTIES_PATH,
    RECORD_LEVEL,
    BucketEngine,
    IndexType,
    TableProperties,
    lost_properties,
)
from bucketlake.errors import CorruptTableError, LayoutMismatchError, UnsupportedError
from bucketlake.index.bucket_numbers import BUCKET_COUNT, BUCKET_ENGINE, is_bucket_file_id
from bucketlake.index.engines import IndexValue, how_to_register, registered_engine
from bucketlake.index.index import Index, NoIndex
from bucketlake.index.partition import list_versions
from bucketlake.index.record_level import RecordLevelIndex, check_listed
from bucketlake.index.resolve import (
    resolve_index,
    said_count,
    said_fields,
    said_rules,
    says_the_same,
    simple_count,
)
from bucketlake.index.ruled import RULE_TYPE_KEY, RuledIndex
from bucketlake.keygen import KeyGenerator
from bucketlake.layout.names import HASHING_CONFIG_FOLDER, path_in_partition
from bucketlake.state import TableState, files_of

INDEX_TYPE = "hoodie.index.type"
HASH_FIELDS = "hoodie.bucket.index.hash.field"
EXPRESSIONS = "hoodie.bucket.index.partition.expressions"
KEY_ENCODING = "bucketlake.key.encoding"
"""A table property: how a record key is spelled, `value` or `field:value`. Default: what the key generator of the table
makes. We set it, because the bucket is hashed from the spelling."""
WRITTEN_KEY = "hoodie.datasource.write.recordkey.field"


class KeyEncoding(StrEnum):
    """How a record key is spelled. The bucket is hashed from the spelling, so the two never mix."""

    VALUE = "value"
    """`7`"""
    FIELD_VALUE = "field:value"
    """`id:7`, `k1:a,k2:7`"""


def key_encoding(properties: TableProperties) -> KeyEncoding:
    """Return how the table's key generator spells keys."""
    encodes = KeyGenerator.from_properties(properties).encodes_field_names
    return KeyEncoding.FIELD_VALUE if encodes else KeyEncoding.VALUE


def fingerprint(value: IndexValue, *, key: Sequence[str], encoding: KeyEncoding) -> dict[str, str]:
    """Return the properties that pin a layout down."""
    if value.engine in RECORD_LEVEL:
        kind = {INDEX_TYPE: str(value.engine)}
    else:
        kind = {
            INDEX_TYPE: IndexType.BUCKET,
            BUCKET_ENGINE: value.engine,
            HASH_FIELDS: ",".join(value.hash_fields or key),
        }
    return {**kind, **value.settings(), KEY_ENCODING: encoding, WRITTEN_KEY: ",".join(key)}


def writing_index(state: TableState, said: IndexValue | None = None) -> Index:
    """Return the index that rows are written by: the table's own, and never one it does not have.

    `said` is what the caller takes it for; `LayoutMismatchError` names both values where they differ, and says how to
    adopt a table that has none.
    """
    properties = state.properties
    buckets, hash_fields, rules = said_count(said), said_fields(said), said_rules(said)
    _check_adopted(state)
    _check_encoding(properties)
    if properties.engine in RECORD_LEVEL:
        check_listed(state)
        return resolve_index(state)
    if hash_fields is not None and set(hash_fields) != set(properties.hash_fields or ()):
        raise _differs(
            HASH_FIELDS, stored=",".join(properties.hash_fields or ()), asked=",".join(hash_fields)
        )
    index = resolve_index(state)
    if isinstance(index, RuledIndex):
        _check_same_rules(index, buckets, rules)
        return index
    count = simple_count(properties)
    if (
        count is None
        and RULE_TYPE_KEY in properties.raw
        and isinstance(index, NoIndex)
        and not list_versions(state.store, with_archived=False)
    ):
        raise CorruptTableError(
            path=HASHING_CONFIG_FOLDER,
            found="no version of the table's bucket rules",
            expected=f"one, because the table says {RULE_TYPE_KEY}={properties.raw[RULE_TYPE_KEY]}",
            remedy="Keys would be spread anew, and written twice. Put the .hashing_config files back.",
        )
    if isinstance(index, NoIndex):
        raise UnsupportedError(
            subject=f"the index of {state.store.uri}",
            found=str(index),
            supported="writing to tables with buckets",
            remedy=_remedy(state),
        )
    if buckets is not None and buckets != count:
        raise _differs(BUCKET_COUNT, stored=str(count), asked=str(buckets))
    if rules is not None:
        raise _differs(EXPRESSIONS, stored="", asked=rules)
    return index


def _remedy(state: TableState) -> str:
    word = state.properties.engine
    is_ours = (
        word is None
        or word in tuple(BucketEngine)
        or word in RECORD_LEVEL
        or registered_engine(word) is not None
    )
    return copy_instead(state) if is_ours else how_to_register(word or "")


def is_adopted(properties: TableProperties) -> bool:
    """Tell whether the table says itself where its keys live."""
    if properties.engine in RECORD_LEVEL:
        return KEY_ENCODING in properties.raw
    return (
        properties.index_type is not None
        and (
            simple_count(properties) is not None
            or RULE_TYPE_KEY in properties.raw
            or (properties.bucket_engine is not None and properties.bucket_engine not in tuple(BucketEngine))
        )
        and properties.hash_fields is not None
        and KEY_ENCODING in properties.raw
    )


def refuse_without_buckets(state: TableState) -> None:
    """Raise `UnsupportedError` for a table whose file groups are no buckets, and that has no index we could go by.

    Lists the table; for those who are about to refuse it anyway, and would name a way on.
    """
    if not isinstance(resolve_index(state), NoIndex):
        return
    for partition, files in sorted(files_of(state).items()):
        for file in files:
            if not is_bucket_file_id(file.file_id):
                raise UnsupportedError(
                    subject=f"the index of {state.store.uri}",
                    found=f"none with buckets: {path_in_partition(partition, file.file_id)} is no bucket",
                    supported="writing to tables with buckets or a record-level index",
                    remedy=f"Give it one and adopt it, `bucketlake metadata build {state.store.uri} --record-index` "
                    f"and `bucketlake adopt {state.store.uri}`; or leave it as it is. {copy_instead(state)}",
                )


def is_found_by_record_index(state: TableState) -> bool:
    """Tell whether only a record-level index can say where the keys of a table of Hudi's live.

    One of buckets may list such an index too: then the ids of its file groups are those of buckets. Lists the table.
    """
    if not isinstance(resolve_index(state), RecordLevelIndex):
        return False
    return not all(is_bucket_file_id(file.file_id) for files in files_of(state).values() for file in files)


def copy_instead(state: TableState) -> str:
    """Say how rows get from a table that we read, and cannot write, into one that we can."""
    return (
        f"Copy its rows into a table of ours: create_table(...), then "
        f"bulk_insert(Table.open({state.store.uri!r}).to_arrow())."
    )


def _check_adopted(state: TableState) -> None:
    properties, uri = state.properties, state.store.uri
    if not is_adopted(properties):
        lost = lost_properties(state.store, properties)
        if lost:
            raise LayoutMismatchError(
                f"{PROPERTIES_PATH} of {uri} no longer says how keys are spread over buckets: it has lost "
                f"{', '.join(lost)}. `bucketlake fsck {uri} --repair` says what its copy has, and with --yes puts it "
                f"back."
            )
        refuse_without_buckets(state)
        if is_found_by_record_index(state):
            raise LayoutMismatchError(
                f"{uri} has a record-level index, and does not say that its keys are found by it, as no table made by "
                f"Hudi does. Adopt it once: Table.adopt(path), or `bucketlake adopt {uri}`, compares the index with "
                f"every key, and keeps with the table what it is."
            )
        if isinstance(resolve_index(state), NoIndex | RecordLevelIndex):
            how = f"Table.adopt(path, buckets=N), or `bucketlake adopt {uri} --buckets N`"
        else:
            how = f"Table.adopt(path), or `bucketlake adopt {uri}`"
        raise LayoutMismatchError(
            f"{uri} does not say how its keys are spread over buckets, as no table made by Hudi does, and a wrong "
            f"guess would write duplicates. Adopt it once: {how}, checks every key and keeps the layout with the table."
        )
    if properties.index_type != IndexType.BUCKET and properties.engine not in RECORD_LEVEL:
        refuse_without_buckets(state)
        raise UnsupportedError(
            subject=f"{INDEX_TYPE} of {uri}",
            found=str(properties.index_type),
            supported=f"writing to {', '.join(IndexType)}",
            remedy=f"Its other properties, and its files, are those of buckets: put {IndexType.BUCKET} back into "
            f"{PROPERTIES_PATH}.",
        )


def _check_encoding(properties: TableProperties) -> None:
    stored, computed = properties.raw[KEY_ENCODING].strip(), key_encoding(properties)
    if stored != computed:
        raise LayoutMismatchError(
            f"{KEY_ENCODING}: the table says {stored!r}, and its key generator {properties.key_generator} writes keys "
            f"as {computed!r}. Keys would be written a second time in the other spelling. Somebody has changed "
            f"hoodie.table.keygenerator.type or the key fields: put them back."
        )


def _check_same_rules(index: RuledIndex, buckets: int | None, rules: str | None) -> None:
    stored = index.rules
    if buckets is not None and buckets != stored.default_count:
        raise _differs(BUCKET_COUNT, stored=str(stored.default_count), asked=str(buckets))
    if rules is not None and not says_the_same(rules, stored):
        raise _differs(EXPRESSIONS, stored=stored.expressions, asked=rules)


def _differs(name: str, *, stored: str, asked: str) -> LayoutMismatchError:
    return LayoutMismatchError(
        f"{name}: the table says {stored!r}, and this write {asked!r}. Writing by that would put keys that the table "
        f"has into new file groups, as duplicates. Drop the option to keep {stored!r}."
    )
