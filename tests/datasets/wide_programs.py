"""Many fields of few records: how much is done for each of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import penstock

RECORDS = 20


def write_wide(path: Path, fields: int) -> dict[str, str]:
    """Write records of so many fields; return their types."""
    names = [f"f{number:05}" for number in range(fields)]
    with path.open("w") as file:
        for record in range(RECORDS):
            file.write(json.dumps({name: [record, n] for n, name in enumerate(names)}) + "\n")
    return dict.fromkeys(names, "list<int64>")


def work_of_materialize(path: str, fields: int) -> dict[str, Any]:
    """Return how many files were opened and functions called to build columns."""
    types = write_wide(Path(path), fields)
    source = penstock.open(path)
    source.read([0], types)
    source.take([0]).materialize({"f00000": "list<int8>"})  # What is imported and made once.
    counts = {"open": 0, "call": 0}

    def look(event: str, _: object) -> None:
        if event == "open" and counting:
            counts["open"] += 1

    def profile(_: object, event: str, __: object) -> None:
        if event == "call":
            counts["call"] += 1

    counting = True
    sys.addaudithook(look)
    sys.setprofile(profile)
    try:
        source.materialize(types)
    finally:
        sys.setprofile(None)
        counting = False
    return counts
