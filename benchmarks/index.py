"""How fast files are indexed and an index is opened, beside `wc -l` and data-forager.

Every side is a process of its own and works in turn, round after round, on the same warm files.
Prints ratios of the best rounds, and how they vary from round to round.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import _records
import _samples
from _compared import Against, Comparison, LimitRow, RatioRow, limit_table, ratio_table
from _huge import HUGE, measure_opening
from _peers import python_with, version_in
from _rounds import Contender, Side

from penstock._cpus import usable_cpus

PEER, PEER_VERSION = "data-forager", "0.2.0"
SHARDS = 4
WORKS = ("plain", "short", "zst", "csv", "parquet")
OPEN = "open"


def options() -> argparse.Namespace:
    rows = [*WORKS, OPEN]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="records that are indexed")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of every comparison")
    parser.add_argument(
        "--only", action="append", choices=rows, metavar="ROW", help=", ".join(rows)
    )
    parser.add_argument("--samples", type=float, default=HUGE, help="the index of row `open`")
    parser.add_argument("--folder", help="where the files lie; by default where temporary ones do")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    chosen.only = chosen.only or rows
    chosen.records -= chosen.records % SHARDS
    return chosen


@dataclass(frozen=True)
class Bench:
    """Where and how indexing is measured."""

    ours: Side
    bare: Side
    forager: Side
    data: Path
    records: int
    rounds: int

    def measure(self, key: str) -> list[RatioRow]:
        """Return the rows of one kind of file."""
        print(f"measuring {key}", file=sys.stderr)
        return getattr(self, f"_{key}")(key)

    def _plain(self, key: str) -> list[RatioRow]:
        others = [self._wc(key, 0.4), self._data_forager(key, 10)]
        return self._compare(key, "index JSONL, ~460-byte lines", others)

    def _short(self, key: str) -> list[RatioRow]:
        others = [self._data_forager(key, 40), self._wc(key)]
        return self._compare(key, "index JSONL, 40-byte lines", others)

    def _zst(self, key: str) -> list[RatioRow]:
        count = Contender(self.bare, "count_zst", {"path": str(self.data / key)})
        others = [Against("`stream_reader`, newlines counted", count)]
        return self._compare(key, "index JSONL, zst", others)

    def _csv(self, key: str) -> list[RatioRow]:
        path = {"path": str(self.data / "flat.csv")}
        ours = Contender(self.ours, "open_csv", path, before="clear_cache")
        others = [Against("`pyarrow.csv.open_csv`", Contender(self.bare, "read_csv", path))]
        comparison = Comparison(key, "index CSV, 7 columns", ours, others)
        return comparison.measure(self.rounds, self.table_records)

    def _parquet(self, key: str) -> list[RatioRow]:
        path = {"path": str(self.data / "flat.parquet")}
        ours = Contender(self.ours, "open_parquet", path, before="clear_cache")
        others = [
            Against("`pyarrow.parquet.read_metadata`", Contender(self.bare, "read_footer", path))
        ]
        comparison = Comparison(key, "open Parquet, 7 columns", ours, others)
        return comparison.measure(self.rounds, self.table_records)

    @property
    def table_records(self) -> int:
        """Rows of the CSV and Parquet files."""
        return self.records // SHARDS

    def _compare(self, key: str, label: str, others: list[Against]) -> list[RatioRow]:
        path = {"path": str(self.data / key)}
        ours = Contender(self.ours, "index", path, before="clear")
        return Comparison(key, label, ours, others).measure(self.rounds, self.records)

    def _wc(self, key: str, must_reach: float | None = None) -> Against:
        path = {"path": str(self.data / key)}
        return Against("`wc -l`", Contender(self.bare, "count_lines", path), must_reach)

    def _data_forager(self, key: str, must_reach: float) -> Against:
        # The same files, linked: the index of each lies in a folder of its own.
        path = {"path": str(self.data / f"{key}-forager")}
        peer = Contender(self.forager, "index", path, may_stop=True, before="clear")
        return Against(PEER, peer, must_reach)


def make_data(folder: Path, records: int, keys: list[str]) -> None:
    """Write the files of the rows asked for."""
    one = folder / "one.jsonl"
    _records.write_lines(one, records // SHARDS)
    if "plain" in keys:
        _samples.repeat(one, folder / "plain", SHARDS)
    if "short" in keys:
        (folder / "short").mkdir()
        _samples.write_short(folder / "short" / "short.jsonl", records)
    if "zst" in keys:
        (folder / "zst").mkdir()
        for number in range(SHARDS):
            _records.compress(one, folder / "zst" / f"part-{number:05}.jsonl.zst")
    if {"csv", "parquet"} & set(keys):
        _samples.write_tables(folder / "flat.csv", folder / "flat.parquet", records // SHARDS)
    for key in {"plain", "short"} & set(keys):
        (folder / f"{key}-forager").mkdir()
        for file in (folder / key).iterdir():
            os.link(file, folder / f"{key}-forager" / file.name)


def main() -> None:
    chosen = options()
    python = python_with("forager", f"{PEER}=={PEER_VERSION}")
    ratios: list[RatioRow] = []
    limits: list[LimitRow] = []
    with ExitStack() as stack:
        data = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=chosen.folder)
            )
        )
        os.environ["PENSTOCK_CACHE"] = str(data / "cache")
        print("making the data", file=sys.stderr)
        make_data(data, chosen.records, chosen.only)
        bench = Bench(
            stack.enter_context(Side("_index_ours.py")),
            stack.enter_context(Side("_index_bare.py")),
            stack.enter_context(Side("_forager.py", python)),
            data,
            chosen.records,
            chosen.rounds,
        )
        for key in WORKS:
            if key in chosen.only:
                ratios += bench.measure(key)
        if OPEN in chosen.only:
            print("measuring open", file=sys.stderr)
            limits += measure_opening(data, chosen.rounds, int(chosen.samples))
        about = environment(chosen, version_in(python, PEER))
    if chosen.json:
        print(json.dumps({"about": about, "speed": ratios, "open": limits}, indent=1))
    else:
        print_tables(about, ratios, limits)


def environment(chosen: argparse.Namespace, peer_version: str) -> dict[str, object]:
    return {
        "records": chosen.records,
        "rounds": chosen.rounds,
        "cores": usable_cpus(),
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("penstock", "numpy", "pyarrow")},
        PEER: peer_version,
    }


def print_tables(about: dict[str, object], ratios: list[RatioRow], limits: list[LimitRow]) -> None:
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    if ratios:
        print("\nThousand records a second, best of the rounds; ratio = ours ÷ reference\n")
        print(ratio_table(ratios))
    if limits:
        print("\nOpening an index, median of the rounds; memory above `import penstock`\n")
        print(limit_table(limits))


if __name__ == "__main__":
    main()
