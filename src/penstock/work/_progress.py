"""Progress of long work: a bar, or a user's own view."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.errors import OptionError
from penstock.storage import rank

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self


@runtime_checkable
class View(Protocol):
    """Receives the progress of work."""

    def add(self, count: int) -> object:
        """Count an amount that was done; negative where work starts again."""
        ...


class Progress:
    """A bar; by default shown in a terminal, by rank 0 alone."""

    def __init__(self, total: int, shown: bool | None, what: str, unit: str = "B") -> None:  # noqa: FBT001 (three-valued, as users give it)
        from tqdm import tqdm  # noqa: PLC0415 (only where work is long)

        if sys.stderr is None or sys.stderr.closed:
            # As in a service.
            shown = False
        elif shown is None:
            shown = sys.stderr.isatty() and rank() == 0
        self._bar = tqdm(
            total=total, unit=unit, unit_scale=True, desc=what, disable=not shown, leave=False
        )

    def add(self, count: int) -> None:
        """Count what was done."""
        self._bar.update(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


@contextmanager
def viewed(shown: bool | View | None, total: int, what: str, unit: str = "B") -> Iterator[View]:  # noqa: FBT001 (as users give it)
    """Yield the view that `progress=` asks for: a bar, none, or one of the caller's own.

    >>> with viewed(False, 10, "counting", unit="records") as view:
    ...     view.add(10)
    """
    if shown is None or isinstance(shown, bool):
        with Progress(total, shown, what, unit) as bar:
            yield bar
    elif isinstance(shown, View):
        yield shown
    else:
        raise OptionError(
            f"progress={shown!r}: expected True, False, None (a bar in a terminal), or an object "
            "with a method add(count)."
        )
