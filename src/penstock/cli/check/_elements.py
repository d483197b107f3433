"""JSON arrays, whose elements are checked one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli._paths import as_typed
from penstock.cli.check._parts import CheckPart, Finding, PartFindings, reason_of
from penstock.errors import MalformedLineError, OptionError
from penstock.index import ArrayScanner, Checks, FilePart, LineCheck, Look, check_elements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penstock.index import Detected


@dataclass(frozen=True, slots=True)
class ArrayPart(CheckPart):
    """The array of a file."""

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield elements that are no objects, or no JSON, and what is wrong with the array."""
        sizes: list[int] = []
        check = LineCheck(Look(Checks(validate=True), None, lambda rows: sizes.extend(rows[:, 1])))
        broken = ""
        try:
            check_elements(self.part, ArrayScanner(), check, advance)
        except MalformedLineError as failure:
            broken = reason_of(failure)
        seen.records += check.records
        seen.text_bytes += int(sum(sizes)) + sum(aside.size for aside in check.aside)
        for aside in check.aside:
            yield Finding("malformed element", self.path, aside.newlines + 1, aside.reason)
        if broken:
            yield Finding("malformed element", self.path, None, broken)


def array_parts(  # noqa: PLR0913, PLR0917 (as `Format.check` is called)
    path: str,
    at_path: Detected,
    made_with: Mapping[str, Any] | None,
    share: float | None,
    seed: int,
    part_bytes: int,
) -> Iterator[ArrayPart]:
    """Yield all files."""
    del made_with, seed, part_bytes
    if share is not None:
        raise OptionError(
            "--sample: where elements of an array begin is known only after reading all before "
            "them. Check all of it."
        )
    for found in at_path.listing.files:
        yield ArrayPart(as_typed(path, found.path), FilePart(found, 0, found.entry.size))
