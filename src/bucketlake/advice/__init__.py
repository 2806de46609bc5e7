"""Which index suits a user's own keys: every engine tries them, and says what it would cost."""

from bucketlake.advice.choice import Verdict
from bucketlake.advice.figures import Bar, Engine, Figures, WriteCost
from bucketlake.advice.job import (
    BATCH_ROWS_MAX,
    GROWTH,
    Source,
    advise_on_rows,
    advise_on_table,
    check_columns,
)
from bucketlake.advice.keys import ROWS_MAX
from bucketlake.advice.page import IndexAdvice
from bucketlake.advice.rows import source_of
from bucketlake.advice.sizes import SAMPLE_ROWS

__all__ = [
    "BATCH_ROWS_MAX",
    "GROWTH",
    "ROWS_MAX",
    "SAMPLE_ROWS",
    "Bar",
    "Engine",
    "Figures",
    "IndexAdvice",
    "Source",
    "Verdict",
    "WriteCost",
    "advise_on_rows",
    "advise_on_table",
    "check_columns",
    "source_of",
]
