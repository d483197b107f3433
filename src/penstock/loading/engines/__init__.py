"""Who makes batches: the caller, threads, worker processes."""
