"""What a verb prints: lines, tables, JSON documents, reports of both kinds, and progress."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext

import click

from penstock._redact import mask_all, without_secrets
from penstock.cli._units import bytes_text
from penstock.storage import rank
from penstock.work import Bar


def echo(text: str, *, err: bool = False) -> None:
    """Print a line, above a progress bar if there is one."""
    bars = sys.modules.get("tqdm")
    with bars.tqdm.external_write_mode() if bars else nullcontext():
        click.echo(text, err=err)


def echo_json(document: object) -> None:
    """Print one JSON document in plain ASCII, which every locale can print."""
    click.echo(json.dumps(document, indent=2, allow_nan=False, default=as_text))


def without_nonfinite(value: object) -> object:
    """Return a value with NaN and infinities as None, because JSON has no number for them.

    >>> without_nonfinite({"a": [1.5, float("nan")]})
    {'a': [1.5, None]}
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: without_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_text(value: object) -> object:
    r"""Return, as text, a value that JSON cannot hold: times as ISO, bytes as UTF-8 or base64.

    Arrays become lists.

    >>> as_text(dt.date(2026, 1, 31)), as_text(b"abc"), as_text(b"\xff")
    ('2026-01-31', 'abc', '/w==')
    """
    if hasattr(value, "tolist"):  # Of NumPy, which not every verb loads.
        return value.tolist()
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    return str(value)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """Return rows as aligned text, the first `left` columns and the last to the left.

    >>> print(table(["file", "records", "kind"], [["a.jsonl", "5", "plain"]]))
    file     records  kind
    a.jsonl        5  plain
    """
    last = len(header) - 1
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if i < left or i == last else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (header, *rows)
    ]
    return "\n".join(lines)


class Report:
    """What a verb found, collected once and printed as text or as one JSON document.

    Every call adds text and, by keywords, keys of the document; either may be left out.

    >>> report = Report("logs", path="logs")
    >>> report.row("files", "2", files=2)
    >>> report.row("stored", "1.06 MB", bytes=1_060_000)
    >>> print(report.text())
    logs
      files   2
      stored  1.06 MB
    >>> report.document
    {'path': 'logs', 'files': 2, 'bytes': 1060000}
    """

    def __init__(self, *lines: str, width: int = 0, **data: object) -> None:
        self.document = data
        self._width = width
        """Width of the column of row names; 0 fits the longest name."""
        self._parts: list[str | tuple[str, str]] = [*lines]
        self.code = 0
        """Exit code of the verb."""
        self._complaints: tuple[str, ...] = ()

    def data(self, **data: object) -> None:
        """Add keys to the document alone."""
        self.document |= data

    def row(self, name: str, value: str, **data: object) -> None:
        """Add a name and its value."""
        self._parts.append((name, value))
        self.document |= data

    def line(self, *lines: str, **data: object) -> None:
        """Add lines of text."""
        self._parts += lines
        self.document |= data

    def table(
        self, header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, **data: object
    ) -> None:
        """Add an aligned table."""
        self.line(table(header, rows, left=left), **data)

    def complain(self, code: int, *lines: str) -> None:
        """Add lines for stderr; where there are some, the verb exits with the code."""
        self._complaints += lines
        self.code = code if lines else self.code

    def text(self) -> str:
        """Return the report for people."""
        names = [len(part[0]) for part in self._parts if isinstance(part, tuple)]
        width = self._width or max(names, default=0) + 1
        return "\n".join(
            part if isinstance(part, str) else f"  {part[0]:<{width}} {part[1]}"
            for part in self._parts
        )

    def print(self, *, as_json: bool) -> None:
        """Print the report in the form that was asked for, and complaints on stderr."""
        if as_json:
            echo_json(mask_all(self.document))
        elif self._parts:
            echo(without_secrets(self.text()))
        for line in self._complaints:
            echo(f"penstock: {line}", err=True)


class Progress(Bar):
    """A bar in a terminal; elsewhere a line every 30 s. Only rank 0 shows anything.

    `unit` is what is counted in place of bytes, in the plural.
    """

    def __init__(self, total: int, *, every: float = 30.0, unit: str = "B") -> None:
        super().__init__(total, unit=unit)
        self._unit = unit
        self._every = every
        self._start = self._last = time.monotonic()

    def show(self) -> None:
        """Show what was counted, if it is time."""
        super().show()
        is_due = time.monotonic() - self._last >= self._every
        if self._bar is None and is_due and rank() == 0:
            self._last = time.monotonic()
            echo(f"penstock: {self._line()}", err=True)

    def _line(self) -> str:
        rate = self._done / max(1e-9, time.monotonic() - self._start)
        left = f", about {(self._total - self._done) / rate:.0f} s left" if rate else ""
        if self._unit != "B":
            return f"{self._done:,} of {self._total:,} {self._unit} done, {rate:,.0f}/s{left}"
        return (
            f"{bytes_text(self._done)} of {bytes_text(self._total)} read, "
            f"{bytes_text(int(rate))}/s{left}"
        )
