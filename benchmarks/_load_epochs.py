"""Epochs of loaders beside each other: rates that compare, whoever finishes his epoch."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from _rounds import Contender


@dataclass
class Epochs(Contender):
    """A side that loads; slow ones are looked at for some seconds, and taken as going on so."""

    records: int = 0
    """Of a whole epoch."""
    firsts: list[float] = field(default_factory=list)
    """Seconds until the first batch, the warm-up's aside."""

    def ask(self) -> tuple[float, int]:
        """Load once; return the seconds that an epoch takes at that rate, and its records."""
        found = self.side.ask("epoch", **self.arguments)[1]
        if not found["records"]:
            raise RuntimeError("there was no second batch")
        self.firsts.append(found["first"])
        return found["seconds"] * self.records / found["records"], self.records

    @property
    def first(self) -> float:
        """Median seconds until the first batch, once imports and caches are warm."""
        return median(self.firsts[1:] or self.firsts)
