"""Who keeps what a table's engine has on disk? Where nobody has said which engine that is, all of ours are asked."""

from __future__ import annotations

from bucketlake.config import BucketEngine, IndexType, TableProperties
from bucketlake.errors import UnsupportedError
from bucketlake.index.engines import how_to_register, registered_engine
from bucketlake.index.extendible import DirectoryMetadata
from bucketlake.index.index_logs import IndexLogsKeeper
from bucketlake.index.keeper import Keeper
from bucketlake.index.listed import listed_indexes
from bucketlake.index.rings_keeper import RingsKeeper
from bucketlake.index.rules_keeper import RulesKeeper
from bucketlake.metadata.places import RECORD_INDEX

_BY_ENGINE: dict[str, Keeper] = {
    BucketEngine.SIMPLE: RulesKeeper(),
    BucketEngine.CONSISTENT_HASHING: RingsKeeper(),
    BucketEngine.EXTENDIBLE_HASHING: RingsKeeper(DirectoryMetadata),
    IndexType.GLOBAL_RECORD_LEVEL_INDEX: IndexLogsKeeper(RECORD_INDEX),
    IndexType.RECORD_LEVEL_INDEX: IndexLogsKeeper(RECORD_INDEX),
}
_OF_BUCKETS = (_BY_ENGINE[BucketEngine.SIMPLE], _BY_ENGINE[BucketEngine.CONSISTENT_HASHING])


def keepers_of(properties: TableProperties) -> tuple[Keeper, ...]:
    """Return the keepers of a table's engine, and of the indexes that it lists."""
    return (*_keepers_of_engine(properties), *(one.keeper for one in listed_indexes(properties)))


def _keepers_of_engine(properties: TableProperties) -> tuple[Keeper, ...]:
    word = properties.engine
    if word is None:
        return _OF_BUCKETS
    if word in _BY_ENGINE:
        return (_BY_ENGINE[word],)
    engine = registered_engine(word)
    if engine is None:
        raise UnsupportedError(
            subject=f"the engine of table {properties.name}",
            found=word,
            supported=f"changing tables of {', '.join(_BY_ENGINE)}",
            remedy=how_to_register(word),
        )
    return (engine.keeper,)
