"""What can come of a mutation, and the table of it."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

REFERENCE = "; the reference reads"
"""What stands last among what a child did, if it died inside the other reader."""


class Outcome(Enum):
    """What came of a mutation; each has a letter by which a child notes it."""

    SAME = "s"
    OWN = "o"
    OURS = "e"
    BOTH = "b"
    DIFFERENT = "d"
    FOREIGN = "f"
    DEATH = "x"
    TIMEOUT = "t"
    MEMORY = "m"
    KNOWN = "k"

    @property
    def is_failure(self) -> bool:
        """Whether a test fails for it."""
        return self not in _FINE


_FINE = {Outcome.SAME, Outcome.OWN, Outcome.OURS, Outcome.BOTH, Outcome.KNOWN}
_HEADS = {
    Outcome.SAME: "same values",
    Outcome.OWN: "others of its own",
    Outcome.OURS: "our error",
    Outcome.BOTH: "refused by both",
    Outcome.DIFFERENT: "silent difference",
    Outcome.FOREIGN: "foreign exception",
    Outcome.DEATH: "death",
    Outcome.TIMEOUT: "time-out",
    Outcome.MEMORY: "memory",
    Outcome.KNOWN: "known death",
}


@dataclass(frozen=True)
class Finding:
    """What came of one mutation, by the three words that bring it back."""

    form: str
    seed: int
    number: int
    outcome: Outcome
    damage: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "outcome": self.outcome.value}

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Finding:
        """Return what `to_dict` told."""
        return cls(**{**told, "outcome": Outcome(told["outcome"])})

    def __str__(self) -> str:
        again = f"python -m tests.fuzz --format {self.form} --seed {self.seed} --only {self.number}"
        return f"{_HEADS[self.outcome]}: {self.damage}\n    {self.why}\n    {again}"


@dataclass
class Tally:
    """What came of many."""

    form: str
    counts: Counter[Outcome] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    @property
    def failures(self) -> list[Finding]:
        """What a test fails for; a mutation that was done alone is told of in any case."""
        return [found for found in self.findings if found.outcome.is_failure]

    def add(self, other: Tally) -> None:
        """Take in what came of others of the same format."""
        self.counts += other.counts
        self.findings += other.findings


def causes(findings: list[Finding]) -> str:
    """Return findings put together by what seems to be their cause, the most frequent first."""
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        error = re.match(r"(\w+: )?\w+(?=:)", found.why)
        place = re.search(r"\([\w.]+:\d+[^()]*\)$|\([\w/.]+:\d+\)", found.why)
        alike = re.sub(r"\W*\d+|'[^']*'", "#", found.why)[:60]
        if error and place and found.outcome is not Outcome.DIFFERENT:
            alike = f"{error[0].split(': ')[-1]} {place[0]}"
        groups.setdefault(f"{found.outcome} {alike}", []).append(found)
    ordered = sorted(groups.values(), key=len, reverse=True)
    return "\n".join(f"{len(some):,} × {some[0]}" for some in ordered)


def table(tallies: list[Tally]) -> str:
    """Return outcomes by format, as text."""
    heads = ["format", *_HEADS.values(), "all"]
    total = Tally("all")
    for tally in tallies:
        total.add(tally)
    lines = [f"| {' | '.join(heads)} |", f"|---{'|---:' * (len(heads) - 1)}|"]
    for one in [*tallies, total]:
        counts = [*(one.counts[kind] for kind in _HEADS), one.counts.total()]
        lines.append(f"| {one.form} | {' | '.join(f'{count:,}' for count in counts)} |")
    return "\n".join(lines)
