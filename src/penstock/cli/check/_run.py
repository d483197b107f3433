"""Parts checked here, or by processes; what they find is told in the order of the parts."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.check._parts import Finding, Kind, Seen
from penstock.work import PublishedUnit, UnitResults, grouped, run_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.cli.check._parts import CheckPart
    from penstock.storage import Draft

PART_BYTES = 32 << 20
_LITTLE = 64 << 20
"""Bytes that are read before other processes would have started."""
_BETWEEN_LOOKS = 0.2


class PartSeen(msgspec.Struct):
    """What came of a part: everything is counted, only the first findings are there."""

    seen: Seen
    kinds: dict[Kind, int]
    findings: list[Finding]


@dataclass(frozen=True)
class CheckUnit(PublishedUnit):
    """Parts that are checked one after the other; see `penstock.work.PublishedUnit`."""

    parts: tuple[CheckPart, ...]
    most: int
    """Findings of a part that are kept."""

    def __str__(self) -> str:
        return f"{len(self.parts):,} parts of files, first {self.parts[0].path}"

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        """Check all parts."""
        draft.write(msgspec.msgpack.encode([self._looked(part, advance) for part in self.parts]))

    def found(self) -> list[PartSeen]:
        """Return what was seen in each part."""
        return msgspec.msgpack.decode(self.result(), type=list[PartSeen])

    def _looked(self, part: CheckPart, advance: Callable[[int], object]) -> PartSeen:
        seen, kinds, kept = Seen(), Counter[Kind](), list[Finding]()
        for finding in part.look(seen, advance):
            kinds[finding.kind] += 1
            if len(kept) < self.most:
                kept.append(finding)
        return PartSeen(seen, dict(kinds), kept)


@dataclass(slots=True)
class Report:
    """Everything found; the first findings are kept and told, all are counted."""

    most: int
    tell: Callable[[Finding], object]
    """Is told of each finding that is kept, as soon as its turn comes."""
    shown: list[Finding] = field(default_factory=list)
    kinds: Counter[Kind] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    records: int = 0
    text_bytes: int = 0
    _lines: int = 0
    """Before the part whose turn it is, in its file."""

    def add(self, finding: Finding) -> None:
        """Take a finding of no part."""
        self.kinds[finding.kind] += 1
        self._show(finding)

    def begin(self, part: CheckPart) -> None:
        """Go on to the next part."""
        if not part.start:
            self._lines = 0

    def add_of_part(self, finding: Finding) -> None:
        """Take a finding of the part whose turn it is."""
        self.add(self._in_file(finding))

    def end(self, seen: Seen) -> None:
        """Take what was seen in it."""
        self.records += seen.records
        self.text_bytes += seen.text_bytes
        self._lines += seen.newlines
        for path, text in seen.errors:
            self.errors.setdefault(path, text)

    def take(self, part: CheckPart, found: PartSeen) -> None:
        """Take all of a part at once."""
        self.begin(part)
        self.kinds.update(found.kinds)
        for finding in found.findings:
            self._show(self._in_file(finding))
        self.end(found.seen)

    def _in_file(self, finding: Finding) -> Finding:
        if finding.line is None or not self._lines:
            return finding
        return msgspec.structs.replace(finding, line=finding.line + self._lines)

    def _show(self, finding: Finding) -> None:
        if len(self.shown) < self.most:
            self.shown.append(finding)
            self.tell(finding)


def check_parts(
    parts: Sequence[CheckPart],
    report: Report,
    advance: Callable[[int], object],
    workers: int | None,
    unit_bytes: int = PART_BYTES,
) -> None:
    """Look at all parts; what is wrong is reported in their order, whoever finds it when."""
    if workers is None and (len(parts) < 2 or sum(p.size for p in parts) < _LITTLE):  # noqa: PLR2004
        workers = 0
    if workers == 0:
        for part in parts:
            report.begin(part)
            seen = Seen()
            for finding in part.look(seen, advance):
                report.add_of_part(finding)
            report.end(seen)
        return
    with TemporaryDirectory(prefix="penstock-check-") as folder:
        units = list(_units(parts, folder, report.most, unit_bytes))
        waiting = iter(units)
        turn: CheckUnit | None = next(waiting, None)
        due = 0.0

        def take_what_is_done() -> None:
            nonlocal turn
            while turn is not None and turn.is_done():
                for part, found in zip(turn.parts, turn.found(), strict=True):
                    report.take(part, found)
                turn = next(waiting, None)

        def look(count: int) -> None:
            nonlocal due
            advance(count)
            if time.monotonic() >= due:
                due = time.monotonic() + _BETWEEN_LOOKS
                take_what_is_done()

        run_units(units, workers=workers, advance=look)
        take_what_is_done()


def _units(
    parts: Sequence[CheckPart], folder: str, most: int, unit_bytes: int
) -> Iterator[CheckUnit]:
    """Yield units of about equal size: small files together."""
    for number, group in enumerate(grouped(parts, unit_bytes)):
        yield CheckUnit(UnitResults(folder), number, group, most)
