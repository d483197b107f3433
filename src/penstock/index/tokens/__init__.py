"""Text into samples of tokens."""
