"""Batches that need not be equal: the contract of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.order._order import RecordOrder


@runtime_checkable
class Plan(Protocol):
    """Cuts an epoch into batches of any size; a loader takes it in place of a batch size.

    A pure function of its own arguments and the order, so every rank derives the same batches. At
    step s, rank r of W takes batch s·W + r. A state counts batches, so another number of ranks
    continues with the next one.
    """

    name: str
    """Part of the state, with `version`: a run continues only with the plan that it began with."""
    version: int
    """Raised whenever the same arguments would give other batches."""

    def over(self, order: RecordOrder) -> Batches:
        """Return the batches of one epoch."""
        ...


class Batches(Protocol):
    """The batches of one epoch, by number; used by one thread."""

    def __len__(self) -> int: ...

    def positions(self, number: int) -> NDArray[np.int64]:
        """Return the positions of one batch, int64[B], at least one."""
        ...
