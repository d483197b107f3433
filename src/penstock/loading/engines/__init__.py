"""Engines: batches are made in the caller's thread, in threads, or in worker processes."""
