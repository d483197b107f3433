"""Fields of a batch: tensors, and what is made of several of them."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from penstock._lazy import require
from penstock._words import counted
from penstock.datasets import CategoryType, Dense, FieldType, ListOf, NumberType, Optional, UpTo
from penstock.errors import OptionError

if TYPE_CHECKING:
    from types import ModuleType

    import torch
    from numpy.typing import NDArray

    Device: TypeAlias = str | int | torch.device | None


@cache  # Asked for every tensor.
def torch_library() -> ModuleType:
    return require("torch", extra="torch", purpose="a batch of tensors")


def tensor(array: NDArray[Any]) -> torch.Tensor:
    """Return a tensor over the memory of an array; over a copy if that is read-only."""
    flags = array.flags
    # `np.require` does the same in ten times the time.
    if not (flags.c_contiguous and flags.writeable):
        array = np.array(array, order="C")
    made: torch.Tensor = torch_library().from_numpy(array)
    return made


def decorated(type_: FieldType, arrays: Any, vocabulary: Sequence[Any]) -> Any:
    """Return the value of a batch for the arrays that `_arrays.encoded` made of a column."""
    match type_:
        case NumberType() | Dense():
            return tensor(arrays)
        case CategoryType():
            return Categories(tensor(arrays), vocabulary)
        case Optional():
            return Masked(*map(tensor, arrays))
        case UpTo():
            return Padded(*map(tensor, arrays))
        case ListOf() if isinstance(arrays, tuple):
            values, offsets = arrays
            return Jagged(decorated(type_.item, values, ()), offsets=tensor(offsets))
    return arrays


class Movable(ABC):
    """An object made of tensors, which are moved together into a new object."""

    __slots__ = ()

    @abstractmethod
    def _parts(self) -> tuple[Any, ...]:
        """Return its parts; those that are no tensors stay as they are."""

    def _of(self, *parts: Any) -> Self:
        """Return a copy with other parts."""
        return type(self)(*parts)

    def to(self, device: Device, *, non_blocking: bool = False) -> Self:
        """Return it with all tensors on a device; arguments are those of `torch.Tensor.to`."""
        if type(device).__name__ == "dtype":
            raise OptionError(
                f"to({device}): a batch moves to a device and keeps its types. Choose them in the "
                f"field types, or convert single tensors"
            )
        return self._each("to", device, non_blocking=non_blocking)

    def pin_memory(self) -> Self:
        """Return it with all tensors in page-locked memory, from where a GPU copies faster."""
        return self._each("pin_memory")

    def _each(self, method: str, *args: Any, **kwargs: Any) -> Self:
        """Return it with what a method returns for each part that has it."""
        parts = (
            getattr(part, method)(*args, **kwargs) if hasattr(part, method) else part
            for part in self._parts()
        )
        return self._of(*parts)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory of all tensors until the work now queued on a CUDA stream is done."""
        for part in self._parts():
            if hasattr(part, "record_stream"):
                part.record_stream(stream)


class _Pair(Movable):
    """Two parts of as many rows; a tuple to those who unpack it."""

    __slots__: tuple[str, ...] = ()

    # No named tuple: libraries that move batches by rebuilding tuples (transformers, for one) pass
    # the parts as one argument. Tensors compare by element, so equality is identity.
    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.__slots__)

    def __len__(self) -> int:
        return len(self._parts()[0])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts())


@dataclass(frozen=True, slots=True, eq=False)
class Masked(_Pair):
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


@dataclass(frozen=True, slots=True, eq=False)
class Padded(_Pair):
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


@dataclass(frozen=True, slots=True, eq=False)
class Categories(_Pair):
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


