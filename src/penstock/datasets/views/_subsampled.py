"""A random part of a dataset."""

from __future__ import annotations

import operator
import secrets
from collections.abc import Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar, overload

import numpy as np

from penstock.datasets._numbers import record_number
from penstock.datasets._once import Once
from penstock.errors import OptionError
from penstock.order import Permutation

T_co = TypeVar("T_co", covariant=True)

_STEP = 1000
"""Records that iteration fetches at a time."""


class MapStyle(Protocol[T_co]):
    """An object with a length that answers by number: a source, a list, a dataset for torch."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> T_co: ...


class SubsampledDataset(Generic[T_co]):
    """A share of a dataset's records, drawn without replacement.

    `int(subsample_factor * len(dataset))` records, in the dataset's own order (8 bytes a record,
    found again by every process) or, with `random_order`, in a random one (no memory at all). The
    same seed chooses the same records either way. Without one a seed is drawn here, kept in `seed`
    and in copies of other processes.

    It takes any map-style dataset and is one itself. `source.split(part=0.1, rest=0.9).part` is a
    random part of a `Source` that is a source again.

    >>> SubsampledDataset("abcdefghij", 0.3, seed=1)[:]
    ['b', 'f', 'j']
    >>> SubsampledDataset("abcdefghij", 0.3, seed=1, random_order=True)[:]
    ['b', 'f', 'j']
    """

    def __init__(
        self,
        dataset: MapStyle[T_co],
        subsample_factor: float,
        seed: int | None = None,
        random_order: bool = False,  # noqa: FBT001, FBT002 (positional where it comes from)
    ) -> None:
        if not 0 < subsample_factor <= 1:
            raise OptionError(
                f"subsample_factor={subsample_factor!r}: the share of records to keep is above 0 "
                "and at most 1."
            )
        self.dataset = dataset
        self.subsample_factor = subsample_factor
        self.seed = secrets.randbits(63) if seed is None else operator.index(seed)
        self.random_order = bool(random_order)
        records = len(dataset)
        self._length = int(subsample_factor * records)
        self._order = Permutation(records, self.seed)
        self._sorted: Once[np.ndarray] = Once()

    def _sort(self) -> np.ndarray:
        return np.sort(self._order.positions(0, self._length))

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, which: int) -> T_co: ...
    @overload
    def __getitem__(self, which: slice | Sequence[int] | np.ndarray) -> list[T_co]: ...
    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return self.__getitems__(range(*which.indices(self._length)))
        if isinstance(which, list | tuple | range) or np.ndim(which):
            return self.__getitems__(which)
        return self.dataset[self._chosen([which])[0]]

    def __getitems__(self, numbers: Sequence[int]) -> list[T_co]:
        """Return many records at once, as torch's own loader asks for a batch."""
        chosen = self._chosen(numbers)
        many = getattr(self.dataset, "__getitems__", None)
        if many is not None:
            records: list[T_co] = list(many(chosen))
            return records
        return [self.dataset[number] for number in chosen]

    def __iter__(self) -> Iterator[T_co]:
        for start in range(0, self._length, _STEP):
            yield from self.__getitems__(range(start, min(start + _STEP, self._length)))

    def _chosen(self, numbers: Sequence[int]) -> list[int]:
        places = np.array([record_number(number, self._length) for number in numbers], np.int64)
        ids = self._order.at(places) if self.random_order else self._sorted.get(self._sort)[places]
        chosen: list[int] = ids.tolist()
        return chosen
