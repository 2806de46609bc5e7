"""A table on one page: `table.report()`."""

from bucketlake.report.facts import Advice, TableFacts, look_for_report
from bucketlake.report.page import TableReport

__all__ = ["Advice", "TableFacts", "TableReport", "look_for_report"]
