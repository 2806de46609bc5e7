"""What a Python worker of Spark does between tasks, made cheap.

Measured on PySpark 4.1 and Python 3.11, an empty task costs a fifth of a second of CPU, more than reading a
slice does: Spark invalidates the import caches before every task, for which a worker reads the directory of
`pyspark.zip` again, and collects garbage after it, for which it walks through every loaded module.

Arrow's own allocator gives freed memory back to the system, which clears every page before it hands it out again: a
fifth of what a worker needs for a load. The C library's can be told to keep it, and keeps no more than the most that
was in use.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import lru_cache
from zipimport import zipimporter

import pyarrow as pa

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = (1 << 31) - 1
_HEAP_PIECE_BYTES_MAX = 32 << 20
"""The most that the C library takes from its heap at once; larger pieces come from the system, and go back."""


def settle_worker() -> None:
    """Spare this worker all that for the tasks to come. Called by a task: everything it needs is loaded."""
    _settle_once()
    # An import that looks into the zip again makes a new importer; nothing is lost but the time.
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimporter):
            del sys.path_importer_cache[path]


@lru_cache(maxsize=1)
def _settle_once() -> None:
    gc.freeze()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not the GNU library: its memory is left to Arrow
        return
    mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
    mallopt(_M_MMAP_THRESHOLD, _HEAP_PIECE_BYTES_MAX)
    pa.set_memory_pool(pa.system_memory_pool())
