"""Random batches of tokens: beside a gather by hand, and beside peers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from _compared import Against, Comparison
from _load_epochs import Epochs
from _load_peers import LOADERS, Loader, exactness
from _peers import python_if_possible
from _rounds import Side
from _table import table
from _tokens_data import FILES, documents_of, samples_of, write_numbers
from _tokens_side import BATCH, LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import ExitStack
    from pathlib import Path

    from _compared import RatioRow
    from _load_side import Look

KEY = "batches"
GATHER_RATIO, FORAGER_RATIO = 0.7, 20
_BARE = "numpy gather of rows, mapped"
_SECONDS = 1.0
"""Of an epoch that are looked at in each round: only slow sides need more."""
_LOOKED_AT = 4.0
"""The same, where the order is."""
_WORKERS = (0, 2)
_WINDOW, _STRIDE = 512, 256
_KNOWN = {loader.program: loader for loader in LOADERS}


def _loader(label: str, program: str, known: str) -> Loader:
    """Return a peer whose environment another job has, too."""
    other = _KNOWN[known]
    return Loader(label, program, other.environment, other.requirements)


_FORAGER = _loader(
    "data-forager 0.2.0, torch DataLoader", "_tokens_load_forager.py", "_load_forager.py"
)
_LITDATA = _loader("LitData 0.2.76, TokensLoader", "_tokens_load_litdata.py", "_load_litdata.py")


class PeerRow(TypedDict):
    """What a peer needs once, and the order that it gives; rates are among the ratios."""

    who: str
    why_not: str | None
    """Why there are no numbers."""
    once_seconds: float | None
    look: Look | None


@dataclass
class Batches:
    """Where and how batches are measured."""

    stack: ExitStack
    folder: Path
    tokens: int
    rounds: int

    def __post_init__(self) -> None:
        documents = documents_of(self.tokens)
        self.samples = samples_of(documents)
        self.peers: list[PeerRow] = []
        self._ours = self.stack.enter_context(Side("_tokens_load_ours.py"))
        self._bare = self.stack.enter_context(Side("_tokens_load_bare.py"))
        self._one = self._written(documents, 1)
        self._many = self._written(documents, FILES)

    def _written(self, documents: int, files: int) -> str:
        """Write a folder of tokens from so many files, and see that its samples are there."""
        numbers = self.folder / f"numbers-{files}"
        write_numbers(numbers, documents, files)
        target = str(self.folder / f"tokens-{files}")
        self._ours.ask("convert", source=str(numbers), target=target)
        look = self._look(self._ours, target, "auto", seconds=600)
        if look["twice"] or look["never"]:
            raise RuntimeError(f"not every sample of {target} came once: {look}")
        return target

    def _look(self, side: Side, path: str, workers: int | str, seconds: float) -> Look:
        how = {"path": path, "workers": workers, "seconds": seconds}
        return side.ask("look", records=self.samples, **how)[1]

    def measure(self) -> list[RatioRow]:
        """Let all work in turn; return one row a reference."""
        bare = Against(_BARE, self._epochs(self._bare, self._one), GATHER_RATIO)
        tensors = Against(
            "the same and torch.from_numpy", self._epochs(self._bare, self._one, to="tensors")
        )
        work = f"samples, {BATCH} × {LENGTH:,} uint16"
        several = f"the same from {FILES} token files"
        whole, cut = f"Tokens({LENGTH})", f"Tokens({_WINDOW}, stride={_STRIDE})"
        return [
            *self._compared(work, self._auto(self._one), [bare, tensors, *self._peers()]),
            *self._compared(
                several,
                self._auto(self._many),
                [Against(_BARE, self._epochs(self._bare, self._one))],
            ),
            *self._labelled(whole, LENGTH, LENGTH),
            *self._labelled(cut, _WINDOW, _STRIDE),
        ]

    def _labelled(self, work: str, length: int, stride: int) -> list[RatioRow]:
        """Measure input ids and labels, int64, beside those made by hand."""
        how = {"length": length, "stride": stride}
        by_hand = self._epochs(self._bare, self._one, to="labels", **how)
        ours = self._auto(self._one, labels=True, **how)
        return self._compared(work, ours, [Against("numpy gather, input_ids and labels", by_hand)])

    def _compared(self, work: str, ours: Epochs, others: list[Against]) -> list[RatioRow]:
        return Comparison(KEY, work, ours, others).measure(self.rounds, ours.records)

    def _auto(self, path: str, **how: object) -> Epochs:
        return self._epochs(self._ours, path, workers="auto", **how)

    def _epochs(self, side: Side, path: str, *, workers: int | str = 0, **how: object) -> Epochs:
        arguments = {"path": path, "workers": workers, "seconds": _SECONDS, **how}
        # In thousand tokens, so that a rate is in millions a second.
        return Epochs(side, "epoch", arguments, records=self.samples * LENGTH // 1000)

    def _peers(self) -> Iterable[Against]:
        for loader, must in ((_FORAGER, FORAGER_RATIO), (_LITDATA, None)):
            row = PeerRow(who=loader.label, why_not=None, once_seconds=None, look=None)
            self.peers.append(row)
            python = python_if_possible(loader.environment, *loader.requirements)
            if python is None:
                row["why_not"] = "does not install here"
                continue
            print(f"preparing {loader.label}", file=sys.stderr)
            side = self.stack.enter_context(Side(loader.program, python))
            path = self._one
            if loader is _LITDATA:
                path = str(self.folder / "for-litdata")
                row["once_seconds"], _ = side.ask("convert", source=self._one, target=path)
            row["look"] = self._look(side, path, 2, _LOOKED_AT)
            for workers in _WORKERS:
                its = self._epochs(side, path, workers=workers)
                label = f"{loader.label}, {workers} workers"
                yield Against(label, its, must if workers == 2 else None)


def peer_table(rows: Iterable[PeerRow]) -> str:
    """Return the table of what comes out of peers, in which order."""
    return table(["who", "once: s", "shuffle", "each sample once"], map(_cells, rows))


def _cells(row: PeerRow) -> list[str]:
    if row["look"] is None:
        return [f"{row['who']}: {row['why_not']}", *[""] * 3]
    once = "" if row["once_seconds"] is None else f"{row['once_seconds']:.1f}"
    return [row["who"], once, f"{row['look']['distance']:.2f}", exactness(row["look"])]
