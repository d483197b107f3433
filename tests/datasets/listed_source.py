"""The smallest source that keeps the contract: a list of dicts."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.datasets import Location, Source


class ListedSource(Source):
    """A list of dicts; `calls` counts what was asked for, `path` makes as if it lay in a file."""

    def __init__(
        self, records: list[dict[str, Any]], block: int | None = None, path: str | None = None
    ) -> None:
        self.records = list(records)
        self.block = block
        self.path = path
        self.calls: list[tuple[str, int]] = []

    def __len__(self) -> int:
        return len(self.records)

    @property
    def fingerprint(self) -> str:
        # Of the first record only: appending must not change it.
        text = json.dumps([self.path, self.records[:1]], default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def schema(self) -> pa.Schema:
        return self._batch(self.records).schema

    @property
    def files(self) -> list[str]:
        return [self.path] if self.path else []

    @property
    def blocks(self) -> np.ndarray:
        if self.block is None:
            return super().blocks
        return np.unique([*range(0, len(self), self.block), len(self)]).astype(np.int64)

    def location(self, which: int | np.ndarray) -> Location:
        if self.path is None:
            return super().location(which)
        if isinstance(which, int):
            return Location(self.path, self._number(which) * 10, 9)
        ids = self._numbers(which)
        return Location(np.zeros(len(ids), np.int64), ids * 10, np.full(len(ids), 9))

    def raw(self, which: int) -> bytes:
        if self.path is None:
            return super().raw(which)
        return json.dumps(self.records[self._number(which)]).encode()

    def _records(self, ids: np.ndarray) -> list[Any]:
        self.calls.append(("records", len(ids)))
        return [self.records[number] for number in ids.tolist()]

    def _columns(self, ids: np.ndarray, schema: pa.Schema) -> pa.RecordBatch:
        self.calls.append(("columns", len(ids)))
        return pa.RecordBatch.from_pylist(self._picked(ids), schema)

    def _inferred(self, ids: np.ndarray) -> pa.RecordBatch:
        self.calls.append(("inferred", len(ids)))
        return self._batch(self._picked(ids))

    def _picked(self, ids: np.ndarray) -> list[dict[str, Any]]:
        return [self.records[number] for number in ids.tolist()]

    def _batch(self, rows: list[dict[str, Any]]) -> pa.RecordBatch:
        names = dict.fromkeys(name for row in rows for name in row)
        columns = [pa.array([row.get(name) for row in rows]) for name in names]
        return pa.RecordBatch.from_arrays(columns, list(names))
