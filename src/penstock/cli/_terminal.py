"""What a person or a program sees: lines, tables, one JSON document, progress."""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import click

from penstock.cli._fields import as_text
from penstock.cli._units import bytes_text
from penstock.storage import rank

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

_EVERY = 30.0


def echo(text: str, *, err: bool = False) -> None:
    """Print a line, above a progress bar if there is one."""
    bars = sys.modules.get("tqdm")
    with bars.tqdm.external_write_mode() if bars else nullcontext():
        click.echo(text, err=err)


def echo_json(document: object) -> None:
    """Print one JSON document; plain ASCII, so that nothing in it can fail to be printed."""
    click.echo(json.dumps(document, indent=2, allow_nan=False, default=as_text))


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


class Progress:
    """How much of the stored bytes has been read: a bar in a terminal, else a line now and then.

    `read` may be called in any one thread, `show` in the main one. Only rank 0 shows anything.
    `unit` is what is counted in place of bytes, in the plural.
    """

    def __init__(self, total: int, *, every: float = _EVERY, unit: str = "B") -> None:
        self._total = total
        self._unit = unit
        self._every = every
        self._read = 0
        self._start = self._last = time.monotonic()
        self._shown = rank() == 0
        self._bar: Any = None
        if self._shown and sys.stderr.isatty():
            from tqdm import tqdm  # noqa: PLC0415 (only for a terminal)

            self._bar = tqdm(
                total=total,
                unit=unit if unit == "B" else f" {unit}",
                unit_scale=True,
                delay=0.5,
                leave=False,
                dynamic_ncols=True,
            )

    def read(self, count: int) -> None:
        """Note that bytes were read."""
        # Some bytes are read twice (the table at the end of a file): never pass the total.
        self._read = min(self._total, self._read + count)

    def add(self, count: int) -> None:
        """Note that bytes were read, and show it; see `penstock.work.View`."""
        self.read(count)
        self.show()

    def show(self) -> None:
        """Let the user see where we are, if it is time."""
        if self._bar is not None:
            self._bar.update(self._read - self._bar.n)
        elif self._shown and time.monotonic() - self._last >= self._every:
            self._last = time.monotonic()
            echo(f"penstock: {self._line()}", err=True)

    def _line(self) -> str:
        rate = self._read / max(1e-9, time.monotonic() - self._start)
        left = f", about {(self._total - self._read) / rate:.0f} s left" if rate else ""
        if self._unit != "B":
            return f"{self._read:,} of {self._total:,} {self._unit} done, {rate:,.0f}/s{left}"
        return (
            f"{bytes_text(self._read)} of {bytes_text(self._total)} read, "
            f"{bytes_text(int(rate))}/s{left}"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()
