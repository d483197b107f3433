"""The contract of a piece of work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Unit(Protocol):
    """A piece of work, such as a range of records, that any process can run by itself.

    Small and picklable; its class lives in a module that can be imported. It publishes its output
    whole or not at all, under a name that identifies the unit: a later run sees what is done, and
    running a unit twice does no harm. `str(unit)` names it in errors.
    """

    @property
    def size(self) -> int:
        """How much there is to do, in the unit that the progress counts."""
        ...

    def is_done(self) -> bool:
        """Whether its output was published, by this run or by one before."""
        ...

    def run(self, advance: Callable[[int], object]) -> None:
        """Do the work and publish the output.

        It may call `advance` in its own thread with the amount done since; the rest of `size`
        counts when this returns.
        """
        ...
