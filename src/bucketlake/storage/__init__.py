"""The only package that opens a file of a table: seven operations, on a disk, an object store or a dict.

store.py    Store: list stat read put put_new replace_if delete
local.py    a folder on this machine
objects.py  S3, Google Cloud Storage, Azure
memory.py   a dict
paths.py    which paths are safe
open.py     from a uri to a store
concurrent.py  many requests at once
input.py    from a store's file to something pyarrow reads
handover.py  what tasks of a job leave for each other
spill.py    a file being written, in memory while it is small
kept_files.py  what a machine keeps for itself on a local disk, within a number of bytes
memory_budget.py  what a process remembers of files, within one budget
byte_sizes.py  numbers of bytes, as people read and write them
"""

from bucketlake.storage.byte_sizes import parse_bytes, render_bytes
from bucketlake.storage.concurrent import in_parallel, overlapped
from bucketlake.storage.handover import (
    Handover,
    OnDisk,
    handover_in,
    left_handovers,
    remove_handover,
)
from bucketlake.storage.input import open_input
from bucketlake.storage.kept_files import KeptFiles, Wanted, index_cache, set_index_cache
from bucketlake.storage.local import LocalStore
from bucketlake.storage.memory import MemoryStore
from bucketlake.storage.memory_budget import (
    FileCache,
    MemoryBudget,
    MemoryInUse,
    memory_in_use,
    set_memory_budget,
)
from bucketlake.storage.objects import ObjectStore
from bucketlake.storage.open import open_store
from bucketlake.storage.paths import check_path
from bucketlake.storage.spill import Spill
from bucketlake.storage.store import FileStat, Listing, Store

__all__ = [
    "FileCache",
    "FileStat",
    "Handover",
    "KeptFiles",
    "Listing",
    "LocalStore",
    "MemoryBudget",
    "MemoryInUse",
    "MemoryStore",
    "ObjectStore",
    "OnDisk",
    "Spill",
    "Store",
    "Wanted",
    "check_path",
    "handover_in",
    "in_parallel",
    "index_cache",
    "left_handovers",
    "memory_in_use",
    "open_input",
    "open_store",
    "overlapped",
    "parse_bytes",
    "remove_handover",
    "render_bytes",
    "set_index_cache",
    "set_memory_budget",
]
