"""Parts of text that are tokenised: how far this run is, and what one before it has left."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from penstock.cli._terminal import Progress
from penstock.cli._units import counted
from penstock.storage import hidden_folders_in, is_remote, locate

_PARTS = "*.unit"


class Now(NamedTuple):
    """What a run itself has made: nothing of what lay there when it began."""

    documents: int
    tokens: int


class PartsLeft:
    """The finished parts of an earlier run, in a hidden folder in DST."""

    def __init__(self, dst: str) -> None:
        self.dst = dst
        self._before = self._there()
        self._kept: int | None = None

    def look(self) -> None:
        """Note what is gone on with; to be called before a part is begun.

        A builder first removes what others left that did another work.
        """
        if self._kept is None:
            self._kept = len(self._before & self._there())

    @property
    def kept(self) -> int:
        """How many parts were gone on with."""
        return self._kept or 0

    def told(self) -> str:
        """Return what a run that is interrupted leaves."""
        if is_remote(self.dst):
            return "Parts that were finished are kept: the same command goes on with them."
        count = len(self._there())
        if not count:
            return f"No part was finished: nothing of it stays in {self.dst}."
        are = "is" if count == 1 else "are"
        told = f"{counted(count, 'finished part')} of the text {are} kept, hidden, in {self.dst}"
        return f"{told}: the same command goes on with what is left."

    def _there(self) -> set[Path]:
        if is_remote(self.dst):
            return set()  # Those lie in the cache directory, and nothing is told of them.
        folders = [Path(one.entry.name) for one in hidden_folders_in(locate(self.dst)[1])]
        return {part for folder in folders for part in folder.glob(_PARTS)}


class TokenProgress(Progress):
    """Bytes that were read, with documents and tokens a second beside them."""

    def __init__(self, total: int, left: PartsLeft | None = None, *, every: float = 30.0) -> None:
        super().__init__(total, every=every)
        self._left = left
        self._counts = 0
        self.now = Now(0, 0)

    def add(self, count: int) -> None:
        """Note that bytes were read; what was done before comes first, and at once."""
        if self._left is not None:
            self._left.look()
        super().add(count)

    def count(self, documents: int, tokens: int) -> None:
        """Note what was made of a part; those of an earlier run come first."""
        self._counts += 1
        if self._left is None or self._counts > self._left.kept:
            self.now = Now(self.now.documents + documents, self.now.tokens + tokens)
        if self._bar is not None:
            self._bar.set_postfix_str(self._told(), refresh=False)

    def _line(self) -> str:
        return f"{super()._line()}; {self._told()}"

    def _told(self) -> str:
        return rates(self.now, time.monotonic() - self._start)


def rates(made: Now, seconds: float) -> str:
    """Return documents and tokens a second."""
    seconds = max(1e-9, seconds)
    return f"{made.documents / seconds:,.0f} documents/s, {made.tokens / seconds:,.0f} tokens/s"
