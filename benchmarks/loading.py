"""How fast shuffled epochs of JSON Lines become tensors, beside a loop written by hand and peers.

Every side is a process of its own and works in turn, round after round, on the same warm files.
Prints ratios of the best rounds, and how they vary from round to round.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from _about import about
from _compared import LimitRow, RatioRow, limit_table, rate, ratio_table
from _load_epochs import Epochs
from _load_limits import Limits
from _load_peers import PeerLoading, best_with_global_shuffle, loader_table
from _load_records import write_tagged
from _rounds import Side, run_rounds
from _table import table

if TYPE_CHECKING:
    from _load_peers import LoaderRow

EPOCHS, LIMITS, PEERS = "epochs", "limits", "peers"
ROWS = (EPOCHS, LIMITS, PEERS)
MUST_REACH = {0: 0.8, "auto": None, 2: 1.3}
PEER_RATIO = 6
_WHOLE = 600.0
"""Seconds that no epoch of ours takes."""
_STAGES = ("read", "decode", "encode", "wait")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="records in the file")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every comparison")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, 2 rounds")
    parser.add_argument(
        "--only", action="append", choices=ROWS, metavar="ROW", help=", ".join(ROWS)
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    chosen.only = chosen.only or ROWS
    if chosen.quick:
        chosen.records, chosen.rounds = chosen.records // 10, 2
    return chosen


@dataclass
class Bench:
    """Where and how loading is measured."""

    stack: ExitStack
    folder: Path
    records: int
    rounds: int

    def __post_init__(self) -> None:
        self.source = self.folder / "all.jsonl"
        write_tagged(self.source, self.records)
        self.ours, self.ours_path = self._side("_load_ours.py", "ours")
        self.bare, self.bare_path = self._side("_load_bare.py", "bare")

    def _side(self, program: str, name: str) -> tuple[Side, str]:
        side = self.stack.enter_context(Side(program))
        target = str(self.folder / name)
        side.ask("convert", source=str(self.source), target=target)
        return side, target

    def _epochs(self, side: Side, path: str, workers: int | str) -> Epochs:
        how = {"path": path, "workers": workers, "seconds": _WHOLE}
        return Epochs(side, "epoch", how, records=self.records)

    def epochs(self) -> tuple[list[RatioRow], list[LimitRow]]:
        """Measure whole epochs against the ceiling, all in the same rounds."""
        ceiling = self._epochs(self.bare, self.bare_path, 0)
        ours = {n: self._epochs(self.ours, self.ours_path, n) for n in MUST_REACH}
        run_rounds([ceiling, *ours.values()], self.rounds, self.records)
        rows = [self._row(workers, mine, ceiling) for workers, mine in ours.items()]
        firsts = [
            LimitRow(
                key="first",
                what=f"first batch, {name}",
                value=one.first * 1000,
                unit="ms",
                must="",
                reached=None,
            )
            for name, one in [
                ("the loop by hand", ceiling),
                *((f"workers: {workers}", mine) for workers, mine in ours.items()),
            ]
        ]
        return rows, firsts

    def _row(self, workers: int | str, mine: Epochs, ceiling: Epochs) -> RatioRow:
        ratio, must = mine.ratio_to(ceiling), MUST_REACH[workers]
        return RatioRow(
            key=EPOCHS,
            work=f"shuffled epoch to tensors, workers: {workers}",
            ours=rate(mine, self.records),
            reference="one process: mmap slices, msgspec, numpy",
            reference_rate=rate(ceiling, self.records),
            ratio=ratio.best,
            median_ratio=ratio.median,
            least_ratio=ratio.least,
            most_ratio=ratio.most,
            must_reach=must,
            reached=None if must is None else round(ratio.best, 2) >= must,
        )

    def stages(self) -> list[dict[str, object]]:
        """Return where the loader says that the time went, in microseconds a record."""
        found = []
        for workers in MUST_REACH:
            _, stats = self.ours.ask("stages", path=self.ours_path, workers=workers)
            each = {name: stats[f"{name}_seconds"] * 1e6 / stats["records"] for name in _STAGES}
            found.append({"workers": workers, **each})
        return found

    def limits(self) -> list[LimitRow]:
        """Measure what is promised beside speed."""
        rounds = min(self.rounds, 5)
        return list(Limits(self.ours, self.ours_path, self.folder, self.records, rounds).measure())

    def peers(self) -> list[LoaderRow]:
        """Measure those who load as well."""
        rounds = min(self.rounds, 2)
        peers = PeerLoading(self.ours, self.ours_path, self.source, self.records, rounds)
        return list(peers.measure())


def main() -> None:
    chosen = options()
    results: dict[str, list] = {"speed": [], "stages": [], "limits": [], "peers": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        print("making the data", file=sys.stderr)
        bench = Bench(stack, folder, chosen.records, chosen.rounds)
        made_with = environment(bench)
        if EPOCHS in chosen.only:
            print(f"measuring {EPOCHS}", file=sys.stderr)
            results["speed"], results["limits"] = bench.epochs()
            results["stages"] = bench.stages()
        if LIMITS in chosen.only:
            print(f"measuring {LIMITS}", file=sys.stderr)
            results["limits"] += bench.limits()
        if PEERS in chosen.only:
            results["peers"] = bench.peers()
            results["limits"] += against_the_best(results["peers"])
    if chosen.json:
        print(json.dumps({"about": made_with, **results}, indent=1))
    else:
        print_tables(made_with, results)


def against_the_best(rows: list[LoaderRow]) -> list[LimitRow]:
    """Return how many times as fast as the fastest peer with a global shuffle we are."""
    best = best_with_global_shuffle(rows)
    if best is None:
        return []
    ratio = best["best_to_best"]
    return [
        LimitRow(
            key=PEERS,
            what=f"ours ÷ the best peer with a global shuffle ({best['who']}), each at its best",
            value=ratio,
            unit="×",
            must=f"≥ {PEER_RATIO}",
            reached=ratio >= PEER_RATIO,
        )
    ]


def environment(bench: Bench) -> dict[str, object]:
    return about(
        "penstock",
        "numpy",
        "pyarrow",
        "msgspec",
        "torch",
        record_bytes=round(bench.source.stat().st_size / bench.records),
        records=bench.records,
        rounds=bench.rounds,
    )


def print_tables(made_with: dict[str, object], results: dict[str, list]) -> None:
    print(", ".join(f"{name} {value}" for name, value in made_with.items()))
    if results["speed"]:
        print("\nThousand records a second, best of the rounds; ratio = ours ÷ reference\n")
        print(ratio_table(results["speed"]))
    if results["stages"]:
        print("\nWhere our loader says the time goes, µs a record, summed over its workers\n")
        rows = [
            [row["workers"], *(f"{row[name]:.2f}" for name in _STAGES)] for row in results["stages"]
        ]
        print(table(["workers", *_STAGES], rows))
    if results["limits"]:
        print("\nNumbers that stand for themselves\n")
        print(limit_table(results["limits"]))
    if results["peers"]:
        print("\nPeers: what is needed once, then thousand records a second\n")
        print(loader_table(results["peers"]))


if __name__ == "__main__":
    main()
