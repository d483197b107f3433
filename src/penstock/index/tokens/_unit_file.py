"""The file in which a unit publishes tokens: those of all documents, their lengths, the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penstock.index.checked._checks import Aside  # noqa: TC001 (msgspec reads it)
from penstock.index.checked._unit_file import damaged_unit, map_unit
from penstock.storage import LocalStore

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import NDArray

_LENGTH = np.dtype("<i8")
_SIZE_BYTES = 8


class TokensFound(msgspec.Struct):
    """What became of a part of a file."""

    documents: int
    tokens: int
    aside: list[Aside]
    newlines: int


class NewTokenFile:
    """On its way; there as a whole when it is published, and gone with its `with` block else."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._draft = LocalStore().draft(*os.path.split(path))
        self._lengths: list[NDArray[np.int64]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._draft.discard()

    def add(self, tokens: NDArray[np.integer], lengths: NDArray[np.int64]) -> None:
        """Write the tokens of some documents, of these lengths."""
        self._draft.write(np.ascontiguousarray(tokens).view(np.uint8).data)
        self._lengths.append(lengths)

    def publish(self, parts: list[TokensFound]) -> None:
        """Write the rest, and let the file appear."""
        for lengths in self._lengths:
            self._draft.write(lengths.astype(_LENGTH, copy=False).tobytes())
        rest = msgspec.msgpack.encode(parts)
        self._draft.write(rest + len(rest).to_bytes(_SIZE_BYTES, "little"))
        self._draft.publish(self._path, exclusive=False)


class TokenFile:
    """One that is there, mapped."""

    def __init__(self, path: str, dtype: np.dtype[np.integer]) -> None:
        self._map, size, self.parts = map_unit(path, list[TokensFound])
        count = sum(part.tokens for part in self.parts)
        documents = sum(part.documents for part in self.parts)
        least = min(
            (number for part in self.parts for number in (part.tokens, part.documents)), default=0
        )
        if least < 0 or count * dtype.itemsize + documents * _LENGTH.itemsize > size:
            raise damaged_unit(path, "it tells of other tokens than it holds")
        self.tokens: NDArray[np.integer] = np.frombuffer(self._map, dtype, count)
        """Of all documents."""
        self.lengths: NDArray[np.int64] = np.frombuffer(
            self._map, _LENGTH, documents, count * dtype.itemsize
        )
        """Of each document."""


def parts_in(path: str) -> list[TokensFound]:
    """Return what a unit tells of its parts."""
    return map_unit(path, list[TokensFound]).rest
