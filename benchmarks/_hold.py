"""How long the event loop is held while Penstock reads and writes on it."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, TypedDict

from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from _rounds import Side

_MEASURES = ("callback", "callback_cpu", "bystander")


class HoldRow(TypedDict):
    """The longest holds of each round, in seconds."""

    who: str
    callback: list[float]
    callback_cpu: list[float]
    bystander: list[float]


def measure_holds(ours: Side, data: Path, quick: Path, rounds: int) -> list[HoldRow]:
    """Return rows for an idle loop, one reader, and 50 readers and writers."""
    small = str(data / "small.jsonl")
    ours.ask("load", path=small)
    asked = {
        "nobody (the machine's own noise)": ("hold_idle", {"seconds": 1}),
        "one reader": ("hold_one", {"path": str(data / "plain.jsonl")}),
        "25 readers and 25 writers": ("hold_many", {"path": small, "directory": str(quick)}),
    }
    found: dict[str, list[dict[str, float]]] = {who: [] for who in asked}
    for _ in range(rounds):
        for who, (work, arguments) in asked.items():
            found[who].append(ours.ask(work, **arguments)[1])
    return [
        HoldRow(who=who, **{name: [one[name] for one in each] for name in _MEASURES})
        for who, each in found.items()
    ]


def hold_table(rows: Iterable[HoldRow]) -> str:
    """Return the table of all rows."""
    return table(
        ["on the loop", "one callback", "of it CPU", "a task that wakes each ms is late by"],
        ((row["who"], *(_least_and_median(row[name]) for name in _MEASURES)) for row in rows),
    )


def _least_and_median(seconds: list[float]) -> str:
    return f"{min(seconds) * 1e3:.1f} ({median(seconds) * 1e3:.1f})"
