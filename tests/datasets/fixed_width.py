"""A toy format, complete in this file: records of a fixed number of bytes, and the row for them.

A file is `FWB1`, the length of a text (uint32), the NumPy type of a record as that text, records.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets import Location, Source
from penstock.decode import as_records, fit_batch
from penstock.errors import CorruptFileError
from penstock.index import Format, digest, file_fingerprint, list_files
from penstock.storage import StorageOptions

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

MAGIC = b"FWB1"
FIXED_WIDTH = Format(
    "fixed-width",
    "fixed-width records",
    "tests.datasets.fixed_width:FixedWidthRows",
    suffixes=(".fwb",),
    first_bytes=(MAGIC,),
)


def write(path: Path, records: Sequence[tuple[Any, ...]], type_: list[tuple[str, str]]) -> Path:
    """Write a file of records."""
    head, rows = repr(type_).encode(), np.array(records, np.dtype(type_))
    path.write_bytes(MAGIC + len(head).to_bytes(4, "little") + head + rows.tobytes())
    return path


class FixedWidthRows(Source):
    """The records of files of one type; a number is an offset, so there is no index."""

    schema_is_complete = True

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        listing = list_files(path, FIXED_WIDTH.endings, StorageOptions(storage_options))
        self._files, counts, prints, self._firsts = listing.files, [], [], []
        for found in self._files:
            with found.open() as file:
                head = file.read_at(0, min(8, file.size))
                size = int.from_bytes(head[4:], "little")
                if head[:4] != MAGIC or 8 + size > file.size:
                    raise CorruptFileError(f"{found.path} has no whole head.", path=found.path)
                type_ = np.dtype(ast.literal_eval(file.read_at(8, size).decode()))
                prints.append(file_fingerprint(file))
            rows, rest = divmod(found.entry.size - 8 - size, type_.itemsize)
            if rest or (self._firsts and type_ != self._dtype):
                why = "ends inside of a record" if rest else f"has records of another type, {type_}"
                raise CorruptFileError(f"{found.path} {why}.", path=found.path)
            self._dtype = type_
            self._firsts.append(8 + size)
            counts.append(rows)
        self._starts = np.cumsum([0, *counts], dtype=np.int64)
        self._print = digest([str(self._dtype), *prints])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def fingerprint(self) -> str:
        return self._print

    @property
    def schema(self) -> pa.Schema:
        return self._inferred(np.arange(0)).schema

    @property
    def files(self) -> list[str]:
        return [found.path for found in self._files]

    @property
    def blocks(self) -> NDArray[np.int64]:
        return np.unique(self._starts)

    def location(self, which: Any) -> Location:
        ids = np.atleast_1d(self._numbers(which) if np.ndim(which) else self._number(which))
        files = np.searchsorted(self._starts, ids, "right") - 1
        offsets = np.array(self._firsts)[files] + (ids - self._starts[files]) * self._dtype.itemsize
        if np.ndim(which):
            return Location(files, offsets, np.full(len(ids), self._dtype.itemsize))
        return Location(self.files[files[0]], int(offsets[0]), self._dtype.itemsize)

    def _records(self, ids: NDArray[np.int64]) -> list[Any]:
        return as_records(self._inferred(ids), ids)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        batch = self._inferred(ids)
        there = [name for name in schema.names if name in batch.schema.names]
        return fit_batch(batch.select(there), schema, ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        rows, at = np.zeros(len(ids), self._dtype), self.location(ids)
        for number in np.unique(at.file).tolist():
            here = np.flatnonzero(at.file == number)
            with self._files[number].open() as file:
                texts = [file.read_at(o, self._dtype.itemsize) for o in at.offset[here].tolist()]
            rows[here] = np.frombuffer(b"".join(texts), self._dtype)
        columns = {name: rows[name] for name in self._dtype.names or ()}
        texts = {name: one.astype("U") for name, one in columns.items() if one.dtype.kind == "S"}
        return pa.RecordBatch.from_pydict(columns | texts)
