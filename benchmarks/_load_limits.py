"""What a loader promises beside speed: a resume at once, small workers, an order in no memory."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from _compared import LimitRow
from _load_peers import exactness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _load_side import Look
    from _rounds import Side

_HUGE, _ORDERED = 10**8, 10**9
_BATCH = 1024
_MEGABYTES, _RESUME, _POSITIONS = 80, 2.0, 5e6
_WINDOWS = 40
_SECONDS = 60.0


@dataclass(frozen=True)
class Limits:
    """Where and how our loader is measured."""

    ours: Side
    path: str
    folder: Path
    records: int
    rounds: int

    def measure(self) -> Iterator[LimitRow]:
        """Yield all rows."""
        yield from self.epochs()
        yield from self.memory()
        yield from self.resume(f"{self.records:,}", self.path, self.records)
        yield from self.resume("10⁸", self._huge(), _HUGE)
        yield from self.permutation()

    def epochs(self) -> Iterator[LimitRow]:
        """Yield how good the shuffle is, and that no record is lost."""
        for workers in (0, "auto", 2):
            look = self._look(workers=workers)
            yield LimitRow(
                key="order",
                what=f"distance of neighbours ÷ that of a uniform permutation, workers: {workers}; "
                f"each record once: {exactness(look)}",
                value=look["distance"],
                unit="",
                must="≥ 0.9, each once",
                reached=look["distance"] >= 0.9 and exactness(look) == "yes",
            )

    def memory(self) -> Iterator[LimitRow]:
        """Yield what a worker has to itself, and how much more at the end of an epoch."""
        for method in ("fork", "forkserver"):
            _, idle = self.ours.ask("idle_memory", method=method)
            memory = self._look(workers=2, method=method)["memory"]
            most = (max(memory) - idle) / 1e6
            kind = "a fork that does nothing" if method == "fork" else "a new Python with torch"
            yield LimitRow(
                key="memory",
                what=f"private memory of a worker by {method}, above {kind} ({idle / 1e6:.0f} MB)",
                value=most,
                unit="MB",
                must=f"≤ {_MEGABYTES}",
                reached=most <= _MEGABYTES,
            )
            yield LimitRow(
                key="memory",
                what="… and how much that grows from a tenth to nine tenths of an epoch",
                value=(memory[-1] - memory[0]) / 1e6,
                unit="MB",
                must="",
                reached=None,
            )

    def resume(self, name: str, path: str, records: int) -> Iterator[LimitRow]:
        """Yield how much longer the first batch takes behind nine tenths of an epoch."""
        position = records * 9 // 10 // _BATCH * _BATCH
        for workers in (0, "auto", 2):
            asked = {"path": path, "workers": workers}
            times: dict[int, list[float]] = {0: [], position: []}
            for _ in range(self.rounds + 1):
                for where, seconds in times.items():
                    seconds.append(self.ours.ask("first", position=where, **asked)[1])
            fresh, resumed = (median(seconds[1:]) for seconds in times.values())
            yield LimitRow(
                key="resume",
                what=f"first batch after a resume at 90 % of {name} records ÷ that of a fresh "
                f"loader ({fresh * 1000:.0f} ms), workers: {workers}",
                value=resumed / fresh,
                unit="×",
                must=f"< {_RESUME:g}",
                reached=resumed / fresh < _RESUME,
            )

    def permutation(self) -> Iterator[LimitRow]:
        """Yield how fast an order of 10⁹ is computed."""
        _, found = self.ours.ask("permutation", length=_ORDERED, windows=_WINDOWS)
        yield LimitRow(
            key="permutation",
            what="positions of a permutation of 10⁹, in windows of 65,536, million a second",
            value=found["per_second"] / 1e6,
            unit="M/s",
            must=f"≥ {_POSITIONS / 1e6:g}",
            reached=found["per_second"] >= _POSITIONS,
        )
        yield LimitRow(
            key="permutation",
            what=f"… and the memory that {_WINDOWS} of them add to the first",
            value=found["bytes"] / 1e6,
            unit="MB",
            must="",
            reached=None,
        )

    def _look(self, **how: object) -> Look:
        look: Look = self.ours.ask(
            "look", path=self.path, seconds=_SECONDS, records=self.records, **how
        )[1]
        return look

    def _huge(self) -> str:
        """Return a folder whose index is of 10⁸ records, real where batches will be read."""
        folder = str(self.folder / "huge")
        position = _HUGE * 9 // 10 // _BATCH * _BATCH
        self.ours.ask("huge", folder=folder, records=_HUGE, positions=[0, position])
        return folder
