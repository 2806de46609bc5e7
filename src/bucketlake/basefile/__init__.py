"""Base files: Parquet, one row per record key.

reader.py     all rows, or those of a few keys
writer.py     rows to a file     encodings.py  how each column is best laid out     ranges.py  where NaN is
footer.py     what a file says about itself
"""

from bucketlake.basefile.footer import FileFacts, Footer, read_file_facts, read_footer
from bucketlake.basefile.reader import read_base_file
from bucketlake.basefile.writer import BaseFileWriter

__all__ = ["BaseFileWriter", "FileFacts", "Footer", "read_base_file", "read_file_facts", "read_footer"]
