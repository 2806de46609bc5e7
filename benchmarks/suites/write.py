"""Writing: a bulk load of all orders, and upserts of 5 %, half of them changes and half new, into every partition.

Copy-on-write rewrites the base files of all buckets for it, merge-on-read appends a log to each. The floor does
the same to plain files and says what the bytes cost. At the end the logs are compacted, and the files that this
made superfluous are cleaned away. In a table of its own, once loaded, the day that holds 40 % of the orders gets eight
buckets instead of four.
"""

from __future__ import annotations

from benchmarks.contestants import ALONE, BUCKETLAKE, EVALUATED, FILES, HUDI, HUDI_AS_IT_COMES
from benchmarks.write_race import WriteCase


def cases() -> tuple[WriteCase, ...]:
    everybody = tuple(c.name for c in (HUDI_AS_IT_COMES, HUDI, EVALUATED, BUCKETLAKE, ALONE, FILES))
    servants = tuple(c.name for c in (HUDI_AS_IT_COMES, HUDI, BUCKETLAKE, ALONE))
    return (
        WriteCase("copy-on-write", "COPY_ON_WRITE", everybody),
        WriteCase(
            "copy-on-write, rescaled",
            "COPY_ON_WRITE",
            servants,
            services=("rescale",),
            servants=servants,
            batches=(),
        ),
        WriteCase(
            "merge-on-read",
            "MERGE_ON_READ",
            everybody,
            services=("compact", "clean"),
            servants=servants,
        ),
    )
