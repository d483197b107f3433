"""A toy format with a scanner of its own, complete in this file, and the row for it.

A record is a paragraph of lines `name: value`; a blank line ends it. Files can be cut into parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.datasets import Dataset
from penstock.decode import fit_batch
from penstock.index import Format, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from penstock.storage import OpenFile

END = b"\n\n"
PARAGRAPHS = Format(
    "paragraphs",
    "paragraphs",
    "tests.datasets.paragraphs:ParagraphRows",
    suffixes=(".rec",),
    compressions=(".zst",),
    scanner="tests.datasets.paragraphs:ParagraphScanner",
    has_index=True,
)


def decoded(text: bytes) -> dict[str, str | int]:
    """Return the fields of a record."""
    fields: dict[str, str | int] = {}
    for line in text.decode().strip().splitlines():
        name, colon, value = line.partition(": ")
        if not colon:
            raise ValueError(f"no colon in {line!r}")
        fields[name] = int(value) if value.isdecimal() else value
    return fields


class ParagraphScanner(Scanner):
    kind = "paragraphs"
    decode = staticmethod(decoded)

    def begin(
        self, path: str, facts: Mapping[str, Any] | None = None, start: int = 0
    ) -> ParagraphScan:
        del path, facts, start
        return ParagraphScan()

    def cuts(self, file: OpenFile, start: int, step: int) -> Iterator[int]:
        at = start + step
        while at < file.size:
            text = file.read_at(at - 2, file.size - at + 2)  # A toy reads all of it.
            at += text.find(END) if END in text else file.size
            if at < file.size:
                yield at
            at += step


class ParagraphScan:
    """Finds the ends of paragraphs; see `penstock.index.Scanner`."""

    def __init__(self) -> None:
        self._text, self._at = b"", 0

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        *whole, self._text = (self._text + bytes(block)).split(END)
        sizes = np.array([len(text) + len(END) for text in whole], np.int64)
        ends = self._at + np.cumsum(sizes)
        self._at = int(ends[-1]) if len(ends) else self._at
        return np.stack([ends - sizes, sizes], axis=1)

    def finish(self) -> NDArray[np.int64]:
        rest = [[self._at, len(self._text)]] if self._text else []
        return np.array(rest, np.int64).reshape(-1, 2)

    def facts(self) -> dict[str, object]:
        return {}


class ParagraphRows(Dataset):
    """The records of such files; values are texts and numbers."""

    def _process_sample(self, sample_bytes: bytes) -> dict[str, str | int]:
        return decoded(sample_bytes)

    def _columns(self, ids: NDArray[np.int64], schema: pa.Schema) -> pa.RecordBatch:
        batch = self._inferred(ids)
        there = [name for name in schema.names if name in batch.schema.names]
        return fit_batch(batch.select(there), schema, ids)

    def _inferred(self, ids: NDArray[np.int64]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(self._records(ids))
