"""Which tables we may write: those on which everybody else will understand what we wrote."""

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
    """Raise `UnsupportedError` for a table that can be read but not written, with the way on."""
    properties = state.properties
    if properties.table_version != WRITABLE_VERSION:
        raise UnsupportedError(
            subject=f"the table version of {state.store.uri}",
            found=str(properties.table_version),
            supported=f"writing to version {WRITABLE_VERSION}; older ones are read only",
            remedy="Upgrade the table with Hudi: write to it once with hoodie.write.table.version=9 and "
            "hoodie.write.auto.upgrade=true, or call its procedure upgrade_table.",
        )
    if properties.metadata_partitions or properties.raw.get(LISTED_INFLIGHT, "").strip():
        # One without buckets is refused whatever its metadata table is like.
        refuse_without_buckets(state)
        checked_step(state.store, properties, state.timeline)
    _check_keys(state)
    _refuse_flag(properties, "hoodie.table.cdc.enabled", "Its change log would miss our writes. Turn it off.")
    _refuse_flag(
        properties,
        "hoodie.allow.operation.metadata.field",
        f"Rows of ours would lack _hoodie_operation. {copy_instead(state)}",
    )
    _refuse_flag(
        properties,
        "hoodie.datasource.write.drop.partition.columns",
        f"Its files lack the partition columns, which ours have. {copy_instead(state)}",
    )


def _check_keys(state: TableState) -> None:
    properties = state.properties
    if properties.key_generator not in _KEY_GENERATORS or not properties.record_key_fields:
        is_known = properties.key_generator in _KEY_GENERATORS
        raise UnsupportedError(
            subject="hoodie.table.recordkey.fields" if is_known else "the table's key generator",
            found="empty: its keys were generated" if is_known else str(properties.key_generator),
            supported=f"writing to tables whose keys are made of columns by {', '.join(_KEY_GENERATORS)}",
            remedy=f"{copy_instead(state)} Name columns for its key that tell rows apart.",
        )
    is_timestamp = properties.key_generator is KeyGeneratorType.TIMESTAMP or any(
        name.lower().endswith(":timestamp") for name in properties.partition_fields
    )
    config = properties.timestamp_key
    if is_timestamp and (config is None or not config.output_timezone):
        raise UnsupportedError(
            subject="hoodie.keygen.timebased.timezone",
            found="not set: Hudi's partition paths depend on the zone of the machine it runs on",
            supported="writing where the table names the zone",
            remedy="Add hoodie.keygen.timebased.timezone to hoodie.properties, with the zone of Hudi's writers.",
        )


def _refuse_flag(properties: TableProperties, key: str, remedy: str) -> None:
    if properties.raw.get(key, "").strip().lower() == "true":
        raise UnsupportedError(
            subject=key, found="true", supported="writing to tables where it is false", remedy=remedy
        )
