"""Parquet files: footers, and the columns of row groups."""
