"""The report of a verb: rows, tables and lines for people, the same facts as JSON for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli._terminal import echo, echo_json, table

if TYPE_CHECKING:
    from collections.abc import Sequence


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
        """Of the names of rows; 0 for that of the longest."""
        self._parts: list[str | tuple[str, str]] = [*lines]

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

    def text(self) -> str:
        """Return the report for people."""
        names = [len(part[0]) for part in self._parts if isinstance(part, tuple)]
        width = self._width or max(names, default=0) + 1
        return "\n".join(
            part if isinstance(part, str) else f"  {part[0]:<{width}} {part[1]}"
            for part in self._parts
        )

    def print(self, *, as_json: bool) -> None:
        """Print the report in the form that was asked for."""
        if as_json:
            echo_json(self.document)
        elif self._parts:
            echo(self.text())
