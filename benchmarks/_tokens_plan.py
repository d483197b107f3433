"""Penstock's packing of documents of which only the lengths are known."""

from __future__ import annotations

import time

import numpy as np
from _worker import serve

from penstock.order import best_fit

_SEED = 7
_TYPICAL, _SPREAD = 400, 1.2
"""Median length, and the deviation of its logarithm: web pages are about like this."""


def plan(documents: int, size: int) -> dict[str, float]:
    """Return the seconds of a best-fit plan, and what each way to pack costs, in parts."""
    lengths = _lengths(documents)
    tokens = int(lengths.sum())
    began = time.perf_counter()
    packing = best_fit(lengths, size)
    seconds = time.perf_counter() - began
    if int(packing.piece_length.sum()) != tokens:
        raise RuntimeError("the plan does not hold every token once")
    samples = len(packing.sample_offsets) - 1
    pieces = np.bincount(packing.piece_document, minlength=documents)
    ends = np.cumsum(lengths)
    alone = int((-(-lengths // size)).sum()) * size
    return {
        "seconds": seconds,
        "longer": float((lengths > size).mean()),
        "concat_dropped": tokens % size / tokens,
        "concat_cut": float(((ends - lengths) // size != (ends - 1) // size).mean()),
        "best_fit_padding": 1 - tokens / (samples * size),
        "best_fit_cut": float((pieces > 1).mean()),
        "alone_padding": 1 - tokens / alone,
    }


def _lengths(documents: int) -> np.ndarray:
    """Return lengths, the token that ends a document counted."""
    drawn = np.random.default_rng(_SEED).lognormal(np.log(_TYPICAL), _SPREAD, documents)
    return drawn.astype(np.int64) + 1


if __name__ == "__main__":
    serve({"plan": plan})
