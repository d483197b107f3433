"""Mutate one number of a column's files, take values, put the number back; again and again.

Run in a process of its own: what reads outside of a map ends it.
"""

from __future__ import annotations

import logging
import random
import resource
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.datasets.columns._folder import find_column, publish_column
from penstock.errors import PenstockError

ROWS = 400
MEMORY = 4 << 30
NUMBERS = (0, 1, -1, 2, 255, 2**15, 2**24, 2**30, 2**31 - 1, -(2**31), -(2**30))


def columns() -> dict[str, pa.Array]:
    texts = [f"text {n} äöü " * (n % 7) for n in range(ROWS)]
    some = [None if n % 11 == 0 else text for n, text in enumerate(texts)]
    words = [f"word {n % 13}" for n in range(ROWS)]
    nested = [[[texts[n]] * (n % 3), []] for n in range(ROWS)]
    return {
        "text": pa.array(some),
        "large": pa.array(texts, pa.large_string()),
        "bytes": pa.array([text.encode() for text in texts]),
        "words": pa.array(words),
        "texts": pa.array([texts[: n % 5] for n in range(ROWS)]),
        "numbers": pa.array([None if n % 9 == 0 else [n] * (n % 4) for n in range(ROWS)]),
        "nested": pa.array(nested),
        "objects": pa.array([{"t": texts[n], "l": [n] * (n % 3)} for n in range(ROWS)]),
    }


def main(folder: Path, seed: int, count: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    logging.disable(logging.CRITICAL)
    arrays = columns()
    for name, array in arrays.items():
        field, bad = pa.field(name, array.type), np.array([3, 5])
        publish_column(folder, field, [array], fingerprint="", length=ROWS, bad=bad)
    files = sorted(path for path in folder.rglob("*.bin") if path.stat().st_size >= 4)
    randomness = random.Random(seed)
    told = damaged = read = 0
    for _ in range(count):
        path = randomness.choice(files)
        whole = path.read_bytes()
        at = randomness.randrange(len(whole) // 4) * 4
        number = randomness.choice([*NUMBERS, randomness.randrange(-(2**31), 2**31)])
        path.write_bytes(whole[:at] + np.int32(number).tobytes() + whole[at + 4 :])
        for name, array in arrays.items():
            try:
                column = find_column(folder, name, array.type)
                if column is None:
                    damaged += 1
                    continue
                ids = np.array([randomness.randrange(ROWS) for _ in range(40)])
                for some in (ids, np.arange(ROWS), ids[:0]):
                    taken = column.take(some)
                    taken.validate()
                    assert len(taken) == len(some)
                    read += taken.nbytes
            except PenstockError:
                told += 1
        path.write_bytes(whole)
    for name, array in arrays.items():
        column = find_column(folder, name, array.type)
        assert column is not None
        assert column.take(np.arange(ROWS)).equals(array)
    assert told, read
    print(f"{count} mutations: {told} told of, {damaged} columns not opened")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
