"""Rows of tokens by number: folders, views, windows."""
