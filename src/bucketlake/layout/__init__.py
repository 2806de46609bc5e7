"""Where a table's files are: names, listings, and the slices a reader may see."""

from bucketlake.layout.file_slice import BaseFile, DataFile, FileSlice, LogFile
from bucketlake.layout.listing import (
    Listed,
    data_files_of,
    find_data_file,
    list_files,
    list_partitions,
    list_table,
    parse_data_file,
)
from bucketlake.layout.stated import StatedFiles, check_file, prove, stated_files
from bucketlake.layout.view import (
    FileGroupId,
    TimelineView,
    all_slices_of,
    changed_slices_of,
    check_files,
    file_groups_of,
    history_needed,
    read_optimized_slices_of,
    slices_of,
    stated_in,
)

__all__ = [
    "BaseFile",
    "DataFile",
    "FileGroupId",
    "FileSlice",
    "Listed",
    "LogFile",
    "StatedFiles",
    "TimelineView",
    "all_slices_of",
    "changed_slices_of",
    "check_file",
    "check_files",
    "data_files_of",
    "file_groups_of",
    "find_data_file",
    "history_needed",
    "list_files",
    "list_partitions",
    "list_table",
    "parse_data_file",
    "prove",
    "read_optimized_slices_of",
    "slices_of",
    "stated_files",
    "stated_in",
]
