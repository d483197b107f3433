"""What the fields of records hold."""
