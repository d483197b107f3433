"""Penstock's side of `plans.py`: plans of an epoch, and epochs through a loader."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from _plans_stream import STREAMS
from _worker import peak_bytes, serve

import penstock
from penstock.datasets import Source
from penstock.order import BucketPlan, CostPlan, Order, PackingPlan, padding_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.order import LengthPlan, Plan

_SEED = 7
_TYPICAL, _SPREAD, _LONGEST = 400, 1.0, 8192
"""Median length, the deviation of its logarithm, and where texts are cut off."""
_BATCH = 64
_FIELDS = {"price": "float32", "tokens": "list<int64>", "label": "int64"}
_STRETCH = 1 << 20
_SHARES = {"web": 7, "code": 2, "math": 1}
"""Of ten records each."""

PLANS: dict[str, Callable[[np.ndarray], LengthPlan]] = {
    "CostPlan": lambda lengths: CostPlan(lengths, _BATCH * 660),
    "BucketPlan, 8 buckets": lambda lengths: BucketPlan(lengths, _BATCH),
    "BucketPlan, 64 buckets": lambda lengths: BucketPlan(lengths, _BATCH, buckets=64),
    "PackingPlan": lambda lengths: PackingPlan(lengths, _LONGEST, 5),
}


def plan(kind: str, records: int) -> dict[str, float]:
    """Return time and memory of the plan of one epoch, and its padding."""
    lengths, order = _lengths(records), Order(records, seed=_SEED)
    chosen = PLANS[kind](lengths)
    before, began = _begin_peak(), time.perf_counter()
    batches = chosen.over(order)
    batches.positions(len(batches) // 2)
    seconds, peak = time.perf_counter() - began, peak_bytes()
    padding = padding_of(chosen, order, batches)
    return {
        "seconds": seconds,
        "megabytes": max(0, peak - before) / 1e6,
        "batches": len(batches),
        "padding": padding.planned,
        "plain": padding.plain,
    }


def _lengths(records: int) -> np.ndarray:
    lengths = np.empty(records, np.int16)
    for start in range(0, records, _STRETCH):
        part = lengths[start : start + _STRETCH]
        chance = np.random.default_rng([_SEED, start])
        part[:] = chance.lognormal(np.log(_TYPICAL), _SPREAD, len(part)).clip(1, _LONGEST)
    return lengths


def _begin_peak() -> int:
    """Let the peak begin with what is resident now; return that."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_bytes()


def _mixture(path: str) -> penstock.DataLoader:
    """Return a loader over the same records in three files, in the shares that they have there."""
    sources = {name: penstock.open(f"{path}.{name}.jsonl") for name in _SHARES}
    mixture = penstock.Mixture(sources, _SHARES, stop="all_exhausted", seed=_SEED)
    return penstock.DataLoader(mixture, _FIELDS, batch_size=_BATCH)


LOADERS: dict[str, Callable[[str], penstock.DataLoader]] = {
    "in order": lambda path: _loader(path, _BATCH),
    "shuffled": lambda path: _loader(path, _BATCH, shuffle=True),
    "CostPlan": lambda path: _planned(path, CostPlan("len(tokens)", _BATCH * 20)),
    "BucketPlan": lambda path: _planned(path, BucketPlan("len(tokens)", _BATCH)),
    "PackingPlan": lambda path: _planned(path, PackingPlan("len(tokens)", 320, 4)),
    "Mixture of 3 sources": _mixture,
    "weights, a field": lambda path: _loader(path, _BATCH, weights="price"),
    "balance, a field": lambda path: _loader(path, _BATCH, balance="label"),
    **STREAMS,
}
"""Row of the table of throughput → the loader of one epoch over the records at a path."""


def _loader(path: str, batch_size: int | Plan, **options: bool | str) -> penstock.DataLoader:
    source = penstock.open(path)
    return penstock.DataLoader(source, _FIELDS, batch_size=batch_size, **options)


def _planned(path: str, plan: Plan) -> penstock.DataLoader:
    return _loader(path, plan, shuffle=True)


@cache
def _opened(name: str, path: str) -> penstock.DataLoader:
    return LOADERS[name](path)


def epoch(name: str, path: str) -> int:
    """Return how many records the next epoch has, counted by a loop over its batches."""
    loader = _opened(name, path)
    count = sum(len(batch) for batch in loader)
    # An epoch of a mixture has a few records twice, until the last one has come.
    return min(count, len(loader.source)) if isinstance(loader.source, Source) else count


def write(path: str, records: int) -> int:
    """Write the records of all rows."""
    chance = np.random.default_rng(_SEED)
    places = [name for name, share in _SHARES.items() for _ in range(share)]
    with ExitStack() as stack:
        whole = stack.enter_context(penstock.writer(path))
        parts = {
            name: stack.enter_context(penstock.writer(f"{path}.{name}.jsonl")) for name in _SHARES
        }
        for n in range(records):
            tokens = chance.integers(0, 50_000, 1 + n * 7919 % 39).tolist()
            record = {"price": n / 7, "tokens": tokens, "label": n % 2}
            whole.write([record])
            parts[places[n % len(places)]].write([record])
    return records


if __name__ == "__main__":
    serve({"plan": plan, "epoch": epoch, "write": write})
