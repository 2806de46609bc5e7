"""HFiles: sorted keys with a value each, in compressed blocks with an index over them.

    file    := data block*  other block*  root index  meta index  file info  trailer

What the values mean is not known here; Hudi keeps its metadata table in such files.

writer.py   columns to a file
reader.py   a file to columns: all of it, by keys, by prefixes of keys
source.py   where a reader gets its bytes from
block.py    one block: header, codec, payload
index.py    where data blocks are and with which key each begins
trailer.py  the end of a file, and its file info
wire.py     the numbers and messages that these are made of
columns.py  Arrow columns as kernels see them
sorting.py  keys in the order of their bytes
kernels.py  the loops over records         twin.py  the same, to be read
"""

from bucketlake.hfile.block import Codec
from bucketlake.hfile.reader import UNCERTAIN, Entries, Found, HFile
from bucketlake.hfile.sorting import ascending
from bucketlake.hfile.source import InMemory, Source
from bucketlake.hfile.writer import encode

__all__ = ["UNCERTAIN", "Codec", "Entries", "Found", "HFile", "InMemory", "Source", "ascending", "encode"]
