"""Tokens as they are stored: what a batch is without an encoder."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock._lazy import require
from penstock.loading._recipes import BaseRecipe, Records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import torch
    from numpy.typing import NDArray

    from penstock.batch import BatchPosition
    from penstock.datasets import Source
    from penstock.loading._recipes import Ids, Valid

    Array = NDArray[Any]


class TokenRecipe(BaseRecipe):
    """Samples of one size as they are stored: a tensor of their type, with `ids` and `valid`.

    Both are as in `Records`. A copy of the tensor does not have them.
    """

    schema = None
    reads_tokens = True
    is_cut_last = True
    has_even_rows = True

    def describe(self) -> str:
        return "a tensor of the tokens as they are stored, for no encode was given"

    def read(self, source: Source, ids: Ids) -> Array:
        rows: Array = source.read(ids)
        return rows

    def filled(self, read: Array, rows: Ids, source: Source) -> Array:
        found = np.zeros((len(rows), *read.shape[1:]), read.dtype)
        found[rows >= 0] = read[rows[rows >= 0]]
        return found

    def make(self, read: Array, where: BatchPosition) -> Array:
        return read

    def hand_over(self, made: Array, where: BatchPosition, valid: Valid) -> torch.Tensor:
        tokens: torch.Tensor = _torch().from_numpy(made)
        tokens.ids, tokens.valid = where.ids, valid  # type: ignore[attr-defined]
        return tokens

    def hand_over_all(
        self, made: Array, where: BatchPosition, count: int
    ) -> Iterator[torch.Tensor]:
        from_numpy = _torch().from_numpy
        ids = where.ids.reshape(count, -1)
        # A tensor for each, not parts of one: saving a batch then saves only its own rows.
        for rows, own in zip(made.reshape(*ids.shape, -1), ids, strict=True):
            batch: torch.Tensor = from_numpy(rows)
            batch.ids, batch.valid = own, None  # type: ignore[attr-defined]
            yield batch


class SampleRecipe(BaseRecipe):
    """Samples of different lengths as they are stored: a list of tensors."""

    schema = None
    reads_tokens = True

    def describe(self) -> str:
        return "a list of tensors, for samples have different lengths and no encode was given"

    def read(self, source: Source, ids: Ids) -> list[Array]:
        return list(source.read(ids))

    def filled(self, read: list[Array], rows: Ids, source: Source) -> list[Array | None]:
        return [None if row < 0 else read[row] for row in rows.tolist()]

    def size(self, read: list[Array]) -> int:
        return sum(one.nbytes for one in read)

    def make(self, read: list[Array], where: BatchPosition) -> list[Array]:
        return read

    def hand_over(self, made: list[Array | None], where: BatchPosition, valid: Valid) -> Records:
        from_numpy = _torch().from_numpy
        records = Records(None if one is None else from_numpy(one) for one in made)
        records.ids, records.valid = where.ids, valid
        return records


@cache
def _torch() -> ModuleType:
    return require("torch", extra="torch", purpose="a batch of tensors")
