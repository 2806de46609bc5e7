"""Hudi with its Bloom index: a key is looked for in the files that may hold it. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.hudi import READ_OPTIONS, WRITE_OPTIONS, Hudi
from benchmarks.workers.pipe import serve


def _without_buckets(options: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in options.items() if "index" not in key}


class HudiBloom(Hudi):
    read_options: ClassVar = _without_buckets(READ_OPTIONS)
    write_options: ClassVar = {**_without_buckets(WRITE_OPTIONS), "hoodie.index.type": "BLOOM"}


if __name__ == "__main__":
    serve(HudiBloom())
