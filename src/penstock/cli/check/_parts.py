"""Parts of files, checked here or by processes; findings come in the order of the parts."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.cli._units import counted
from penstock.cli._verb import FAILED, FINDINGS, FINE
from penstock.decode import JSON_NAMES, decode_line
from penstock.errors import CorruptFileError, ObjectNotFoundError, PenstockError, StaleIndexError
from penstock.index import (
    Checks,
    FilePart,
    LineCheck,
    LineScanner,
    Look,
    opened_lines,
    parts_of,
)
from penstock.jsonl import reason_text
from penstock.work import PublishedUnit, UnitResults, grouped, run_units

if TYPE_CHECKING:
    from penstock.cli._verb import VerbCall
    from penstock.index import Detected, Found, LinePiece
    from penstock.storage import Draft

PART_BYTES = 32 << 20
_LITTLE = 64 << 20
"""Bytes that are read before other processes would have started."""
_SHOWN_BYTES = 60


class Finding(msgspec.Struct, frozen=True):
    """One problem, and where it is."""

    kind: str
    """`malformed line`, `damaged file`, `leftover` …, and `unreadable` with the unit of a table."""
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
    kinds: dict[str, int] = {}
    findings: list[Finding] = []
    columns: list[str] = []
    """Of a CSV file that has rows."""


@dataclass(frozen=True, slots=True)
class CheckPart(ABC):
    """Some records that any process can check; small and picklable."""

    path: str
    """The file, as the user named it."""
    part: FilePart
    sample: tuple[float, str] | None = field(default=None, kw_only=True)
    """Share of the records that are checked, and the seed of the choice; None: all."""
    sampled: ClassVar = "lines"
    content: ClassVar = "text"

    @property
    def size(self) -> int:
        """Stored bytes."""
        return self.part.size

    @property
    def chosen(self) -> Sample | None:
        """The choice of records, from the first one on."""
        return None if self.sample is None else Sample(*self.sample)

    def look(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield findings in order; count in `seen` what was read."""
        try:
            yield from self.findings(seen, advance)
        except CorruptFileError as failure:
            yield Finding("damaged file", self.path, None, reason_of(failure))
        except ObjectNotFoundError as failure:
            yield Finding("missing file", self.path, None, str(failure))
        except (OSError, StaleIndexError) as failure:
            seen.errors.append((self.path, str(failure)))

    def misfit(self, columns: Mapping[str, list[str]]) -> str:
        """Return why the columns of files do not go together; empty where they do."""
        return ""

    @abstractmethod
    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Do the same, and raise what cannot be read."""


def reason_of(failure: PenstockError) -> str:
    """Return the text of an error without the path that it begins with: findings have one."""
    return str(failure).removeprefix(getattr(failure, "path", "")).lstrip(": ")


def begins(line: bytes) -> str:
    """Return the beginning of a line, with escapes for control characters."""
    return f"{line[:_SHOWN_BYTES]!r}{' …' if len(line) > _SHOWN_BYTES else ''}"


class Sample:
    """Chooses a share of the records of a file, each with the same chance; used once.

    It draws how far to jump, so the choice depends on share and seed alone, not on how the records
    are cut into pieces.
    """

    def __init__(self, share: float, seed: str) -> None:
        self._share = share
        self._chance = random.Random(seed)  # noqa: S311 (not a secret)
        self._next = self._jump() - 1

    def __call__(self, count: int) -> list[int]:
        """Return the chosen ones among the next `count` records, as indices from 0."""
        chosen = []
        while self._next < count:
            chosen.append(self._next)
            self._next += self._jump()
        self._next -= count
        return chosen

    def _jump(self) -> int:
        if self._share == 1:
            return 1
        draw = self._chance.random() or 0.5
        return math.floor(math.log(draw) / math.log1p(-self._share)) + 1


@dataclass(frozen=True, slots=True)
class LinePart(CheckPart):
    """The lines that begin in a part of a file; lines count from where it begins."""

    def findings(self, seen: PartFindings, advance: Callable[[int], object]) -> Iterator[Finding]:
        """Yield bad lines."""
        look = Look(Checks(validate=True), chosen=self.chosen)
        with opened_lines(self.part, advance) as lines:
            for piece in lines:
                seen.text_bytes += len(piece.text)
                yield from self._bad_lines(piece, look, seen)
        seen.newlines = lines.newlines

    def _bad_lines(self, piece: LinePiece, look: Look, seen: PartFindings) -> Iterator[Finding]:
        check = LineCheck(look)
        check.add(piece)
        seen.records += check.records
        lines = piece.text.split(b"\n") if check.aside else []
        for aside in check.aside:
            line, number = lines[aside.newlines - piece.newlines], aside.newlines + 1
            try:
                value = decode_line(line)
            except ValueError as why:
                yield Finding("malformed line", self.path, number, reason_text(why), begins(line))
                continue
            seen.records += 1
            if type(value) is not dict:  # A deep object may fit the stack here, and not before.
                reason = JSON_NAMES[type(value)]
                yield Finding("non-object line", self.path, number, reason, begins(line))


@dataclass(frozen=True, slots=True)
class ToCheck:
    """The files of a format, as `Format.check` gets them to return their parts."""

    files: Mapping[str, Found]
    """By the names that the user gave them."""
    at_path: Detected
    made_with: Mapping[str, Any] | None
    """The options of an existing index."""
    share: float | None
    seed: int
    part_bytes: int

    def whole(self) -> Iterator[tuple[str, FilePart, tuple[float, str] | None]]:
        """Yield each file with its name and `CheckPart.sample`."""
        for number, (name, found) in enumerate(self.files.items()):
            sample = None if self.share is None else (self.share, f"{self.seed}/{number}")
            yield name, FilePart(found, 0, found.entry.size), sample


def line_parts(asked: ToCheck) -> Iterator[LinePart]:
    """Yield all files in parts: plain local ones are cut, unless only a share is checked."""
    for path, whole, sample in asked.whole():
        cut = sample is None
        parts = parts_of(whole.found, 0, LineScanner(), asked.part_bytes, None) if cut else [whole]
        for part in parts:
            yield LinePart(path, part, sample=sample)


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
        return sum(one.size for one in self.parts)

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
    kinds: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    records: int = 0
    text_bytes: int = 0
    _columns: dict[str, list[str]] = field(default_factory=dict)
    """Of the first file that has some."""
    _lines: int = 0
    """Before the current part, in its file."""

    def add(self, finding: Finding) -> None:
        """Take a finding that belongs to no part."""
        self.kinds[finding.kind] += 1
        self._show(finding)

    def take(self, part: CheckPart, found: PartFindings) -> None:
        """Take findings and counts of the next part."""
        if not part.part.start:
            self._lines = 0
        self.kinds.update(found.kinds)
        for finding in found.findings:
            line = None if finding.line is None else finding.line + self._lines
            self._show(msgspec.structs.replace(finding, line=line))
        if found.columns:
            self._columns = self._columns or {part.path: found.columns}
            if reason := part.misfit(self._columns | {part.path: found.columns}):
                self.add(Finding("differing schema", part.path, None, reason))
        self.records += found.records
        self.text_bytes += found.text_bytes
        self._lines += found.newlines
        for path, text in found.errors:
            self.errors.setdefault(path, text)

    def _show(self, finding: Finding) -> None:
        if len(self.shown) < self.most:
            self.shown.append(finding)
            self.show(finding)

    @property
    def code(self) -> int:
        """The exit code that follows from them."""
        return FAILED if self.errors else FINDINGS if self.kinds else FINE


@dataclass(frozen=True, slots=True)
class CheckTask:
    """The options of the verb, and what it finds."""

    call: VerbCall
    findings: Findings
    sample: float | None
    seed: int
    workers: int | None

    @property
    def path(self) -> str:
        """What the user named."""
        return self.call.path

    def numbers(self, records: int) -> Sequence[int]:
        """Return the numbers of the records that are checked."""
        if self.sample is None:
            return range(records)
        return Sample(self.sample, str(self.seed))(records)

    def found(self, total: int) -> str:
        """Return how many findings there are, and how many of them are not shown."""
        hidden = total - self.findings.most
        return counted(total, "finding") + (f" ({hidden:,} not shown)" if hidden > 0 else "")

    def share(self, of: str = "them") -> str:
        """Return which share of the records is checked; nothing for all."""
        return "" if self.sample is None else f" in a sample of {100 * self.sample:g} % of {of}"


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
        waiting, finished = deque(units), set[int]()

        def done(unit: CheckUnit) -> None:
            finished.add(unit.number)
            while waiting and waiting[0].number in finished:
                turn = waiting.popleft()
                for part, found in zip(turn.parts, turn.found(), strict=True):
                    findings.take(part, found)

        run_units(units, workers=workers, advance=advance, done=done)
