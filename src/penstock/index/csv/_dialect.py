"""Finds how a CSV file is written: its delimiter and its quotes, by a look at its head."""

from __future__ import annotations

import csv
import io
import logging
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock._words import warn_once
from penstock.index._heads import head_of
from penstock.jsonl import BOM

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from penstock.index._listing import Found

_log = logging.getLogger("penstock.index")
DELIMITERS = (",", "\t", ";", "|")
_HEAD_BYTES = 64 << 10
_SAMPLE = 8 << 10
_MOSTLY = 0.9
"""Share of rows that must have as many fields as the first one: real files have ragged rows."""
_COMMA_OF_ITS_OWN = re.compile(r"(?<![0-9]),|,(?![0-9])")
"""Not that of a number: in much of the world 1,5 is one and a half."""
_ESCAPED_QUOTE = re.compile(r'\\"(?![,;|\t\r\n"]|$)')
"""A quote behind a backslash that does not end its field, as that of a Windows path may."""


class _Look(NamedTuple):
    """The head of a file, read in one way."""

    delimiter: str
    quote: str | None
    escape: str | None
    share: float
    """Of rows with as many fields as the first, which has several; 0 where it has one."""


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
    text = head.removeprefix(BOM).decode("latin-1")
    looks: list[_Look] = []
    for look in _looks(text, usual, given, is_whole=is_whole):
        if looks and looks[-1].share == 1 and looks[-1][1:3] != look[1:3]:
            break  # Another way to quote is not needed.
        looks.append(look)
    best = max(looks, key=lambda look: look.share)
    if best.share < _MOSTLY:
        best = looks[0]
    even = [look for look in looks if look.share == 1 and look[1:3] == best[1:3]]
    if len(even) > 1 and even[0].delimiter == "," and not _COMMA_OF_ITS_OWN.search(text):
        best, even = even[1], even[1:]
    others = [look.delimiter for look in even if look is not best]
    return dict(zip(("delimiter", "quote", "escape"), best[:3], strict=True)), others


def _looks(text: str, usual: str, given: Mapping[str, Any], *, is_whole: bool) -> Iterator[_Look]:
    """Yield the ways to read a text, the likeliest first."""
    signs = [usual, *(sign for sign in DELIMITERS if sign != usual)]
    signs = [given["delimiter"]] if "delimiter" in given else signs
    quotings: list[tuple[str | None, str | None]] = [('"', None)]
    if _ESCAPED_QUOTE.search(text):
        quotings.insert(0, ('"', "\\"))
    some = text if len(text) <= _SAMPLE else text[:_SAMPLE].rpartition("\n")[0]
    begin, enclosed = _quoted_fields(some, '"')
    if begin and not enclosed:
        quotings.append((None, None))
    begin, enclosed = _quoted_fields(some, "'")
    if begin and begin == enclosed and '"' not in text:
        quotings.insert(0, ("'", None))
    quotings = [
        (given.get("quote", quote), given.get("escape", escape)) for quote, escape in quotings
    ]
    for quote, escape in dict.fromkeys(quotings):
        for sign in signs:
            # With commas a lone quote is a mistake; tabs are often used without any quotes.
            if quote or sign != "," or "quote" in given:
                share = _evenness(text, sign, quote, escape, is_whole=is_whole)
                yield _Look(sign, quote, escape, share)


def _quoted_fields(text: str, quote: str) -> tuple[int, int]:
    """Return how many fields begin with a quote, and how many of those it encloses."""
    begin = rf"(?:^|[,;|\t\r\n]){quote}"
    enclosed = rf"{begin}(?:[^{quote}]|{quote}{quote})*{quote}(?=[,;|\t\r\n]|$)"
    return len(re.findall(begin, text)), len(re.findall(enclosed, text))


def _evenness(
    text: str, delimiter: str, quote: str | None, escape: str | None, *, is_whole: bool
) -> float:
    try:
        reader = csv.reader(
            io.StringIO(text, newline=""),
            delimiter=delimiter,
            quotechar=quote,
            escapechar=escape,
            quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        )
        counts = [len(row) for row in reader if row]
    except (csv.Error, TypeError, ValueError):  # Options that `Dialect.check` refuses.
        return 0.0
    if not is_whole and len(counts) > 1:
        counts.pop()  # Cut off.
    if not counts or counts[0] == 1:
        return 0.0
    return Counter(counts)[counts[0]] / len(counts)
