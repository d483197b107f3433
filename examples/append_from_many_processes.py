"""Several processes append to one directory at once; nothing is lost or overwritten."""

import multiprocessing
import tempfile
from collections import Counter

from penstock.jsonl import JsonlDir


def work(path: str, worker: int) -> None:
    """Write 1,000 records as shards of 100."""
    with JsonlDir(path).writer_sync(".jsonl.zst", max_records_per_shard=100) as w:
        w.write_many({"worker": worker, "step": step} for step in range(1000))


def main() -> None:
    """Run four workers, then count their records."""
    with tempfile.TemporaryDirectory() as path:
        context = multiprocessing.get_context("forkserver")
        workers = [context.Process(target=work, args=(path, n)) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        directory = JsonlDir(path)
        found = Counter(record["worker"] for record in directory.iter_records_sync())
        print(f"{len(directory.shards_sync())} shards, records by worker: {dict(found)}")
        if set(found.values()) != {1000}:
            raise SystemExit("a record was lost")


if __name__ == "__main__":
    main()
