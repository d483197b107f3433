"""One rank of a run over remote data: prints the records of its batches."""

from __future__ import annotations

import json
import sys

import penstock


def main() -> None:
    url, options, rank, world_size, workers, state = map(json.loads, sys.argv[1:])
    source = penstock.open(url, storage_options=options)
    loader = penstock.DataLoader(
        source,
        {"id": "int64"},
        batch_size=512 // world_size,
        shuffle=True,
        output="arrow",
        rank=rank,
        world_size=world_size,
        num_workers=workers,
    )
    if state:
        loader.load_state_dict(state)
    batches = [batch["id"].to_pylist() for batch in loader]
    print(json.dumps({"batches": batches, "stats": loader.stats(), "why": loader.explain()}))


if __name__ == "__main__":
    main()
