"""CSV against Python's `csv`."""

from __future__ import annotations

import csv
import io
import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

import penstock
from penstock.datasets import CsvRows
from penstock.errors import MalformedLineError, SchemaMismatchError
from penstock.index.csv._types import Dialect
from tests.fuzz._format import Door, Format, Refused, check
from tests.fuzz._lines import BAD, all_good
from tests.index.test_csv_scan import rows_by_letter

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.datasets import Source
    from tests.fuzz._format import Values

_TEXT = (
    'id,name,price,flag\n1,"Köln, am\nRhein",0.25,true\n2,"a ""b""",,false\n3,,-1e300,true\n'
    '4,"",7,\n,x y,0,true\n9223372036854775807,東京,1,false\n'
)
_ROWS = 6
_LOST = re.compile("[\udc80-\udcff]")
"""What stands for bytes that are no UTF-8."""


class Csv(Format):
    """A file with quotes and line ends in them, and the same with a mark and CRLF."""

    name = "csv"
    rounds = (100, 25_000)
    always = 0

    def make(self, folder: Path) -> None:
        (folder / "a.csv").write_text(_TEXT, newline="")
        text = _TEXT.replace("\n", "\r\n")
        (folder / "b.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())

    def doors(self, folder: Path, damaged: str) -> list[Door]:
        path = folder / damaged
        return [
            Door("open", lambda: _rows(CsvRows(path), slice(None)), all_good),
            Door("one by one", lambda: _one_by_one(CsvRows(path))),
            Door("loader", lambda: _loaded(CsvRows(path)), all_good),
            Door("both", lambda: len(penstock.open(folder)[:]), _shown_both),
            check(path),
        ]

    def reference(self, folder: Path, damaged: str) -> Values:
        """Return the rows as texts; `BAD` for those that have more or fewer than the header."""
        text = (folder / damaged).read_bytes().decode("utf-8-sig", "surrogateescape")
        rows = [row for row in csv.reader(io.StringIO(text, newline="")) if row]
        texts, is_open = rows_by_letter(text, Dialect())
        if not is_open:  # Else the file is refused.
            assert len(texts) == len(rows)
            rows = [
                row if _is_well_quoted(one) else [] for row, one in zip(rows, texts, strict=True)
            ]
        if not rows:
            return []
        if not rows[0] or _LOST.search("".join(rows[0])):
            raise Refused
        return [_good(row, len(rows[0])) for row in rows[1:]]


def _shown_both(rows: list[Any]) -> int:
    return len(all_good(rows)) + _ROWS


def _is_well_quoted(row: str) -> bool:
    try:
        return bool([*csv.reader(io.StringIO(row, newline=""), strict=True)])
    except csv.Error:
        return False


def _good(row: list[str], size: int) -> Any:
    return BAD if len(row) != size or _LOST.search("".join(row)) else row


def _rows(source: Source, ids: Any) -> Values:
    """Return rows as the texts of their fields, each of which its value has to agree with."""
    texts = source.read(ids, dict.fromkeys(source.schema.names, "string")).to_pylist()
    rows = zip(source[ids], texts, strict=True)
    return [
        [_agreed(value, text) for value, text in zip(row.values(), own.values(), strict=True)]
        for row, own in rows
    ]


def _one_by_one(source: Source) -> Values:
    return [_one(source, number) for number in range(len(source))]


def _one(source: Source, number: int) -> Values:
    try:
        return _rows(source, [number])[0]
    except (MalformedLineError, SchemaMismatchError):
        return BAD


def _loaded(source: Source) -> Values:
    loader = penstock.DataLoader(
        source, dict.fromkeys(source.schema.names, "string"), batch_size=4, shuffle=True,
        num_workers=0, output="arrow", materialize=False,
    )  # fmt: skip
    found: dict[int, Any] = {}
    for batch in loader:
        ids = np.frombuffer(batch.schema.metadata[b"penstock.ids"], np.int64)
        rows = [[text or "" for text in row.values()] for row in batch.to_pylist()]
        found.update(zip(ids.tolist(), rows, strict=True))
    return [found[number] for number in sorted(found)]


def _agreed(value: Any, text: str | None) -> str:
    text = text or ""
    fits = text == (value or "")
    if isinstance(value, bool):
        fits = text.lower() == str(value).lower()
    elif isinstance(value, int):
        fits = int(text) == value
    elif isinstance(value, float):
        fits = float(text) == value or (math.isnan(value) and math.isnan(float(text)))
    return text if fits else f"{text!r} as {value!r}"
