"""Tokenizers of several libraries behind one call."""
