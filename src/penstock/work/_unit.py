"""Units of work, the files in which they publish their results, and how work is cut into them."""

from __future__ import annotations

import mmap
import os
import pickle
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from penstock.errors import ObjectExistsError, ObjectNotFoundError
from penstock.storage import Draft, LocalStore, Store, entry_at, join, open_regular

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")


class Unit(Protocol):
    """A piece of work, for example a range of records, that any process can do by itself.

    A unit is small and picklable; its class lives in a module that can be imported. It publishes
    its result whole or not at all, under a name that belongs to this unit: so a later run knows
    which units are done, and a unit that runs twice does no harm. `str(unit)` names it in errors.
    """

    @property
    def size(self) -> int:
        """Amount of work, in the unit that the progress counts."""
        ...

    def is_done(self) -> bool:
        """Whether the result is published, by this run or by one before."""
        ...

    def run(self, advance: Callable[[int], object]) -> None:
        """Do the work and publish the result.

        The unit may call `advance` with the amount of work done since the last call, in the thread
        that runs it. The rest of `size` counts when this returns.
        """
        ...


@dataclass(frozen=True, slots=True)
class UnitResults:
    """The folder of a store in which the units of a job publish their results, a file each."""

    folder: str
    store: Store = field(default_factory=LocalStore)
    suffix: str = ".unit"

    def name(self, number: int) -> str:
        return join(self.folder, f"{number:06}{self.suffix}")

    def finished(self) -> set[str]:
        """Return the names of the published files, by one listing."""
        try:
            return {entry.name for entry in self.store.list(self.folder)}
        except ObjectNotFoundError:
            return set()


@dataclass(frozen=True)
class PublishedUnit(ABC):
    """A unit whose result is one file in `results`; see `Unit`.

    Two workers may do the same unit: the first file that is published stays.
    """

    results: UnitResults
    number: int

    @property
    @abstractmethod
    def size(self) -> int:
        """Amount of work."""

    @abstractmethod
    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        """Do the work, and write the result."""

    @property
    def name(self) -> str:
        return self.results.name(self.number)

    def is_done(self) -> bool:
        return entry_at(self.results.store, self.name) is not None

    def run(self, advance: Callable[[int], object]) -> None:
        draft = self.results.store.draft(*os.path.split(self.name))
        try:
            self.write(draft, advance)
            with suppress(ObjectExistsError):
                draft.publish(self.name, exclusive=True)
        finally:
            draft.discard()

    def result(self) -> mmap.mmap | bytes:
        """Return the bytes of the result; a local file is mapped."""
        if isinstance(self.results.store, LocalStore):
            with open_regular(self.name) as local:
                return mmap.mmap(local.fileno(), 0, access=mmap.ACCESS_READ)
        with closing(self.results.store.open(self.name)) as file:
            return file.read_at(0, file.size)


def are_done(units: Sequence[Unit]) -> list[bool]:
    """Return for each unit whether it is done, by one listing a folder."""
    listed: dict[UnitResults, set[str]] = {}
    done = []
    for unit in units:
        if isinstance(unit, PublishedUnit):
            if unit.results not in listed:
                listed[unit.results] = unit.results.finished()
            done.append(unit.name in listed[unit.results])
        else:
            done.append(unit.is_done())
    return done


def _nothing() -> None:
    pass


class Shared(Generic[T]):
    """A value that the units of a job have in common: a process unpickles it once.

    A worker process calls `prepare`, a function of a module, before it unpickles the value.
    """

    def __init__(self, value: T, prepare: Callable[[], object] = _nothing) -> None:
        self.value = value
        self._prepare = prepare

    @cached_property
    def _pickled(self) -> bytes:
        return pickle.dumps(self.value)

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickled_once, (self._pickled, self._prepare)


@lru_cache(1)
def _unpickled_once(pickled: bytes, prepare: Callable[[], object]) -> Shared[object]:
    prepare()
    return Shared(pickle.loads(pickled), prepare)  # noqa: S301 (the parent's)


class Sized(Protocol):
    @property
    def size(self) -> int: ...


S = TypeVar("S", bound=Sized)


def grouped(parts: Iterable[S], most: int) -> list[tuple[S, ...]]:
    """Return parts in order, small ones grouped up to a size of `most`.

    A larger part is a group of its own.

    >>> import numpy as np
    >>> [[part.size for part in group] for group in grouped(map(np.zeros, [1, 2, 3, 9, 1]), 5)]
    [[1, 2], [3], [9], [1]]
    """
    groups: list[list[S]] = []
    room = 0
    for part in parts:
        if part.size > room or not groups:
            groups.append([])
            room = most
        groups[-1].append(part)
        room -= part.size
    return [*map(tuple, groups)]


def shares(
    total: int, borders: Sequence[int] | NDArray[np.int64], least: int
) -> list[tuple[int, int]]:
    """Cut `[0, total)` at some of the ascending borders into ranges of at least `least` each.

    Each is as short as that allows; only the last may be shorter. Borders at or beyond the ends are
    ignored.

    >>> shares(10, [0, 1, 4, 5, 9, 10], 4)
    [(0, 4), (4, 9), (9, 10)]
    """
    ranges, start = [], 0
    while start < total:
        at = bisect_left(borders, start + max(1, least))
        stop = min(total, int(borders[at])) if at < len(borders) else total
        ranges.append((start, stop))
        start = stop
    return ranges
