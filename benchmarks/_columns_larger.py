"""Columns larger than what a process may hold: an epoch of them, complete and exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from _compared import LimitRow
from _rounds import Side

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LEAST, _SPREAD = 400, 201
"""Lists have from 400 to 600 values of one digit, kept as float64: four times the text."""
_TIMES = 3
"""How often the columns at least must not fit into what the process may have."""


def write_long_lists(path: Path, records: int) -> None:
    """Write records with an id and a long list that follows from it."""
    digits = ",".join(map(str, range(10))) + ","
    text = digits * ((_LEAST + _SPREAD) // 10 + 2)
    with path.open("w", encoding="ascii") as file:
        for number in range(records):
            first, length = number % 10, _LEAST + number * 7919 % _SPREAD
            tags = text[2 * first : 2 * (first + length) - 1]
            file.write(f'{{"id":{number},"tags":[{tags}]}}\n')


def expected(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lists of some records, one after the other, and their lengths."""
    lengths = _LEAST + ids * 7919 % _SPREAD
    starts = np.repeat(ids % 10 - (lengths.cumsum() - lengths), lengths)
    return (starts + np.arange(len(starts))) % 10, lengths


def _side() -> Side:
    # Arrow's own pool sets a gigabyte of addresses aside, which would count as if it were used.
    return Side("_columns_limited.py", ARROW_DEFAULT_MEMORY_POOL="system")


@dataclass(frozen=True)
class Larger:
    """Where and how it is measured."""

    folder: Path
    records: int = 400_000
    room: int = 128_000_000
    """Bytes that the process may have on top of what it has after a batch of something small."""

    def measure(self) -> Iterator[LimitRow]:
        """Yield all rows; each process is a new one."""
        path, small = (self._data(name, n) for name, n in (("all", self.records), ("small", 2048)))
        begun = {"path": small, "room": self.room}
        asked = {"path": path, "records": self.records}
        with _side() as builder:
            builder.ask("prepare", path=small)
            _, columns = builder.ask("prepare", path=path)
        with _side() as free:
            free.ask("begin", path=small, room=None)
            _, unlimited = free.ask("epoch", **asked)
        with _side() as greedy:
            greedy.ask("begin", **begun)
            _, fits = greedy.ask("hold", path=path)
        with _side() as limited:
            _, most = limited.ask("begin", **begun)
            _, warm = limited.ask("epoch", **asked)
        with _side() as limited:
            limited.ask("forget", path=path)
            limited.ask("begin", **begun)
            _, cold = limited.ask("epoch", **asked)
        yield from self._room(columns, most, fits=fits)
        yield from _epoch("files in the page cache", warm, most, unlimited["rate"])
        yield from _epoch("files not in the page cache before", cold, most, unlimited["rate"])

    def _data(self, name: str, records: int) -> str:
        home = self.folder / name
        home.mkdir(parents=True)
        write_long_lists(home / "all.jsonl", records)
        return str(home)

    def _room(self, columns: int, most: int, *, fits: bool) -> Iterator[LimitRow]:
        yield LimitRow(
            key="larger",
            what=f"columns ({columns / 1e6:,.0f} MB) ÷ all private memory that the process may "
            f"have (RLIMIT_DATA: {most / 1e6:,.0f} MB, of which {self.room / 1e6:,.0f} MB on top "
            "of what any batch takes); pages of mapped files do not count",
            value=columns / most,
            unit="×",
            must=f"≥ {_TIMES}",
            reached=columns / most >= _TIMES,
        )
        yield LimitRow(
            key="larger",
            what="the limit holds: the columns cannot be read into memory (1: so it is)",
            value=float(not fits),
            unit="",
            must="1",
            reached=not fits,
        )


def _epoch(how: str, found: dict[str, float], most: int, unlimited: float) -> Iterator[LimitRow]:
    faults = [
        f"{found[name]:,.0f} {name.replace('_', ' ')}"
        for name in ("wrong_batches", "never", "twice")
        if found[name]
    ]
    yield LimitRow(
        key="larger",
        what=f"most private memory (RssAnon) in an epoch under the limit, {how}; each record "
        f"once, every value right: {', '.join(faults) or 'yes'}",
        value=found["private"] / 1e6,
        unit="MB",
        must=f"≤ {most / 1e6:,.0f}, exact",
        reached=found["private"] <= most and not faults,
    )
    yield LimitRow(
        key="larger",
        what="… and its records a second ÷ those of a process without limit; it had "
        f"{found['from_disk'] / 1e6:,.0f} MB read from disk",
        value=found["rate"] / unlimited,
        unit="×",
        must="",
        reached=None,
    )
