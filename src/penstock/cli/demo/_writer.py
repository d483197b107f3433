"""The records of `penstock demo`, and the process that writes half of its share and is killed.

`python -m penstock.cli.demo._writer DIRECTORY FIRST LAST PER_SHARD`
"""

from __future__ import annotations

import sys

from penstock.jsonl import JsonlDir

EXTENSION = ".jsonl.zst"
_CITIES = ("Bergen", "Como", "Grenoble", "Innsbruck", "Ljubljana")


def record(number: int) -> dict[str, object]:
    """Return the record of a number, so that every copy can be checked.

    >>> record(7)["id"], record(7)["user"]["city"]
    (7, 'Grenoble')
    """
    mixed = number * 2_654_435_761 % (1 << 32)
    return {
        "id": number,
        "user": {"id": mixed % 1000, "city": _CITIES[number % len(_CITIES)]},
        "items": [mixed >> shift & 0xFFF for shift in range(0, mixed % 20 + 1, 4)],
        "price": round(mixed / (1 << 32) * 100, 2),
        "text": f"record {number} of the demonstration",
    }


def write_half(directory: str, first: int, last: int, per_shard: int) -> None:
    """Write records to the middle of a shard, then wait for the end of stdin or a kill."""
    with JsonlDir(directory).writer_sync(EXTENSION, max_records_per_shard=per_shard) as writer:
        writer.write_many(record(number) for number in range(first, (first + last) // 2))
        writer.flush()
        sys.stdout.write("half-way\n")
        sys.stdout.flush()
        # Returns if the parent dies first.
        sys.stdin.read()


if __name__ == "__main__":
    write_half(sys.argv[1], *map(int, sys.argv[2:5]))
