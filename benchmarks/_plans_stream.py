"""Rows of `plans.py` for streams: the same records, read forward in every epoch."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import penstock
from penstock.jsonl import JsonlFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIELDS = {"price": "float32", "tokens": "list<int64>", "label": "int64"}
_BATCH = 64
_ROWS = 4096


def dicts(path: str, start: int = 0) -> Iterator[dict[str, Any]]:
    yield from islice(JsonlFile(path).iter_records_sync(), start, None)


def columns(path: str, start: int = 0) -> Iterator[Any]:
    for batch in JsonlFile(path).iter_arrow_batches_sync(batch_size=_ROWS):
        yield batch.slice(start)
        start = max(0, start - batch.num_rows)


def _stream(read: Callable[..., Any], path: str, **options: bool) -> penstock.DataLoader:
    source = penstock.stream([path], read)
    return penstock.DataLoader(source, _FIELDS, batch_size=_BATCH, **options)


STREAMS: dict[str, Callable[[str], penstock.DataLoader]] = {
    "in order, decoded anew": lambda path: penstock.DataLoader(
        path, _FIELDS, batch_size=_BATCH, materialize=False
    ),
    "stream of dicts": lambda path: _stream(dicts, path),
    "stream of record batches": lambda path: _stream(columns, path),
    "stream of record batches, shuffled": lambda path: _stream(columns, path, shuffle=True),
}
"""Row of the table → the loader of one epoch over the records at a path."""
