"""One side of the comparison of random access: the same records, asked for in the same order.

Only the standard library, because it also runs in the environments of peers.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from _worker import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

BATCH = 256
_SEED = 11
_CHECKED = 500


@dataclass
class Access:
    """Records of something opened, one by one and in batches."""

    opened: Callable[..., tuple[Callable[[int], object], Callable[[list[int]], object] | None]]
    """From a path to what fetches one record and what fetches many, if there is such a thing."""
    convert: Callable[[str, str], object]
    """What has to be done once: from a file of JSON Lines to what `opened` takes."""
    numbers: list[int] = field(default_factory=list)
    batches: list[list[int]] = field(default_factory=list)

    def works(self) -> dict[str, Callable[..., object]]:
        """Return what can be asked for."""
        return {
            "batches": self.read_batches,
            "check": self.check,
            "convert": self.converted,
            "one": self.read_one_by_one,
            "open": self.open,
            "order": self.order,
        }

    def converted(self, source: str, target: str) -> int:
        """Convert; return how many bytes that took on disk, those of the source not counted."""
        Path(target).mkdir()
        self.convert(source, target)
        files = [path.stat() for path in Path(target).rglob("*") if path.is_file()]
        given = Path(source).stat().st_ino
        return sum(file.st_size for file in files if file.st_ino != given)

    def open(self, path: str, **options: object) -> bool:
        """Open what was converted; return whether it gives many records at once."""
        self._get, self._get_many = self.opened(path, **options)
        return self._get_many is not None

    def order(self, count: int, reads: int) -> int:
        """Decide on the numbers of the records to read: the same on every side."""
        self.numbers = random.Random(_SEED).sample(range(count), reads)
        self.batches = [self.numbers[at : at + BATCH] for at in range(0, reads, BATCH)]
        return reads

    def read_one_by_one(self) -> int:
        """Read all, one after the other."""
        get = self._get
        for number in self.numbers:
            get(number)
        return len(self.numbers)

    def read_batches(self) -> int:
        """Read all, a batch at a time."""
        get_many = self._get_many
        if get_many is None:
            raise RuntimeError("there is no way to read many at once")
        for batch in self.batches:
            get_many(batch)
        return len(self.numbers)

    def check(self) -> int:
        """Return how many records of those looked at are not the ones asked for."""
        some = self.numbers[:_CHECKED]
        wrong = sum(self._get(number)["id"] != number for number in some)
        if self._get_many is not None:
            many = self._get_many(some)
            wrong += len(many) != len(some)
            wrong += sum(record["id"] != number for record, number in zip(many, some, strict=False))
        return wrong

    def serve(self, more: Mapping[str, Callable[..., object]] | None = None) -> None:
        """Answer until there are no more questions."""
        serve({**self.works(), **(more or {})})


def link_into(source: str, target: str) -> Path:
    """Give a folder a file that lies elsewhere, without a copy."""
    path = Path(target) / Path(source).name
    os.link(source, path)
    return path
