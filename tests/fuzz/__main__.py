"""`python -m tests.fuzz`: damage samples of formats, and tell what comes of reading them."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz._engine import fuzz
from tests.fuzz._formats import FORMATS, SEED
from tests.fuzz._outcomes import causes, table


def main() -> int:
    """Run the command; the exit code says whether anything was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--format", choices=FORMATS, action="append", help="default: all")
    parser.add_argument("--count", type=int, default=1000, help="mutations of each format")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--only", type=int, help="the one mutation of this number")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    names = told.format or list(FORMATS)
    numbers = range(told.first, told.first + told.count)
    if told.only is not None:
        numbers = range(told.only, told.only + 1)
    if told.child is not None:
        from tests.fuzz import _child

        _child.main(FORMATS[names[0]](), told.child, told.seed, numbers)
        return 0
    tallies = []
    for name in names:
        began = time.monotonic()
        tallies.append(fuzz(name, told.seed, numbers, told.processes))
        print(causes(tallies[-1].findings), flush=True)
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
    print(table(tallies))
    return any(tally.failures for tally in tallies)


if __name__ == "__main__":
    sys.exit(main())
