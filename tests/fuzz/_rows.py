"""Rows of tokens through every door that needs no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from tests.fuzz._format import Door, Format, check, command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from penstock.datasets import TokenSource
    from tests.fuzz._format import Values


class TokenRows(Format):
    """Folders, or pairs of files, each a part of the sample by itself."""

    always, more = 0, 4

    def place(self, folder: Path, damaged: str) -> Path:
        """Return what is opened."""
        return folder / damaged.partition("/")[0]

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        path = self.place(folder, damaged)
        return [
            Door("open", lambda: _rows(penstock.open(path))),
            Door("one by one", lambda: _one_by_one(penstock.open(path))),
            Door("arrow", lambda: _arrow(penstock.open(path))),
            Door("ends", lambda: _ends(penstock.open(path))),
            Door("windows", lambda: _windows(penstock.open(path))),
            Door("batch", lambda: _batch(penstock.open(path))),
            Door("info", lambda: command("info", path)),
            check(path),
        ]

    def difference(
        self, seen: Mapping[str, Values], sound: Mapping[str, Values], damaged: str
    ) -> str | None:
        several = [seen[name] for name in ("open", "one by one", "arrow") if name in seen]
        if len({repr(rows) for rows in several}) > 1:
            return f"rows differ by door: {several!r:.400}"
        if several and "ends" in seen and len(seen["ends"][0]) != len(several[0]):
            return f"{len(several[0])} rows have {len(seen['ends'][0])} lengths"
        return None


def _everything(source: TokenSource) -> np.ndarray:
    return np.arange(len(source), dtype=np.int64)


def _some(source: TokenSource) -> np.ndarray:
    """Return the numbers of the first and last rows: windows may be as many as metadata says."""
    return np.unique([*range(len(source))[:50], *range(len(source))[-50:]]).astype(np.int64)


def _rows(source: TokenSource) -> Values:
    return [row.tolist() for row in source.read(_everything(source))]


def _one_by_one(source: TokenSource) -> Values:
    return [source[number].tolist() for number in range(len(source))]


def _arrow(source: TokenSource) -> Values:
    batch = source.arrow(_everything(source))
    batch.validate(full=True)
    return [row["tokens"] for row in batch.to_pylist()]


def _ends(source: TokenSource) -> Values:
    ids = _everything(source)
    ends = source.document_ends(ids)
    lengths = source.lengths(ids).tolist()
    return lengths, None if ends is None else [part.tolist() for part in ends]


def _windows(source: TokenSource) -> Values:
    if not source.is_stream:
        return None
    windows = source.windows(7, 3, ahead=1)
    return [row.tolist() for row in windows.read(_some(windows))]


def _batch(source: TokenSource) -> Values:
    """Return the arrays that a batch of all rows has."""
    size = source.sample_size or 8
    known = source.document_ends(np.zeros(0, np.int64)) is not None
    encode = penstock.Tokens(size, shift=False, boundaries=known)
    rows = encode.over(source)
    arrays: dict[str, Any] = encode.arrays_of(encode.rows(rows, _some(rows)))
    return {name: np.asarray(value).tolist() for name, value in arrays.items()}
