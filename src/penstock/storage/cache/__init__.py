"""Blocks of remote files, kept on the local disk."""
