"""Records by their numbers, for every feed whose tasks have them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penstock.loading._feed import Opened
from penstock.loading._fetch import named_batch

if TYPE_CHECKING:
    from penstock.datasets import Source
    from penstock.loading._recipes import Recipe
    from penstock.loading._steps import Task


class SourceReader(NamedTuple):
    """Reads the records of tasks, which are numbers, from one source."""

    source: Source
    is_remote: bool
    is_numbered: bool = True

    def opened(self, request: Task) -> Opened:
        return Opened(self.source, request)

    def name(self, request: Task) -> str:
        return named_batch(request, self.source)

    def place(self, request: Task) -> str:
        if not self.source.files:
            return ""
        file, offset, size = self.source.location(int(request.where.ids[0]))
        return f"{file}, bytes {offset:,} to {offset + size:,}"

    def warm_up(self, recipe: Recipe) -> None:
        # Else each worker of each pass does so for itself, in 0.3 s: pyarrow imports pandas, too,
        # where it is installed.
        if not self.is_remote and len(self.source):
            # A bad record raises when its batch is due.
            with suppress(Exception):
                recipe.read(self.source, np.zeros(1, np.int64))

    def close(self) -> None:
        """Close nothing: every read is a read of its own."""
