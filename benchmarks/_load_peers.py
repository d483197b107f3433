"""Peers that load: what they ask for once, how fast they are then, and what comes out."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from _compared import rate
from _load_epochs import Epochs
from _peers import python_if_possible
from _rounds import Side
from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from _load_side import Look

_TORCH = "torch==2.13.0"
_SECONDS = 2.0
"""Of an epoch that are looked at in each round."""
_HOPELESS = 20.0
"""Seconds of an epoch from which on one look is enough."""
_LOOKED_AT = 4.0
"""The same, where order and memory are."""
GLOBAL = 0.9
"""Neighbours this far apart, in parts of a uniform permutation's, are shuffled globally."""


@dataclass(frozen=True)
class Loader:
    """A peer, its environment, and the program that uses it."""

    label: str
    program: str
    environment: str
    requirements: tuple[str, ...]
    options: dict[str, object] = field(default_factory=dict)


_FORAGER = ("data-forager==0.2.0", _TORCH, "torchdata==0.11.0")
LOADERS = (
    Loader("data-forager 0.2.0, torch DataLoader", "_load_forager.py", "load-forager", _FORAGER),
    Loader(
        "data-forager, torchdata 0.11.0 StatefulDataLoader",
        "_load_forager.py",
        "load-forager",
        _FORAGER,
        {"stateful": True},
    ),
    Loader("HF datasets 5.2.0", "_load_hf.py", "load-hf", ("datasets==5.2.0", _TORCH)),
    # Its torchvision works with no torch for CPUs only, so it brings its own.
    Loader(
        "MosaicML Streaming 0.13.0", "_load_mosaic.py", "mosaic", ("mosaicml-streaming==0.13.0",)
    ),
    Loader("LitData 0.2.76", "_load_litdata.py", "load-litdata", ("litdata==0.2.76", _TORCH)),
    Loader(
        "Grain 0.2.18, ArrayRecord",
        "_load_grain.py",
        "load-grain",
        ("grain==0.2.18", "array-record==0.8.6", _TORCH),
    ),
    Loader(
        "WebDataset 1.0.2, buffer of 10,000",
        "_load_webdataset.py",
        "load-webdataset",
        ("webdataset==1.0.2", _TORCH),
    ),
)


class LoaderRow(TypedDict):
    """One peer; rates in thousand records a second, with 0 and with 2 workers."""

    who: str
    why_not: str | None
    """Why there are no numbers."""
    once_seconds: float | None
    rates: list[float]
    ours_to_it: list[float]
    firsts: list[float]
    look: Look | None
    best_to_best: float | None
    """The faster of ours with 0 and 2 workers ÷ the faster of its."""


@dataclass(frozen=True)
class PeerLoading:
    """Where and how peers are measured."""

    ours: Side
    ours_path: str
    source: Path
    records: int
    rounds: int

    def measure(self, loaders: Sequence[Loader] = LOADERS) -> Iterator[LoaderRow]:
        """Yield a row for each peer."""
        for loader in loaders:
            print(f"measuring {loader.label}", file=sys.stderr)
            yield self._row(loader)

    def _row(self, loader: Loader) -> LoaderRow:
        row = LoaderRow(
            who=loader.label,
            why_not=None,
            once_seconds=None,
            rates=[],
            ours_to_it=[],
            firsts=[],
            look=None,
            best_to_best=None,
        )
        python = python_if_possible(loader.environment, *loader.requirements)
        if python is None:
            row["why_not"] = "does not install here"
            return row
        with ExitStack() as stack:
            try:
                self._fill(row, loader, stack.enter_context(Side(loader.program, python)))
            except RuntimeError as why:
                row["why_not"] = str(why)
        return row

    def _fill(self, row: LoaderRow, loader: Loader, side: Side) -> None:
        target = self.source.with_name(f"for-{loader.environment}")
        if not target.exists():
            row["once_seconds"], _ = side.ask(
                "convert", source=str(self.source), target=str(target)
            )
        theirs = {"path": str(target), **loader.options}
        best = []
        for workers in (0, 2):
            how = {"workers": workers, "seconds": _SECONDS}
            mine = Epochs(self.ours, "epoch", {"path": self.ours_path, **how}, records=self.records)
            its = Epochs(side, "epoch", {**theirs, **how}, records=self.records)
            self._let_run(mine, its)
            row["rates"].append(rate(its, self.records))
            row["ours_to_it"].append(mine.ratio_to(its).best)
            row["firsts"].append(its.first)
            best.append((rate(mine, self.records), rate(its, self.records)))
        row["best_to_best"] = max(ours for ours, _ in best) / max(it for _, it in best)
        _, row["look"] = side.ask(
            "look", **theirs, workers=2, seconds=_LOOKED_AT, records=self.records
        )

    def _let_run(self, mine: Epochs, its: Epochs) -> None:
        """Let both work in turn; whoever would take all day does so once."""
        seconds, _ = its.ask()  # Warm: caches, imports.
        mine.ask()
        if seconds > _HOPELESS:
            its.seconds.append(seconds)
            mine.run()
            return
        for _ in range(self.rounds):
            mine.run()
            its.run()


def best_with_global_shuffle(rows: Iterable[LoaderRow]) -> LoaderRow | None:
    """Return the fastest peer whose shuffle is global."""
    some = [row for row in rows if row["look"] and row["look"]["distance"] >= GLOBAL]
    return max(some, key=lambda row: max(row["rates"]), default=None)


def loader_table(rows: Iterable[LoaderRow]) -> str:
    """Return the table of all peers."""
    head = [
        "who", "once: s", "0 workers", "ours ÷ it", "2 workers", "ours ÷ it ", "first batch: s",
        "a worker's MB", "shuffle", "each record once",
    ]  # fmt: skip
    return table(head, map(_cells, rows))


def _cells(row: LoaderRow) -> list[str]:
    who = row["who"] if row["why_not"] is None else f"{row['who']}: {row['why_not']}"
    once = "" if row["once_seconds"] is None else f"{row['once_seconds']:.1f}"
    look = row["look"]
    if look is None:
        return [who, once, *[""] * 8]
    numbers = zip(row["rates"], row["ours_to_it"], strict=True)
    rates = [text for its, ratio in numbers for text in (f"{its:,.1f}", f"{ratio:,.1f}")]
    first = " / ".join(f"{seconds:.2f}" for seconds in row["firsts"])
    memory = [f"{size / 1e6:.0f}" for size in look["memory"]]
    return [
        who, once, *rates, first, f"{memory[0]} → {memory[-1]}", f"{look['distance']:.2f}",
        exactness(look),
    ]  # fmt: skip


def exactness(look: Look) -> str:
    """Say whether each record came once."""
    if look["twice"]:
        return f"{look['twice']:,} twice"
    if look["cut"]:
        return "not seen to the end"
    return f"{look['never']:,} never" if look["never"] else "yes"
