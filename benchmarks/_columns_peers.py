"""Peers beside materialised columns: what they need once, and how fast their epochs are then."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from _compared import LimitRow, rate
from _load_epochs import Epochs
from _load_peers import GLOBAL, LOADERS, Loader, PeerLoading
from _peers import python_if_possible
from _rounds import Side
from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from _load_peers import LoaderRow

MUST_REACH = 25
_SECONDS = 2.0
"""Of an epoch that are looked at in each round."""
_LOOKED_AT = 4.0
"""The same, where order and memory are."""
_REPLACED = ("_load_litdata.py", "_load_webdataset.py")
"""Here LitData has the four fields only; WebDataset has no global shuffle, and keeps the text."""
_KNOWN = {loader.program: loader for loader in LOADERS}
_HF, _MOSAIC = _KNOWN["_load_hf.py"], _KNOWN["_load_mosaic.py"]
_HF_ARROW = Loader(
    "HF datasets 5.2.0, rows taken as Arrow", "_columns_hf.py", _HF.environment, _HF.requirements
)
_LITDATA = Loader(
    "LitData 0.2.76, four fields",
    "_columns_litdata.py",
    "load-litdata",
    _KNOWN["_load_litdata.py"].requirements,
)
_LANCE = Loader(
    "Lance 14.0.2", "_columns_lance.py", "load-lance", ("pylance==14.0.2", *_HF.requirements[1:])
)
LOADED = (
    *(loader for loader in LOADERS if loader.program not in _REPLACED),
    _HF_ARROW,
    _LITDATA,
    _LANCE,
)
_FOUR = "four fields"
WRITTEN = (
    (_HF, "whole records"),
    (_LITDATA, f"{_FOUR}, 2 processes"),
    (_MOSAIC, _FOUR),
    (_LANCE, _FOUR),
)
"""Those who write the data anew, and what of it."""


@dataclass(frozen=True)
class ColumnPeers(PeerLoading):
    """Where and how peers are measured; ours works in the caller's thread, as it does by itself."""

    def _fill(self, row: LoaderRow, loader: Loader, side: Side) -> None:
        target = target_of(loader, self.source)
        if not target.exists():
            row["once_seconds"], _ = converted(loader, side, self.source)
        theirs = {"path": str(target), **loader.options}
        how = {"seconds": _SECONDS}
        ours = {"path": self.ours_path, "workers": "auto", **how}
        best = []
        for workers in (0, 2):
            mine = Epochs(self.ours, "epoch", ours, records=self.records)
            its = Epochs(side, "epoch", {**theirs, "workers": workers, **how}, records=self.records)
            self._let_run(mine, its)
            row["rates"].append(rate(its, self.records))
            row["ours_to_it"].append(mine.ratio_to(its).best)
            row["firsts"].append(its.first)
            best.append((rate(mine, self.records), rate(its, self.records)))
        row["best_to_best"] = max(ours for ours, _ in best) / max(it for _, it in best)
        _, row["look"] = side.ask(
            "look", **theirs, workers=2, seconds=_LOOKED_AT, records=self.records
        )


def against_each(rows: Iterable[LoaderRow]) -> Iterator[LimitRow]:
    """Yield how many times as fast as each peer with a global shuffle we are."""
    for row in rows:
        if row["look"] and row["look"]["distance"] >= GLOBAL:
            ratio = row["best_to_best"]
            yield LimitRow(
                key="peers",
                what=f"ours ÷ {row['who']}, each at its best",
                value=ratio,
                unit="×",
                must=f"≥ {MUST_REACH}",
                reached=ratio >= MUST_REACH,
            )


class OnceRow(TypedDict):
    """What has to be done once, before the first epoch."""

    who: str
    why_not: str | None
    """Why there are no numbers."""
    kept: str
    """What of a record is written anew."""
    seconds: float | None
    bytes: int | None


def conversions(source: Path) -> Iterator[OnceRow]:
    """Yield what each peer that writes the data anew takes for it, and leaves on disk."""
    for loader, kept in WRITTEN:
        print(f"measuring what {loader.label} needs once", file=sys.stderr)
        row = OnceRow(who=loader.label, why_not=None, kept=kept, seconds=None, bytes=None)
        python = python_if_possible(loader.environment, *loader.requirements)
        if python is None:
            row["why_not"] = "does not install here"
            yield row
            continue
        with ExitStack() as stack:
            try:
                side = stack.enter_context(Side(loader.program, python))
                row["seconds"], row["bytes"] = converted(loader, side, source)
            except RuntimeError as why:
                row["why_not"] = str(why)
        yield row


def target_of(loader: Loader, source: Path) -> Path:
    """Return where a peer keeps what it made of a file."""
    return source.with_name(f"for-{loader.environment}")


def converted(loader: Loader, side: Side, source: Path) -> tuple[float, int]:
    """Let a peer do once what it needs; return the seconds and the bytes."""
    return side.ask("convert", source=str(source), target=str(target_of(loader, source)))


def once_table(rows: Sequence[OnceRow], source_bytes: int) -> str:
    """Return the table of what everybody needs once; ours is the first row."""
    return table(
        ["who", "writes", "s", "its ÷ ours", "MB", "of the data"],
        (_once_cells(row, rows[0], source_bytes) for row in rows),
    )


def _once_cells(row: OnceRow, ours: OnceRow, source_bytes: int) -> list[str]:
    if row["seconds"] is None or row["bytes"] is None:
        return [f"{row['who']}: {row['why_not']}", row["kept"], *[""] * 4]
    return [
        row["who"],
        row["kept"],
        f"{row['seconds']:.2f}",
        f"{row['seconds'] / ours['seconds']:.2f}",
        f"{row['bytes'] / 1e6:.1f}",
        f"{100 * row['bytes'] / source_bytes:.1f} %",
    ]
