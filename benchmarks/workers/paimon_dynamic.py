"""Paimon with dynamic buckets: a hash index of its own says in which bucket a key is. Runs under Hudi's interpreter."""

from __future__ import annotations

from typing import ClassVar

from benchmarks.workers.paimon import Paimon
from benchmarks.workers.pipe import serve


class PaimonDynamic(Paimon):
    bucket: ClassVar = "-1"


if __name__ == "__main__":
    serve(PaimonDynamic())
