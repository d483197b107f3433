"""Rows of Parquet files."""
