"""How fast materialised columns become batches, beside a gather by hand and peers; what they cost.

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
from _columns_growth import Growth, growth_table
from _columns_larger import Larger
from _columns_peers import LOADED, ColumnPeers, OnceRow, against_each, conversions, once_table
from _compared import Against, Comparison, LimitRow, RatioRow, limit_table, ratio_table
from _load_epochs import Epochs
from _load_peers import loader_table
from _load_records import write_tagged
from _rounds import Contender, Side, run_rounds

if TYPE_CHECKING:
    from _load_peers import LoaderRow

GATHER, LOADER, ONCE, PEERS, LARGER, GROWTH = (
    "gather",
    "loader",
    "once",
    "peers",
    "larger",
    "growth",
)
ROWS = (GATHER, LOADER, ONCE, PEERS, LARGER)
WORK = "3 scalars + 1 ragged list, batches of 1024, random"
GATHER_RATIO, LOADER_RATIO, ONCE_RATIO = 0.6, 0.5, 1.5
BARE = {"numpy, arrays in memory": False, "numpy, mapped arrays": True}
_WHOLE = 600.0
"""Seconds that no epoch here takes."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records in the file")
    parser.add_argument("--times", type=int, default=10, help=f"as many of them in row {GROWTH}")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every comparison")
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, 2 rounds")
    parser.add_argument(
        "--only",
        action="append",
        choices=(*ROWS, GROWTH),
        metavar="ROW",
        help=f"{', '.join(ROWS)}; and {GROWTH}, which is made only when it is named: 10 M "
        "records need 6 GB of disk",
    )
    parser.add_argument("--folder", help="where the files lie; by default where temporary ones do")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    chosen.only = chosen.only or ROWS
    if chosen.quick:
        chosen.records, chosen.rounds = chosen.records // 10, 2
    return chosen


@dataclass
class Bench:
    """Where and how columns are measured."""

    stack: ExitStack
    folder: Path
    records: int
    rounds: int

    def __post_init__(self) -> None:
        self.source = self.folder / "all.jsonl"
        write_tagged(self.source, self.records)
        self.ours, self.ours_path = self._side("_columns_ours.py", "ours")
        self.bare, self.bare_path = self._side("_columns_bare.py", "bare")
        self._check()

    def _side(self, program: str, name: str) -> tuple[Side, str]:
        side = self.stack.enter_context(Side(program))
        target = str(self.folder / name)
        side.ask("convert", source=str(self.source), target=target)
        return side, target

    def _check(self) -> None:
        """Raise if what is gathered or loaded is not what the lines say, on both sides."""
        found = set()
        for side, path in ((self.ours, self.ours_path), (self.bare, self.bare_path)):
            found.update(side.ask("digests", path=path, records=self.records)[1])
        if len(found) > 1:
            raise RuntimeError("the columns are not what decoding gives")

    def gather(self) -> list[RatioRow]:
        """Measure batches by record number, without a loader."""
        how = {"records": self.records}
        others = [
            Against(
                label,
                Contender(self.bare, "gather", {"path": self.bare_path, "mapped": mapped, **how}),
                GATHER_RATIO,
            )
            for label, mapped in BARE.items()
        ]
        ours = Contender(self.ours, "gather", {"path": self.ours_path, **how})
        work = f"materialised columns, {WORK}"
        return Comparison(GATHER, work, ours, others).measure(self.rounds, self.records)

    def loader(self) -> list[RatioRow]:
        """Measure shuffled epochs to tensors."""
        others = [
            Against(
                f"{label}, to tensors",
                self._epochs(self.bare, path=self.bare_path, workers=0, mapped=mapped),
                LOADER_RATIO,
            )
            for label, mapped in BARE.items()
        ]
        ours = self._epochs(self.ours, path=self.ours_path, workers="auto")
        work = f"shuffled epoch to tensors over them, {WORK}"
        return Comparison(LOADER, work, ours, others).measure(self.rounds, self.records)

    def _epochs(self, side: Side, **how: object) -> Epochs:
        return Epochs(side, "epoch", {**how, "seconds": _WHOLE}, records=self.records)

    def once(self) -> tuple[OnceRow, LimitRow]:
        """Measure what has to be done before the first epoch."""
        path = {"path": self.ours_path}
        # An index that is made anew has no columns: so they are made after it, in each round.
        index = Contender(self.ours, "index", path)
        build = Contender(self.ours, "materialize", path, before="drop")
        decode = Contender(self.bare, "decode", {"path": str(self.source)})
        run_rounds([index, build, decode], min(self.rounds, 5), self.records)
        _, sizes = self.ours.ask("sizes", **path)
        times = 1 / build.ratio_to(decode).best
        limit = LimitRow(
            key=ONCE,
            what=f"materialising four fields of {self.records:,} records ({min(build.seconds):.2f} "
            "s) ÷ one typed decode pass of the file on one core",
            value=times,
            unit="×",
            must=f"≤ {ONCE_RATIO}",
            reached=round(times, 2) <= ONCE_RATIO,
        )
        ours = OnceRow(
            who="penstock, index and columns",
            why_not=None,
            kept="four fields",
            seconds=min(index.seconds) + min(build.seconds),
            bytes=sum(sizes),
        )
        return ours, limit

    def peers(self) -> list[LoaderRow]:
        """Measure those who load as well."""
        rounds = min(self.rounds, 2)
        peers = ColumnPeers(self.ours, self.ours_path, self.source, self.records, rounds)
        return list(peers.measure(LOADED))

    def larger(self) -> list[LimitRow]:
        """Measure columns that the process may not hold."""
        return list(Larger(self.folder / "larger").measure())

    def growth(self, times: int) -> list:
        """Measure the same with more records."""
        grown = Growth(self.source, self.folder, self.records, min(self.rounds, 3))
        return list(grown.measure(times))


