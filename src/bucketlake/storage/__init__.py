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
kept.py     what was found out about files, by their versions
"""

from bucketlake.storage.concurrent import in_parallel
from bucketlake.storage.handover import (
    Handover,
    OnDisk,
    handover_in,
    left_handovers,
    remove_handover,
)
from bucketlake.storage.input import open_input
from bucketlake.storage.kept import Kept
from bucketlake.storage.local import LocalStore
from bucketlake.storage.memory import MemoryStore
from bucketlake.storage.objects import ObjectStore
from bucketlake.storage.open import open_store
from bucketlake.storage.paths import check_path
from bucketlake.storage.spill import Spill
from bucketlake.storage.store import FileStat, Listing, Store

__all__ = [
    "FileStat",
    "Handover",
    "Kept",
    "Listing",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "OnDisk",
    "Spill",
    "Store",
    "check_path",
    "handover_in",
    "in_parallel",
    "left_handovers",
    "open_input",
    "open_store",
    "remove_handover",
]
