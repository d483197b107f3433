"""Finding rows in CSV files."""