def main() -> None:
    chosen = options()
    results: dict[str, list] = {"speed": [], "once": [], "limits": [], "peers": [], "growth": []}
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=chosen.folder)
        folder = Path(stack.enter_context(temporary))
        print("making the data", file=sys.stderr)
        bench = Bench(stack, folder, chosen.records, chosen.rounds)
        made_with = environment(bench)
        for key in (*ROWS, GROWTH):
            if key in chosen.only:
                print(f"measuring {key}", file=sys.stderr)
                measure(key, bench, chosen, results)
        source_bytes = bench.source.stat().st_size
    if chosen.json:
        print(json.dumps({"about": made_with, **results}, indent=1))
    else:
        print_tables(made_with, results, source_bytes)


def measure(key: str, bench: Bench, chosen: argparse.Namespace, results: dict[str, list]) -> None:
    """Add what a row asks for to the results."""
    if key == GATHER:
        results["speed"] += bench.gather()
    elif key == LOADER:
        results["speed"] += bench.loader()
    elif key == ONCE:
        ours, limit = bench.once()
        results["once"] = [ours, *conversions(bench.source)]
        results["limits"].append(limit)
    elif key == PEERS:
        results["peers"] = bench.peers()
        results["limits"] += against_each(results["peers"])
    elif key == LARGER:
        results["limits"] += bench.larger()
    else:
        results["growth"] = bench.growth(chosen.times)


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


def print_tables(made_with: dict[str, object], results: dict[str, list], source_bytes: int) -> None:
    print(", ".join(f"{name} {value}" for name, value in made_with.items()))
    if results["speed"]:
        print("\nThousand records a second, best of the rounds; ratio = ours ÷ reference\n")
        print(ratio_table(results["speed"]))
    if results["limits"]:
        print("\nNumbers that stand for themselves\n")
        print(limit_table(results["limits"]))
    if results["once"]:
        print("\nWhat is needed once, from the JSON Lines to what an epoch reads\n")
        print(once_table(results["once"], source_bytes))
    if results["peers"]:
        print("\nPeers: what is needed once, then thousand records a second; ours: no workers\n")
        print(loader_table(results["peers"]))
    if results["growth"]:
        print("\nGrowth; thousand records a second, private memory in MB\n")
        print(growth_table(results["growth"]))


if __name__ == "__main__":
    main()
