"""Log files: blocks of new rows and deletes that apply over a base file.

frame.py         one block, bytes and values
reader.py        which blocks of a slice count, and what they say
records.py       what a block says, as columns
avro_columns.py  Avro records to columns         avro_kernel.py  the loop      avro_rows.py  its readable twin
deletes.py       the content of a delete block
"""

from bucketlake.logfile.frame import Block, BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.logfile.reader import read_log_files
from bucketlake.logfile.records import LogDeletes, LogRecords

__all__ = [
    "Block",
    "BlockType",
    "HeaderKey",
    "LogDeletes",
    "LogRecords",
    "decode_blocks",
    "encode_block",
    "read_log_files",
]
