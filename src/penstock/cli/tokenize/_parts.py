"""Parts of text that are tokenised: those of this run, and those that an earlier run finished."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.cli._terminal import Progress
from penstock.cli._units import counted
from penstock.storage import hidden_folders_in, is_remote, locate

_PARTS = "*.unit"


class PartsLeft:
    """The finished parts of an earlier run, in a hidden folder in DST."""

    def __init__(self, dst: str) -> None:
        self.dst = dst
        self._before = self._present()
        self._kept: int | None = None

    def look(self) -> None:
        """Count the parts that this run takes over; called before it begins its first part.

        A builder first removes the parts of runs with other inputs or options.
        """
        if self._kept is None:
            self._kept = len(self._before & self._present())

    @property
    def kept(self) -> int:
        """How many parts this run took over."""
        return self._kept or 0

    def note(self) -> str:
        """Return what an interrupted run leaves."""
        if is_remote(self.dst):
            return "Parts that were finished are kept: the same command goes on with them."
        count = len(self._present())
        if not count:
            return f"No part was finished: nothing of it stays in {self.dst}."
        are = "is" if count == 1 else "are"
        return (
            f"{counted(count, 'finished part')} of the text {are} kept, hidden, in {self.dst}: "
            "the same command goes on with what is left."
        )

    def _present(self) -> set[Path]:
        if is_remote(self.dst):
            return set()  # Those lie in the cache directory, and are not reported.
        folders = [Path(one.entry.name) for one in hidden_folders_in(locate(self.dst)[1])]
        return {part for folder in folders for part in folder.glob(_PARTS)}


class TokenProgress(Progress):
    """Bytes that were read, with documents and tokens a second beside them."""

    def __init__(self, total: int, left: PartsLeft | None = None, *, every: float = 30.0) -> None:
        super().__init__(total, every=every)
        self._left = left
        self._counts = 0
        self.now = (0, 0)
        """Documents and tokens of this run, without those of an earlier one."""

    def add(self, count: int) -> None:
        """Count bytes that were read; those of an earlier run come first, all at once."""
        if self._left is not None:
            self._left.look()
        super().add(count)

    def count(self, documents: int, tokens: int) -> None:
        """Count what a part became; parts of an earlier run come first."""
        self._counts += 1
        if self._left is None or self._counts > self._left.kept:
            self.now = (self.now[0] + documents, self.now[1] + tokens)
        if self._bar is not None:
            self._bar.set_postfix_str(self.rates(), refresh=False)

    def _line(self) -> str:
        return f"{super()._line()}; {self.rates()}"

    def rates(self, seconds: float | None = None) -> str:
        """Return documents and tokens a second, by default until now."""
        seconds = max(1e-9, time.monotonic() - self._start if seconds is None else seconds)
        documents, tokens = self.now
        return f"{documents / seconds:,.0f} documents/s, {tokens / seconds:,.0f} tokens/s"
