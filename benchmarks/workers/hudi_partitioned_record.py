"""Hudi with a record-level index of each partition. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.hudi_record import HudiRecord
from benchmarks.workers.pipe import serve


def _of_each_partition(options: dict[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in options.items() if "record.level.index" not in key}
    kept.pop("hoodie.record.index.update.partition.path")
    return {
        **kept,
        "hoodie.index.type": "RECORD_LEVEL_INDEX",
        "hoodie.metadata.record.level.index.enable": "true",
        "hoodie.metadata.record.level.index.min.filegroup.count": "4",
        "hoodie.metadata.record.level.index.max.filegroup.count": "4",
    }


class HudiPartitionedRecord(HudiRecord):
    write_options: ClassVar = _of_each_partition(HudiRecord.write_options)


if __name__ == "__main__":
    serve(HudiPartitionedRecord())
