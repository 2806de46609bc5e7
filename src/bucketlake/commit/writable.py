"""Which tables we may write: those on which everybody else will understand what we wrote.

A table is refused for the reason that helps most. What cannot be changed comes first, because whoever reads it need not
try the rest: no meta columns, generated keys, no buckets. Then what its owner can change, and last its metadata table,
which a caller may have delisted or built anew.
"""

from __future__ import annotations

from bucketlake.commit.metadata_table import LISTED_INFLIGHT, checked_step
from bucketlake.config import KeyGeneratorType, TableProperties
from bucketlake.errors import UnsupportedError
from bucketlake.index.fingerprint import copy_instead, refuse_without_buckets
from bucketlake.state import TableState

WRITABLE_VERSION = 9
_KEY_GENERATORS = (
    KeyGeneratorType.SIMPLE,
    KeyGeneratorType.COMPLEX,
    KeyGeneratorType.NON_PARTITION,
    KeyGeneratorType.TIMESTAMP,
    KeyGeneratorType.CUSTOM,
)


def check_writable(state: TableState) -> None:
    """Raise `UnsupportedError` for a table that can be read but not written, with the way on.

    `CorruptTableError` if its metadata table is not in step.
    """
    check_kind(state)
    properties = state.properties
    if properties.metadata_partitions or properties.raw.get(LISTED_INFLIGHT, "").strip():
        # One without buckets is refused whatever its metadata table is like.
        refuse_without_buckets(state)
        checked_step(state.store, properties, state.timeline)


def check_kind(state: TableState) -> None:
    """Do the same whatever the table's metadata table is like."""
    unchangeable = _unchangeable(state)
    if unchangeable is not None:
        raise unchangeable
    changeable = _changeable(state.properties, state.store.uri)
    if changeable is not None:
        # Nobody should upgrade a table only to hear that it has no buckets.
        refuse_without_buckets(state)
        raise changeable


def _unchangeable(state: TableState) -> UnsupportedError | None:
    properties, copy = state.properties, copy_instead(state)
    if not properties.has_meta_columns:
        return UnsupportedError(
            subject=f"hoodie.populate.meta.fields of {state.store.uri}",
            found="false: its files leave Hudi's meta columns empty",
            supported="writing to tables where it is true, and reading others",
            remedy=copy,
        )
    is_known = properties.key_generator in _KEY_GENERATORS
    if not is_known or not properties.record_key_fields:
        return UnsupportedError(
            subject="hoodie.table.recordkey.fields" if is_known else "the table's key generator",
            found="empty: its keys were generated" if is_known else str(properties.key_generator),
            supported=f"writing to tables whose keys are made of columns by {', '.join(_KEY_GENERATORS)}",
            remedy=f"{copy} Name columns for its key that tell rows apart.",
        )
    return _refused_flag(
        properties,
        "hoodie.allow.operation.metadata.field",
        f"Rows of ours would lack _hoodie_operation. {copy}",
    ) or _refused_flag(
        properties,
        "hoodie.datasource.write.drop.partition.columns",
        f"Its files lack the partition columns, which ours have. {copy}",
    )


def _changeable(properties: TableProperties, uri: str) -> UnsupportedError | None:
    if properties.table_version != WRITABLE_VERSION:
        return UnsupportedError(
            subject=f"the table version of {uri}",
            found=str(properties.table_version),
            supported=f"writing to version {WRITABLE_VERSION}; older ones are read only",
            remedy="Upgrade the table with Hudi: write to it once with hoodie.write.table.version=9 and "
            "hoodie.write.auto.upgrade=true, or call its procedure upgrade_table.",
        )
    is_timestamp = properties.key_generator is KeyGeneratorType.TIMESTAMP or any(
        name.lower().endswith(":timestamp") for name in properties.partition_fields
    )
    config = properties.timestamp_key
    if is_timestamp and (config is None or not config.output_timezone):
        return UnsupportedError(
            subject="hoodie.keygen.timebased.timezone",
            found="not set: Hudi's partition paths depend on the zone of the machine it runs on",
            supported="writing where the table names the zone",
            remedy="Add hoodie.keygen.timebased.timezone to hoodie.properties, with the zone of Hudi's writers.",
        )
    return _refused_flag(
        properties, "hoodie.table.cdc.enabled", "Its change log would miss our writes. Turn it off."
    )


def _refused_flag(properties: TableProperties, key: str, remedy: str) -> UnsupportedError | None:
    if properties.raw.get(key, "").strip().lower() != "true":
        return None
    return UnsupportedError(
        subject=key, found="true", supported="writing to tables where it is false", remedy=remedy
    )
