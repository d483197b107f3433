"""Rows of files that are tables: Parquet, Arrow, ORC, Avro."""
