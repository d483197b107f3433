"""Rows of CSV read once: the records among them, and the rows that are set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock.index._scan import ScannedFrames, opened, text_blocks
from penstock.index.checked._checks import Aside, PartFound
from penstock.index.csv._rows import line_ends
from penstock.index.csv._scan import CsvScan
from penstock.index.csv._types import convert_options, read_options, whole_rows, with_line_end
from penstock.index.profile._values import UNREADABLE
from penstock.jsonl import reason_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.index._parts import FilePart
    from penstock.index.checked._checks import Look
    from penstock.index.csv._scan import CsvScanner
    from penstock.index.csv._types import Dialect, TypesSeen
    from penstock.index.profile._profile import Profile


_INTEGER = r"^[ \t]*-?[0-9]+[ \t]*$"
_NUMBER = (
    r"^[ \t]*-?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|(?i:nan|inf|infinity))[ \t]*$"
)
_TRUTH = r"^(true|True|TRUE|false|False|FALSE)$"


def scan_rows(
    part: FilePart, scanner: CsvScanner, look: Look, advance: Callable[[int], object]
) -> PartFound:
    """Return the records of a file of CSV, from where a part of it begins."""
    scan = _CheckedScan(part, scanner, look)
    with opened(part.found) as file:
        for block in text_blocks(file, part.start, advance, ScannedFrames()):
            scan.add(block)
    scan.finish()
    return PartFound(scan.records, scan.aside, scan.newlines, [], scan.facts())


class _CheckedScan(CsvScan):
    """Finds rows, and checks each of them as soon as the types of its file are known."""

    def __init__(self, part: FilePart, scanner: CsvScanner, look: Look) -> None:
        scanner.begin(part.found.path)  # Raises for a file that cannot be scanned.
        super().__init__(scanner, part.found.path, part.facts, part.start)
        self._checks, self._profile, self._on_rows = look
        self.records = 0
        self.aside: list[Aside] = []
        self.newlines = 0

    def finish(self) -> NDArray[np.int64]:
        rows = super().finish()
        self.newlines += len(_ends(bytes(self._text)))  # Behind the last row.
        return rows

    def _look_at(self, part: bytes, rows: NDArray[np.int64], types: TypesSeen) -> None:
        starts = (rows[:, 0] - rows[0, 0]).tolist()
        texts = [part[at : at + size] for at, size in zip(starts, rows[:, 1].tolist(), strict=True)]
        reasons = self._reasons(part, texts)
        whole = [number for number in range(len(texts)) if number not in reasons]
        ragged = types.add(_joined([texts[number] for number in whole])) if whole else {}
        for at, fields in ragged.items():
            held = "1 field" if fields == 1 else f"{fields:,} fields"
            reasons[whole[at]] = f"{held}, and its file has {len(types.names):,} columns"
        if self._profile is not None:
            self._add_to_profile(self._profile, texts, reasons, types)
        if self._checks.validate:
            self._set_aside(rows, reasons)
            rows = np.delete(rows, sorted(reasons), axis=0)
        else:
            if ragged and not self._ragged:
                self._first_ragged = self._start + int(rows[whole[min(ragged)], 0])
            self._ragged += len(ragged)
        self._on_rows(rows + np.array([self._start, 0]))
        self.records += len(rows)

    def _reasons(self, part: bytes, texts: list[bytes]) -> dict[int, str]:
        """Return the rows that cannot be read, and why."""
        reasons: dict[int, str] = {}
        most = self._checks.max_line_bytes
        if most is not None:
            long = [number for number, text in enumerate(texts) if len(text) > most]
            reasons = dict.fromkeys(long, f"longer than {most:,} bytes")
        try:
            part.decode()
        except UnicodeDecodeError:
            for number, text in enumerate(texts):
                try:
                    text.decode()
                except UnicodeDecodeError as why:
                    reasons.setdefault(number, reason_text(why))
        return reasons

    def _set_aside(self, rows: NDArray[np.int64], reasons: dict[int, str]) -> None:
        ends = _ends(bytes(self._text[: int(rows[-1].sum()) - self._text_at]))
        for number in sorted(reasons):
            offset, size = rows[number].tolist()
            newlines = self.newlines + int(np.searchsorted(ends, offset - self._text_at))
            self.aside.append(Aside(newlines, self._start + offset, size, reasons[number]))
        self.newlines += len(ends)

    def _add_to_profile(
        self, profile: Profile, texts: list[bytes], reasons: dict[int, str], types: TypesSeen
    ) -> None:
        good = [number for number in range(len(texts)) if number not in reasons]
        first = profile.records
        numbers = np.arange(first, first + len(good))
        if not self._checks.validate:
            numbers = first + np.array(good, np.int64)
            for number in reasons:
                profile.add([UNREADABLE], first + number)
        if not good:
            return
        text = _joined([texts[number] for number in good])
        profile.add_columns(_typed_columns(text, types.names, self._scanner.dialect), numbers)


def _joined(texts: list[bytes]) -> bytes:
    return b"".join(map(with_line_end, texts))


def _ends(text: bytes) -> NDArray[np.int64]:
    """Return where lines end: with LF, CRLF or CR."""
    return line_ends(np.frombuffer(text + b"\0", np.uint8), len(text))


def _typed_columns(text: bytes, names: Sequence[str], dialect: Dialect) -> dict[str, list[object]]:
    r"""Return the columns of whole rows: int, float, bool, text, or None for an empty field.

    The type of a value depends on its own text alone, not on its column.

    >>> from penstock.index.csv._types import Dialect
    >>> _typed_columns(b'1,x\n"",2.5\n,true\n', ["a", "b"], Dialect())
    {'a': [1, '', None], 'b': ['x', 2.5, True]}
    """
    text = whole_rows(text)
    types = dict.fromkeys(names, pa.string())
    table = csv.read_csv(
        pa.py_buffer(text),
        read_options(text, names),
        dialect.parse_options(),
        convert_options(types, names),
    )
    return {name: _values(table[name]) for name in names}


def _values(texts: pa.ChunkedArray) -> list[object]:
    values: list[object] = texts.to_pylist()
    for pattern, convert in _READERS:
        matching = pc.match_substring_regex(texts, pattern).fill_null(False).to_numpy()  # noqa: FBT003 (Arrow's own)
        for at in np.flatnonzero(matching).tolist():
            values[at] = convert(str(values[at]))
    return values


def _integer(text: str) -> object:
    try:
        return int(text)
    except ValueError:  # More digits than Python converts.
        return text


_READERS: tuple[tuple[str, Callable[[str], object]], ...] = (
    (_INTEGER, _integer),
    (_NUMBER, float),
    (_TRUTH, lambda text: text.lower() == "true"),
)
