"""How fast any record is fetched by its number, beside a loop written by hand and peers.

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

import _records
import _samples
from _about import about
from _compared import Against, Comparison, LimitRow, RatioRow, limit_table, rate, ratio_table
from _conversion import FORAGER, Conversions, PeerRow, peer_table
from _peers import python_with
from _rounds import Contender, Side, run_rounds

ONE, BATCHES, FIELDS, ZST_ONE, ZST_BLOCKS = "one", "batches", "fields", "zst-one", "zst-blocks"
PEERS = "peers"
ROWS = (ONE, BATCHES, FIELDS, ZST_ONE, ZST_BLOCKS, PEERS)
FORAGER_RATIO, DICTS_RATIO, FIELDS_RATIO, BLOCKS_RATIO = 3, 0.9, 1.7, 0.5
ZST_PER_SECOND, ZST_BYTES = 2000, 128 << 20


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=250_000, help="records in a file")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of every comparison")
    parser.add_argument(
        "--only", action="append", choices=ROWS, metavar="ROW", help=", ".join(ROWS)
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    chosen.only = chosen.only or ROWS
    return chosen


@dataclass
class Bench:
    """Where and how random access is measured."""

    stack: ExitStack
    folder: Path
    records: int
    rounds: int

    def __post_init__(self) -> None:
        self.source = self.folder / "all.jsonl"
        _samples.write_seven_fields(self.source, self.records)
        self.reads = min(self.records, max(1000, self.records // 5))
        self.ours, self.once = self._side("_access_ours.py", "ours")
        self.bare, _ = self._side("_access_bare.py", "bare")

    def _side(
        self, program: str, name: str, python: Path | str = sys.executable
    ) -> tuple[Side, tuple[float, int]]:
        """Start a side that has its dataset open; return it, and what that cost once."""
        side = self.stack.enter_context(Side(program, python))
        target = str(self.folder / name)
        once = side.ask("convert", source=str(self.source), target=target)
        side.ask("open", path=target)
        self._check(side)
        return side, once

    def _check(self, side: Side) -> None:
        side.ask("order", count=self.records, reads=self.reads)
        if wrong := side.ask("check")[1]:
            raise RuntimeError(f"{wrong} records are not those that were asked for")

    def one(self) -> list[RatioRow]:
        """Measure `ds[i]`."""
        python = python_with("forager", f"{FORAGER.package}=={FORAGER.version}")
        forager, _ = self._side("_forager.py", "forager", python)
        others = [
            Against(FORAGER.package, Contender(forager, "one", {}), FORAGER_RATIO),
            Against("mmap slice, `orjson.loads`", Contender(self.bare, "one", {})),
        ]
        return self._compare(ONE, "`ds[i]`, random", Contender(self.ours, "one", {}), others)

    def batches(self) -> list[RatioRow]:
        """Measure batches of whole records."""
        ours = Contender(self.ours, "batches", {})
        others = [self._bare_batches(DICTS_RATIO)]
        return self._compare(BATCHES, "batches of 256, all fields", ours, others)

    def fields(self) -> list[RatioRow]:
        """Measure batches of a few fields, against whole records by hand."""
        side = self.stack.enter_context(Side("_access_ours.py"))
        side.ask("open", path=str(self.folder / "ours"), fields=_samples.THREE)
        self._check(side)
        ours = Contender(side, "batches", {})
        others = [self._bare_batches(FIELDS_RATIO)]
        return self._compare(FIELDS, "batches of 256, 3 of 7 fields", ours, others)

    def _bare_batches(self, must_reach: float) -> Against:
        bare = Contender(self.bare, "batches", {})
        return Against("mmap slices, `orjson.loads`, all fields", bare, must_reach)

    def zst_one(self) -> list[LimitRow]:
        """Measure single records of a compressed file, none from a frame used lately."""
        path = self._zst()
        _, frames = self.ours.ask("one_a_frame", path=path)
        ours = Contender(self.ours, "read_frames", {})
        run_rounds([ours], self.rounds, frames)
        a_second = rate(ours, frames) * 1000
        return [
            LimitRow(
                key=ZST_ONE,
                what="one record of a .zst, frames of 256 KiB, random, each from another frame",
                value=a_second,
                unit="records/s",
                must=f"≥ {ZST_PER_SECOND:,}",
                reached=a_second >= ZST_PER_SECOND,
            )
        ]

    def zst_blocks(self) -> list[RatioRow]:
        """Measure all records of a compressed file, its blocks shuffled."""
        path = self._zst()
        _, records = self.ours.ask("shuffle_blocks", path=path)
        if wrong := self.ours.ask("check_shuffled", ids=self.records)[1]:
            raise RuntimeError(f"{wrong} records are not those that were asked for")
        in_order = {"path": path}
        others = [
            Against(
                "`orjson.loads` over `stream_reader`, in order",
                Contender(self.bare, "read_in_order", in_order),
                BLOCKS_RATIO,
            ),
            Against(
                "our own `JsonlFile`, in order",
                Contender(self.ours, "read_in_order", in_order),
                BLOCKS_RATIO,
            ),
        ]
        label = ".zst in block-shuffled order, batches of 256"
        ours = Contender(self.ours, "read_shuffled", {})
        return Comparison(ZST_BLOCKS, label, ours, others).measure(self.rounds, records)

    def _zst(self) -> str:
        """Return a folder with the records in frames, many more than are kept decompressed."""
        target = self.folder / "zst"
        if not target.exists():
            large, compressed = self.folder / "large.jsonl", self.folder / "all.jsonl.zst"
            _records.write_large(large, self.source, ZST_BYTES)
            _records.compress(large, compressed)
            self.ours.ask("convert", source=str(compressed), target=str(target))
        return str(target)

    def peers(self) -> list[PeerRow]:
        """Measure those who answer by number as well."""
        conversions = Conversions(
            self.ours, self.source, self.records, self.reads // 10, min(self.rounds, 3)
        )
        self.ours.ask("order", count=self.records, reads=self.reads // 10)
        return list(conversions.measure(self.once))

    def _compare(
        self, key: str, label: str, ours: Contender, others: list[Against]
    ) -> list[RatioRow]:
        return Comparison(key, label, ours, others).measure(self.rounds, self.reads)


def main() -> None:
    chosen = options()
    results: dict[str, list] = {"speed": [], "limits": [], "peers": []}
    places = {ZST_ONE: "limits", PEERS: "peers"}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-")))
        print("making the data", file=sys.stderr)
        bench = Bench(stack, folder, chosen.records, chosen.rounds)
        made_with = environment(bench)
        for key in ROWS:
            if key in chosen.only:
                print(f"measuring {key}", file=sys.stderr)
                results[places.get(key, "speed")] += getattr(bench, key.replace("-", "_"))()
    if chosen.json:
        print(json.dumps({"about": made_with, **results}, indent=1))
    else:
        print_tables(made_with, results)


def environment(bench: Bench) -> dict[str, object]:
    return about(
        "penstock",
        "numpy",
        "orjson",
        "msgspec",
        "zstandard",
        record_bytes=round(bench.source.stat().st_size / bench.records),
        records=bench.records,
        reads=bench.reads,
        rounds=bench.rounds,
    )


def print_tables(made_with: dict[str, object], results: dict[str, list]) -> None:
    print(", ".join(f"{name} {value}" for name, value in made_with.items()))
    if results["speed"]:
        print("\nThousand records a second, best of the rounds; ratio = ours ÷ reference\n")
        print(ratio_table(results["speed"]))
    if results["limits"]:
        print("\nOn one core, best of the rounds\n")
        print(limit_table(results["limits"]))
    if results["peers"]:
        print("\nPeers: what is needed once, then thousand records a second\n")
        size = int(made_with["record bytes"]) * int(made_with["records"])
        print(peer_table(results["peers"], size))


if __name__ == "__main__":
    main()
