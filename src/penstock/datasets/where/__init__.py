"""The comparison language of `where`."""
