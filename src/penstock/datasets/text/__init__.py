"""Records that are runs of bytes: JSON Lines and CSV."""
