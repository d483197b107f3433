"""Scans CSV files: rows, and the types of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from penstock.errors import MalformedLineError, OptionError
from penstock.index.csv._rows import RowFinder
from penstock.index.csv._types import Dialect, TypesSeen, first_row

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

_TEXT_BYTES = 4 << 20
"""Bytes of text whose types are found together."""


class CsvScanner:
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

    def __init__(
        self,
        delimiter: str = ",",
        quote: str | None = '"',
        escape: str | None = None,
        header: bool = True,  # noqa: FBT001, FBT002 (named as `CsvRows` names it)
        column_names: Sequence[str] | None = None,
    ) -> None:
        self.dialect = Dialect(delimiter, quote, escape)
        self.dialect.check()
        self.header = bool(header)
        if isinstance(column_names, str):
            raise OptionError(f"column_names={column_names!r}: expected a list of names.")
        self.column_names = None if column_names is None else tuple(column_names)
        if self.column_names is not None:
            _check_names(self.column_names, "column_names=")

    def options(self) -> dict[str, object]:
        """Return the options that change an index."""
        return {
            "delimiter": self.dialect.delimiter,
            "quote": self.dialect.quote,
            "escape": self.dialect.escape,
            "header": self.header,
            "column_names": None if self.column_names is None else list(self.column_names),
        }

    def begin(
        self, path: str, facts: Mapping[str, object] | None = None, start: int = 0
    ) -> CsvScan:
        """Begin a file, or continue one that grew since an earlier scan found `facts`."""
        if path.lower().endswith((".gz", ".zst")):
            raise OptionError(
                f"{path}: compressed CSV has no random access, so its rows cannot be numbered in "
                "place. Decompress it (gunzip, zstd -d), or convert it to Parquet."
            )
        return CsvScan(self, path, facts, start)


class CsvScan:
    """Finds the rows of one file; see `penstock.index.FileScan`."""

    def __init__(
        self,
        scanner: CsvScanner,
        path: str,
        facts: Mapping[str, object] | None = None,
        start: int = 0,
    ) -> None:
        self._scanner = scanner
        self._path = path
        self._start = start
        self._finder = RowFinder(scanner.dialect, path, start)
        self._types: TypesSeen | None = None  # Until the first row is found.
        self._text = bytearray()  # Rows whose types are not found yet, and the bytes behind them.
        self._text_at = 0
        self._rows: list[NDArray[np.int64]] = []  # Those rows.
        self._ragged = 0
        self._first_ragged = 0
        if facts and facts["columns"]:
            names, kinds = cast("list[str]", facts["columns"]), cast("list[str]", facts["types"])
            self._types = TypesSeen(names, scanner.dialect, kinds)
            self._ragged = cast("int", facts.get("ragged", 0))
            self._first_ragged = cast("int", facts.get("first_ragged", 0))

    def add(self, block: bytes | memoryview) -> NDArray[np.int64]:
        """Return offset and bytes of each row that this block finished."""
        self._text += block
        rows = self._taken(self._finder.add(block))
        if self._rows and self._rows[-1][-1].sum() - self._text_at >= _TEXT_BYTES:
            self._find_types()
        return rows

    def finish(self) -> NDArray[np.int64]:
        """Return the last row, if it has no line end."""
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
        except pa.ArrowInvalid as why:
            raise MalformedLineError(
                f"{self._path}: its first row cannot be read: {why}. CSV is read as UTF-8.",
                path=self._path,
                offset=0,
            ) from None
        names = self._scanner.column_names
        if names is not None and len(names) != len(fields):
            raise OptionError(
                f"{self._path}: column_names= gives {len(names):,} names, its first row has "
                f"{len(fields):,} fields ({', '.join(fields[:5])} …). Is delimiter="
                f"{self._scanner.dialect.delimiter!r} right?"
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
                "Give other names: column_names=[…]."
            )
        seen.add(name)
