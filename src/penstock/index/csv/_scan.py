"""Scans CSV files: rows, the types of columns, and rows that are set aside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from penstock._words import counted
from penstock.errors import MalformedLineError, OptionError
from penstock.index._formats import load
from penstock.index._parts import opened_blocks
from penstock.index._scan import ScannedFrames, Scanner
from penstock.index.checked._checks import Aside, PartFound
from penstock.index.csv._rows import RowFinder, line_ends
from penstock.index.csv._types import (
    TEXT,
    Dialect,
    TypesSeen,
    first_row,
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

SHOWN_BYTES = 64
"""Of a row that is set aside."""
_TEXT_BYTES = 4 << 20
"""Bytes of text whose types are found together."""
_INTEGER = r"^[ \t]*-?[0-9]+[ \t]*$"
_NUMBER = (
    r"^[ \t]*-?(([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+"
    r"|(?i:nan|inf|infinity))[ \t]*$"
)
_PARSED_TYPE = "penstock.datasets.fields._grammar:arrow_type"
_TRUTH = r"^(true|True|TRUE|false|False|FALSE)$"


class CsvScanner(Scanner):
    r"""A row is a record, with line ends inside quotes; a header row is none.

    The names of columns are those of the header, or `column_names` (also in place of a header), or
    `f0`, `f1` …

    >>> scan = CsvScanner().begin("a.csv")
    >>> scan.add(b'id,text\n1,"two\nlines"\n2,\n').tolist(), scan.finish().tolist()
    ([[8, 14]], [[22, 3]])
    >>> scan.facts()
    {'columns': ['id', 'text'], 'types': ['int64', 'string']}
    """

    kind = "csv"
    is_typed = False

    def __init__(  # noqa: PLR0913, PLR0917 (in the order of 0.1.0)
        self,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,  # noqa: FBT001, FBT002 (named as `CsvRows` names it)
        column_names: Sequence[str] | None = None,
        null_values: Sequence[str] | None = None,
        types: Mapping[str, str] | None = None,
        empty_text: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        nulls = () if null_values is None else null_values
        if not isinstance(nulls, list | tuple) or {*map(type, nulls)} - {str}:
            raise OptionError(f"null_values={nulls!r}: expected a list of texts.")
        self.dialect = Dialect(delimiter, quote, escape, tuple(nulls), bool(empty_text))
        self.dialect.check()
        self.header = bool(header)
        if isinstance(column_names, str):
            raise OptionError(f"column_names={column_names!r}: expected a list of names.")
        self.column_names = None if column_names is None else tuple(column_names)
        if self.column_names is not None:
            _check_names(self.column_names, "column_names=")
        if not isinstance(types, Mapping | None):
            raise OptionError(f"types={types!r}: expected a dict of columns and their types.")
        self.types = dict(types or {})
        for name, text in self.types.items():
            if not isinstance(text, str):  # Such as a type of pyarrow, which JSON cannot hold.
                raise OptionError(f"types={{{name!r}: {text!r}}}: expected a text like 'int64'.")
            load(_PARSED_TYPE)(text)  # Raises for a text that is no type.

    def options(self) -> dict[str, object]:
        # Those that 0.1.0 did not know are left out where they say nothing: its indexes open.
        more = {
            "null_values": list(self.dialect.null_values),
            "types": self.types,
            "empty_text": self.dialect.empty_text,
        }
        return {
            "delimiter": self.dialect.delimiter,
            "quote": self.dialect.quote,
            "escape": self.dialect.escape,
            "header": self.header,
            "column_names": None if self.column_names is None else list(self.column_names),
            **{name: value for name, value in more.items() if value},
        }

    def known_bytes(self, last: bytes, following: bytes) -> int | None:
        quote, escape = self.dialect.quote, self.dialect.escape
        is_open = quote is not None and last.count(quote.encode()) % 2 == 1
        is_over = b"\n" in last[-1:] + following and not is_open and escape is None
        return len(last) if is_over else None

    def begin(self, path: str, facts: Mapping[str, Any] | None = None, start: int = 0) -> CsvScan:
        return CsvScan(self, path, facts, start)


class CsvScan:
    """Finds the rows of one file; see `penstock.index.FileScan`."""

    def __init__(
        self, scanner: CsvScanner, path: str, facts: Mapping[str, Any] | None, start: int
    ) -> None:
        self._scanner, self._path, self._start = scanner, path, start
        self._finder = RowFinder(scanner.dialect, path, start)
        self._types: TypesSeen | None = None  # Until the first row is found.
        self._text = bytearray()  # Rows whose types are not found yet, and the bytes behind them.
        self._text_at = 0
        self._rows: list[NDArray[np.int64]] = []  # Those rows.
        self._ragged = self._first_ragged = 0
        if facts and facts["columns"]:
            self._types = TypesSeen(facts["columns"], scanner.dialect, facts["types"])
            self._ragged, self._first_ragged = facts.get("ragged", 0), facts.get("first_ragged", 0)

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        self._text += block
        rows = self._taken(self._finder.add(block))
        if self._rows and self._rows[-1][-1].sum() - self._text_at >= _TEXT_BYTES:
            self._find_types()
        return rows

    def finish(self) -> NDArray[np.int64]:
        rows = self._taken(self._finder.finish())
        self._find_types()
        return rows

    def facts(self) -> dict[str, object]:
        """Return the columns and their types, and the rows with another number of fields."""
        names = list(self._scanner.column_names or ())
        facts: dict[str, object] = {
            "columns": self._types.names if self._types else names,
            "types": self._types.kinds if self._types else ["null"] * len(names),
        }
        if self._ragged:
            facts |= {"ragged": self._ragged, "first_ragged": self._first_ragged}
        return facts

    def _taken(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows that are records, kept until their types are found."""
        if not len(rows):
            return rows
        if self._types is None:
            start, size = rows[0].tolist()
            names = self._names(bytes(self._text[start - self._text_at :][:size]))
            self._types = TypesSeen(names, self._scanner.dialect)
            rows = rows[1:] if self._scanner.header else rows
        if len(rows):
            self._rows.append(rows)
        return rows

    def _names(self, row: bytes) -> list[str]:
        try:
            fields = first_row(row, self._scanner.dialect)
        except (pa.ArrowInvalid, UnicodeDecodeError) as why:
            raise MalformedLineError(
                f"{self._path}: its first row cannot be read: {why}. CSV is read as UTF-8.",
                remedy="Convert it: iconv -f LATIN1 -t UTF-8; or if it is no CSV, name its format.",
                path=self._path,
                offset=0,
            ) from None
        names = self._scanner.column_names
        if names is not None and len(names) != len(fields):
            raise OptionError(
                f"{self._path}: column_names= gives {counted(len(names), 'name')}, its "
                f"first row has {counted(len(fields), 'field')} ({', '.join(fields[:5])} …). Is "
                f"delimiter={self._scanner.dialect.delimiter!r} right?"
            )
        if names is None and self._scanner.header:
            _check_names(fields, f"the header of {self._path}")
            return fields
        return [f"f{number}" for number in range(len(fields))] if names is None else list(names)

    def _find_types(self) -> None:
        if self._types is None or not self._rows:
            return
        rows = np.concatenate(self._rows)
        start, stop = int(rows[0, 0]), int(rows[-1].sum())
        with memoryview(self._text) as text:
            part = bytes(text[start - self._text_at : stop - self._text_at])
        self._look_at(part, rows, self._types)
        del self._text[: stop - self._text_at]
        self._text_at = stop
        self._rows = []

    def _look_at(self, part: bytes, rows: NDArray[np.int64], types: TypesSeen) -> None:
        """Find the types of columns in some rows, and the rows with another number of fields."""
        ragged = types.add(part)
        if ragged and not self._ragged:
            self._first_ragged = self._start + int(rows[min(ragged), 0])
        self._ragged += len(ragged)


def _check_names(names: Sequence[str], where: str) -> None:
    seen: set[str] = set()
    for name in names:
        if not isinstance(name, str):
            raise OptionError(f"{where}: {name!r} is no name of a column; expected text.")
        if name in seen:
            raise OptionError(
                f"{where}: two columns are called {name!r}, and a record holds each name once. "
                "Give other names: column_names=[…] (--columns A,B,C)."
            )
        seen.add(name)


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
        if self._profile is not None:
            self._add_to_profile(self._profile, texts, reasons, types)
        if self._checks.validate:
            self._set_aside(rows, reasons, end)
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
    text = whole_rows(text)
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
    (_INTEGER, _integer),
    (_NUMBER, float),
    (_TRUTH, lambda text: text.lower() == "true"),
)
