"""JSON arrays, whose elements are checked one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from penstock.cli.check._parts import CheckPart, Finding, PartFindings, ToCheck, reason_of
from penstock.errors import MalformedLineError
from penstock.index import ArrayScanner, Checks, LineCheck, Look, check_part


@dataclass(frozen=True, slots=True)
class ArrayPart(CheckPart):
    """The array of a file."""

    sampled: ClassVar = "elements"

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield elements that are no objects, or no JSON, and what is wrong with the array."""
        sizes: list[int] = []
        checks, add = Checks(validate=True), lambda rows: sizes.extend(rows[:, 1])
        check = LineCheck(Look(checks, None, add, self.chosen))
        broken = ""
        try:
            check_part(self.part, ArrayScanner(), check, advance)
        except MalformedLineError as failure:
            broken = reason_of(failure)
        seen.records += check.records
        seen.text_bytes += int(sum(sizes)) + sum(aside.size for aside in check.aside)
        for aside in check.aside:
            yield Finding("malformed element", self.path, aside.newlines + 1, aside.reason)
        if broken:
            yield Finding("malformed element", self.path, None, broken)


def array_parts(asked: ToCheck) -> Iterator[ArrayPart]:
    """Yield all files."""
    for path, part, sample in asked.whole():
        yield ArrayPart(path, part, sample=sample)
