"""The ceiling of token batches: rows of one mapped array, gathered by numpy in one process."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from _tokens_side import BATCH, LENGTH, Rows, ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEED = 5
ARRAYS, TENSORS, LABELS = "arrays", "tensors", "labels"


def made(
    path: str, workers: int, *, length: int = LENGTH, stride: int = LENGTH, to: str = ARRAYS
) -> Iterator[object]:
    """Yield batches in an order that was computed once."""
    if workers:
        raise ValueError("the ceiling is one process")
    rows = _rows(path, length + (to == LABELS), stride)
    order = _order(len(rows))
    finish = _FINISHED[to]
    for start in range(0, len(order), BATCH):
        yield finish(rows[order[start : start + BATCH]])


@cache
def _rows(path: str, length: int, stride: int) -> np.ndarray:
    """Return the tokens of a folder's only file as rows: views of one map."""
    (file,) = Path(path, "tokenized-samples").glob("*.bin")
    # Of a map just the array: its class costs a microsecond a call.
    tokens = np.asarray(np.memmap(file, np.uint16, "r"))
    if length == stride:
        return tokens[: len(tokens) // length * length].reshape(-1, length)
    return np.lib.stride_tricks.sliding_window_view(tokens, length)[::stride]


@cache
def _order(rows: int) -> np.ndarray:
    return np.random.default_rng(_SEED).permutation(rows)


def _as_it_is(rows: np.ndarray) -> np.ndarray:
    return rows


def _labelled(rows: np.ndarray) -> dict[str, torch.Tensor]:
    return {
        "input_ids": torch.from_numpy(rows[:, :-1].astype(np.int64)),
        "labels": torch.from_numpy(rows[:, 1:].astype(np.int64)),
    }


_FINISHED: dict[str, Callable[[np.ndarray], object]] = {
    ARRAYS: _as_it_is,
    TENSORS: torch.from_numpy,
    LABELS: _labelled,
}


def convert(source: str, target: str) -> None:
    raise NotImplementedError("it maps what others wrote")


if __name__ == "__main__":
    Rows(made, ids_of, convert).serve()
