"""What is lost where documents become samples of one size, and how long the plan takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from _rounds import Side
from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SIZES = (512, 2048, 8192)


class PackingRow(TypedDict):
    """One size of samples; parts of all tokens on disk, or of all documents."""

    size: int
    seconds: float
    """Of the plan."""
    longer: float
    """Documents that no sample holds whole."""
    concat_dropped: float
    concat_cut: float
    best_fit_padding: float
    best_fit_cut: float
    alone_padding: float
    """Where each document begins a sample of its own."""


def measure_packing(documents: int, rounds: int) -> Iterator[PackingRow]:
    """Yield a row for each size; the plan's seconds are the best of the rounds."""
    with Side("_tokens_plan.py") as side:
        for size in SIZES:
            found = [side.ask("plan", documents=documents, size=size)[1] for _ in range(rounds)]
            yield PackingRow(size=size, **min(found, key=lambda one: one["seconds"]))


def packing_table(rows: Iterable[PackingRow]) -> str:
    """Return the table of all sizes."""
    head = [
        "tokens of a sample", "concat: dropped", "concat: documents cut", "best fit: padding",
        "best fit: documents cut", "one sample each: padding", "plan: s",
    ]  # fmt: skip
    return table(head, map(_cells, rows))


def _cells(row: PackingRow) -> list[str]:
    names = ("concat_dropped", "concat_cut", "best_fit_padding", "best_fit_cut", "alone_padding")
    return [f"{row['size']:,}", *(_share(row[name]) for name in names), f"{row['seconds']:.2f}"]


def _share(part: float) -> str:
    percent = 100 * part
    if percent < 0.001:
        return "< 0.001 %"
    return f"{percent:.1f} %" if percent >= 1 else f"{percent:.2g} %"
