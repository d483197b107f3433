"""Samples of MDS folders."""
