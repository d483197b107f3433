"""The kinds of leaves, one module each."""
