"""How many documents and tokens there are so far, for a view that wants to know."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from penstock.index.tokens._unit_file import parts_in
from penstock.work import View

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.index.tokens._units import TokenUnit

_BETWEEN_LOOKS = 0.2
_AT_ONCE = 64
"""Units that may be under way at a time; they are begun in order."""


@runtime_checkable
class TokenView(View, Protocol):
    """A view of bytes that also hears of documents and tokens, whenever a unit of them is done."""

    def count(self, documents: int, tokens: int) -> object:
        """Count what was made of some text."""
        ...


class Teller:
    """Tells a view how far units are."""

    def __init__(self, view: View, units: Sequence[TokenUnit]) -> None:
        self._view = view
        self._waiting = {unit.number: unit for unit in units} if isinstance(view, TokenView) else {}
        self._due = 0.0

    def advance(self, count: int) -> None:
        """Take what `run_units` tells."""
        self._view.add(count)
        if self._waiting and (now := time.monotonic()) >= self._due:
            self._due = now + _BETWEEN_LOOKS
            self._look([*islice(self._waiting.values(), _AT_ONCE)])

    def finish(self) -> None:
        """Tell the rest."""
        self._look([*self._waiting.values()])

    def _look(self, units: Sequence[TokenUnit]) -> None:
        for unit in units:
            if isinstance(self._view, TokenView) and unit.is_done():
                del self._waiting[unit.number]
                parts = parts_in(unit.path)
                documents = sum(part.documents for part in parts)
                self._view.count(documents, sum(part.tokens for part in parts))
