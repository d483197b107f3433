"""Fields that are more than one tensor: values with a mask, padded lists, categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.batch._moving import Movable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


# No named tuples: libraries that move batches by rebuilding tuples (transformers, for one) pass the
# parts as one argument. Tensors compare by element, so equality is identity.
@dataclass(frozen=True, slots=True, eq=False)
class Masked(Movable):
    """Values of which some are missing: the field type `int64?`.

    >>> import torch
    >>> values, mask = Masked(torch.tensor([7, 0]), torch.tensor([True, False]))
    >>> mask
    tensor([ True, False])
    """

    values: torch.Tensor
    """[B, …], 0 where there is no value."""
    mask: torch.Tensor
    """bool[B], True where there is a value."""

    def __len__(self) -> int:
        return len(self.mask)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter((self.values, self.mask))

    def _parts(self) -> tuple[Any, ...]:
        return self.values, self.mask

    def _of(self, *parts: Any) -> Masked:
        return Masked(*parts)


@dataclass(frozen=True, slots=True, eq=False)
class Padded(Movable):
    """Lists filled up, or cut, to one length: the field type `int64[:50]`.

    >>> import torch
    >>> padded = Padded(torch.tensor([[3, 4, 0], [0, 0, 0]]), torch.tensor([2, 0]))
    >>> padded.mask
    tensor([[ True,  True, False],
            [False, False, False]])
    """

    values: torch.Tensor
    """[B, longest, …]"""
    lengths: torch.Tensor
    """int64[B]: how many of each row's values are its own, at most the longest."""

    @property
    def mask(self) -> torch.Tensor:
        """bool[B, longest], True where a value is the row's own."""
        import torch  # noqa: PLC0415 (torch)

        slots = torch.arange(self.values.shape[1], device=self.lengths.device)
        return slots < self.lengths[:, None]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter((self.values, self.lengths))

    def _parts(self) -> tuple[Any, ...]:
        return self.values, self.lengths

    def _of(self, *parts: Any) -> Padded:
        return Padded(*parts)


@dataclass(frozen=True, slots=True, eq=False)
class Categories(Movable):
    """Values as numbers: the field type `category`.

    >>> import torch
    >>> Categories(torch.tensor([1, -1, 0]), ["de", "fr"]).decoded()
    ['fr', None, 'de']
    """

    codes: torch.Tensor
    """int64[B]: where each value stands in the vocabulary, -1 if it does not or is null."""
    vocabulary: Sequence[Any]
    """The values in the order of their codes; the same object in every batch, not a copy."""

    def decoded(self) -> list[Any]:
        """Return the values, None where the code is -1."""
        return [None if code < 0 else self.vocabulary[code] for code in self.codes.tolist()]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.codes, self.vocabulary))

    def _parts(self) -> tuple[Any, ...]:
        return self.codes, self.vocabulary

    def _of(self, *parts: Any) -> Categories:
        return Categories(*parts)
