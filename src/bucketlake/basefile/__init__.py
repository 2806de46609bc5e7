"""Base files: Parquet, one row per record key.

reader.py     all rows, or those of a few keys
writer.py     rows to a file     encodings.py  how each column is best laid out     ranges.py  where NaN is
footer.py     what a file says about itself     seal.py  and the checksums that hold it to that
"""

from bucketlake.basefile.footer import (
    FileFacts,
    Footer,
    check_bytes,
    check_footer,
    read_file_facts,
    read_footer,
)
from bucketlake.basefile.reader import read_base_file
from bucketlake.basefile.writer import BaseFileWriter

__all__ = [
    "BaseFileWriter",
    "FileFacts",
    "Footer",
    "check_bytes",
    "check_footer",
    "read_base_file",
    "read_file_facts",
    "read_footer",
]
