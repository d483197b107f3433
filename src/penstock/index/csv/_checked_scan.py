"""Scans CSV files and checks each row: those set aside, and the profile of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock._words import counted
from penstock.index._parts import opened_blocks
from penstock.index._scan import ScannedFrames
from penstock.index.checked._checks import Aside, PartFound
from penstock.index.csv._quotes import MISQUOTED, find_merged, find_misquoted
from penstock.index.csv._rows import line_ends
from penstock.index.csv._scan import SHOWN_BYTES, CsvScan, CsvScanner
from penstock.index.csv._types import (
    INTEGER,
    TEXT,
    Dialect,
    TypesSeen,
    read_options,
    whole_rows,
    with_line_end,
)
from penstock.index.profile._values import UNREADABLE
from penstock.jsonl import reason_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penstock.index._parts import FilePart
    from penstock.index.checked._checks import Look
    from penstock.index.profile._profile import Profile

_NUMBER = (
    r"^[ \t]*-?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|(?i:nan|inf|infinity))[ \t]*$"
)
_TRUTH = r"^(true|True|TRUE|false|False|FALSE)$"


def scan_rows(
    part: FilePart, scanner: CsvScanner, look: Look, advance: Callable[[int], object]
) -> PartFound:
    """Return the records of a file of CSV, from where a part of it begins."""
    scan, frames, text_bytes = _CheckedScan(part, scanner, look), ScannedFrames(), 0
    with opened_blocks(part, advance, frames) as blocks:
        for block in blocks:
            scan.add(block)
            text_bytes += len(block)
    scan.finish()
    facts = scan.facts()
    return PartFound(scan.records, scan.aside, scan.newlines, frames.as_tuples, facts, text_bytes)


class _CheckedScan(CsvScan):
    """Finds rows, and checks each of them as soon as the types of its file are known."""

    def __init__(self, part: FilePart, scanner: CsvScanner, look: Look) -> None:
        super().__init__(scanner, part.found.path, part.facts, part.start)
        self._checks, self._profile, self._on_rows, self._chosen = look
        self.records = 0
        self.aside: list[Aside] = []
        self.newlines = 0

    def finish(self) -> NDArray[np.int64]:
        rows = super().finish()
        self.newlines += len(_ends(bytes(self._text)))  # Behind the last row.
        return rows

    def _look_at(self, part: bytes, rows: NDArray[np.int64], types: TypesSeen) -> None:
        end, starts = int(rows[-1].sum()), (rows[:, 0] - rows[0, 0]).tolist()
        texts = [part[at : at + size] for at, size in zip(starts, rows[:, 1].tolist(), strict=True)]
        if self._chosen is not None:
            chosen = self._chosen(len(rows))
            texts, rows = [texts[number] for number in chosen], rows[chosen]
        reasons = self._reasons(part, texts)
        whole = [number for number in range(len(texts)) if number not in reasons]
        ragged = types.add(_joined([texts[number] for number in whole])) if whole else {}
        for at, fields in ragged.items():
            columns = counted(len(types.names), "column")
            reasons[whole[at]] = f"{counted(fields, 'field')}, and its file has {columns}"
        misquoted = find_misquoted(part, texts, self._scanner.dialect)
        reasons = dict.fromkeys(misquoted, MISQUOTED) | reasons
        if self._profile is not None:
            self._add_to_profile(self._profile, texts, reasons, types)
        merged = find_merged(part, texts, self._scanner.dialect, len(types.names))
        self._count("merged", rows[merged])
        if self._checks.validate:
            self._set_aside(rows, reasons, end)
            rows = np.delete(rows, sorted(reasons), axis=0)
        else:
            self._count("ragged", rows[[whole[at] for at in ragged]])
            self._count("misquoted", rows[misquoted])
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

    def _set_aside(self, rows: NDArray[np.int64], reasons: dict[int, str], end: int) -> None:
        ends = _ends(bytes(self._text[: end - self._text_at]))
        for number in sorted(reasons):
            offset, size = rows[number].tolist()
            newlines = self.newlines + int(np.searchsorted(ends, offset - self._text_at))
            begin = offset - self._text_at
            begins = bytes(self._text[begin : begin + min(size, SHOWN_BYTES)])
            at = self._start + offset
            self.aside.append(Aside(newlines, at, size, reasons[number], begins))
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
        texts_only = [n for n, kind in zip(types.names, types.kinds, strict=True) if kind == TEXT]
        dialect = self._scanner.dialect
        profile.add_columns(_typed_columns(text, types.names, dialect, texts_only), numbers)


def _joined(texts: list[bytes]) -> bytes:
    return b"".join(map(with_line_end, texts))


def _ends(text: bytes) -> NDArray[np.int64]:
    """Return where lines end: with LF, CRLF or CR."""
    return line_ends(np.frombuffer(text + b"\0", np.uint8), len(text))


def _typed_columns(
    text: bytes, names: Sequence[str], dialect: Dialect, texts: Sequence[str] = ()
) -> dict[str, list[object]]:
    r"""Return the columns of whole rows: int, float, bool, text, or None for an empty field.

    The type of a value depends on its own text alone, not on its column; but in columns that are
    `texts`, a quoted field is never null.

    >>> from penstock.index.csv._types import Dialect
    >>> _typed_columns(b'1,x\n"",2.5\n,""\n', ["a", "b"], Dialect(), ["b"])
    {'a': [1, None, None], 'b': ['x', 2.5, '']}
    """
    text = whole_rows(text, dialect)
    parse = dialect.parse_options()
    found: dict[str, list[object]] = {}
    for quoted_nulls in (False, True):
        some = [name for name in names if (name in texts) != quoted_nulls]
        if some:
            strings = dict.fromkeys(some, pa.string())
            convert = dialect.convert_options(strings, some, quoted_nulls=quoted_nulls)
            table = csv.read_csv(pa.py_buffer(text), read_options(text, names), parse, convert)
            found |= {name: _values(table[name]) for name in some}
    return {name: found[name] for name in names}


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
    (INTEGER, _integer),
    (_NUMBER, float),
    (_TRUTH, lambda text: text.lower() == "true"),
)
