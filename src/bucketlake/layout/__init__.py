"""Where a table's files are: names, listings, and the slices a reader may see."""

from bucketlake.layout.file_slice import BaseFile, DataFile, FileSlice, LogFile
from bucketlake.layout.listing import data_files_of, list_files, list_table, parse_data_file
from bucketlake.layout.view import (
    FileGroupId,
    TimelineView,
    all_slices_of,
    history_needed,
    read_optimized_slices_of,
    slices_of,
)

__all__ = [
    "BaseFile",
    "DataFile",
    "FileGroupId",
    "FileSlice",
    "LogFile",
    "TimelineView",
    "all_slices_of",
    "data_files_of",
    "history_needed",
    "list_files",
    "list_table",
    "parse_data_file",
    "read_optimized_slices_of",
    "slices_of",
]
