"""Running mean and variance, and counts of classes, that merge over ranks."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray


@dataclass(frozen=True, slots=True)
class Moments:
    """What is kept of values."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """The sum of squared distances from the mean."""

    @classmethod
    def of(cls, count: object, mean: object, squares: object) -> Moments:
        """Return what a saved state holds."""
        return cls(int(count), float(mean), float(squares))  # type: ignore[call-overload, arg-type]

    def with_(self, other: Moments) -> Moments:
        whole = self.count + other.count
        if not other.count or not self.count:
            return self if self.count else other
        apart = other.mean - self.mean
        return Moments(
            whole,
            self.mean + apart * other.count / whole,
            self.squares + other.squares + apart * apart * self.count * other.count / whole,
        )


class RunningStats:
    """The count, mean and variance of the values seen so far.

    >>> one, other = RunningStats(), RunningStats()
    >>> one.update(np.array([1.0, 2.0]))
    >>> other.update(np.array([6.0]))
    >>> one.merge(other)
    >>> one.count, one.mean, round(one.variance, 6)
    (3, 3.0, 4.666667)
    """

    def __init__(self) -> None:
        self._known = Moments()
        """Of the values that all ranks know."""
        self._own = Moments()
        """Of the values that only this rank has seen."""

    @property
    def count(self) -> int:
        return self._known.count + self._own.count

    @property
    def mean(self) -> float:
        return self._known.with_(self._own).mean

    @property
    def variance(self) -> float:
        """The variance of the values themselves, not an estimate of a larger population's."""
        return self._known.with_(self._own).squares / self.count if self.count else 0.0

    @property
    def std(self) -> float:
        return math.sqrt(self.variance)

    def update(self, values: ArrayLike) -> None:
        """Add values, of any shape."""
        wide = np.asarray(values).astype(np.float64).reshape(-1)
        if wide.size:
            mean = float(wide.mean())
            wide -= mean
            self._own = self._own.with_(Moments(wide.size, mean, float(wide @ wide)))

    def merge(self, other: Self) -> None:
        """Add the values that another one has seen."""
        self._own = self._own.with_(other._known.with_(other._own))

    def mark(self) -> tuple[Moments, Moments]:
        """Return what `state_dict` makes the present state of later."""
        return self._known, self._own

    def state_dict(self, mark: tuple[Moments, Moments] | None = None) -> dict[str, list[float]]:
        known, own = mark or self.mark()
        return {"known": [*astuple(known)], "own": [*astuple(own)]}

    def load_state_dict(self, state: Mapping[str, Any], *, with_own: bool = True) -> None:
        """Take the values of a saved state; its own ones belong to the rank that saved it."""
        self._known = Moments.of(*state["known"])
        self._own = Moments.of(*state["own"]) if with_own else Moments()


class ClassCounts:
    """How often each class came, each once from the beginning; rare classes weigh more.

    >>> colours = ClassCounts(3)
    >>> colours.update(np.array([0, 0, 2, 0]))
    >>> colours.counts.tolist(), colours.weights.round(3).tolist()
    ([4, 1, 2], [0.793, 1.586, 1.121])
    """

    def __init__(self, size: int) -> None:
        self._known = np.zeros(size, np.int64)
        """What all ranks know."""
        self._own = np.zeros(size, np.int64)
        """What only this rank has seen."""

    @property
    def counts(self) -> NDArray[np.int64]:
        return 1 + self._known + self._own

    @property
    def weights(self) -> NDArray[np.float64]:
        """The weight of each class in a loss: c ** -½ · Σ c / Σ c ** ½."""
        counts = self.counts.astype(np.float64)
        return np.asarray(counts**-0.5 * counts.sum() / np.sqrt(counts).sum())

    def update(self, classes: NDArray[Any]) -> None:
        """Count classes, given by their numbers, of any shape."""
        np.add.at(self._own, classes.reshape(-1), 1)

    def mark(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what `state_dict` makes the present state of later."""
        return self._known, self._own.copy()

    def state_dict(self, mark: Any = None) -> dict[str, Any]:
        """Return how many classes there are, which of them came, and how often."""
        return _counts_state(*(mark or (self._known, self._own)))

    def load_state_dict(self, state: Mapping[str, Any], *, with_own: bool = True) -> None:
        """Take the counts of a saved state; its own ones belong to the rank that saved it.

        Counts of another number of classes are none of these classes, and are left out.
        """
        size = len(self._known)
        is_same = state["size"] == size
        self._known = _dense(size, state["known"] if is_same else _NONE)
        self._own = _dense(size, state["own"] if is_same and with_own else _NONE)


_NONE: list[list[int]] = [[], []]


def _counts_state(known: NDArray[np.int64], own: NDArray[np.int64]) -> dict[str, Any]:
    def sparse(counts: NDArray[np.int64]) -> list[list[int]]:
        (classes,) = counts.nonzero()
        return [classes.tolist(), counts[classes].tolist()]

    return {"size": len(known), "known": sparse(known), "own": sparse(own)}


def _dense(size: int, sparse: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    classes, counts = sparse
    found = np.zeros(size, np.int64)
    found[np.array(classes, np.int64)] = counts
    return found


def agreed_counts(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the counts that all ranks share, given the state of each in their order."""
    size = states[0]["size"]
    whole = _dense(size, states[0]["known"])
    for state in states:
        whole += _dense(size, state["own"])
    return _counts_state(whole, np.zeros_like(whole))


def agreed(states: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the state that all ranks share, given the state of each in their order."""
    whole: Moments | None = None
    for state in states:
        whole = (Moments(*state["known"]) if whole is None else whole).with_(Moments(*state["own"]))
    return {"known": [*astuple(whole or Moments())], "own": [*astuple(Moments())]}
