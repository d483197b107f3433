"""Validating and profiling every record while the index is built."""
