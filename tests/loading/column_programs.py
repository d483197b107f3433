"""Ranks that all begin at once, over data of which there are no columns yet."""

from __future__ import annotations

from typing import Any

import penstock
from penstock.datasets import list_columns_of
from tests.faults.child import wait_for_the_others

FIELDS = {"n": "int64", "tags": "list<int64>"}


def be_rank(path: str, rank: int, world_size: int) -> dict[str, Any]:
    """Return the records of all batches, and when and where the columns were made."""
    source = penstock.open(path)
    loader = penstock.DataLoader(
        source,
        FIELDS,
        batch_size=50,
        shuffle=True,
        rank=rank,
        world_size=world_size,
        output="arrow",  # Which needs no torch.
    )
    wait_for_the_others()
    batches = [batch["n"].to_pylist() for batch in loader]
    made = [(one.meta.path, one.meta.created, one.folder) for one in list_columns_of(source)]
    return {"batches": batches, "made": made, "why": loader.explain()["columns"]}
