"""Hudi with its metadata table, as it writes unless told otherwise. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.hudi import READ_OPTIONS, WRITE_OPTIONS, Hudi
from benchmarks.workers.pipe import serve


def _with_metadata_table(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if key != "hoodie.metadata.enable"}


class HudiAsItComes(Hudi):
    read_options: ClassVar = _with_metadata_table(READ_OPTIONS)
    write_options: ClassVar = _with_metadata_table(WRITE_OPTIONS)


if __name__ == "__main__":
    serve(HudiAsItComes())
