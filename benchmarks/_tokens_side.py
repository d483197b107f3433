"""One side of the token job: shuffled rows of tokens, eight a batch.

Only the standard library and numpy, because it also runs in the environments of peers.
"""

from __future__ import annotations

import time
from itertools import islice

import numpy as np
from _load_side import Loading

BATCH, LENGTH = 8, 1024
"""Samples of a batch, and tokens of a sample."""
_BETWEEN_LOOKS = 64
"""Batches between two looks at the clock: some sides take a few microseconds for one."""


class Rows(Loading):
    """A loader of rows; work is counted in tokens, since rows need not be of one length."""

    def epoch(
        self,
        path: str,
        workers: int | str,
        seconds: float,
        length: int = LENGTH,
        **options: object,
    ) -> dict[str, float]:
        """Go through an epoch of rows of `length`, or so many seconds of it.

        The first batch is told by itself: the tokens, in thousands, are those after it.
        """
        began = time.perf_counter()
        batches = iter(self.made(path, workers, length=length, **options))
        next(batches)
        first = last = time.perf_counter()
        number, found = 0, _BETWEEN_LOOKS
        while found == _BETWEEN_LOOKS and last - first < seconds:
            found = 0
            for _ in islice(batches, _BETWEEN_LOOKS):
                found += 1
            number += found
            last = time.perf_counter()
        tokens = number * BATCH * length
        return {"records": tokens / 1000, "seconds": last - first, "first": first - began}


def ids_of(rows: object) -> np.ndarray:
    """Return the numbers of samples, which their first two tokens tell."""
    heads = np.asarray(rows)[:, :2].astype(np.int64)
    return heads[:, 0] + (heads[:, 1] << 16)
