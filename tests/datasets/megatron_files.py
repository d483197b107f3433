"""Megatron-LM datasets, written from what is known of the format."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint16": 8}


def write_megatron(
    prefix: Path,
    documents: Sequence[Sequence[Sequence[int]]],
    dtype: str = "uint16",
    *,
    has_modes: bool = False,
) -> list[NDArray[Any]]:
    """Write documents, each of some sequences; return the sequences."""
    rows = [np.array(row, dtype) for document in documents for row in document]
    prefix.with_suffix(".bin").write_bytes(b"".join(row.tobytes() for row in rows))
    lengths = [len(row) for row in rows]
    borders = np.cumsum([0, *map(len, documents)])
    modes = bytes(len(rows)) if has_modes else b""
    index = idx_bytes(CODES[dtype], lengths, np.dtype(dtype).itemsize, borders.tolist())
    prefix.with_suffix(".idx").write_bytes(index + modes)
    return rows


def idx_bytes(code: int, lengths: Sequence[int], item: int, borders: Sequence[int]) -> bytes:
    """Return the index of sequences that lie one after the other."""
    places = np.cumsum([0, *lengths])[:-1] * item
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(borders))
    arrays = [np.array(lengths, "<i4"), places.astype("<i8"), np.array(borders, "<i8")]
    return head + b"".join(array.tobytes() for array in arrays)
