"""Parts checked here or by processes; findings come in the order of the parts."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec

from penstock.cli._units import counted
from penstock.cli.check._parts import Finding, Kind, PartFindings
from penstock.work import PublishedUnit, UnitResults, grouped, run_units

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.cli.check._parts import CheckPart
    from penstock.storage import Draft

PART_BYTES = 32 << 20
_LITTLE = 64 << 20
"""Bytes that are read before other processes would have started."""
_BETWEEN_LOOKS = 0.2


@dataclass(frozen=True)
class CheckUnit(PublishedUnit):
    """Parts that one process checks; see `penstock.work.PublishedUnit`."""

    parts: tuple[CheckPart, ...]
    most: int
    """Findings of a part that are kept."""

    def __str__(self) -> str:
        return f"{counted(len(self.parts), 'part')} of files, first {self.parts[0].path}"

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        """Check all parts."""
        found = [_looked(part, self.most, advance) for part in self.parts]
        draft.write(msgspec.msgpack.encode(found))

    def found(self) -> list[PartFindings]:
        """Return the findings of each part."""
        return msgspec.msgpack.decode(self.result(), type=list[PartFindings])


def _looked(part: CheckPart, most: int, advance: Callable[[int], object]) -> PartFindings:
    found = PartFindings()
    for finding in part.look(found, advance):
        found.kinds[finding.kind] = found.kinds.get(finding.kind, 0) + 1
        if len(found.findings) < most:
            found.findings.append(finding)
    return found


@dataclass(slots=True)
class Findings:
    """All findings: the first ones are kept and shown, all are counted."""

    most: int
    show: Callable[[Finding], object]
    """Called with each finding that is kept, as soon as its turn comes."""
    shown: list[Finding] = field(default_factory=list)
    kinds: Counter[Kind] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    records: int = 0
    text_bytes: int = 0
    _lines: int = 0
    """Before the current part, in its file."""

    def add(self, finding: Finding) -> None:
        """Take a finding that belongs to no part."""
        self.kinds[finding.kind] += 1
        self._show(finding)

    def take(self, part: CheckPart, found: PartFindings) -> None:
        """Take findings and counts of the next part."""
        if not part.start:
            self._lines = 0
        self.kinds.update(found.kinds)
        for finding in found.findings:
            line = None if finding.line is None else finding.line + self._lines
            self._show(msgspec.structs.replace(finding, line=line))
        self.records += found.records
        self.text_bytes += found.text_bytes
        self._lines += found.newlines
        for path, text in found.errors:
            self.errors.setdefault(path, text)

    def _show(self, finding: Finding) -> None:
        if len(self.shown) < self.most:
            self.shown.append(finding)
            self.show(finding)


def check_parts(
    parts: Sequence[CheckPart],
    findings: Findings,
    advance: Callable[[int], object],
    workers: int | None,
    unit_bytes: int = PART_BYTES,
) -> None:
    """Check all parts; findings come in the order of the parts, whichever process makes them."""
    if workers is None and (len(parts) < 2 or sum(p.size for p in parts) < _LITTLE):  # noqa: PLR2004
        workers = 0
    if workers == 0:
        for part in parts:
            findings.take(part, _looked(part, findings.most, advance))
        return
    with TemporaryDirectory(prefix="penstock-check-") as folder:
        units = [
            CheckUnit(UnitResults(folder), number, group, findings.most)
            for number, group in enumerate(grouped(parts, unit_bytes))
        ]
        waiting = iter(units)
        turn: CheckUnit | None = next(waiting, None)
        due = 0.0

        def take_finished() -> None:
            nonlocal turn
            while turn is not None and turn.is_done():
                for part, found in zip(turn.parts, turn.found(), strict=True):
                    findings.take(part, found)
                turn = next(waiting, None)

        def look(count: int) -> None:
            nonlocal due
            advance(count)
            if time.monotonic() >= due:
                due = time.monotonic() + _BETWEEN_LOOKS
                take_finished()

        run_units(units, workers=workers, advance=look)
        take_finished()
