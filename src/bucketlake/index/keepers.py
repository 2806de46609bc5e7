"""Who keeps what a table's engine has on disk? Where nobody has said which engine that is, all of them are asked."""

from __future__ import annotations

from bucketlake.config import BucketEngine, TableProperties
from bucketlake.index.keeper import Keeper
from bucketlake.index.rings_keeper import RingsKeeper
from bucketlake.index.rules_keeper import RulesKeeper

_BY_ENGINE: dict[BucketEngine, Keeper] = {
    BucketEngine.SIMPLE: RulesKeeper(),
    BucketEngine.CONSISTENT_HASHING: RingsKeeper(),
}


def keepers_of(properties: TableProperties) -> tuple[Keeper, ...]:
    engine = properties.bucket_engine
    return tuple(_BY_ENGINE.values()) if engine is None else (_BY_ENGINE[engine],)
