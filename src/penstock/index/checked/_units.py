"""Checked scans as units of work: parts of files, each read by whichever process is free."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock.errors import OptionError
from penstock.index._blocks import Frames, opened, text_blocks
from penstock.index._line_pieces import LinePieces
from penstock.index._scan import LineScanner
from penstock.index.checked._checks import Look, PartFound, UnitFound
from penstock.index.checked._line_check import LineCheck
from penstock.index.checked._unit_file import NewUnitFile, UnitFile
from penstock.index.profile._profile import Profile
from penstock.jsonl import compression_of
from penstock.storage import LocalStore, join
from penstock.work import grouped

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from penstock.index._line_pieces import LongLine, Piece
    from penstock.index._listing import Found
    from penstock.index._scan import Scanner
    from penstock.index.checked._checks import Checks
    from penstock.storage import OpenFile

_LEAST = 4
"""Bytes of a part, so that a first line behind a byte order mark begins in the first one."""
_BLOCK_BYTES = 512 << 10
"""Text that is decoded together: more only costs memory, less costs a call a field more often."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a file as it is stored; the records that begin there belong to it."""

    found: Found
    start: int
    stop: int
    facts: dict[str, Any] | None = field(default=None, hash=False)
    """Of a file that grew: what was found in what lies before."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class ScanUnit:
    """Parts that are scanned one after the other; see `penstock.work.Unit`."""

    folder: str
    number: int
    parts: tuple[Part, ...]
    scanner: Scanner
    checks: Checks

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(part.size for part in self.parts)

    @property
    def _name(self) -> str:
        return join(self.folder, f"{self.number:06}.unit")

    def is_done(self) -> bool:
        """Whether what was found is there."""
        return os.path.exists(self._name)

    def run(self, advance: Callable[[int], object]) -> None:
        """Scan all parts, and publish what was found."""
        profile = Profile(is_text=self.scanner.kind == "csv") if self.checks.profile else None
        with NewUnitFile(self._name) as file:
            look = Look(self.checks, profile, file.add)
            parts = [self._scanned(part, look, advance) for part in self.parts]
            file.publish(UnitFound(parts, None if profile is None else profile.to_bytes()))

    def opened(self) -> UnitFile:
        """Return what was found."""
        return UnitFile(self._name)

    def _scanned(self, part: Part, look: Look, advance: Callable[[int], object]) -> PartFound:
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

    def __str__(self) -> str:
        first = self.parts[0]
        if len(self.parts) > 1:
            return f"{len(self.parts):,} parts of files, first {first.found.path}"
        return f"bytes {first.start:,} to {first.stop:,} of {first.found.path}"


def _scan_lines(part: Part, look: Look, advance: Callable[[int], object]) -> PartFound:
    check = LineCheck(look)
    with opened_lines(part, advance, look.checks.max_line_bytes) as lines:
        for piece in lines:
            check.add(piece)
    return PartFound(check.records, check.aside, lines.newlines, lines.frames)


class PartLines:
    """The lines that begin in a part, some whole ones at a time."""

    def __init__(
        self, pieces: LinePieces, blocks: Generator[bytes, None, None], frames: Frames
    ) -> None:
        self._pieces, self._blocks, self._frames = pieces, blocks, frames

    def __iter__(self) -> Iterator[Piece | LongLine]:
        return self._pieces.of(self._blocks)

    @property
    def newlines(self) -> int:
        """In the part, as far as it was read."""
        return self._pieces.newlines

    @property
    def frames(self) -> list[tuple[int, int, int, int]]:
        """The zstd frames that were met."""
        return [(begin, size, *text) for begin, size, *text in self._frames.rows.tolist()]


@contextmanager
def opened_lines(
    part: Part, advance: Callable[[int], object], longest: int | None = None
) -> Iterator[PartLines]:
    """Give the lines of a part; those of more than `longest` bytes are not held."""
    frames = Frames()
    with opened(part.found) as file:
        start, is_begun, stop = part.start, True, float("inf")
        if _is_cut(part.found):
            is_begun = not start or file.read_at(start - 1, 1) == b"\n"
            stop = part.stop
            blocks = _local_blocks(file, part, advance)
        else:
            blocks = _of_size(text_blocks(file, start, advance, frames), _BLOCK_BYTES)
        pieces = LinePieces(start, stop, is_begun=is_begun, longest=longest)
        try:
            yield PartLines(pieces, blocks, frames)
        finally:
            blocks.close()  # Nobody may read ahead in a file that is closed.


def _is_cut(found: Found) -> bool:
    """Whether the lines of a file can be found from its middle on, cheaply."""
    is_plain = compression_of(found.entry.name) is None
    return is_plain and isinstance(found.store, LocalStore)


def _local_blocks(
    file: OpenFile, part: Part, advance: Callable[[int], object]
) -> Generator[bytes, None, None]:
    """Yield blocks of a part, and then of what follows, where its last line ends."""
    for at in range(part.start, file.size, _BLOCK_BYTES):
        block = file.read_at(at, min(_BLOCK_BYTES, file.size - at))
        yield block
        advance(max(0, min(len(block), part.stop - at)))


def _of_size(blocks: Iterable[bytes], size: int) -> Generator[bytes, None, None]:
    """Yield the same bytes in blocks of about one size."""
    held: list[bytes] = []
    held_bytes = 0
    for block in blocks:
        held.append(block)
        held_bytes += len(block)
        if held_bytes >= size:
            whole = b"".join(held)
            for at in range(0, len(whole), 2 * size):
                yield whole[at : at + 2 * size]
            held, held_bytes = [], 0
    if held_bytes:
        yield b"".join(held)


def parts_of(
    found: Found, start: int, scanner: Scanner, unit_bytes: int, facts: dict[str, Any] | None
) -> list[Part]:
    """Return the parts that a file is scanned in, from a byte on."""
    size = found.entry.size
    if start >= size or not isinstance(scanner, LineScanner) or not _is_cut(found):
        return [Part(found, start, size, facts)]
    cuts = [*range(start, size, max(unit_bytes, _LEAST)), size]
    return [Part(found, *ends, facts) for ends in pairwise(cuts)]


def units_of(
    parts: Iterable[Part], folder: str, scanner: Scanner, checks: Checks, unit_bytes: int
) -> list[ScanUnit]:
    """Return units of about equal size: large files in several, small ones together."""
    return [
        ScanUnit(folder, number, group, scanner, checks)
        for number, group in enumerate(grouped(parts, unit_bytes))
    ]
