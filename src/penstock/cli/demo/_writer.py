"""The process that `penstock demo` kills: writes half of its records, says so, and waits.

`python -m penstock.cli.demo._writer DIRECTORY FIRST LAST PER_SHARD`
"""

from __future__ import annotations

import sys

from penstock.cli.demo._records import EXTENSION, record
from penstock.jsonl import JsonlDir


def write_half(directory: str, first: int, last: int, per_shard: int) -> None:
    """Write records in the middle of a shard, then wait until somebody ends this process."""
    with JsonlDir(directory).writer_sync(EXTENSION, max_records_per_shard=per_shard) as writer:
        writer.write_many(record(number) for number in range(first, (first + last) // 2))
        writer.flush()
        sys.stdout.write("half-way\n")
        sys.stdout.flush()
        # Ends by itself only if nobody is left to kill it.
        sys.stdin.read()


if __name__ == "__main__":
    write_half(sys.argv[1], *map(int, sys.argv[2:5]))
