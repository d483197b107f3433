"""Peers that answer by record number: what they ask for once, and how fast they are then."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from _compared import rate
from _peers import python_if_possible, version_in
from _rounds import Contender, Side, run_rounds
from _table import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Peer:
    """A package, and the program that uses it."""

    package: str
    version: str
    program: str
    more: tuple[str, ...] = ()
    """What else must be installed."""

    @property
    def label(self) -> str:
        """Name and version."""
        return f"{self.package} {self.version}"

    def python(self) -> Path | None:
        """Return the Python that has it, or None where it cannot be installed."""
        name = self.program.strip("_").removesuffix(".py").replace("_", "-")
        return python_if_possible(name, f"{self.package}=={self.version}", *self.more)


FORAGER = Peer("data-forager", "0.2.0", "_forager.py")
PEERS = (
    FORAGER,
    Peer("datasets", "5.2.0", "_hf.py"),
    Peer("mosaicml-streaming", "0.13.0", "_mosaic.py"),
    Peer("litdata", "0.2.76", "_litdata.py", ("torch==2.13.0",)),
    Peer("array-record", "0.8.6", "_array_record.py"),
)


class PeerRow(TypedDict):
    """One way to get records by number; rates in thousand records a second."""

    who: str
    why_not: str | None
    """Why there are no numbers."""
    once_seconds: float | None
    once_bytes: int | None
    one: float | None
    batches: float | None
    ours_to_one: float | None
    ours_to_batches: float | None


@dataclass(frozen=True)
class Conversions:
    """Where and how peers are measured."""

    ours: Side
    """It has its dataset open and knows the order."""
    source: Path
    records: int
    reads: int
    rounds: int

    def measure(self, once: tuple[float, int], peers: Sequence[Peer] = PEERS) -> Iterator[PeerRow]:
        """Yield a row for Penstock, whose one-time cost is given, and one for each peer."""
        ours = Contender(self.ours, "one", {}), Contender(self.ours, "batches", {})
        for mine in ours:
            run_rounds([mine], self.rounds, self.reads)
        rates = [rate(mine, self.reads) for mine in ours]
        yield PeerRow(
            who="penstock",
            why_not=None,
            once_seconds=once[0],
            once_bytes=once[1],
            one=rates[0],
            batches=rates[1],
            ours_to_one=None,
            ours_to_batches=None,
        )
        for peer in peers:
            print(f"measuring {peer.label}", file=sys.stderr)
            yield self._row(peer)

    def _row(self, peer: Peer) -> PeerRow:
        python = peer.python()
        row = PeerRow(
            who=peer.package,
            why_not=None,
            once_seconds=None,
            once_bytes=None,
            one=None,
            batches=None,
            ours_to_one=None,
            ours_to_batches=None,
        )
        if python is None:
            row["why_not"] = "does not install here"
            return row
        row["who"] = f"{peer.package} {version_in(python, peer.package)}"
        with ExitStack() as stack:
            try:
                side = stack.enter_context(Side(peer.program, python))
                self._fill(row, peer, side)
            except RuntimeError as why:
                row["why_not"] = str(why)
        return row

    def _fill(self, row: PeerRow, peer: Peer, side: Side) -> None:
        target = str(self.source.with_name(f"for-{peer.package}"))
        row["once_seconds"], row["once_bytes"] = side.ask(
            "convert", source=str(self.source), target=target
        )
        _, has_batches = side.ask("open", path=target)
        side.ask("order", count=self.records, reads=self.reads)
        if wrong := side.ask("check")[1]:
            raise RuntimeError(f"{wrong} wrong records")
        row["one"], row["ours_to_one"] = self._beside(side, "one")
        if has_batches:
            row["batches"], row["ours_to_batches"] = self._beside(side, "batches")

    def _beside(self, side: Side, work: str) -> tuple[float, float]:
        """Return a peer's rate, and how many times as fast we are in the same rounds."""
        ours, peer = Contender(self.ours, work, {}), Contender(side, work, {}, may_stop=True)
        run_rounds([ours, peer], self.rounds, self.reads)
        return rate(peer, self.reads), ours.ratio_to(peer).best


def peer_table(rows: Iterable[PeerRow], source_bytes: int) -> str:
    """Return the table of all peers."""
    head = [
        "who", "once: s", "once: MB", "of the data", "one by one", "ours ÷ it", "batches of 256",
        "ours ÷ it ",
    ]  # fmt: skip
    return table(
        head,
        (
            (
                row["who"] if row["why_not"] is None else f"{row['who']}: {row['why_not']}",
                _number(row["once_seconds"], 2),
                _number(None if row["once_bytes"] is None else row["once_bytes"] / 1e6, 1),
                _share(row["once_bytes"], source_bytes),
                _number(row["one"], 1),
                _number(row["ours_to_one"], 1),
                _number(row["batches"], 1),
                _number(row["ours_to_batches"], 1),
            )
            for row in rows
        ),
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _share(part: int | None, whole: int) -> str:
    return "" if part is None else f"{100 * part / whole:.0f} %"
