"""Log files: blocks of new rows and deletes that apply over a base file.

frame.py         one block, bytes and values
reader.py        which blocks of a slice count, and what they say
records.py       what a block says, as columns
avro_columns.py  Avro records to columns         avro_kernel.py  the loop      avro_rows.py  its readable twin
avro_encoder.py  columns to Avro records         avro_encode_kernel.py  the loop
deletes.py       the content of a delete block, both ways
writer.py        the log file of a write
reference.py     one that stands for others
"""

from bucketlake.logfile.deletes import Deletes
from bucketlake.logfile.frame import Block, BlockType, HeaderKey, decode_blocks, encode_block
from bucketlake.logfile.reader import read_log_files
from bucketlake.logfile.records import LogDeletes, LogRecords
from bucketlake.logfile.reference import decode_reference, encode_reference
from bucketlake.logfile.writer import LogFacts, LogFormat, encode_log_file, log_file_facts

__all__ = [
    "Block",
    "BlockType",
    "Deletes",
    "HeaderKey",
    "LogDeletes",
    "LogFacts",
    "LogFormat",
    "LogRecords",
    "decode_blocks",
    "decode_reference",
    "encode_block",
    "encode_log_file",
    "encode_reference",
    "log_file_facts",
    "read_log_files",
]
