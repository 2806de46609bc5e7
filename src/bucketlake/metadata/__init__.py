"""Hudi's metadata table: a table beside the table, which tells of its files. Kept in step by every commit."""
