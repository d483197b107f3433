"""Finds how a CSV file is written: its delimiter and its quotes, by a look at its head."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock._words import warn_once
from penstock.errors import MalformedLineError, OptionError
from penstock.index._heads import head_of
from penstock.index.csv._quotes import find_merged, find_misquoted
from penstock.index.csv._rows import RowFinder
from penstock.index.csv._types import Dialect
from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.index._listing import Found

_log = logging.getLogger("penstock.index")
DELIMITERS = (",", "\t", ";", "|")
_HEAD_BYTES = 64 << 10
_SAMPLE = 8 << 10
_MOSTLY = 0.9
"""Share of rows that must have as many fields as the first one: real files have ragged rows."""
_COMMA_OF_ITS_OWN = re.compile(r"(?<![0-9]),|,(?![0-9])")
"""Not that of a number: in much of the world 1,5 is one and a half."""


class _Look(NamedTuple):
    """The head of a file, read in one way."""

    delimiter: str
    quote: str | None
    escape: str | None
    share: float
    """Of rows with as many fields as the first, which has several; 0 where it has one."""
    is_sure: bool
    """Whether all rows have as many, and no row has quotes that are none."""


def found_options(files: Sequence[Found], given: Mapping[str, Any]) -> dict[str, object]:
    """Return delimiter, quote and escape of the first file that holds text; log what is unusual.

    The files of a source have one dialect.
    """
    file = next((found for found in files if found.entry.size), None)
    names = [found.entry.name for found in files[:1]] if file is None else [file.entry.name]
    usual = "\t" if any(".tsv" in name.lower().rpartition("/")[2] for name in names) else ","
    head = b"" if file is None else head_of(file, _HEAD_BYTES + 1)
    is_whole = len(head) <= _HEAD_BYTES
    found, others = dialect_of(head[:_HEAD_BYTES], is_whole=is_whole, usual=usual, given=given)
    signs: dict[str, object] = {n: sign for n, sign in found.items() if n not in given}
    if file is not None:
        plain = {"delimiter": usual, "quote": '"', "escape": None}
        odd = {name: sign for name, sign in signs.items() if sign != plain[name]}
        if others:
            warn_once(
                _log,
                f"{file.path}: its rows are as even with the delimiter "
                f"{' or '.join(map(repr, others))} as with {found['delimiter']!r}, which is "
                "taken. delimiter= (--delimiter) chooses",
            )
        elif odd:
            shown = ", ".join(f"{name} {sign!r}" for name, sign in odd.items())
            _log.info("%s: found %s in its first rows", file.path, shown)
    return signs


def dialect_of(
    head: bytes, *, is_whole: bool, usual: str = ",", given: Mapping[str, Any] | None = None
) -> tuple[dict[str, str | None], list[str]]:
    r"""Return delimiter, quote and escape of a text, and delimiters that fit as well.

    A delimiter is taken if it cuts all rows into the same number of fields, or nearly all where
    none does so with all; else the usual one.

    >>> dialect_of(b"a;b\n1,5;2,5\n", is_whole=True)[0]
    {'delimiter': ';', 'quote': '"', 'escape': None}
    """
    given = given or {}
    head = head.removeprefix(BOM)
    text = head.decode("latin-1")
    signs = [usual, *(sign for sign in DELIMITERS if sign != usual)]
    signs = [given["delimiter"]] if "delimiter" in given else signs
    looks: list[_Look] = []
    for quote, escape in _quotings(text, signs, given):
        if any(look.is_sure for look in looks):
            break  # Another way to quote is not needed.
        # With commas a lone quote is a mistake; tabs are often used without any quotes.
        fitting = [sign for sign in signs if quote or sign != "," or "quote" in given]
        looks += [_look(head, sign, quote, escape, is_whole=is_whole) for sign in fitting]
    best = max(looks, key=lambda look: (look.is_sure, look.share))
    if best.share < _MOSTLY:
        best = looks[0]
    even = [look for look in looks if look.share == 1 and look[1:3] == best[1:3]]
    if len(even) > 1 and even[0].delimiter == "," and not _COMMA_OF_ITS_OWN.search(text):
        best, even = even[1], even[1:]
    others = [look.delimiter for look in even if look is not best]
    return dict(zip(("delimiter", "quote", "escape"), best[:3], strict=True)), others


def _quotings(
    text: str, signs: Sequence[str], given: Mapping[str, Any]
) -> list[tuple[str | None, str | None]]:
    """Return the signs around fields and before quotes that a text may have, the likeliest first.

    A sign that changes values without need is none: nothing is guessed from a single field.
    """
    quotings: list[tuple[str | None, str | None]] = [('"', None)]
    begin, enclosed = _quoted_fields(text[:_SAMPLE], "'")
    if begin == enclosed and enclosed > 1 and '"' not in text:
        fill_columns = any(_fill_columns(text[:_SAMPLE], sign) for sign in signs)
        quotings.insert(0 if fill_columns else 1, ("'", None))
    if '\\"' in text:
        quotings.append(('"', "\\"))
    if '"' in text:
        quotings.append((None, None))
    return [
        *dict.fromkeys(
            (given.get("quote", quote), given.get("escape", escape)) for quote, escape in quotings
        )
    ]


def _quoted_fields(text: str, quote: str) -> tuple[int, int]:
    """Return how many fields begin with a quote, and how many of those it encloses."""
    begin = rf"(?:^|[,;|\t\r\n]){quote}"
    enclosed = rf"{begin}(?:[^{quote}]|{quote}{quote})*{quote}(?=[,;|\t\r\n]|$)"
    return len(re.findall(begin, text)), len(re.findall(enclosed, text))


def _fill_columns(text: str, delimiter: str) -> bool:
    """Whether all fields of some columns are in single quotes, and none of the others."""
    rows = [row.split(delimiter) for row in text.rpartition("\n")[0].splitlines()[1:]]
    kinds = [
        {cell[0] == cell[-1] == "'" for cell in column if cell}
        for column in zip(*rows, strict=False)
    ]
    return len(rows) > 1 and {True} in kinds and {True, False} not in kinds


def _look(
    head: bytes, delimiter: str, quote: str | None, escape: str | None, *, is_whole: bool
) -> _Look:
    try:
        dialect = Dialect(delimiter, quote, escape)
        dialect.check()
        reader = csv.reader(io.StringIO(head.decode("latin-1"), newline=""), **dialect.of_python())
        counts = [len(row) for row in reader if row]
    except (csv.Error, TypeError, ValueError):  # Options that `Dialect.check` refuses.
        return _Look(delimiter, quote, escape, 0.0, is_sure=False)
    if not is_whole and len(counts) > 1:
        counts.pop()  # Cut off.
    if not counts or counts[0] == 1:
        return _Look(delimiter, quote, escape, 0.0, is_sure=False)
    share = Counter(counts)[counts[0]] / len(counts)
    is_sure = share == 1 and _is_clean(head, dialect, counts[0], is_whole=is_whole)
    return _Look(delimiter, quote, escape, share, is_sure)


def _is_clean(head: bytes, dialect: Dialect, columns: int, *, is_whole: bool) -> bool:
    """Whether quotes enclose whole fields in all rows that end in the head."""
    finder = RowFinder(dialect, "")
    try:
        rows = finder.add(head)
        rows = np.concatenate([rows, finder.finish()]) if is_whole else rows
    except (
        MalformedLineError,
        OptionError,
    ):  # As of JSON; the scan names the file.
        return False
    text = head[: int(rows[-1].sum()) if len(rows) else 0]
    starts = rows[:, 0]
    merged = find_merged(text, starts, dialect, columns)
    return not (merged or find_misquoted(text, starts, dialect))
