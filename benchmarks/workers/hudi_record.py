"""Hudi with its record-level index of the whole table. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import Any, ClassVar

from benchmarks.workers.hudi import READ_OPTIONS, WRITE_OPTIONS, Hudi
from benchmarks.workers.pipe import serve


def _without_buckets(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if "index" not in key and "metadata" not in key}


INDEX_SETTINGS = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.auto.delete.partitions": "false",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.InProcessLockProvider",
}
"""Without a lock Hudi does not build an index, and it deletes the indexes that settings do not name."""


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

    def create_index(self, table: str, column: str) -> None:
        """Build as SQL does, which takes its settings from the session; a moment of it gives the table a name."""
        for name, value in {**self.write_options, **INDEX_SETTINGS}.items():
            if name.startswith("hoodie.") and name != "hoodie.table.name":
                self.session.conf.set(name, value)
        self._name(table)
        self.session.sql(f"create index by_{column} on named ({column})")

    def by_value(self, table: str, column: str, value: str) -> list[Any]:
        return self.timed_rows(
            lambda: (
                self.frame(table, [column, "order_id", "amount"])
                .filter(f"{column} = '{value}'")
                .select("order_id", "amount")
            )
        )


if __name__ == "__main__":
    serve(HudiRecord())
