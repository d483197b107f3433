"""Finds whether the first rows of new CSV files are names or records, by a look at their heads."""

from __future__ import annotations

import csv
import io
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyarrow.csv import ConvertOptions

from penstock._words import few, warn_once
from penstock.errors import SchemaMismatchError
from penstock.index._heads import head_of
from penstock.index.csv._types import BIG, FLOAT, INT
from penstock.jsonl import BOM
from penstock.storage import carried

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.index._listing import Found
    from penstock.index._meta import Meta
    from penstock.index.csv._scan import CsvScanner
    from penstock.index.csv._types import Dialect

_log = logging.getLogger("penstock.index")
_HEAD_BYTES = 64 << 10
_MOST_ROWS = 1000
_MOST_FILES = 16
"""Files that are looked at; all of them are read when the index is built."""
_SHOWN = 5
_NUMBER = re.compile(r"\s*[-+]?[0-9.,]*[0-9][0-9.,]*([eE][-+]?[0-9]+)?%?\s*")
_MOMENT = re.compile(
    r"\s*[0-9]{1,4}[-/][0-9]{1,2}[-/][0-9]{1,4}([T ].*)?\s*|\s*[0-9]{1,2}:[0-9]{2}.*"
)
_TEXT = "text"
_NULLS = frozenset({*ConvertOptions().null_values, "\\N"})
"""Texts that say nothing of the type of a column."""
_YEARS = range(1900, 2101)


class _FirstRows(NamedTuple):
    path: str
    first: list[str]
    others: list[list[str]]
    """Rows with as many fields, without repetitions of the first."""
    kinds: list[str | None]
    """What all fields of a column are below the first row; None where that cannot be said."""


