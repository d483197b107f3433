"""What plans cost and save: time and memory of planning, padding, and throughput of a loader.

Each plan is computed in a fresh process. Epochs through a loader are counted in turn, round after
round, each beside the same records in order. A row of the last table is a line of `LOADERS` in
`_plans_side.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TypedDict

from _about import about
from _compared import Against, Comparison, RatioRow, ratio_table
from _plans_side import LOADERS, PLANS
from _rounds import Contender, Side
from _table import table

SIZES = (10**6, 10**7, 10**8)
IN_ORDER = "in order"


class PlanRow(TypedDict):
    """A plan of one epoch."""

    plan: str
    records: int
    seconds: float
    megabytes: float
    """At the peak, beyond the lengths themselves."""
    batches: int
    padding: float
    plain: float


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=float, nargs="+", default=SIZES, help="records of plans")
    parser.add_argument("--records", type=int, default=200_000, help="records of an epoch")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of every comparison")
    parser.add_argument("--only", choices=["plans", "epochs"], help="one half alone")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args()


def measure_plans(sizes: list[int]) -> list[PlanRow]:
    rows = []
    for records in sizes:
        for name in PLANS:
            print(f"planning {records:,} records: {name}", file=sys.stderr)
            with Side("_plans_side.py") as side:
                _, found = side.ask("plan", kind=name, records=records)
            rows.append(PlanRow(plan=name, records=records, **found))
    return rows


def measure_epochs(records: int, rounds: int) -> list[RatioRow]:
    rows: list[RatioRow] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        os.environ["PENSTOCK_CACHE"] = str(Path(folder) / "cache")
        path = str(Path(folder) / "records.jsonl")
        with Side("_plans_side.py") as side:
            side.ask("write", path=path, records=records)
            for name in LOADERS:
                if name == IN_ORDER:
                    continue
                print(f"measuring {name}", file=sys.stderr)
                ours, reference = (
                    Contender(side, "epoch", {"name": one, "path": path})
                    for one in (name, IN_ORDER)
                )
                compared = Comparison(name, name, ours, [Against(IN_ORDER, reference)])
                rows += compared.measure(rounds, records)
    return rows


def plan_table(rows: list[PlanRow]) -> str:
    head = ["plan", "records", "seconds", "MB", "bytes a record", "batches", "padding", "plain"]
    cells = [
        [
            row["plan"],
            f"{row['records']:,}",
            f"{row['seconds']:.2f}",
            f"{row['megabytes']:,.0f}",
            f"{row['megabytes'] * 1e6 / row['records']:.1f}",
            f"{row['batches']:,}",
            f"{100 * row['padding']:.2f} %",
            f"{100 * row['plain']:.1f} %",
        ]
        for row in rows
    ]
    return table(head, cells)


def main() -> None:
    chosen = options()
    plans = [] if chosen.only == "epochs" else measure_plans([*map(int, chosen.sizes)])
    epochs = [] if chosen.only == "plans" else measure_epochs(chosen.records, chosen.rounds)
    facts = about("penstock", "numpy", records=chosen.records, rounds=chosen.rounds)
    if chosen.json:
        print(json.dumps({"about": facts, "plans": plans, "epochs": epochs}, indent=1))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    if plans:
        print("\nThe plan of one epoch: time, memory beyond the lengths, padding\n")
        print(plan_table(plans))
    if epochs:
        print("\nEpochs through a loader, thousand records a second; ratio to the same in order\n")
        print(ratio_table(epochs))


if __name__ == "__main__":
    main()
