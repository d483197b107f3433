"""The progress of long work: a bar, or a view of the caller's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, Self, runtime_checkable

from penstock.errors import OptionError
from penstock.storage import rank


@runtime_checkable
class View(Protocol):
    """An object that shows how far work is."""

    def add(self, count: int) -> object:
        """Count finished work; a negative count where some of it is done again."""
        ...


class Bar:
    """A bar: by default in a terminal and on rank 0 alone.

    `read` may be called in another thread than `show`.
    """

    def __init__(
        self,
        total: int,
        shown: bool | None = None,  # noqa: FBT001 (three-valued, as users give it)
        what: str | None = None,
        unit: str = "B",
    ) -> None:
        self._total = total
        self._done = 0
        self._bar: Any = None
        # A service may have no stderr at all.
        has_stderr = sys.stderr is not None and not sys.stderr.closed
        # A bar that was not asked for waits, so that short work shows nothing.
        delay = 0.5 if shown is None else 0
        if shown is None:
            shown = has_stderr and sys.stderr.isatty() and rank() == 0
        if shown and has_stderr:
            from tqdm import tqdm  # noqa: PLC0415 (only for a terminal)

            unit = unit if unit == "B" else f" {unit}"
            self._bar = tqdm(
                total=total,
                unit=unit,
                unit_scale=True,
                desc=what,
                delay=delay,
                leave=False,
                dynamic_ncols=True,
            )

    def read(self, count: int) -> None:
        """Count finished work without showing it."""
        # Some bytes are read twice (the table at the end of a file): the total is the limit.
        self._done = min(self._total, self._done + count)

    def show(self) -> None:
        if self._bar is not None:
            self._bar.update(self._done - self._bar.n)

    def add(self, count: int) -> None:
        """Count finished work and show it."""
        self.read(count)
        self.show()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def viewed(shown: bool | View | None, total: int, what: str, unit: str = "B") -> Iterator[View]:  # noqa: FBT001 (as users give it)
    """Yield the view that `progress=` asks for: a bar, none, or one of the caller's own.

    >>> with viewed(False, 10, "counting", unit="records") as view:
    ...     view.add(10)
    """
    if shown is None or isinstance(shown, bool):
        with Bar(total, shown, what, unit) as bar:
            yield bar
    elif isinstance(shown, View):
        yield shown
    else:
        raise OptionError(
            f"progress={shown!r}: expected True, False, None (a bar in a terminal), or an object "
            "whose add(count) is called with what was done."
        )
