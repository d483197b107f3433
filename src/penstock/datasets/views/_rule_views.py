"""Views whose numbers follow from a rule: found once, and the same when records are appended."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from penstock._words import counted
from penstock.datasets._arrow import lies_in_files
from penstock.datasets._once import Once, kept_arrays
from penstock.datasets.columns._place import state_of
from penstock.datasets.views._views import Chosen, fingerprint_of
from penstock.errors import StaleIndexError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets._source import Source


class Rule(ABC):
    """Chooses among the first `length` records of a source, for one view or several parts."""

    parts = 1
    is_cheap = False
    """Whether finding the numbers again costs less than a file of them."""

    def __init__(self, source: Source) -> None:
        self.source, self.length = source, len(source)
        self._found: Once[list[np.ndarray]] = Once()

    @abstractmethod
    def fingerprint(self, part: int, source: str) -> str:
        """Return the fingerprint of a part over a source with that fingerprint."""

    @abstractmethod
    def _search(self) -> list[np.ndarray]:
        """Return the numbers of each part, ascending (int64)."""

    def ids(self, part: int) -> np.ndarray:
        return self._found.get(self._find)[part]

    def _find(self) -> list[np.ndarray]:
        if len(self.source) < self.length:
            raise StaleIndexError(
                f"a view was made of {counted(self.length, 'record')} and {len(self.source):,} are "
                "left: the source lost records. Make the view again."
            )
        if self.is_cheap or not lies_in_files(self.source):
            return self._search()
        known, state = self.source.fingerprint, state_of(self.source)
        names = [
            fingerprint_of("ids", self.fingerprint(part, known), str(self.length), state)
            for part in range(self.parts)
        ]
        return kept_arrays(names, self._search, self._mapped)

    def _mapped(self, path: Path) -> np.ndarray:
        ids: np.ndarray = np.lib.format.open_memmap(path, mode="r")
        is_inside = not len(ids) or 0 <= ids[0] <= ids[-1] < self.length
        if ids.dtype != np.int64 or ids.ndim != 1 or not is_inside:
            raise ValueError(f"it does not hold record numbers below {self.length}")
        return ids


class RuleView(Chosen):
    """One part of the records that a rule chooses."""

    _is_sorted = True

    def __init__(self, source: Source, rule: Rule, part: int = 0) -> None:
        super().__init__(source)
        self.rule, self._part = rule, part

    @property
    def ids(self) -> np.ndarray:
        return self.rule.ids(self._part)

    def _fingerprint_over(self, fingerprint: str) -> str:
        return self.rule.fingerprint(self._part, fingerprint)
