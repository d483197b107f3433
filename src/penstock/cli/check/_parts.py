"""Parts of files, checked here or by processes; findings come in the order of the parts."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from penstock.cli._reading import (
    GoodLine,
    LineText,
    UnreadableLine,
    begins,
    lines_of,
    read_fast,
    read_line,
    read_lines,
    texts_of,
)
from penstock.cli._units import counted
from penstock.errors import CorruptFileError, ObjectNotFoundError
from penstock.index import JSON_NAMES, LinePiece, LinePieces
from penstock.jsonl import compression_of, reason_text
from penstock.storage import LocalStore, is_remote
from penstock.work import PublishedUnit, UnitResults, grouped, run_units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from penstock.cli._paths import PathFiles
    from penstock.jsonl import JsonlFile
    from penstock.storage import Draft, OpenFile

Kind = Literal[
    "malformed line",
    "non-object line",
    "malformed row",
    "malformed header",
    "unreadable row group",
    "differing schema",
    "damaged file",
    "changed file",
    "missing file",
    "unknown file",
    "unusable index",
    "missing index",
    "leftover",
]
PART_BYTES = 32 << 20
_BLOCK_BYTES = 256 << 10
_LITTLE = 64 << 20
"""Bytes that are read before other processes would have started."""
_BETWEEN_LOOKS = 0.2


class Finding(msgspec.Struct, frozen=True):
    """One problem, and where it is."""

    kind: Kind
    path: str
    line: int | None
    """Counted from 1, from where the part begins."""
    reason: str
    begins: str | None = None

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        start = "" if self.begins is None else f"; the line begins {self.begins}"
        return f"{place}: {self.kind}: {self.reason}{start}"


class PartFindings(msgspec.Struct):
    """Counts and findings of a part; all findings are counted, the first ones kept."""

    records: int = 0
    text_bytes: int = 0
    newlines: int = 0
    """In the part; the numbers of the next part's lines go on from there."""
    errors: list[tuple[str, str]] = []
    """Files that could not be read, and why."""
    kinds: dict[Kind, int] = {}
    findings: list[Finding] = []


class CheckPart(Protocol):
    """Some records that any process can check; small and picklable."""

    @property
    def path(self) -> str:
        """The file, as the user named it."""
        ...

    @property
    def size(self) -> int:
        """Stored bytes."""
        ...

    @property
    def start(self) -> int:
        """Where in its file it begins."""
        ...

    def look(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield findings in order; count in `seen` what was read."""
        ...


class SampledLines:
    """Chooses a share of the lines of a file, each with the same chance; used once.

    It draws how far to jump, so the choice depends on share and seed alone, not on how the text is
    cut into pieces.
    """

    def __init__(self, share: float, seed: str) -> None:
        self._share = share
        self._chance = random.Random(seed)  # noqa: S311 (not a secret)
        self._next = self._jump()

    def among(self, first_line: int, count: int) -> Iterator[int]:
        """Yield the chosen lines among `count` from `first_line` on, as indices from 0."""
        while self._next < first_line + count:
            yield self._next - first_line
            self._next += self._jump()

    def _jump(self) -> int:
        if self._share == 1:
            return 1
        draw = self._chance.random() or 0.5
        return math.floor(math.log(draw) / math.log1p(-self._share)) + 1


@dataclass(frozen=True, slots=True)
class LinePart:
    """The lines that begin between two bytes of a file, or all lines."""

    file: JsonlFile
    size: int
    chosen: SampledLines | None = None
    """Lines that are checked; None: all."""
    start: int = 0
    stop: int | None = None
    """None: to the end, however the file is compressed."""

    @property
    def path(self) -> str:
        """The file."""
        return self.file.path

    def look(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield bad lines; lines count from where the part begins."""
        texts = (
            texts_of(self.file, advance)
            if self.stop is None
            else self._cut(self.stop, seen, advance)
        )
        try:
            for text in texts:
                seen.text_bytes += len(text.text)
                if self.chosen is not None:
                    yield from _findings_in(_sampled(text, self.chosen), text, seen)
                    continue
                values = read_fast(text)
                if values is not None and set(map(type, values)) == {dict}:
                    seen.records += len(values)
                else:
                    yield from _findings_in(read_lines(text), text, seen)
        except CorruptFileError as failure:
            reason = str(failure).removeprefix(f"{getattr(failure, 'path', '')} ")
            yield Finding("damaged file", self.path, None, reason)
        except ObjectNotFoundError as failure:
            yield Finding("missing file", self.path, None, str(failure))
        except OSError as failure:
            seen.errors.append((self.path, str(failure)))

    def _cut(
        self, stop: int, seen: PartFindings, advance: Callable[[int], object]
    ) -> Iterator[LineText]:
        store, name, known = self.file.source()
        with closing(store.open(name, known)) as file:
            is_begun = not self.start or file.read_at(self.start - 1, 1) == b"\n"
            pieces = LinePieces(self.start, stop, is_begun=is_begun)
            for piece in pieces.of(self._blocks(file, stop, advance)):
                if isinstance(piece, LinePiece):
                    yield LineText(self.path, piece.newlines + 1, piece.text)
            seen.newlines = pieces.newlines

    def _blocks(
        self, file: OpenFile, stop: int, advance: Callable[[int], object]
    ) -> Iterator[bytes]:
        """Yield the part, and what follows until its last line ends."""
        for at in range(self.start, file.size, _BLOCK_BYTES):
            block = file.read_at(at, min(_BLOCK_BYTES, file.size - at))
            yield block
            advance(max(0, min(len(block), stop - at)))


def line_parts(
    found: PathFiles, share: float | None, seed: int, part_bytes: int
) -> Iterator[LinePart]:
    """Yield all files in parts: plain local ones are cut, unless only a share is checked."""
    for number, file in enumerate(found.files):
        size = found.entries[file.path].size
        chosen = None if share is None else SampledLines(share, f"{seed}/{number}")
        if chosen is not None or size <= part_bytes or not _is_cut(file):
            yield LinePart(file, size, chosen)
            continue
        for start, stop in pairwise([*range(0, size, part_bytes), size]):
            yield LinePart(file, stop - start, None, start, stop)


def _is_cut(file: JsonlFile) -> bool:
    """Whether lines are cheap to find from the middle of a file on."""
    is_local = not is_remote(file.path) and isinstance(file.source().store, LocalStore)
    return is_local and compression_of(file.path) is None


def _sampled(text: LineText, chosen: SampledLines) -> Iterator[GoodLine | UnreadableLine]:
    lines = lines_of(text)
    for index in chosen.among(text.first_line, len(lines)):
        line = read_line(text, index, lines[index])
        if line is not None:
            yield line


def _findings_in(
    lines: Iterable[GoodLine | UnreadableLine], text: LineText, seen: PartFindings
) -> Iterator[Finding]:
    for line in lines:
        if isinstance(line, UnreadableLine):
            reason, start = reason_text(line.reason), begins(line.text)
            yield Finding("malformed line", text.path, line.number, reason, start)
            continue
        seen.records += 1
        if type(line.value) is not dict:
            reason, start = JSON_NAMES[type(line.value)], begins(line.text)
            yield Finding("non-object line", text.path, line.number, reason, start)


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