def find_header(
    files: Sequence[Found], scanner: CsvScanner, given: Mapping[str, Any]
) -> dict[str, object]:
    """Return whether the first row of each file has names, as the option `header`.

    It is a record where a number stands over a column of numbers (or a date over dates), or where
    the first rows of several files differ as only records do.
    """
    files = [found for found in files if found.entry.size]
    step = -(-len(files) // _MOST_FILES) or 1
    with ThreadPoolExecutor(_MOST_FILES, "penstock-heads") as pool:
        texts = pool.map(carried(partial(head_of, size=_HEAD_BYTES + 1)), files[::step])
        looks = [
            _look(found.path, text, scanner.dialect)
            for found, text in zip(files[::step], texts, strict=True)
        ]
    heads = [head for head in looks if head is not None]
    if any(name in head.first for name in given.get("types") or () for head in heads):
        return {"header": True}  # The caller knows names of the first row.
    verdicts = [_is_record(head) for head in heads]
    if True in verdicts and False in verdicts:
        named, bare = heads[verdicts.index(False)], heads[verdicts.index(True)]
        raise SchemaMismatchError(
            f"{named.path} begins with the names of its columns ({few(named.first, _SHOWN)}), and "
            f"{bare.path} with a record ({few(bare.first, _SHOWN)}).",
            remedy="Open them apart, or say what both begin with: header=True or header=False "
            "(--header, --no-header).",
            path=bare.path,
        )
    doubt = next((head for head in heads if _is_run(head)), None)
    is_told = bool({*verdicts} - {None})
    is_record = True in verdicts or not (is_told or doubt or not _differ_as_records(heads))
    if is_record:
        head = heads[verdicts.index(True) if True in verdicts else 0]
        warn_once(
            _log,
            f"{head.path}: its first row ({few(head.first, _SHOWN)}) is taken for a record, "
            "because it looks like the rows below it, or differs by file. Columns are called f0, "
            "f1 …; header=True (--header) takes it for their names",
        )
    elif not is_told and (doubt or _differ(heads)):
        head = doubt or heads[0]
        warn_once(
            _log,
            f"{head.path}: its first row ({few(head.first, _SHOWN)}) is taken for names of "
            "columns, although it holds numbers, or is not that of all files. header=False "
            "(--no-header) takes it for a record",
        )
    return {"header": not is_record}


def warn_of_names(meta: Meta | None) -> None:
    """Warn of an index in which numbers are the names of columns of numbers, as in a record."""
    is_named = meta is not None and meta.options.get("header") and not meta.options["column_names"]
    for file in meta.files if meta is not None and is_named else ():
        names = file.facts["columns"]
        over_numbers = [
            _NUMBER.fullmatch(name)
            for name, type_ in zip(names, file.facts["types"], strict=True)
            if type_ in {INT, BIG, FLOAT}
        ]
        if over_numbers and all(over_numbers) and not _counts_up(names):
            text = f"{file.path} has columns that are called {few(names, _SHOWN)}, as a record"
            warn_once(
                _log, f"{text} may begin. header=False (--no-header) takes its first row for one"
            )
            return


def _look(path: str, text: bytes, dialect: Dialect) -> _FirstRows | None:
    head = text.removeprefix(BOM).decode("latin-1")
    try:
        reader = csv.reader(io.StringIO(head, newline=""), **dialect.of_python())
        rows = [row for row, _ in zip(filter(None, reader), range(_MOST_ROWS + 1), strict=False)]
    except csv.Error:  # The scan says more.
        return None
    if len(text) > _HEAD_BYTES and 1 < len(rows) <= _MOST_ROWS:
        rows.pop()  # Cut off.
    if not rows:
        return None
    first = rows[0]
    others = [row for row in rows[1:] if len(row) == len(first) and row != first]
    nulls = _NULLS | {*dialect.null_values}
    columns = zip(*others, strict=True) if others else [()] * len(first)
    kinds = [{_kind_of(cell) for cell in column if cell not in nulls} for column in columns]
    return _FirstRows(
        path, first, others, [kind.pop() if len(kind) == 1 else None for kind in kinds]
    )


def _kind_of(cell: str) -> str:
    if _NUMBER.fullmatch(cell):
        return "number"
    return "moment" if _MOMENT.fullmatch(cell) else _TEXT


def _is_record(head: _FirstRows) -> bool | None:
    """Whether the first row of a file is a record; None where its own rows do not say."""
    firsts = [None if cell in _NULLS else _kind_of(cell) for cell in head.first]
    if not head.others:  # A row alone is a record if it holds any number.
        return True if {*firsts} - {None, _TEXT} and not _is_run(head) else None
    typed = [
        first == kind
        for first, kind in zip(firsts, head.kinds, strict=True)
        if first is not None and kind not in (None, _TEXT)
    ]
    if not all(typed):
        return False
    return True if typed and not _is_run(head) else None


def _is_run(head: _FirstRows) -> bool:
    """Whether the numbers of the first row are names: 0, 1, 2 … as of pandas, or years.

    No row below it may hold such numbers.
    """
    return _counts_up(head.first) and not any(map(_counts_up, head.others))


def _counts_up(row: Sequence[str]) -> bool:
    texts = [cell for cell in row if _NUMBER.fullmatch(cell)]
    if len(texts) < 2 or not all(text.isdecimal() and len(text) < 9 for text in texts):  # noqa: PLR2004
        return False
    numbers = [*map(int, texts)]
    begins = numbers[0] == 0 or numbers[0] in _YEARS
    return begins and numbers == [*range(numbers[0], numbers[0] + len(numbers))]


def _differ(heads: Sequence[_FirstRows]) -> bool:
    return len({tuple(head.first) for head in heads}) > 1


def _differ_as_records(heads: Sequence[_FirstRows]) -> bool:
    """Whether the first rows of files with equal columns are unlike, as names would not be.

    They have no field in common, or one of them comes again in its column.
    """
    firsts = {tuple(head.first): head for head in heads}
    if len(firsts) < 2 or len({len(first) for first in firsts}) > 1:  # noqa: PLR2004 (several)
        return False
    for kinds in zip(*(head.kinds for head in heads), strict=True):
        if len({*kinds} - {None}) > 1:
            return False
    if len({cell for first in firsts for cell in first}) == sum(map(len, map(set, firsts))):
        return True
    columns = [*zip(*(row for head in heads for row in head.others), strict=True)]
    return any(
        cell in column for first in firsts for cell, column in zip(first, columns, strict=False)
    )
