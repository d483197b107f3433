"""How fast JSON Lines are read and written, beside a peer and the loops written by hand.

Every side is a process of its own and works in turn, round after round, on the same warm files.
Prints ratios of the best rounds, and how they vary from round to round.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import _records
from _hold import hold_table, measure_holds
from _memory import measure_memory, memory_table
from _peers import python_with, version_in
from _rounds import Side
from _speed import WORKS, Bench, speed_table

from penstock._cpus import usable_cpus

PEER = "flyteplugins-jsonl"
PEER_VERSION = "2.12.1"
SHARDS = 8
MEMORY, LOOP = "memory", "loop"


def options() -> argparse.Namespace:
    rows = [*(work.key for work in WORKS), MEMORY, LOOP]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=250_000, help="records in a file")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of every comparison")
    parser.add_argument(
        "--only", action="append", choices=rows, metavar="ROW", help=", ".join(rows)
    )
    parser.add_argument("--file-bytes", type=float, default=2e9, help="the file of row `memory`")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    chosen.only = chosen.only or rows
    return chosen


def main() -> None:
    chosen = options()
    python = python_with("flyte", f"{PEER}[arrow]=={PEER_VERSION}")
    with ExitStack() as stack:
        data = _folder(stack, None)
        quick = _folder(stack, "/dev/shm" if Path("/dev/shm").is_dir() else None)
        print("making the data", file=sys.stderr)
        make_data(data, chosen.records)
        sides = {
            "ours": stack.enter_context(Side("_ours.py")),
            "bare": stack.enter_context(Side("_bare.py")),
            "flyte": stack.enter_context(Side("_flyte.py", python)),
        }
        bench = Bench(sides, data, quick, chosen.records, chosen.rounds)
        about = environment(data / "plain.jsonl", chosen, version_in(python, PEER))
        results: dict[str, list] = {"speed": [], "memory": [], "loop": []}
        for work in WORKS:
            if work.key in chosen.only:
                print(f"measuring {work.key}", file=sys.stderr)
                results["speed"] += bench.measure(work)
        if LOOP in chosen.only:
            print("measuring the event loop", file=sys.stderr)
            results["loop"] += measure_holds(sides["ours"], data, quick, chosen.rounds)
        if MEMORY in chosen.only:
            print("measuring memory", file=sys.stderr)
            results["memory"] += measure_memory(data / "plain.jsonl", int(chosen.file_bytes))
    if chosen.json:
        print(json.dumps({"about": about, **results}, indent=1))
    else:
        print_tables(about, results)


def _folder(stack: ExitStack, parent: str | None) -> Path:
    return Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=parent))
    )


def make_data(folder: Path, records: int) -> None:
    plain = folder / "plain.jsonl"
    _records.write_lines(plain, records)
    _records.write_lines(folder / "nulls.jsonl", records, nulls=True)
    _records.write_lines(folder / "small.jsonl", max(1, records // 50))
    _records.write_shards(folder / "shards", plain, SHARDS)
    _records.compress(plain, folder / "plain.jsonl.zst")


def environment(plain: Path, chosen: argparse.Namespace, peer_version: str) -> dict[str, object]:
    ours = ("penstock", "orjson", "msgspec", "pyarrow", "zstandard")
    return {
        "record bytes": round(plain.stat().st_size / chosen.records),
        "records": chosen.records,
        "rounds": chosen.rounds,
        "cores": usable_cpus(),
        "Python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ours},
        PEER: peer_version,
    }


def print_tables(about: dict[str, object], results: dict[str, list]) -> None:
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    if results["speed"]:
        print("\nThousand records a second, best of the rounds; ratio = ours ÷ reference\n")
        print(speed_table(results["speed"]))
    if results["memory"]:
        print("\nPeak memory in MB above an interpreter with pyarrow imported\n")
        print(memory_table(results["memory"]))
    if results["loop"]:
        print("\nLongest hold of the event loop in milliseconds, least of the rounds (median)\n")
        print(hold_table(results["loop"]))


if __name__ == "__main__":
    main()
