"""Checked scans as units of work; a unit publishes where its records are, and what it found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.errors import OptionError
from penstock.index._parts import PartsUnit, opened_lines
from penstock.index._scan import LineScanner
from penstock.index.checked._checks import Look, PartFound, UnitFound
from penstock.index.checked._line_check import LineCheck
from penstock.index.profile._profile import Profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from penstock.index._parts import FilePart
    from penstock.index._scan import Scanner
    from penstock.index.checked._checks import Checks
    from penstock.storage import Draft

_ROW_BYTES = 16
_ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class ScanUnit(PartsUnit):
    """Parts that are scanned and checked; the result is int64[records, 2] and a `UnitFound`."""

    scanner: Scanner
    checks: Checks

    def write(self, draft: Draft, advance: Callable[[int], object]) -> None:
        """Scan all parts."""
        profile = Profile(is_text=self.scanner.kind == "csv") if self.checks.profile else None
        look = Look(
            self.checks, profile, lambda places: draft.write(places.astype("<i8").tobytes())
        )
        parts = [self._scanned(part, look, advance) for part in self.parts]
        self.describe(draft, UnitFound(parts, None if profile is None else profile.to_bytes()))

    def _scanned(self, part: FilePart, look: Look, advance: Callable[[int], object]) -> PartFound:
        if isinstance(self.scanner, LineScanner):
            return _scan_lines(part, look, advance)
        from penstock.index.csv._scan import CsvScanner  # noqa: PLC0415 (pyarrow)

        if not isinstance(self.scanner, CsvScanner):
            raise OptionError(
                f"records of {self.scanner.kind} can be neither validated nor profiled while they "
                "are indexed; only lines of JSON and rows of CSV can."
            )
        from penstock.index.checked._row_check import scan_rows  # noqa: PLC0415 (pyarrow)

        return scan_rows(part, self.scanner, look, advance)


def _scan_lines(part: FilePart, look: Look, advance: Callable[[int], object]) -> PartFound:
    check = LineCheck(look)
    with opened_lines(part, advance, look.checks.max_line_bytes) as lines:
        for piece in lines:
            check.add(piece)
    return PartFound(check.records, check.aside, lines.newlines, lines.frames)


class ScanResult:
    """The result of a `ScanUnit`."""

    def __init__(self, unit: ScanUnit) -> None:
        self._data, size, self.found = unit.opened(UnitFound)
        records = [part.records for part in self.found.parts]
        if min(records, default=0) < 0 or sum(records) * _ROW_BYTES > size:
            raise unit.damaged("its description names other rows than it holds")
        self._at = 0

    def rows(self, count: int) -> Iterator[NDArray[np.int64]]:
        """Yield the next rows, some at a time: int64[k, 2]."""
        stop = self._at + count
        while self._at < stop:
            some = min(_ROWS_AT_ONCE, stop - self._at)
            rows = np.frombuffer(self._data, "<i8", 2 * some, self._at * _ROW_BYTES)
            self._at += some
            yield rows.reshape(-1, 2)
