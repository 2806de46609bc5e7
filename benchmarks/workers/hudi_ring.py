"""Hudi with its consistent bucket index. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.hudi import READ_OPTIONS, WRITE_OPTIONS, Hudi
from benchmarks.workers.pipe import serve

_ENGINE = {"hoodie.index.bucket.engine": "CONSISTENT_HASHING"}


class HudiRing(Hudi):
    read_options: ClassVar = {**READ_OPTIONS, **_ENGINE}
    write_options: ClassVar = {**WRITE_OPTIONS, **_ENGINE}


if __name__ == "__main__":
    serve(HudiRing())
