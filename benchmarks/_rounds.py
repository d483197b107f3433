"""Sides of a comparison, asked in turn: one after the other, round after round."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_SLOW_SECONDS = 0.7
_SLOW_ROUNDS = 3


class Side:
    """A worker process: only one works at a time, the others wait for their turn."""

    def __init__(
        self, program: str, python: Path | str = sys.executable, **environment: str
    ) -> None:
        self._process = subprocess.Popen(
            [python, Path(__file__).with_name(program)],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, work: str, **arguments: object) -> tuple[float, Any]:
        """Return the seconds that a work took, and its result."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the worker was started without pipes")
        self._process.stdin.write(json.dumps({"work": work, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended in the middle of {work}; its error is above")
        answer = json.loads(line)
        return answer["seconds"], answer["result"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


@dataclass
class Contender:
    """One side doing one work, and how long it took in each round."""

    side: Side
    work: str
    arguments: dict[str, object]
    may_stop: bool = False
    """Whether it may leave after a few rounds that show it far behind."""
    before: str = ""
    """A work to ask for ahead of each turn, with the same arguments; its time does not count."""
    seconds: list[float] = field(default_factory=list)

    def run(self) -> int:
        """Measure once; return how many records there were."""
        slow = len(self.seconds) >= _SLOW_ROUNDS and min(self.seconds) > _SLOW_SECONDS
        if self.may_stop and slow:
            return 0
        seconds, records = self.ask()
        self.seconds.append(seconds)
        return records

    def ask(self) -> tuple[float, int]:
        """Work once; return the seconds, and how many records there were."""
        if self.before:
            self.side.ask(self.before, **self.arguments)
        seconds, records = self.side.ask(self.work, **self.arguments)
        return seconds, int(records)

    def ratio_to(self, other: Contender) -> Ratio:
        """Return how many times as fast as another one this is."""
        pairs = zip(self.seconds, other.seconds, strict=False)
        each = [theirs / ours for ours, theirs in pairs]
        return Ratio(min(other.seconds) / min(self.seconds), median(each), min(each), max(each))


@dataclass(frozen=True)
class Ratio:
    """How two contenders compare: best against best, and over the rounds."""

    best: float
    median: float
    least: float
    most: float


def run_rounds(contenders: Sequence[Contender], rounds: int, records: int) -> None:
    """Let every contender work once a round; all must find all records."""
    for contender in contenders:
        contender.ask()  # Warm: caches, imports.
    for _ in range(rounds):
        for contender in contenders:
            found = contender.run()
            if found not in (0, records):
                raise RuntimeError(f"{contender.work} found {found} records of {records}")
