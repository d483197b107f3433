"""A bar for long work: bytes, rate, time left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tqdm import tqdm

from penstock.storage import rank

if TYPE_CHECKING:
    from typing import Self


class Progress:
    """Counts bytes; shown in a terminal, by rank 0 alone, unless told otherwise."""

    def __init__(self, total: int, shown: bool | None, what: str = "indexing") -> None:  # noqa: FBT001 (three-valued, as users give it)
        shown = sys.stderr.isatty() and rank() == 0 if shown is None else shown
        self._bar = tqdm(
            total=total, unit="B", unit_scale=True, desc=what, disable=not shown, leave=False
        )

    def add(self, size: int) -> None:
        """Count some bytes."""
        self._bar.update(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
