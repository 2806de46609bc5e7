"""Base files: Parquet, one row per record key."""

from bucketlake.basefile.footer import Footer, read_footer
from bucketlake.basefile.reader import read_base_file

__all__ = ["Footer", "read_base_file", "read_footer"]
