"""Hudi with its record-level index of the whole table. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.hudi import READ_OPTIONS, WRITE_OPTIONS, Hudi
from benchmarks.workers.pipe import serve


def _without_buckets(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if "index" not in key and "metadata" not in key}


class HudiRecord(Hudi):
    read_options: ClassVar = _without_buckets(READ_OPTIONS)
    write_options: ClassVar = {
        **_without_buckets(WRITE_OPTIONS),
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.record.index.update.partition.path": "true",
        # As few shards as ours: ten, its least, cost it more.
        "hoodie.metadata.global.record.level.index.min.filegroup.count": "4",
        "hoodie.metadata.global.record.level.index.max.filegroup.count": "4",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    }


if __name__ == "__main__":
    serve(HudiRecord())
