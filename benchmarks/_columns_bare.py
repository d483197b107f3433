"""The ceiling of columns: numpy arrays of the four fields, gathered by one process."""

from __future__ import annotations

from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import torch
from _columns_side import Arrays, Columns, gather_lists, shuffled
from _load_bare import Row
from _load_collate import ids_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AT_A_TIME = 65_536
_NAMES = ("id", "price", "label", "tags", "offsets")


def decode(path: str) -> int:
    """Decode every line into a struct of just the four fields, on one core; keep nothing."""
    records, each = 0, msgspec.json.Decoder(Row).decode
    for file in _files(path):
        with file.open("rb") as lines:
            for line in lines:
                each(line)
                records += 1
    return records


def _files(path: str) -> list[Path]:
    one = Path(path)
    return sorted(one.glob("*.jsonl")) if one.is_dir() else [one]


def convert(source: str, target: str) -> None:
    """Write the arrays; how long that takes is not what is measured here."""
    parts = [_arrays(rows) for rows in _rows(source)]
    *columns, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    offsets = np.concatenate([[0], lengths.cumsum()])
    for name, array in zip(_NAMES, (*columns, offsets), strict=True):
        np.save(Path(target) / f"{name}.npy", array)


def _rows(source: str) -> Iterator[list[Row]]:
    each = msgspec.json.Decoder(Row).decode
    for file in _files(source):
        with file.open("rb") as lines:
            while rows := list(map(each, islice(lines, _AT_A_TIME))):
                yield rows


def _arrays(rows: list[Row]) -> Arrays:
    tags = [row.tags for row in rows]
    return Arrays(
        np.array([row.id for row in rows], np.int64),
        np.array([row.price for row in rows], np.float32),
        np.array([row.label for row in rows], np.int64),
        np.fromiter(chain.from_iterable(tags), np.int64),
        np.fromiter(map(len, tags), np.int64, len(tags)),
    )


@cache
def opened(path: str, *, mapped: bool = False) -> Callable[[np.ndarray], Arrays]:
    how = "r" if mapped else None
    loaded = (np.load(Path(path) / f"{name}.npy", mmap_mode=how) for name in _NAMES)
    # Of a map just the array: its class costs a microsecond a call.
    *scalars, tags, offsets = map(np.asarray, loaded)

    def gather(ids: np.ndarray) -> Arrays:
        lists = gather_lists(tags, offsets, ids)
        return Arrays(*[column.take(ids) for column in scalars], *lists)

    return gather


def made(path: str, workers: int, *, mapped: bool = False) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches of tensors in an order that was computed once."""
    if workers:
        raise ValueError("the ceiling is one process")
    get = opened(path, mapped=mapped)
    for ids in shuffled(_records(path)):
        arrays = zip(Arrays._fields, get(ids), strict=True)
        yield {name: torch.from_numpy(array) for name, array in arrays}


@cache
def _records(path: str) -> int:
    return len(np.load(Path(path) / "id.npy", mmap_mode="r"))


def arrays_of(batch: Arrays | dict[str, torch.Tensor]) -> Arrays:
    if isinstance(batch, Arrays):
        return batch
    return Arrays(*(batch[name].numpy() for name in Arrays._fields))


if __name__ == "__main__":
    Columns(made, ids_of, convert, opened, arrays_of).serve({"decode": decode})
