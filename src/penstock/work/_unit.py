"""What a piece of work is to those who run it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Unit(Protocol):
    """A piece of work, such as a range of records, that any process can do by itself.

    Small and picklable; its class lives in a module that can be imported. What it makes it
    publishes under a name that says which unit it was, as a whole or not at all: so whoever comes
    later knows what is done already, and to do it twice does no harm. `str(unit)` names it in
    errors.
    """

    @property
    def size(self) -> int:
        """How much there is to do, in whatever the progress counts."""
        ...

    def is_done(self) -> bool:
        """Whether its output was published, by this run or by one before."""
        ...

    def run(self, advance: Callable[[int], object]) -> None:
        """Do the work and publish what it made.

        `advance` may be told, in the thread that runs this and as often as one likes, how much
        more is done; what it was not told of `size` counts when this returns.
        """
        ...
