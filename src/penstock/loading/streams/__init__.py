"""Streams: which records of which units were handed out, how units become batches, their feed."""