class Jagged(Movable):
    """Lists of different lengths: their values one after the other, and how long each list is.

    Either `lengths` (int64[B]) or `offsets` (int64[B + 1], from 0 to the number of values) say
    which values are whose; the other follows. The values of lists of lists are a `Jagged`.

    >>> import torch
    >>> tags = Jagged(torch.tensor([3, 1, 4, 1]), lengths=torch.tensor([2, 0, 2]))
    >>> tags.offsets, tags[0], len(tags)
    (tensor([0, 2, 2, 4]), tensor([3, 1]), 3)
    >>> tags.to_padded(fill=-1)
    tensor([[ 3,  1],
            [-1, -1],
            [ 4,  1]])
    """

    __slots__ = ("offsets", "values")

    values: torch.Tensor | Jagged
    """[N, …], all rows' values; for lists of lists the inner lists."""
    offsets: torch.Tensor
    """Where each row begins, and the last one ends, int64[B + 1]."""

    def __init__(
        self,
        values: torch.Tensor | Jagged,
        lengths: torch.Tensor | None = None,
        offsets: torch.Tensor | None = None,
    ) -> None:
        for name, given in (("lengths", lengths), ("offsets", offsets)):
            if given is not None and (given.ndim != 1 or given.is_floating_point()):
                raise OptionError(
                    f"{name} are integers of one axis, not {given.dtype} of {tuple(given.shape)}"
                )
        if offsets is None:
            if lengths is None:
                raise OptionError("a Jagged needs lengths or offsets: which values are whose?")
            offsets = lengths.new_zeros(len(lengths) + 1)
            offsets[1:] = lengths.cumsum(0)
        self.values = values
        self.offsets = offsets
        rows = max(1, len(offsets)) - 1 if lengths is None else len(lengths)
        if len(offsets) != rows + 1:
            raise OptionError(
                f"{counted(len(offsets), 'offset', ('does', 'do'))} not fit "
                f"{counted(rows, 'row')}: there is one more"
            )
        # On a device, without waiting for the numbers.
        first, last = 0, len(values)
        if offsets.is_cpu:  # An index of two would cost as much as a batch of short lists.
            first, last = int(offsets[0]), int(offsets[-1])
        if (first, last) != (0, len(values)):
            raise OptionError(
                f"the rows go from {first:,} to {last:,}, and there are {len(values):,} values: "
                "offsets begin with 0 and end with their number, and lengths add up to it"
            )

    @property
    def lengths(self) -> torch.Tensor:
        """How many values each row has, int64[B]."""
        return self.offsets.diff()

    def __len__(self) -> int:
        return len(self.offsets) - 1

    # A loop over rows works by `__getitem__`. There is no `__iter__`: code that guesses the size of
    # a batch by iterating (Lightning's `self.log`) would take the length of a row for it.
    def __getitem__(self, row: int) -> Any:
        """Return the values of a row: a tensor, or a `Jagged` for lists of lists."""
        row = operator.index(row)
        if not -len(self) <= row < len(self):
            raise IndexError(f"there is no row {row}: there are {len(self):,}")
        start, stop = self.offsets[row % len(self) :][:2].tolist()
        return _slice(self.values, start, stop)

    def tolist(self) -> list[Any]:
        """Return the rows as Python lists."""
        values, offsets = self.values.tolist(), self.offsets.tolist()
        return [values[a:b] for a, b in pairwise(offsets)]

    def to_padded(self, fill: float = 0) -> torch.Tensor:
        """Return the rows filled up to the longest, [B, longest, …]."""
        values = self.values.to_padded(fill) if isinstance(self.values, Jagged) else self.values
        padded = values.new_full((len(self), self._longest(), *values.shape[1:]), fill)
        padded[Padded(padded, self.lengths).mask] = values
        return padded

    @classmethod
    def from_padded(cls, padded: torch.Tensor, lengths: torch.Tensor) -> Jagged:
        """Return the first `lengths` values of each row of a tensor [B, longest, …]."""
        return cls(padded[Padded(padded, lengths).mask], lengths=lengths)

    def to_nested(self) -> torch.Tensor:
        """Return the rows as a nested tensor of torch, of the jagged layout; nothing is copied."""
        import torch  # noqa: PLC0415 (torch)

        if isinstance(self.values, Jagged):
            raise OptionError(
                "torch has no nested tensors of lists of lists: use to_padded(), or "
                "values.to_nested() for the inner lists"
            )
        # Without max_seqlen, torch pads to the number of all values.
        return torch.nested.nested_tensor_from_jagged(
            self.values, self.offsets, min_seqlen=0, max_seqlen=self._longest()
        )

    def _longest(self) -> int:
        return int(self.lengths.max()) if len(self) else 0

    def _parts(self) -> tuple[Any, ...]:
        return self.values, None, self.offsets

    def __repr__(self) -> str:
        kind = "lists" if isinstance(self.values, Jagged) else self.values.dtype
        return f"Jagged({counted(len(self), 'row')}, {counted(len(self.values), 'value')}, {kind})"


def _slice(values: torch.Tensor | Jagged, start: int, stop: int) -> torch.Tensor | Jagged:
    if not isinstance(values, Jagged):
        return values[start:stop]
    offsets = values.offsets[start : stop + 1]
    inner = _slice(values.values, *offsets[[0, -1]].tolist())
    return Jagged(inner, offsets=offsets - offsets[0])
