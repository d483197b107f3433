"""How fast text becomes tokens and tokens become batches, beside tokenizers, a gather and peers.

Every side is a process of its own and works in turn, round after round, on the same warm files.
Prints ratios of the best rounds, and how they vary from round to round.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from _about import about
from _compared import ratio_table
from _tokens_batches import KEY as BATCHES
from _tokens_batches import Batches, peer_table
from _tokens_making import KEY as TOKENISE
from _tokens_making import Making, making_table
from _tokens_packing import measure_packing, packing_table

PACKING = "packing"
ROWS = (BATCHES, TOKENISE, PACKING)
_PLANS = 3
"""Rounds of a plan: all of them do the same."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--tokens", type=int, default=200_000_000, help=f"tokens that row {BATCHES} loads"
    )
    parser.add_argument(
        "--documents", type=int, default=50_000, help=f"documents that row {TOKENISE} tokenises"
    )
    parser.add_argument(
        "--planned", type=int, default=10_000_000, help=f"documents that row {PACKING} packs"
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="rounds of every comparison; 3 where one is long"
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, 2 rounds")
    parser.add_argument(
        "--only", action="append", choices=ROWS, metavar="ROW", help=", ".join(ROWS)
    )
    parser.add_argument("--folder", help="where the files lie; by default where temporary ones do")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    chosen = parser.parse_args()
    chosen.only = chosen.only or ROWS
    if chosen.quick:
        chosen.rounds = 2
        chosen.tokens, chosen.documents = chosen.tokens // 10, chosen.documents // 10
        chosen.planned //= 10
    return chosen


def main() -> None:
    chosen = options()
    results: dict[str, object] = {}
    for key in ROWS:
        if key in chosen.only:
            print(f"measuring {key}", file=sys.stderr)
            measure(key, chosen, results)
    made_with = about(
        "penstock",
        "numpy",
        "torch",
        "tokenizers",
        "tiktoken",
        tokens=chosen.tokens,
        documents=chosen.documents,
        rounds=chosen.rounds,
    )
    if chosen.json:
        print(json.dumps({"about": made_with, **results}, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in made_with.items()))
    print_tables(results)


def measure(key: str, chosen: argparse.Namespace, results: dict) -> None:
    """Add what a row asks for to the results."""
    if key == PACKING:
        results[key] = list(measure_packing(chosen.planned, min(chosen.rounds, _PLANS)))
        results["planned"] = chosen.planned
        return
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=chosen.folder)
        folder = Path(stack.enter_context(temporary))
        print("making the data", file=sys.stderr)
        if key == BATCHES:
            batches = Batches(stack, folder, chosen.tokens, chosen.rounds)
            results[key] = batches.measure()
            results["peers"] = batches.peers
        else:
            making = Making(stack, folder, chosen.documents, chosen.rounds)
            results[key] = list(making.measure())
            results["one core"] = making.references


def print_tables(results: dict) -> None:
    if BATCHES in results:
        print("\nRandom batches, million tokens a second; ratio = ours ÷ reference\n")
        print(ratio_table(results[BATCHES]))
        print("\nPeers: what is needed once; shuffle: 1 is global, 0 is local\n")
        print(peer_table(results["peers"]))
    if TOKENISE in results:
        print("\nFrom JSON Lines to a token folder; ratio = work ÷ reference\n")
        print(making_table(results[TOKENISE]))
        print(f"\nOne core, million tokens a second: {', '.join(results['one core'])}")
    if PACKING in results:
        print(f"\n{results['planned']:,} documents of log-normal length into samples\n")
        print(packing_table(results[PACKING]))


if __name__ == "__main__":
    main()
