"""Results as tables in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table whose columns line up; the first is text, numbers stand on the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(head, *cells, strict=True)]
    is_text = [any(c.isalpha() for row in cells for c in row[n]) for n in range(len(head))]
    rule = [
        "-" * width if text else "-" * (width - 1) + ":"
        for width, text in zip(widths, is_text, strict=True)
    ]
    return "\n".join(_line(row, widths, is_text) for row in [head, rule, *cells])


def _line(row: Sequence[str], widths: Sequence[int], is_text: Sequence[bool]) -> str:
    padded = (
        cell.ljust(width) if text else cell.rjust(width)
        for cell, width, text in zip(row, widths, is_text, strict=True)
    )
    return f"| {' | '.join(padded)} |"


RATIO_HEAD = [
    "work", "ours", "against", "reference", "ratio", "median (least – most)", "must reach",
    "reached",
]  # fmt: skip


def ratio_cells(row: Mapping[str, Any]) -> list[str]:
    """Return the cells of a work beside its reference, under `RATIO_HEAD`."""
    return [
        row["work"],
        f"{row['ours']:,.0f}",
        row["reference"],
        f"{row['reference_rate']:,.0f}",
        f"{row['ratio']:.2f}",
        f"{row['median_ratio']:.2f} ({row['least_ratio']:.2f} – {row['most_ratio']:.2f})",
        "" if row["must_reach"] is None else f"{row['must_reach']:.2f}",
        {True: "yes", False: "no", None: ""}[row["reached"]],
    ]
