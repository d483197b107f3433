"""Scans CSV files: rows, and the types of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock._words import counted
from penstock.errors import MalformedLineError, OptionError
from penstock.index._formats import load
from penstock.index._scan import Scanner
from penstock.index.csv._quotes import MISQUOTED, find_merged, find_misquoted
from penstock.index.csv._rows import RowFinder
from penstock.index.csv._types import (
    Dialect,
    TypesSeen,
    first_row,
)
from penstock.jsonl import conversion_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


SHOWN_BYTES = 64
"""Of a row that is set aside."""
_TEXT_BYTES = 4 << 20
"""Bytes of text whose types are found together."""
_PARSED_TYPE = "penstock.datasets.fields._grammar:arrow_type"
_ODD = ("ragged", "misquoted", "merged")


class CsvScanner(Scanner):
    r"""A row is a record, with line ends inside quotes; a header row is none.

    The names of columns are those of the header, or `column_names` (also in place of a header), or
    `f0`, `f1` …

    >>> scan = CsvScanner().begin("a.csv")
    >>> scan.add(b'id,text\n1,"two\nlines"\n2,\n').tolist(), scan.finish().tolist()
    ([[8, 14]], [[22, 3]])
    >>> scan.facts()
    {'columns': ['id', 'text'], 'types': ['int64', 'string'], 'large': [], 'misquoted': 0}
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
        number_nulls: Sequence[str] = (),
    ) -> None:
        nulls = () if null_values is None else null_values
        if not isinstance(nulls, list | tuple) or {*map(type, nulls)} - {str}:
            raise OptionError(f"null_values={nulls!r}: expected a list of texts.")
        more = (tuple(nulls), bool(empty_text), tuple(number_nulls))
        self.dialect = Dialect(delimiter, quote, escape, *more)
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
            "number_nulls": list(self.dialect.number_nulls),
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
        # An earlier release has not looked at the quotes of what it indexed.
        self._knows_quotes = bool(scanner.dialect.quote) and (not facts or "misquoted" in facts)
        self._odd = dict.fromkeys((*_ODD, *map("first_{}".format, _ODD)), 0)
        if facts and facts["columns"]:
            columns, kinds, large = facts["columns"], facts["types"], facts.get("large")
            self._types = TypesSeen(columns, scanner.dialect, kinds, large)
            self._odd |= {name: facts.get(name, 0) for name in self._odd}

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
        large = self._types.large if self._types else []
        if large is not None:
            facts["large"] = large
        for name in filter(self._odd.get, _ODD):
            facts |= {one: self._odd[one] for one in (name, f"first_{name}")}
        if self._knows_quotes:
            facts.setdefault("misquoted", 0)
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
                remedy=f"{conversion_of(self._path, row)}. If it is no CSV, name its format.",
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
            if find_misquoted(row, [row], self._scanner.dialect):
                text = f"{self._path}: its header cannot be read: {MISQUOTED}. Give another quote=."
                raise MalformedLineError(text, path=self._path, offset=0)
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
        """Find the types of columns in some rows, and the rows that are odd."""
        self._count("ragged", rows[[*types.add(part)]])
        starts, dialect = rows[:, 0] - rows[0, 0], self._scanner.dialect
        self._count("misquoted", rows[find_misquoted(part, starts, dialect)])
        self._count("merged", rows[find_merged(part, starts, dialect, len(types.names))])

    def _count(self, name: str, rows: NDArray[np.int64]) -> None:
        """Count rows that are odd, and keep the place of the first one of all."""
        if len(rows) and not self._odd[name]:
            self._odd[f"first_{name}"] = self._start + int(rows[:, 0].min())
        self._odd[name] += len(rows)


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
